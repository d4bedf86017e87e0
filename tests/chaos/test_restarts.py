"""The broker restarts under 200 calls a second, in good order and killed, in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.brokers import Engine

from .scenarios import restart_broker
from .tally import Tally
from .test_kills import nothing_is_lost
from .wires import WIRES, over


def as_promised(found: Tally, keeps: bool) -> None:
    """What holds after restarts."""
    if keeps:
        nothing_is_lost(found)
    else:
        print(f"\n{found}")
        assert found.pending == 0
        assert found.late == 0
        assert found.unmarked == []
        assert all(kind.startswith(("Broken: ", "Unroutable: ")) for kind in found.errors)
    assert len(found.reconnections) == found.blows  # after each restart a call that had waited was answered


@over(WIRES)
async def test_restarts(wire: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    one = WIRES[wire]
    engine: Engine = request.getfixturevalue(one.fixture)
    found = await restart_broker(engine, engine.url + one.path(), tmp_path, times=one.restarts, seed=2)
    as_promised(found, one.keeps)
