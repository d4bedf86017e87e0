"""What all posts share, without a broker: pauses between attempts, and what the log says of an outage."""

from __future__ import annotations

import itertools
import logging
import time

import pytest

from dragoman.transports.broker_life import Trouble, pauses


def test_pauses_grow_and_are_jittered() -> None:
    taken = list(itertools.islice(pauses(0.1, 2.0), 200))
    assert all(
        0.5 * longest <= pause <= longest for pause, longest in zip(taken, (0.1, 0.2, 0.4, 0.8, 1.6), strict=False)
    )
    assert all(1.0 <= pause <= 2.0 for pause in taken[5:])
    assert len(set(taken)) > 190


def test_a_trouble_is_told_once_and_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    clock = itertools.count(1000.0, 10.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    trouble = Trouble("amqp://host/queue")
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
