"""A server of events that is killed and started again, while a client listens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventsClient, listening
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.ports import free_port

from .receiving import PATIENCE, OrderShipped, settle

NAME = "order_shipped"


class Shop:
    """A process of `shop_server`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self, line: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert (await self.process.stdout.readline()).decode().strip() == line

    async def ship(self, *orders: str) -> None:
        assert self.process.stdin is not None
        for order in orders:
            self.process.stdin.write(f"{order}\n".encode())
            await self.says("kept")


@asynccontextmanager
async def shop_at(port: int, path: Path) -> AsyncIterator[Shop]:
    """A process, which is killed at the end."""
    command = [sys.executable, "-m", "tests.mcp.extensions.events.shop_server", str(port), str(path)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).strip() == b"ready"  # a start takes what it takes
        yield Shop(process)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("mode", ["push", "poll"])
async def test_each_event_comes_once_though_its_server_is_killed(
    mode: Any, revision: Revision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "PAUSES", (0.01, 0.1))
    port, path, got = free_port(), tmp_path / "shop.db", list[str]()
    events = EventsClient(min_poll=0.001)
    client = Client(f"http://127.0.0.1:{port}/mcp", revision=revision, extensions=[events])

    async def follow(cursor: str) -> None:
        async with events.listen(NAME, mode=mode, cursor=cursor) as found:
            async for one in found:
                assert not one.truncated
                got.append(one.read(OrderShipped).order)

    async with shop_at(port, path) as shop:
        await client.__aenter__()
        start = await client.request("events/poll", {"name": NAME})
        following = asyncio.create_task(follow(start.cursor))
        await shop.ship("1", "2")
        await settle(lambda: got == ["1", "2"])
    async with shop_at(port, path) as shop:
        await shop.ship("3")
    async with shop_at(port, path) as shop:
        await shop.ship("4")
        await settle(lambda: len(got) >= 4 or following.done())
        assert got == ["1", "2", "3", "4"]
        await client.close()
        await asyncio.wait([following])
        assert following.exception() is None
