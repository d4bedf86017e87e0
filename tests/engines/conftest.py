"""For tests of every broker (`wires`): the broker and the address of the row."""

from __future__ import annotations

import pytest

from .brokers import Engine, memory
from .wires import Wire

__all__ = ["memory"]


@pytest.fixture
def engine(wire: Wire, request: pytest.FixtureRequest) -> Engine:
    """The row's broker."""
    one: Engine = request.getfixturevalue(wire.engine)
    return one


@pytest.fixture
def url(wire: Wire, engine: Engine) -> str:
    """An address of its own there."""
    return wire.url(engine)
