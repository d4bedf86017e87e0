"""How to come back: pauses between attempts, the one loop that tries again, an outage in the log, tasks beside.

What keeps a connection (peers, brokers, buses) knows how to make one and when it is lost; how long to wait, and when to
try again, is said here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

log = logging.getLogger("dragoman.wire")

T = TypeVar("T")

MINUTE = 60.0
"""Seconds between two warnings about one trouble."""


def backoff(first: float, longest: float) -> Iterator[float]:
    """Seconds between attempts: twice as long each time, and jittered, lest all who wait come at once."""
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, longest)


async def reconnect(
    attempt: Callable[[], Awaitable[T]],
    pauses: tuple[float, float],
    *,
    failed: Callable[[Exception], object] = lambda why: None,
    faults: tuple[type[Exception], ...] = (OSError,),
) -> T:
    """What `attempt` gives when it succeeds: it is tried until it does, a pause before each try. `pauses`: the first and
    the longest one, in seconds. `failed` is told each of the `faults`, which are tried again; others are raised."""
    for pause in backoff(*pauses):
        await asyncio.sleep(pause)
        try:
            return await attempt()
        except faults as why:
            failed(why)
    raise AssertionError("pauses have no end")


class OutageLog:
    """What goes wrong again and again until it passes, as a log shows it: when it begins, once a minute while it lasts,
    and when it is over. No more than one warning a minute, though it come and go: a second beginning is at info level,
    all that is told in between at debug level. What is not told of for a minute is over. `where`: whose it is."""

    def __init__(self, where: str, logger: logging.Logger = log) -> None:
        self._where = where
        self._log = logger
        self._since: float | None = None
        self._told = self._last = -MINUTE

    def tell(self, words: str) -> None:
        """It is so, or still so."""
        now = time.monotonic()
        due, level = now - self._told >= MINUTE, logging.DEBUG
        if self._since is None or now - self._last > MINUTE:
            self._since, level = now, logging.INFO
        elif due:
            words = f"{words} (for {now - self._since:.0f} s now)"
        self._last = now
        if due:
            self._told, level = now, logging.WARNING
        self._log.log(level, "%s: %s", self._where, words)

    def stands(self, well: bool, who: str, why: str) -> bool:
        """Whether `who`, who is lost or back, was otherwise before; told as above."""
        changed = well is (self._since is not None)
        if well:
            self.over(f"{who} is back")
        else:
            self.tell(f"{who} is lost, coming back: {why}")
        return changed

    def over(self, words: str) -> None:
        """It has passed, if there was any."""
        if self._since is not None:
            self._since = None
            self._log.info("%s: %s", self._where, words)


class BackgroundTasks:
    """Tasks that run beside, held until they end. What one of them raises is logged; `where`: whose it is."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it from now on."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, patience: float | None) -> None:
        """Until all have ended, or so many seconds."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=patience)

    async def end(self, patience: float = 0) -> None:
        """Wait so many seconds, and cancel what has not ended then."""
        if patience > 0:
            await self.wait(patience)
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            log.error("%s: a letter could not be dealt with", self._where, exc_info=why)
