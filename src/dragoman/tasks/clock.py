"""The time of a store of tasks: it goes on while the machine's clock is set back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Clock:
    """Unix seconds that never go back, for any thread: where `wall` is set back, they go on from the highest time that
    was seen."""

    __slots__ = ("_at", "_highest", "_lock", "_monotonic", "_wall")

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._highest, self._at = wall(), monotonic()
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the time."""
        return self.reach(0.0)

    def reach(self, time: float) -> float:
        """Return the time, from now on at least this one, which another process has seen."""
        with self._lock:
            at = self._monotonic()
            self._highest, self._at = max(self._wall(), self._highest + (at - self._at), time), at
            return self._highest
