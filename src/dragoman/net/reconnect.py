"""Reconnecting: pauses between attempts, the one loop that tries again, the log of an outage, background tasks.

The users of a connection (peers, brokers, buses) know how to make one and when it is lost; this module decides how long
to wait and when to try again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

log: logging.Logger = logging.getLogger("dragoman.wire")

T = TypeVar("T")

MINUTE = 60.0
"""Seconds between two warnings about one outage."""


def backoff(first: float, longest: float) -> Iterator[float]:
    """Seconds between attempts: doubled each time, with jitter so that waiting clients do not all come at once."""
    from random import uniform  # noqa: PLC0415  (start-up: most servers never connect)

    pause = first
    while True:
        yield pause * uniform(0.5, 1.0)
        pause = min(2 * pause, longest)


async def reconnect(
    attempt: Callable[[], Awaitable[T]],
    pauses: tuple[float, float],
    *,
    failed: Callable[[Exception], object] = lambda why: None,
    faults: tuple[type[Exception], ...] = (OSError,),
) -> T:
    """Call `attempt` until it succeeds, with a pause before each try; returns its result. `pauses`: the first and the
    longest pause, in seconds. `failed` is called with each of the `faults`, which are tried again; other exceptions are
    raised."""
    for pause in backoff(*pauses):
        await asyncio.sleep(pause)
        try:
            return await attempt()
        except faults as why:
            failed(why)
    raise AssertionError("pauses have no end")


class OutageLog:
    """Logs a failure that repeats until it passes: when it begins, once a minute while it lasts, and when it is over.
    At most one warning a minute, even if it comes and goes: a second beginning is logged at info level, everything
    between warnings at debug level. A failure not reported for a minute counts as over. `where`: its source."""

    def __init__(self, where: str, logger: logging.Logger = log) -> None:
        self._where = where
        self._log = logger
        self._since: float | None = None
        self._told = self._last = -MINUTE

    def tell(self, words: str) -> None:
        """The failure has begun or goes on."""
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
        """Whether the state of `who` (lost or back) has changed; logged as above."""
        changed = well is (self._since is not None)
        if well:
            self.over(f"{who} is back")
        else:
            self.tell(f"{who} is lost, coming back: {why}")
        return changed

    def over(self, words: str) -> None:
        """The failure has passed, if there was one."""
        if self._since is not None:
            self._since = None
            self._log.info("%s: %s", self._where, words)


class BackgroundTasks:
    """Background tasks, held until they end. What a task raises is logged; `where`: its source."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, patience: float | None) -> None:
        """Wait until all tasks have ended, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=patience)

    async def end(self, patience: float = 0) -> None:
        """Wait that many seconds, then cancel the tasks that still run."""
        if patience > 0:
            await self.wait(patience)
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            log.error("%s: a message could not be dealt with", self._where, exc_info=why)
