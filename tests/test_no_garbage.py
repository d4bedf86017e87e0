"""A call leaves nothing to the garbage collector: what it made is freed with its last reference, so that the collector
does not run after so many calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dragoman import Peer, connect, serve
from dragoman.mcp import Client, HttpOptions, Server
from tests.calculator import calculator

pytestmark = pytest.mark.usefixtures("small_heap")

CALLS = 40
ROUNDS = 3
Once = Callable[[], Awaitable[object]]


def tools(*, json: bool) -> Server:
    """One tool that is answered immediately, one that waits, one in a thread."""
    app = Server("tools", http=HttpOptions(json=json))

    @app.tool
    async def ready() -> int:
        return 1

    @app.tool
    async def waits() -> int:
        await asyncio.sleep(0)
        return 1

    @app.tool
    def plain() -> int:
        return 1

    return app


@asynccontextmanager
async def peers(url: str) -> AsyncIterator[Peer]:
    async with serve(calculator(), urls=[url]) as serving, connect(serving.urls[0]) as peer:
        yield peer


async def garbage(once: Once) -> int:
    """The objects of `CALLS` calls that only the collector can free. What a call leaves is left in every round; what
    else ends in this process meanwhile (a thread, what a test before this one began) is in one of them."""
    for _ in range(5):  # what is made once, and kept
        await once()
    gc.collect()
    gc.disable()
    try:
        left = []
        for _ in range(ROUNDS):
            for _ in range(CALLS):
                await once()
            left.append(gc.collect())
        return min(left)
    finally:
        gc.enable()


@pytest.mark.parametrize("url", ["memory:garbage", "tcp://127.0.0.1:0", "http://127.0.0.1:0/", "ws://127.0.0.1:0/"])
@pytest.mark.parametrize("batched", [False, True], ids=["call", "batch"])
async def test_a_call_leaves_no_garbage(url: str, batched: bool) -> None:
    async with peers(url) as peer:

        async def batch() -> None:
            async with peer.batch() as calls:
                calls.call("subtract", [42, 23])
                calls.call("update", [1])

        async def call() -> None:
            await peer.call("subtract", [42, 23])

        assert await garbage(batch if batched else call) < CALLS


@pytest.mark.parametrize("tool", ["ready", "waits", "plain"])
@pytest.mark.parametrize("wire", ["process", "http", "stream", "tcp"])
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_tools_call_leaves_no_garbage(tool: str, wire: str, revision: str) -> None:
    app = tools(json=wire == "http")
    url = "tcp://127.0.0.1:0" if wire == "tcp" else "http://127.0.0.1:0/mcp"
    async with serve(app, urls=[url]) as serving:
        target = app if wire == "process" else serving.urls[0]
        async with Client(target, revision=revision) as client:
            assert await garbage(lambda: client.call_tool(tool)) < CALLS
