"""Logs what a far end can make happen again and again: in one line and a count.

Rules:

- The first event is logged as it is. Those that follow within `PERIOD` are counted, and logged in one line at its end
  (or when the process ends), with the last of them. Where DEBUG is on, each is a line at that level.
- Events are equal if their message is, before its arguments are put in: the number of messages is the program's, not
  the far end's.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from msgspec import Struct

PERIOD: Final = 60.0
"""Seconds between two lines of one message: a log of a day then has at most 1,440 of them."""


class _Event(Struct):
    """What is known of one message: when it was last logged, in monotonic seconds, and how many have come since."""

    since: float
    count: int = 0
    last: tuple[int, tuple[Any, ...]] = (0, ())


class Repeats:
    """A logger for what may repeat. `period`: seconds between two lines of one message; `clock`: monotonic seconds."""

    __slots__ = ("__weakref__", "_clock", "_events", "_logger", "period")

    def __init__(
        self, logger: logging.Logger, *, period: float = PERIOD, clock: Callable[[], float] = monotonic
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._events: dict[str, _Event] = {}
        self.period: float = period
        _all.add(self)

    def warning(self, message: str, *arguments: Any) -> None:
        """Log a warning."""
        self.log(logging.WARNING, message, *arguments)

    def error(self, message: str, *arguments: Any, exc_info: Any = None) -> None:
        """Log an error; `exc_info` as `logging` has it, for the first."""
        self.log(logging.ERROR, message, *arguments, exc_info=exc_info)

    def log(self, level: int, message: str, *arguments: Any, exc_info: Any = None) -> None:
        """Log the first event, count those that follow."""
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        event = self._events.get(message)
        if event is None or (event.count == 0 and now - event.since >= self.period):
            self._events[message] = _Event(now)
            self._logger.log(level, message, *arguments, exc_info=exc_info, stacklevel=3)
            return
        event.count += 1
        event.last = (level, arguments)
        self._logger.debug(message, *arguments, exc_info=exc_info, stacklevel=3)
        if now - event.since >= self.period:
            self._sum(message)
        elif event.count == 1:
            self._plan(message, event.since + self.period - now)

    def _plan(self, message: str, seconds: float) -> None:
        """Log the sum in so many seconds, if a loop runs; otherwise the next event does, or the end of the process."""
        asyncio = sys.modules.get("asyncio")
        loop = None if asyncio is None else asyncio._get_running_loop()
        if loop is not None:
            loop.call_later(seconds, self._sum, message)

    def _sum(self, message: str) -> None:
        event = self._events.get(message)
        if event is None or event.count == 0:
            return
        now, count, (level, arguments) = self._clock(), event.count, event.last
        seconds = round(now - event.since)
        self._events[message] = _Event(now)
        self._logger.log(level, f"{message} (the last of %d more within %d s)", *arguments, count, seconds)

    def sum_up(self) -> None:
        """Log what was counted and not yet logged."""
        for message in [*self._events]:
            self._sum(message)

    def forget(self) -> None:
        """Forget all events: the next one is a first again."""
        self._events.clear()


_all: WeakSet[Repeats] = WeakSet()


def forget() -> None:
    """Forget the events of every logger, so that a test does not find those of the one before."""
    for one in [*_all]:
        one.forget()


@atexit.register
def _sum_up() -> None:
    for one in [*_all]:
        one.sum_up()
