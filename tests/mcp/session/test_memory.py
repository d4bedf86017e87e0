"""The logs of finished streams that one process keeps: each for its time, under one timer."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.mcp.session.log import MemoryLog
from dragoman.mcp.session.memory import KeptLogs
from dragoman.rpc.deadlines import GRAIN, Clock


async def test_each_log_is_kept_for_its_time() -> None:
    clock, now = Clock(asyncio.get_running_loop()), 100.0
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
    clock, now = Clock(asyncio.get_running_loop()), 100.0
    clock.now = lambda: now
    kept = KeptLogs(clock, 10.0)
    kept.keep("first", MemoryLog(1, 1))
    del kept.logs["first"]
    now = 107.0
    kept.keep("second", MemoryLog(1, 1))
    assert clock.left(kept) == pytest.approx(10.0)
    clock.close()
