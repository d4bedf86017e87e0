"""A few kills of servers of events at every landing; `python -m tests.chaos events` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .events import kill_event_servers, nothing_is_lost


@pytest.mark.xdist_group("events")
async def test_servers_of_events_are_killed(tmp_path: Path) -> None:
    """In two runs, of which the second goes on where the first ended."""
    first = await kill_event_servers(tmp_path, kills=2, seed=1)
    nothing_is_lost(first)
    found = await kill_event_servers(tmp_path, kills=3, seed=1)
    assert (found.killed, found.sessions) == (3, 2)
    nothing_is_lost(found)
