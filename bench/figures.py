"""The values of the benchmarks: contestants' figures, rows, goals."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass
class Figure:
    """One contestant's samples in the row's unit, or why there are none."""

    name: str
    samples: list[float] = field(default_factory=list)
    missing: str = ""

    @property
    def median(self) -> float:
        """The middle of the rounds. Only where there are samples."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quarters, as a part of the median."""
        if len(self.samples) < 3:
            return (max(self.samples) - min(self.samples)) / 2 / self.median
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2 / self.median


@dataclass
class Goal:
    """Something the row must reach, what came out, and whether it did. `met` is None where it could not be measured."""

    text: str
    measured: str
    met: bool | None


@dataclass
class Row:
    """One line of the speed table."""

    key: str
    title: str
    unit: str
    ours: Figure
    limit: Figure | None = None
    peers: list[Figure] = field(default_factory=list)
    also: list[Figure] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    @property
    def every(self) -> list[Figure]:
        """All its figures."""
        return [self.ours, *([self.limit] if self.limit else []), *self.peers, *self.also]


def ratio(ours: Figure, other: Figure | None) -> float | None:
    """How many times `other`'s cost ours is (below 1: ours is cheaper); None where either is missing."""
    if other is None or not ours.samples or not other.samples:
        return None
    # Of the rounds' own ratios the median: what slowed a whole round slowed both.
    if len(ours.samples) == len(other.samples):
        return statistics.median(a / b for a, b in zip(ours.samples, other.samples, strict=True))
    return ours.median / other.median


def at_most(text: str, value: float | None, bound: float, unit: str = "x") -> Goal:
    """A goal that `value` must not exceed."""
    return Goal(text, "-" if value is None else f"{value:.3g}{unit}", None if value is None else value <= bound)


def at_least(text: str, value: float | None, bound: float, unit: str = "x") -> Goal:
    """A goal that `value` must reach."""
    return Goal(text, "-" if value is None else f"{value:.3g}{unit}", None if value is None else value >= bound)
