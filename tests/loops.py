"""The event loops that wires are tested on: asyncio's own, and uvloop's where there is one (not on Windows)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

RUNNERS: list[Callable[..., Any]] = [asyncio.run]
NAMES: list[str] = ["asyncio"]
PROGRAMS: list[str] = ["asyncio.run"]
"""The same as a program of its own writes it."""
try:
    import uvloop
except ImportError:
    pass
else:
    RUNNERS.append(uvloop.run)
    NAMES.append("uvloop")
    PROGRAMS.append("uvloop.run")
