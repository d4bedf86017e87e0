"""A few kills of servers with tasks at every landing; `python -m tests.chaos tasks` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.brokers import Engine, name

from . import tasks
from .tasks import Found, kill_task_servers


def nothing_is_lost(found: Found) -> None:
    tasks.nothing_is_lost(found)
    assert any(one is not None and one.runs > 1 for one in found.records.values()), "the blows have hit"
    assert any(one is not None and one.status == "failed" for one in found.records.values())


@pytest.mark.xdist_group("tasks")
async def test_servers_with_tasks_in_a_file_are_killed(tmp_path: Path) -> None:
    """In two runs, of which the second goes on where the first ended."""
    first = await kill_task_servers(tmp_path, kills=1, seed=1, lease=2.0)
    found = await kill_task_servers(tmp_path, kills=3, seed=1, lease=2.0)
    assert (found.kills, found.sessions) == (3, 2)
    assert first.acknowledged.items() < found.acknowledged.items()
    nothing_is_lost(found)


@pytest.mark.xdist_group("redis")
async def test_servers_with_tasks_on_a_bus_are_killed(redis: Engine, tmp_path: Path) -> None:
    url = f"{redis.url}?prefix={name('chaos')}:"
    nothing_is_lost(await kill_task_servers(tmp_path, url, kills=3, seed=1, lease=2.0))
