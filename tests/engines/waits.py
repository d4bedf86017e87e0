"""Waits whose time a test decides."""

from __future__ import annotations

import asyncio
from typing import Any


class Waits:
    """In the place of `asyncio` in one module: what a subclass defines is the test's, the rest is asyncio's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)
