"""The brokers as fixtures, see `engines`; and for tests of every wire (`wires`) the broker and the address of the
row."""

from __future__ import annotations

import pytest

from .engines import Engine, memory, mosquitto, nats, rabbitmq, redis
from .wires import Wire

__all__ = ["memory", "mosquitto", "nats", "rabbitmq", "redis"]


@pytest.fixture
def engine(wire: Wire, request: pytest.FixtureRequest) -> Engine:
    """The row's broker."""
    one: Engine = request.getfixturevalue(wire.engine)
    return one


@pytest.fixture
def url(wire: Wire, engine: Engine) -> str:
    """An address of its own there."""
    return wire.url(engine)
