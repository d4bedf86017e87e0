"""The loop a contestant runs on: asyncio's own, or uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def run(main: Coroutine[object, object, None], *, uvloop: bool) -> None:
    """Run `main` to its end."""
    if uvloop:
        import uvloop as loops

        loops.run(main)
    else:
        asyncio.run(main)
