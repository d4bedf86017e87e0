"""For every test: what was skipped is noted, see `skips`."""

from __future__ import annotations

import pytest

from .skips import note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Once for a run, in the process that started it, not in those of xdist."""
    if not hasattr(config, "workerinput"):
        note(terminalreporter.stats.get("skipped", []))
