"""Finds out whether a far end that says nothing more is still there.

A far end that has closed its sending side may wait for its answers (`printf ... | nc`), or its program may be dead: the
end of file is the same. Only a write tells, because a system resets what a dead program's socket gets.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

PROBE = 1.0
"""Seconds from the end of file to the first probe, and between the first two: a reset comes as the answer to one, and
is noticed at the next."""
LONGEST = 10.0
"""The longest pause between two probes, in seconds."""


class HalfClosed(Protocol):
    """A channel whose far end has closed its sending side."""

    def probe(self, gap: bytes) -> None:
        """Write what means nothing to a far end that is there."""

    def cut_off(self, why: str) -> None:
        """Abort it."""


class HalfClosedWatch:
    """Probes a half-closed channel with `gap`, and cuts it off after `seconds`, until `end`."""

    __slots__ = ("_channel", "_gap", "_last", "_loop", "_pause", "_timer")

    def __init__(self, seconds: float | None, gap: bytes, channel: HalfClosed) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._gap = gap
        self._pause = PROBE
        self._timer = self._loop.call_later(PROBE, self._probe) if gap else None
        words = f"it had closed its sending side for {seconds} s (limit half_closed_timeout)"
        self._last = None if seconds is None else self._loop.call_later(seconds, channel.cut_off, words)

    def end(self) -> None:
        """The channel is over."""
        for timer in (self._timer, self._last):
            if timer is not None:
                timer.cancel()

    def _probe(self) -> None:
        self._channel.probe(self._gap)
        self._timer = self._loop.call_later(self._pause, self._probe)
        self._pause = min(2 * self._pause, LONGEST)
