"""One server that several `serve` blocks serve at once: each drains its own calls, channels and subscriptions."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dragoman import LocalError, serve
from dragoman.bus import open_bus
from dragoman.channel_errors import Ended
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.behind import behind
from tests.transports.ends import until

WIRES = ["tcp://127.0.0.1:0", "unix:{folder}/{name}", "http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp"]
REVISIONS = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)


class Slow:
    """A tool that waits until it may go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = 0
        self.server = Server("twice", keys="k" * 32)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.one)

    async def wait(self) -> str:
        self.began += 1
        await self.go.wait()
        return "done"

    def one(self) -> int:
        return 1

    async def begun(self, number: int) -> None:
        await until(lambda: self.began == number)


@REVISIONS
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("ends", [0, 1])
async def test_the_end_of_one_is_not_the_end_of_the_other(
    wire: str, revision: Revision, ends: int, tmp_path: Path
) -> None:
    slow = Slow()
    async with AsyncExitStack() as stack:
        servings = [
            await stack.enter_async_context(serve(slow.server, urls=wire.format(folder=tmp_path, name=name)))
            for name in "ab"
        ]
        clients = [
            await stack.enter_async_context(Client(serving.urls[0], revision=revision.date)) for serving in servings
        ]
        goes, stays = clients[ends], clients[1 - ends]
        told = await stack.enter_async_context(stays.subscribe(tools=True))
        last = await stack.enter_async_context(goes.subscribe(tools=True))
        calls = [asyncio.create_task(client.call_tool("wait")) for client in clients]
        await slow.begun(2)
        closing = asyncio.create_task(servings[ends].close())
        await asyncio.sleep(0)
        assert (await stays.call_tool("one")).text == "1"
        assert not closing.done()
        slow.go.set()
        async with asyncio.timeout(10):
            assert [(await call).text for call in calls] == ["done", "done"]
            await closing
        assert (await stays.call_tool("one")).text == "1"
        slow.server.add_tool(lambda: 2, name="two", description="More.")
        async with asyncio.timeout(10):
            assert (await anext(told)).kind == "tools"
            if not (wire.startswith("http") and revision.stateful):  # there a client tries again
                with pytest.raises((StopAsyncIteration, Ended, OSError)):
                    await anext(last)
        again = await stack.enter_async_context(serve(slow.server, urls=wire.format(folder=tmp_path, name="c")))
        async with Client(again.urls[0], revision=revision.date) as third:
            assert (await third.call_tool("two")).text == "2"


async def test_the_last_one_leaves_the_bus() -> None:
    slow = Slow()
    bus = await open_bus("memory:twice")
    async with serve(slow.server, urls="tcp://127.0.0.1:0", bus=bus):
        with pytest.raises(LocalError, match="open it once for all"):
            async with serve(slow.server, urls="tcp://127.0.0.1:0", bus="memory:twice"):
                pass
        async with serve(slow.server, urls="http://127.0.0.1:0/mcp", bus=bus) as second:
            assert behind(slow.server).shared is not None
        assert behind(slow.server).shared is not None
        assert second.urls
    assert behind(slow.server).shared is None
