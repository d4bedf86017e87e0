"""A few kills of servers with tasks at every landing; `python -m tests.chaos tasks` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .tasks import kill_servers, nothing_is_lost


@pytest.mark.xdist_group("tasks")
async def test_servers_with_tasks_are_killed(tmp_path: Path) -> None:
    found = await kill_servers(tmp_path, kills=12, seed=1)
    nothing_is_lost(found)
    assert any(one is not None and one.runs > 1 for one in found.records.values()), "the blows have hit"
    assert any(one is not None and one.status == "failed" for one in found.records.values())
