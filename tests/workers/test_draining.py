"""A reload and an end by signals, on every wire: no call of a peer that connects again is refused, lost or run twice,
and no worker waits for who has gone.

The drain may take ten minutes here, so a worker that waited for a far end that has gone would outlast the test.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.channel import Broken
from dragoman.mcp import Client
from dragoman.rpc.peer import Peer
from dragoman.transports.broker.contract import Unroutable
from tests.behind import behind
from tests.engines.brokers import Engine
from tests.ports import free_port

from .conftest import PATIENCE, Starter, Supervised, alive, gone

SERVICE = """\
import asyncio, os
from dragoman import Service

api = Service("counted")


@api.method(inline=True)
def quick(number: int) -> int:
    print(f"ran {number}\\n", end="", flush=True)
    return os.getpid()


@api.method
async def brief(number: int) -> int:
    print(f"ran {number}\\n", end="", flush=True)
    await asyncio.sleep(0)
    return os.getpid()


@api.method(timeout=None)
async def hold(gate: str) -> int:
    print("holding\\n", end="", flush=True)
    while not os.path.exists(gate):
        await asyncio.sleep(0.01)
    return os.getpid()
"""
TOOLS = """\
import os
from dragoman.mcp import Server

api = Server("counted")


@api.tool
async def pid() -> int:
    return os.getpid()


@api.resource("note://one")
def one() -> str:
    return "one"
"""
STREAMS = ["http", "ws", "tcp", "unix"]
BROKERS = ["rabbitmq", "mosquitto", "nats", "redis"]


@pytest.fixture(params=[*STREAMS, *BROKERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One of each wire, with a port of its own that stays the same."""
    if request.param == "unix":
        yield f"unix:{tmp_path / 's'}"
    elif request.param in STREAMS:
        yield f"{request.param}://127.0.0.1:{free_port()}"
    else:
        engine: Engine = request.getfixturevalue(request.param)
        yield f"{engine.url}/{tmp_path.name.replace('_', '-')}"


async def answered(peer: Peer, method: str, number: int) -> int:
    """Call; while there is no server at all, which HTTP and some brokers say at once, again. So where a request met
    the end of an idle connection of HTTP on its way: the caller is told, and nothing has run, as `ran` shows."""
    while True:
        try:
            return await peer.call(method, [number], result=int)
        except Broken as why:
            channel = behind(peer)._channel
            met_the_end = channel is not None and not channel.duplex and why.reason in ("hung_up", "reset")
            if not met_the_end and why.reason != "refused" and not isinstance(why, Unroutable):
                raise
            await asyncio.sleep(0.05)


class Load:
    """Callers that call without a pause until `end`."""

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.sent: list[int] = []
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, peer: Peer, method: str) -> None:
        self._tasks.append(asyncio.create_task(self._call(peer, method)))

    async def _call(self, peer: Peer, method: str) -> None:
        while not self._over.is_set():
            number = len(self.sent)
            self.sent.append(number)
            self.answers[await answered(peer, method, number)] += 1
            await asyncio.sleep(0.001)

    async def until(self, pids: set[int], count: int = 20) -> None:
        """So many calls have been answered by these."""
        before = sum(self.answers[pid] for pid in pids)
        async with asyncio.timeout(PATIENCE):
            while sum(self.answers[pid] for pid in pids) < before + count:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """The last ones are answered."""
        self._over.set()
        await asyncio.gather(*self._tasks)


def leave_half_closed(url: str, gate: str) -> None:
    """A program that is killed while its call runs."""
    if url.startswith("unix:"):
        far = socket.socket(socket.AF_UNIX)
        far.connect(url.removeprefix("unix:"))
    else:
        far = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    far.sendall(b'{"jsonrpc":"2.0","id":1,"method":"hold","params":["%b"]}\n' % gate.encode())
    far.close()


def ran(*runs: Supervised) -> list[int]:
    """What the workers have run."""
    return sorted(int(line.split()[1]) for run in runs for line in run.out.all if line.startswith("ran "))


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=["SIGHUP", "SIGTERM"])
async def test_no_call_is_lost(starter: Starter, url: str, number: signal.Signals) -> None:
    starter.file.write_text(SERVICE)
    run = second = await starter.serve(url, "--drain", "600", workers=2)
    first = set(run.pids.values())
    load = Load()
    options: Any = {"timeout": PATIENCE, "reconnect": not url.startswith(("amqp", "mqtt", "nats", "redis"))}
    async with connect(url, **options) as one, connect(url, **options) as two, connect(url, **options) as idle:
        await idle.call("quick", [-1])
        for peer, method in ((one, "brief"), (one, "brief"), (one, "quick"), (two, "brief")):
            load.begin(peer, method)
        await load.until(first)
        if url.startswith(("tcp", "unix")):
            for _ in range(3):
                leave_half_closed(url, str(starter.folder / "never"))
                await run.out.until("holding")
        run.signal(number)
        if number is signal.SIGHUP:
            await run.ready(2)
            for pid in first:
                await gone(pid)
        else:
            assert await run.ended() == 0
            second = await starter.serve(url, "--drain", "600", workers=2)
        pids = set(second.pids.values())
        assert not pids & first
        await load.until(pids)
        assert await idle.call("quick", [-2]) in pids
        await load.end()
    for one_of in {run, second}:
        if one_of.process.poll() is None:
            one_of.signal(signal.SIGTERM)
            assert await one_of.ended() == 0
            await asyncio.to_thread(one_of.out.close)
    assert ran(*{run, second}) == [-2, -1, *load.sent]
    print(f"{len(load.sent)} calls, answered by {dict(load.answers)}")


@pytest.mark.parametrize("url", ["tcp", "unix", "ws", "http"], indirect=True)
async def test_who_waits_for_an_answer_keeps_no_other_waiting(starter: Starter, url: str) -> None:
    starter.file.write_text(SERVICE)
    run = await starter.serve(url, "--drain", "600", workers=1)
    old, gate = run.pids[1], starter.folder / "gate"
    async with connect(url, timeout=PATIENCE) as patient, connect(url, timeout=PATIENCE, reconnect=True) as peer:
        held = asyncio.create_task(patient.call("hold", [str(gate)], result=int))
        await run.out.until("holding")
        assert await peer.call("quick", [0]) == old
        run.signal(signal.SIGHUP)
        (new,) = await run.ready(1)
        async with asyncio.timeout(PATIENCE):
            while await peer.call("brief", [1]) != new:
                pass
        assert alive(old)
        gate.touch()
        assert await held == old
        await gone(old)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=["SIGHUP", "SIGTERM"])
async def test_no_worker_waits_for_subscriptions(starter: Starter, number: signal.Signals) -> None:
    starter.file.write_text(TOOLS)
    run = await starter.serve("http://127.0.0.1:0/mcp", "--drain", "600", workers=2)
    (url,), first = run.urls, set(run.pids.values())
    async with (
        Client(url, revision="2025-11-25") as old,
        Client(url, revision="2026-07-28") as new,
        old.subscribe(["note://one"]),
        new.subscribe(["note://one"], tools=True),
    ):
        assert await pid(old) in first
        assert await pid(new) in first
        run.signal(number)
        if number is signal.SIGTERM:
            assert await run.ended() == 0
            return
        await run.ready(2)
        for one in first:
            assert await pid(new) in first | set(run.pids.values())
            assert await pid(old) in first | set(run.pids.values())
            await gone(one)
        assert await pid(new) in set(run.pids.values())
        assert await pid(old) in set(run.pids.values())


async def pid(client: Client) -> int:
    """Which worker answers."""
    result = await client.call_tool("pid", {})
    return int(result.text)
