"""Reconnecting: pauses between attempts, the loop that tries again, the keeper of a connection, the log of an outage,
background tasks.

The users of a connection (peers, brokers, buses) know how to make one and when it is lost; this module decides how long
to wait and when to try again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from .sharing import OnState

log: logging.Logger = logging.getLogger("dragoman.wire")

T = TypeVar("T")

MINUTE = 60.0
"""Seconds between two warnings about one outage."""
RECONNECT_GRACE = 5.0
"""Seconds after a reconnection in which the absence of workers proves nothing: they are reconnecting too, and a broker
that starts accepts connections before it has all its queues."""


def backoff(first: float, longest: float) -> Iterator[float]:
    """Yield seconds between attempts: doubled each time, with jitter so that waiting clients do not all come at
    once."""
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


class Keeper:
    """Keeps one connection: makes it, watches it, makes it again when it is lost, and reports both.

    `connect` makes it once and returns why messages may have been lost meanwhile, or ""; it raises one of `faults` if
    that fails. `watch` returns why the connection is lost as soon as it is, and has then failed all that waited on it.
    `pauses`: the first and the longest pause between two tries, in seconds. `in_words`: a fault as text."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[str]],
        watch: Callable[[], Awaitable[str]],
        pauses: tuple[float, float],
        *,
        in_words: Callable[[Exception], str],
        faults: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        self.connected: asyncio.Event = asyncio.Event()
        self.closed: bool = False
        self.why: str = "not connected yet"
        """Why it is not connected."""
        self.since: float = 0.0
        """When it was connected, on the loop's clock; 0 if it never was."""
        self.gap: float = 0.0
        """For how many seconds it was lost before it was connected again; 0 if it never was."""
        self.states: list[OnState] = []
        """Called with False when it is lost and after each try that failed, with True when it is back."""
        self._connect, self._watch, self._pauses = connect, watch, pauses
        self._in_words, self._faults = in_words, faults
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it is connected."""
        return self.connected.is_set()

    @property
    def young(self) -> bool:
        """Whether it came back less than `RECONNECT_GRACE` seconds ago."""
        return self.gap > 0 and asyncio.get_running_loop().time() - self.since < RECONNECT_GRACE

    async def open(self) -> None:
        """Connect for the first time, which is not reported, and stay connected. Raises what `connect` raises."""
        try:
            await self._connect()
        except Exception as fault:
            self.why = self._in_words(fault)
            raise
        self.begin()

    def begin(self) -> None:
        """Stay connected from now on: the caller has connected it."""
        self._set_connected()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop: a try to connect is cancelled, and nothing is reported any more. The caller closes the connection."""
        self.closed, self.why = True, "this end is closed"
        self.connected.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self) -> None:
        while True:
            self._report_loss(await self._watch())
            lost = asyncio.get_running_loop().time()
            remark = await reconnect(self._connect, self._pauses, failed=self._failed, faults=self._faults)
            self._set_connected()
            self.gap = self.since - lost
            self._report(True, remark)

    def _set_connected(self) -> None:
        self.since = asyncio.get_running_loop().time()
        self.connected.set()

    def _failed(self, fault: Exception) -> None:
        self._report_loss(self._in_words(fault))

    def _report_loss(self, why: str) -> None:
        self.connected.clear()
        self.why = why
        self._report(False, why)

    def _report(self, alive: bool, why: str) -> None:
        for on_state in tuple(self.states):
            on_state(alive, why)


class OutageLog:
    """Logs a failure that repeats until it passes: when it begins, once a minute while it lasts, and when it is over.
    At most one warning a minute, even if it comes and goes: a second beginning is logged at info level, everything
    between warnings at debug level. A failure not reported for a minute counts as over. `where`: its source."""

    def __init__(self, where: str, logger: logging.Logger = log) -> None:
        self._where = where
        self._log = logger
        self._since: float | None = None
        self._warned = self._last = -MINUTE

    def report(self, words: str) -> None:
        """Log that the failure has begun or goes on."""
        now = time.monotonic()
        due, level = now - self._warned >= MINUTE, logging.DEBUG
        if self._since is None or now - self._last > MINUTE:
            self._since, level = now, logging.INFO
        elif due:
            words = f"{words} (for {now - self._since:.0f} s now)"
        self._last = now
        if due:
            self._warned, level = now, logging.WARNING
        self._log.log(level, "%s: %s", self._where, words)

    def log_state(self, alive: bool, who: str, why: str) -> None:
        """Log that `who` is back, or is lost and why."""
        if alive:
            self.end(f"{who} is back")
        else:
            self.report(f"{who} is lost, coming back: {why}")

    def end(self, words: str) -> None:
        """Log that the failure has passed, if there was one."""
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
        """Wait until all tasks have ended, at most `patience` seconds; None: for ever."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=patience)

    async def end(self, patience: float = 0) -> None:
        """Wait `patience` seconds, then cancel the tasks that still run."""
        if patience > 0:
            await self.wait(patience)
        for task in tuple(self._tasks):
            task.cancel()
        await self.wait(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            log.error("%s: a message could not be dealt with", self._where, exc_info=why)
