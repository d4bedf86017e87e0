"""What methods did in the last quarter of an hour: a bucket for each second, and how long calls took.

A method has numbers for `SECONDS` seconds, and histograms for `SLOTS` slots of `SLOT` seconds: percentiles are read
off the sum of the histograms, so they are those of all calls of that time, of all processes too. A bucket is a quarter
of an octave wide, so a percentile is wrong by a fifth at most, and mostly by much less. A method takes some 40 KB;
`METHODS` of them have their own, the rest is counted as one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from .rows import MethodSeconds

SECONDS: Final = 900
METHODS: Final = 200
"""Methods with a series of their own: 6.5 MB. Anybody can call any name, but only what is registered has one."""
SLOT: Final = 30
SLOTS: Final = SECONDS // SLOT
BOUNDS: Final = tuple(1e-6 * 2 ** (step / 4) for step in range(120))
"""The upper bounds of the buckets in seconds, from a microsecond to a quarter of an hour; one more is beyond."""
OTHER: Final = "other"
"""The method of what has no series of its own."""
_BUCKETS: Final = len(BOUNDS) + 1


class MethodSeries:
    """The series of one method. A second or slot whose number is not the wanted one is of an earlier round."""

    __slots__ = (
        "_bytes", "_counts", "_errors", "_histogram", "_histograms", "_seconds", "_slots", "last", "method", "service", "target",
    )  # fmt: skip

    def __init__(self, service: str, method: str, target: str) -> None:
        self.service: str = service
        self.method: str = method
        self.target: str = target
        self.last: int = 0
        """The last second in which a call ended."""
        self._seconds = array("q", bytes(8 * SECONDS))
        self._counts = array("I", bytes(4 * SECONDS))
        self._errors = array("I", bytes(4 * SECONDS))
        self._bytes = array("Q", bytes(8 * SECONDS))
        self._slots = array("q", bytes(8 * SLOTS))
        self._histograms: list[array[int] | None] = [None] * SLOTS
        self._histogram = array("I")
        """That of the slot of `last`."""

    def add(self, second: int, seconds: Sequence[float], failed: int, size: int) -> None:
        """Count calls that ended in this second, of Unix time. `seconds`: how long each took; `size`: their bytes."""
        if second != self.last:
            self._begin(second)
        at = second % SECONDS
        self._counts[at] += len(seconds)
        self._bytes[at] += size
        self._errors[at] += failed
        histogram = self._histogram
        for bucket, fell in Counter(map(bisect_left, repeat(BOUNDS), seconds)).items():
            histogram[bucket] += fell

    def _begin(self, second: int) -> None:
        """Count in this second from now on. Of a clock on the wall that was put back too: what was counted there in a
        later round is forgotten."""
        self.last, at, slot = second, second % SECONDS, second // SLOT
        if self._seconds[at] != second:
            self._seconds[at] = second
            self._counts[at] = self._errors[at] = self._bytes[at] = 0
        if self._slots[slot % SLOTS] != slot:
            self._slots[slot % SLOTS] = slot
            self._histograms[slot % SLOTS] = array("I", bytes(4 * _BUCKETS))
        self._histogram = self._histograms[slot % SLOTS] or self._histogram

    def read(self, now: int, seconds: int = SECONDS, step: int = 1) -> MethodSeconds:
        """Return the last `seconds` seconds before and with `now`, by steps of `step` seconds; the histogram is of the
        slots that they touch."""
        wanted = range(now - seconds + 1, now + 1)
        slots = [at if self._seconds[at := one % SECONDS] == one else -1 for one in wanted]
        buckets = [0] * _BUCKETS
        for slot in range(wanted[0] // SLOT, now // SLOT + 1):
            histogram = self._histograms[slot % SLOTS]
            if self._slots[slot % SLOTS] == slot and histogram is not None:
                buckets = [one + other for one, other in zip(buckets, histogram, strict=True)]
        return MethodSeconds(
            service=self.service,
            method=self.method,
            target=self.target,
            counts=_steps(self._counts, slots, step),
            errors=_steps(self._errors, slots, step),
            bytes=_steps(self._bytes, slots, step),
            buckets=buckets,
        )


class Series:
    """The series of all methods."""

    def __init__(self, methods: int = METHODS) -> None:
        self._most = methods
        self._series: dict[tuple[str, str, str], MethodSeries] = {}
        self.other: MethodSeries = MethodSeries("", OTHER, "")
        """Of what has none of its own."""
        self.removed: int = 0
        """How many gave way or were removed: one that was kept elsewhere may be one of those."""

    def __len__(self) -> int:
        """Return the number of methods with a series of their own."""
        return len(self._series)

    def of(self, service: str, method: str, target: str, now: int) -> MethodSeries:
        """Return the series of a method; where there is no room, that of a method that was silent for all of the time
        gives way, else it is that of the others."""
        key = service, method, target
        found = self._series.get(key)
        if found is None:
            if len(self._series) >= self._most:
                silent = min(self._series, key=lambda one: self._series[one].last)
                if now - self._series[silent].last < SECONDS:
                    return self.other
                self.forget(*silent)
            found = self._series[key] = MethodSeries(*key)
        return found

    def forget(self, service: str, method: str, target: str = "") -> None:
        """Remove the series of a method that was removed."""
        self.removed += self._series.pop((service, method, target), None) is not None

    def read(self, now: int, seconds: int, step: int = 1) -> Iterator[MethodSeconds]:
        """Return those that had calls in the last seconds."""
        for one in (*self._series.values(), self.other):
            if now - one.last < seconds:
                yield one.read(now, seconds, step)


def _steps(numbers: array[int], slots: Sequence[int], step: int) -> list[int]:
    """Return the sums of the numbers in these slots, by steps; one below 0 has none."""
    found = [numbers[at] if at >= 0 else 0 for at in slots]
    return found if step == 1 else [sum(found[at : at + step]) for at in range(0, len(found), step)]


def percentile(buckets: Sequence[int], share: float) -> float:
    """Return the seconds that this share of the calls did not exceed, 0 without calls: interpolated within its
    bucket."""
    wanted, below = share * sum(buckets), 0
    for at, fell in enumerate(buckets):
        if fell and below + fell >= wanted:
            if at == len(BOUNDS):
                return BOUNDS[-1]
            low = BOUNDS[at - 1] if at else 0.0
            return low + (BOUNDS[at] - low) * (wanted - below) / fell
        below += fell
    return 0.0
