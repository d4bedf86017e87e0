"""`ctx.store` and shared rates with several workers: `dragoman serve --workers 2 --store ...`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman import RpcError
from dragoman.rpc.peer import Peer

from .conftest import Starter, one_for_each

SERVICE = """\
import os
from dragoman import Caller, Context, Service
from dragoman.channel import Identity
from dragoman.middleware import rate_limit
from dragoman.rpc.middleware import Call

limited = rate_limit(0.001, burst=3, by=lambda call: "everybody", shared=True)


async def some(call, next):
    return await (limited(call, next) if call.method == "rated" else next(call))


async def known(call, next):  # as a guard would on a wire that has one
    call.context._site.origin.caller = Caller(identity=Identity(subject="ada"))
    return await next(call)


api = Service("kept", middleware=[some, known])


@api.method
async def pid() -> int:
    return os.getpid()


@api.method
async def put(key: str, ctx: Context) -> None:
    await ctx.store.set(key, os.getpid())


@api.method
def all(ctx: Context) -> dict[str, int]:
    return {key: ctx.store.get(key) for key in ctx.store.keys()}


@api.method
async def rated() -> int:
    return os.getpid()
"""


@pytest.mark.parametrize("kind", ["sqlite", "bus"])
async def test_workers_share_the_store_and_the_rates(
    kind: str, starter: Starter, peers: list[Peer], tmp_path: Path
) -> None:
    starter.file.write_text(SERVICE)
    store = "bus" if kind == "bus" else f"sqlite:{tmp_path}/state.db"
    run = await starter.serve("tcp://127.0.0.1:0", "--store", store)
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    await asyncio.gather(*(peer.call("put", [f"{pid}-{n}"]) for n in range(20) for pid, peer in found.items()))
    kept = {f"{pid}-{n}": pid for n in range(20) for pid in found}
    assert [await peer.call("all") for peer in found.values()] == [kept, kept]
    assert [await rated(peer) for _ in range(3) for peer in found.values()] == [True] * 3 + [False] * 3


async def rated(peer: Peer) -> bool:
    """Whether a call is within the rate."""
    try:
        await peer.call("rated", result=int)
    except RpcError as error:
        assert error.message == "Busy: 0.001 calls a second are allowed"  # noqa: PT017
        return False
    return True


async def test_in_memory_each_worker_has_its_own(starter: Starter, peers: list[Peer]) -> None:
    starter.file.write_text(SERVICE)
    run = await starter.serve("tcp://127.0.0.1:0")
    found = await one_for_each(run.urls[0], list(run.pids.values()), peers)
    for pid, peer in found.items():
        await peer.call("put", ["k"])
        assert await peer.call("all") == {"k": pid}
