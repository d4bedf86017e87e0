"""One stream for each browser: what has happened since the line before, as lines of JSON.

- All browsers share one reading of the source, `INTERVAL` seconds apart, and none while there is no browser.
- A line is written only while the browser reads. Rows that wait for it are bounded (`QUEUED` bytes): further ones are
  only counted, and its next line says how many it missed. So a slow or hung browser costs nothing but that, and nothing
  of a call waits for it.
- Nothing is written where nothing has happened, but a line every `BEAT` seconds, by which a browser that is gone is
  found. An empty line says nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import time
from typing import Final, Protocol

from msgspec import Raw

from ..jsonrpc.limits import KIB
from ..repeats import Repeats
from ..transports.http.messages import Lines, Reply
from .rows import EndedCall, Tick
from .views import Fits, encode

repeats: Repeats = Repeats(logging.getLogger("dragoman"))

INTERVAL: Final = 0.25
"""Seconds between two lines at least: more is not seen."""
QUEUED: Final = 64 * KIB
"""Bytes that wait for one browser: some 200 rows."""
BROWSERS: Final = 16
"""Streams at once; more are refused."""
BEAT: Final = 5.0
"""Seconds between two lines at most."""


class TickSource(Protocol):
    """What is read: `gathering.OwnConsole`, or `GatheredConsole`."""

    async def tick(self, after: Mapping[str, int]) -> dict[str, Tick]:
        """What has happened in each process since these ticks."""


class _Browser:
    """One stream. `fits`: the rows that it wants."""

    def __init__(self, reply: Reply, fits: Fits, calls: bool) -> None:
        self.reply = reply
        self._fits = fits
        self._calls = calls
        self._rows: list[Raw] = []
        self._size = 0
        self._missed = 0
        self._said: tuple[object, ...] = ()
        self._last = 0.0

    def put(self, rows: list[tuple[EndedCall, Raw]], missed: int) -> None:
        """Add what has ended."""
        self._missed += missed
        for row, text in rows:
            if not self._fits(row):
                continue
            if self._size + len(text) + 1 > QUEUED:
                self._missed += 1
            else:
                self._rows.append(text)
                self._size += len(text) + 1

    def write(self, ticks: Mapping[str, Tick], now: float) -> None:
        """Write a line if the browser reads and there is something to say."""
        if not self.reply.writable:
            return
        calls = sorted((one for tick in ticks.values() for one in tick.calls), key=lambda one: -one.age)
        said = tuple((key, one.in_flight, one.errors, one.ended) for key, one in ticks.items())
        if (
            said == self._said
            and not (self._rows or self._missed or (calls and self._calls))
            and now - self._last < BEAT
        ):
            return
        line = {
            "time": now,
            "in_flight": sum(one.in_flight for one in ticks.values()),
            "ended": sum(one.ended for one in ticks.values()),
            "errors": sum(one.errors for one in ticks.values()),
            "calls": calls if self._calls else [],
            "rows": self._rows,
            "missed": self._missed,
        }
        self.reply.write(encode(line) + b"\n")
        self._rows, self._size, self._missed, self._said, self._last = [], 0, 0, said, now


class Feed:
    """The streams of all browsers."""

    def __init__(self, source: TickSource, *, interval: float = INTERVAL) -> None:
        self._source = source
        self._interval = interval
        self._browsers: dict[_Browser, None] = {}
        self._work: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of browsers."""
        return len(self._browsers)

    def open(self, reply: Reply, lines: Lines, fits: Fits, *, calls: bool = True) -> Callable[[], None] | None:
        """Begin a stream; return the function that ends it, or None where there are too many. `lines`: the header
        fields; `calls`: whether it gets the calls in flight."""
        if len(self._browsers) >= BROWSERS:
            return None
        browser = _Browser(reply, fits, calls)

        def gone() -> None:
            self._browsers.pop(browser, None)

        def end() -> None:
            if browser in self._browsers:
                gone()
                reply.finish()

        reply.gone = gone
        reply.doubted = lambda: reply.write(b"\n")  # a line that readers skip, and one who has gone resets
        reply.start(200, lines)
        self._browsers[browser] = None
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._run())
        return end

    def close(self) -> None:
        """End all streams."""
        browsers, self._browsers = tuple(self._browsers), {}
        for one in browsers:
            one.reply.finish()
        if self._work is not None:
            self._work.cancel()

    async def _run(self) -> None:
        after: dict[str, int] = {}
        while self._browsers:
            try:
                ticks = await self._source.tick(after)
            except Exception:  # a fault of ours, or a worker that ends meanwhile
                repeats.error("the console's feed could not be read", exc_info=True)
                ticks = {}
            after = {key: tick.seq for key, tick in ticks.items()} or after
            self._pass_on(ticks)
            await asyncio.sleep(self._interval)

    def _pass_on(self, ticks: Mapping[str, Tick]) -> None:
        now = time()
        rows = sorted((one for tick in ticks.values() for one in tick.rows), key=lambda one: one.ended)
        texts = [(one, Raw(encode(one))) for one in rows]
        missed = sum(tick.missed for tick in ticks.values())
        for browser in tuple(self._browsers):
            browser.put(texts, missed)
            browser.write(ticks, now)
