"""`amqp://` as a bus: the contract. It has no store."""

from __future__ import annotations

import pytest

from dragoman.bus import Bus, open_bus
from tests.bus import table
from tests.engines.brokers import Engine


@pytest.mark.parametrize("case", table.BUS, ids=table.name)
async def test_contract(case: table.Case, rabbitmq: Engine) -> None:
    await case(lambda: open_bus(rabbitmq.url))


async def test_what_it_is(rabbitmq: Engine) -> None:
    bus = await open_bus(rabbitmq.url)
    assert isinstance(bus, Bus)
    assert bus.store is None
    await bus.close()


async def test_a_loss_and_a_return(rabbitmq: Engine, caplog: pytest.LogCaptureFixture) -> None:
    await table.a_loss_and_a_return(lambda: open_bus(rabbitmq.url), rabbitmq, caplog)
