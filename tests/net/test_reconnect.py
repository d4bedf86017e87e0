"""How to come back: pauses between attempts, the loop that tries again, and what the log says of an outage."""

from __future__ import annotations

import itertools
import logging
import time

import pytest

from dragoman.net.reconnect import OutageLog, backoff, reconnect


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
    assert trouble.stands(True, "RabbitMQ", "") is False
    changes = [trouble.stands(False, "RabbitMQ", "it does not answer") for _ in range(14)]
    assert changes == [True] + [False] * 13
    assert trouble.stands(True, "RabbitMQ", "") is True
    assert [trouble.stands(False, "RabbitMQ", "closed") for _ in range(5)] == [True] + [False] * 4
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
