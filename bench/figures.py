"""The values of the benchmarks: contestants with their samples, rows, and the goals of rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.referee import Way


@dataclass(eq=False)
class Contestant:
    """A program to measure, with its samples in the row's unit, or why there are none.

    `command`: a file of `contestants/`, one of its parts, and that one's words; PORT and SOCKET stand for places to
    listen at, and a first word `uvloop` for another loop. `about`: what the row's way of measuring should know of it.
    """

    command: str
    about: Mapping[str, Any] = field(default_factory=dict)
    name: str = "dragoman"
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


def to(command: str, **about: Any) -> Contestant:
    """A contestant that its row's way should know more of."""
    return Contestant(command, about)


Named = Mapping[str, str | Contestant]
"""Contestants by their names in the table; a command alone stands for one of which no more is to be known."""


class Row:
    """One line of the table: what it measures, whom, in which unit, beside which limit, and what it must reach."""

    def __init__(
        self,
        key: str,
        title: str,
        way: Way,
        ours: str | Contestant,
        *,
        limit: Named | None = None,
        peers: Named | None = None,
        also: Named | None = None,
        goals: Sequence[Goal] = (),
        unit: str = "us",
    ) -> None:
        self.key, self.title, self.way, self.goals, self.unit = key, title, way, goals, unit
        [self.ours] = _contestants({"dragoman": ours})
        self.limit = next(iter(_contestants(limit)), None)
        self.peers, self.also = _contestants(peers), _contestants(also)

    @property
    def contestants(self) -> list[Contestant]:
        """All of them, in the order in which they are measured."""
        return [self.ours, *([self.limit] if self.limit else []), *self.peers, *self.also]

    def __getitem__(self, name: str) -> Contestant | None:
        """By name; `limit` is the limit, whatever it is called."""
        return self.limit if name == "limit" else next(one for one in self.contestants if one.name == name)


def _contestants(named: Named | None) -> list[Contestant]:
    return [
        replace(Contestant(one) if isinstance(one, str) else one, name=name, samples=[])
        for name, one in (named or {}).items()
    ]


def ratio(one: Contestant, other: Contestant | None) -> float | None:
    """How many times `other`'s cost this one's is (below 1: it is cheaper); None where either is missing."""
    if other is None or not one.samples or not other.samples:
        return None
    # Of the rounds' own ratios the median: what slowed a whole round slowed both.
    if len(one.samples) == len(other.samples):
        return statistics.median(a / b for a, b in zip(one.samples, other.samples, strict=True))
    return one.median / other.median


# -- goals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """Something the row must reach. `judge` tells what came out, and whether it is reached: None where it could not be
    measured."""

    text: str
    judge: Callable[[Row], tuple[str, bool | None]]


Value = Callable[[Row], float | None]


def bounded(text: str, bound: float, value: Value, unit: str = "x", *, least: bool = False) -> Goal:
    """A value that must be at most, or at `least`, so much."""

    def judge(row: Row) -> tuple[str, bool | None]:
        found = value(row)
        if found is None:
            return "-", None
        return f"{found:.3g}{unit}", found >= bound if least else found <= bound

    return Goal(text, judge)


def times(of: str, to: str) -> Value:
    """How many times the other's cost the one's is."""

    def value(row: Row) -> float | None:
        one = row[of]
        return ratio(one, row[to]) if one else None

    return value


def cost(bound: float, text: str = "", of: str = "dragoman", to: str = "limit") -> Goal:
    """What the one costs, at most so many times the other."""
    return bounded(text or f"<= {bound:g}x the limit", bound, times(of, to))


def flat(to: str, text: str) -> Goal:
    """No more than the other, but for a quarter: caches are finite, and ten thousand of anything leave them."""
    return bounded(text, 1.25, times("dragoman", to))


def lead(bound: float, over: str, text: str = "") -> Goal:
    """How many times ours the other must cost at least."""
    told = f"ahead of {over}" if bound == 1 else f">= {bound:g}x {over}"
    return bounded(text or told, bound, times(over, "dragoman"), least=True)


def share(percent: float, of: str = "the limit") -> Goal:
    """How much of the limit's speed we must reach."""

    def value(row: Row) -> float | None:
        found = ratio(row.ours, row.limit)
        return None if found is None else 100 / found

    return bounded(f">= {percent:g} % of {of}", percent, value, " %", least=True)


def below(bound: float, unit: str, text: str = "", of: str = "dragoman", *, worst: bool = False) -> Goal:
    """A median, or the `worst` sample, that must not exceed so much."""

    def value(row: Row) -> float | None:
        one = row[of]
        return None if not one or not one.samples else max(one.samples) if worst else one.median

    return bounded(text or f"<= {bound:g} {unit}", bound, value, f" {unit}")


def more(bound: float, text: str, one: str, than: str) -> Goal:
    """How many microseconds the one may cost more than the other."""

    def value(row: Row) -> float | None:
        a, b = row[one], row[than]
        if not a or not b or not a.samples or not b.samples:
            return None
        return statistics.median(x - y for x, y in zip(a.samples, b.samples, strict=True))

    return bounded(text, bound, value, " us")
