"""The brokers of the tests start, die and come back."""

from __future__ import annotations

import asyncio

import pytest

from .engines import Engine


@pytest.mark.parametrize("which", ["rabbitmq", "mosquitto", "nats", "redis"])
async def test_an_engine_comes_back(which: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(which)
    engine.control()
    await engine.restart()
    await engine.restart(hard=True)
    _, writer = await asyncio.open_connection(*engine.address)
    writer.close()
    await writer.wait_closed()
