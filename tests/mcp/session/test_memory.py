"""The logs of finished streams that one process keeps: each for its time, under one timer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.session.log import KeptLogs, MemoryLog
from dragoman.rpc.deadlines import GRAIN, DeadlineClock
from tests.behind import behind

from ..http_tools import tools
from ..http_wire import Place, body, served


async def test_each_log_is_kept_for_its_time() -> None:
    clock, now = DeadlineClock(asyncio.get_running_loop()), 100.0
    clock.now = lambda: now
    kept = KeptLogs(clock, 10.0)
    kept.keep("first", MemoryLog(1, 1))
    now = 104.0
    kept.keep("second", MemoryLog(1, 1))
    assert clock.left(kept) == pytest.approx(6.0)
    now = 110.0
    clock.drop(kept)
    kept.expired()
    assert [*kept.logs] == ["second"]
    assert clock.left(kept) == pytest.approx(4.0 - GRAIN)
    now = 114.0
    clock.drop(kept)
    kept.expired()
    assert not kept.logs
    assert clock.left(kept) is None
    clock.close()


async def test_a_log_that_is_dropped_leaves_the_others_their_time() -> None:
    clock, now = DeadlineClock(asyncio.get_running_loop()), 100.0
    clock.now = lambda: now
    kept = KeptLogs(clock, 10.0)
    kept.keep("first", MemoryLog(1, 1))
    del kept.logs["first"]
    now = 107.0
    kept.keep("second", MemoryLog(1, 1))
    assert clock.left(kept) == pytest.approx(10.0)
    clock.close()


def kept_one(place: Place) -> Any:
    """The one session of a server."""
    (peer,) = behind(place.server).host.peers
    return peer._channel


async def test_a_session_has_its_whole_time_from_its_beginning_on() -> None:
    server, _ = tools(http=HttpOptions(session_idle=50.0))
    async with served(server) as place:
        sitting = await place.begin()
        session = kept_one(place)
        clock, table = behind(server).host.clock, session.table
        left = clock.left(table)
        assert left is not None
        assert 40 < left <= 50 + GRAIN
        table.expired()
        assert not session.ended
        session.used = float("-inf")
        table.expired()
        assert session.ended
        assert (await sitting.post(body("ping"))).status == 404
        assert clock.left(table) is None


async def test_a_session_that_was_only_begun_has_its_time_too() -> None:
    server, _ = tools()
    async with served(server) as place:
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        assert (await place.ask(body("initialize", asked))).status == 200
        session = kept_one(place)
        assert session.used > 0


async def test_a_session_that_is_only_read_is_in_use() -> None:
    server, _ = tools()
    async with served(server) as place:
        sitting = await place.begin()
        session = kept_one(place)
        async with sitting.get() as home:
            await home.next()
            for _ in range(2):
                session.used = float("-inf")
                session.table.expired()
                assert not session.ended
        assert (await sitting.post(body("ping"))).status == 200


async def test_what_would_wait_in_memory_is_a_fault() -> None:
    server, _ = tools()
    async with served(server) as place:
        await place.begin()
        with pytest.raises(AssertionError, match="waited"):
            kept_one(place).table.run(asyncio.sleep(0))
