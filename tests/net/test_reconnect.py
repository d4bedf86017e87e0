"""How to come back: pauses between attempts, the loop that tries again, and what the log says of an outage."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

import pytest

from dragoman.net.reconnect import Keeper, OutageLog, backoff, reconnect


def test_pauses_grow_and_are_jittered() -> None:
    taken = list(itertools.islice(backoff(0.1, 2.0), 200))
    assert all(
        0.5 * longest <= pause <= longest for pause, longest in zip(taken, (0.1, 0.2, 0.4, 0.8, 1.6), strict=False)
    )
    assert all(1.0 <= pause <= 2.0 for pause in taken[5:])
    assert len(set(taken)) > 190


async def test_the_loop_tries_again_what_may_pass_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.net.reconnect.backoff", lambda first, longest: iter([0.0] * 10))
    faults: list[Exception] = [ConnectionRefusedError("one"), TimeoutError("two")]
    told: list[Exception] = []
    left = list(faults)

    async def attempt() -> str:
        if left:
            raise left.pop(0)
        return "connected"

    assert await reconnect(attempt, (0.1, 2.0), failed=told.append) == "connected"
    assert told == faults
    left += [ConnectionResetError("three"), ValueError("four")]
    with pytest.raises(ValueError, match="four"):
        await reconnect(attempt, (0.1, 2.0), failed=told.append)
    assert [str(why) for why in told] == ["one", "two", "three"]


def test_a_trouble_is_told_once_and_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    clock = itertools.count(1000.0, 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    trouble = OutageLog("amqp://host/queue")
    trouble.log_state(True, "RabbitMQ", "")
    for _ in range(14):
        trouble.log_state(False, "RabbitMQ", "it does not answer")
    trouble.log_state(True, "RabbitMQ", "")
    for _ in range(5):
        trouble.log_state(False, "RabbitMQ", "closed")
    said = [(record.levelname, record.message) for record in caplog.records if record.levelno > logging.DEBUG]
    lost = "amqp://host/queue: RabbitMQ is lost, coming back:"
    assert said == [
        ("WARNING", f"{lost} it does not answer"),
        ("WARNING", f"{lost} it does not answer (for 60 s now)"),
        ("WARNING", f"{lost} it does not answer (for 120 s now)"),
        ("INFO", "amqp://host/queue: RabbitMQ is back"),
        ("INFO", f"{lost} closed"),  # the last warning is not a minute old
        ("WARNING", f"{lost} closed (for 40 s now)"),
    ]
    assert len(caplog.records) == 20


class Kept:
    """A connection that is lost by `lose`, and what its keeper reports."""

    def __init__(self) -> None:
        self.faults: list[Exception] = []
        self.tries = 0
        self.reports: list[tuple[bool, str]] = []
        self.reported = asyncio.Event()
        self.lost: asyncio.Future[str]
        self.keeper = Keeper(self._connect, self._watch, (0.0, 0.0), in_words=str, faults=(OSError,))
        self.keeper.states.append(self._state)

    async def _connect(self) -> str:
        self.tries += 1
        if self.faults:
            raise self.faults.pop(0)
        self.lost = asyncio.get_running_loop().create_future()
        return "" if self.tries == 1 else "something may be lost"

    async def _watch(self) -> str:
        return await self.lost

    def _state(self, alive: bool, why: str) -> None:
        assert self.keeper.alive is alive
        self.reports.append((alive, why))
        if alive:
            self.reported.set()

    async def lose(self) -> None:
        self.lost.set_result("gone")
        self.reported.clear()
        await self.reported.wait()


async def test_a_connection_is_made_again_and_each_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Kept()
    keeper = one.keeper
    assert (keeper.alive, keeper.why, keeper.young) == (False, "not connected yet", False)
    await keeper.open()
    assert (keeper.alive, keeper.young, one.reports) == (True, False, [])
    one.faults += [ConnectionRefusedError("one"), TimeoutError("two")]
    await one.lose()
    assert one.reports == [(False, "gone"), (False, "one"), (False, "two"), (True, "something may be lost")]
    assert keeper.gap > 0
    assert keeper.young
    monkeypatch.setattr("dragoman.net.reconnect.RECONNECT_GRACE", 0.0)
    assert not keeper.young
    await keeper.close()
    assert (keeper.alive, keeper.closed, keeper.why) == (False, True, "this end is closed")
    assert len(one.reports) == 4


async def test_a_first_try_that_fails_is_raised_and_says_why() -> None:
    one = Kept()
    one.faults.append(ConnectionRefusedError("refused"))
    with pytest.raises(ConnectionRefusedError):
        await one.keeper.open()
    assert (one.keeper.alive, one.keeper.why, one.reports) == (False, "refused", [])
    await one.keeper.close()
