"""`kill -9` of workers under 200 calls a second: no accepted call without an answer, nothing run twice unmarked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.brokers import Engine

from .scenarios import kill_workers
from .tally import Tally
from .wires import INNOCENT, WIRES


def nothing_is_lost(found: Tally) -> None:
    """What holds after every scenario over a broker that promises at least once."""
    print(f"\n{found}")
    assert found.pending == 0
    assert found.late == 0
    assert found.errors == {}
    assert found.unmarked == []
    assert found.lost == []
    assert found.unanswered == []


@pytest.mark.xdist_group("rabbitmq")
async def test_workers_of_rabbitmq_are_killed(rabbitmq: Engine, tmp_path: Path) -> None:
    url = rabbitmq.url + WIRES["rabbitmq"].path(INNOCENT)
    found = await kill_workers(url, tmp_path, kills=50, seed=1)
    nothing_is_lost(found)
    assert found.overtaken == []
    assert found.marked > 0  # the blows have hit
