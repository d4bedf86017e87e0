"""The console keeps what it knows of its servers in the user's state folder: each test has one of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.system.files import STATE_HOME


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STATE_HOME, f"{tmp_path}")
