"""The clock of events: the time, and waiting for something or for a time."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """The system's clock. Tests give `Events(clock=)` one that they move by hand."""

    def now(self) -> float:
        """Return the Unix time in seconds."""
        return time.time()

    async def wait(self, changed: asyncio.Event, seconds: float | None) -> None:
        """Return when `changed` is set, or after these seconds; None: only when it is set."""
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass
