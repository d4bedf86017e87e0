"""The numbers, by the letter of what was promised."""

from __future__ import annotations

import pytest

from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import CLIENT, SERVER, Limits

MIB = 1024 * 1024


def test_defaults() -> None:
    assert Limits() == SERVER
    assert (
        Limits(
            message_size=4 * MIB,
            response_size=10 * MIB,
            batch_length=1_000,
            batch_concurrency=16,
            id_length=1_024,
            method_length=256,
            calls_per_channel=256,
            waiting_per_channel=256,
            calls=1_000,
            send_queue=MIB,
            write_timeout=30.0,
            channels=20_000,
            header_size=16 * 1024,
            header_timeout=10.0,
            body_timeout=30.0,
            idle_timeout=120.0,
            threads=40,
            call_timeout=30.0,
            handler_timeout=300.0,
            drain_timeout=30.0,
        )
        == SERVER
    )
    assert SERVER.but(message_size=10 * MIB) == CLIENT


def test_some_changed() -> None:
    limits = SERVER.but(calls=10, idle_timeout=None)
    assert (limits.calls, limits.idle_timeout, limits.threads) == (10, None, 40)
    assert SERVER.calls == 1_000
    with pytest.raises(LocalError, match="did you mean calls"):
        SERVER.but(cals=10)
    with pytest.raises(AttributeError):
        limits.calls = 11  # type: ignore[misc]
