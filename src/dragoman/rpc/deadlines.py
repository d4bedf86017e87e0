"""Deadlines of many calls under one timer. Setting and dropping one costs a dict write, not a heap entry.

The timer is armed for the earliest deadline known; deadlines within `GRAIN` of one another expire
together, so ten thousand of them cost a handful of sweeps. All on the loop's monotonic clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Protocol

GRAIN = 0.005

logger: logging.Logger = logging.getLogger("dragoman")


class Timed(Protocol):
    """Something with a deadline."""

    def expired(self) -> None:
        """The deadline has passed (and is removed; set it again to go on)."""


class DeadlineClock:
    """The deadlines of one host or peer."""

    __slots__ = ("_at", "_due", "_timer", "loop", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        # what asyncio's own loops look at, without the function around it
        own = isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is asyncio.BaseEventLoop.time
        self.now: Callable[[], float] = monotonic if own else loop.time
        """The time on which its deadlines are."""
        self._due: dict[Timed, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, item: Timed, seconds: float) -> None:
        """`item.expired()` is called once, in `seconds`, unless it is dropped or set again."""
        now = self.now  # to call a slot costs more than to read it first
        due = now() + seconds
        self._due[item] = due
        if self._timer is None or due < self._at:
            self._arm(due)

    def left(self, item: Timed) -> float | None:
        """Seconds until the deadline, or None without one."""
        due = self._due.get(item)
        return None if due is None else due - self.now()

    def drop(self, item: Timed) -> None:
        """Remove the deadline, if there is one."""
        self._due.pop(item, None)

    def close(self) -> None:
        """Remove every deadline and stop the timer."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self.loop.call_at(at, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self.now() + GRAIN
        late = [item for item, due in self._due.items() if due <= now]
        for item in late:
            del self._due[item]
        if self._due:
            self._arm(min(self._due.values()))
        for item in late:
            try:
                item.expired()
            except Exception:  # the other expired deadlines must still be handled
                logger.exception("the end of a deadline failed")
