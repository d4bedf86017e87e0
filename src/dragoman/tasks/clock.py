"""The time of a store of tasks: it goes on while the machine's clock is set back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Unix seconds that never go back: where `wall` is set back, they go on from the highest time that was seen."""

    __slots__ = ("_at", "_highest", "_monotonic", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._highest, self._at = wall(), monotonic()

    def now(self) -> float:
        """Return the time."""
        at = self._monotonic()
        self._highest, self._at = max(self._wall(), self._highest + (at - self._at)), at
        return self._highest

    def reach(self, time: float) -> None:
        """Go on from this time, if it is later: another process has seen it."""
        self._highest = max(self.now(), time)
