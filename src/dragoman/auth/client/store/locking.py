"""Waiting for a lock that other threads and processes hold, without blocking the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .contract import LockHeld

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two tries, which double from the first to the longest."""


async def acquire(
    attempt: Callable[[], bool], wait: float, what: str, held: Callable[[], object] | None = None
) -> None:
    """Call `attempt` until it returns True. `what`: the lock, for the error; `held`: called once if the first try
    fails. Raises LockHeld after `wait` seconds."""
    if attempt():
        return
    if held is not None:
        held()
    pause = FIRST_PAUSE
    try:
        async with asyncio.timeout(wait):
            while True:
                await asyncio.sleep(pause)
                if attempt():
                    return
                pause = min(2 * pause, LONGEST_PAUSE)
    except TimeoutError:
        raise LockHeld(
            f"{what} is held by another task or process for more than {wait:g} s; try again, or end that process"
        ) from None
