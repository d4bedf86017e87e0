"""Does the arithmetic of docs/scaling.md hold? `python -m bench.simulate` plays it through.

A fleet is `workers` processes that share one queue (one listening socket, or a broker's queue), each busy for a
service time per call; or as many queues as workers, where a balancer deals calls out by turns. Calls come at random
(Poisson). The page's formulas are Erlang's C for one queue; here the same is counted call by call.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fleet:
    """The load: `rate` calls a second, each `service` seconds of one worker's time on average."""

    rate: float
    service: float
    workers: int
    steady: bool = False
    """Every call takes the same time; else the times are exponential, as Erlang has them."""

    @property
    def load(self) -> float:
        """The share of its time that a worker is busy."""
        return self.rate * self.service / self.workers


@dataclass(frozen=True)
class Waits:
    """How long calls waited before a worker began with them, in seconds."""

    mean: float
    median: float
    p99: float
    delayed: float
    """The share of calls that waited at all."""


def workers_needed(rate: float, service: float, load: float) -> int:
    """How many workers keep each at this load or below it."""
    return math.ceil(rate * service / load)


def erlang_c(fleet: Fleet) -> Waits:
    """The waits by formula (M/M/c). ValueError for a fleet that cannot keep up."""
    if fleet.load >= 1:
        raise ValueError(f"{fleet.workers} workers cannot keep up: each would be busy {fleet.load:.0%} of its time")
    offered = fleet.rate * fleet.service
    below = 1.0  # Erlang's B by recursion, which overflows nowhere
    for n in range(1, fleet.workers + 1):
        below = offered * below / (n + offered * below)
    delayed = below / (1 - fleet.load * (1 - below))
    spare = fleet.workers / fleet.service - fleet.rate
    mean = delayed / spare

    def quantile(share: float) -> float:
        return max(0.0, math.log(delayed / (1 - share)) / spare) if delayed > 0 else 0.0

    return Waits(mean, quantile(0.5), quantile(0.99), delayed)


def _services(fleet: Fleet, dice: random.Random) -> Iterator[float]:
    while True:
        yield fleet.service if fleet.steady else dice.expovariate(1 / fleet.service)


def one_queue(fleet: Fleet, calls: int, seed: int = 1) -> Waits:
    """The waits counted, where the one that is free takes the next call."""
    dice = random.Random(seed)
    free = [0.0] * fleet.workers
    now, waits = 0.0, []
    for _, service in zip(range(calls), _services(fleet, dice), strict=False):
        now += dice.expovariate(fleet.rate)
        begins = max(now, heapq.heappop(free))
        heapq.heappush(free, begins + service)
        waits.append(begins - now)
    return _counted(waits)


def by_turns(fleet: Fleet, calls: int, seed: int = 1) -> Waits:
    """The waits counted, where a balancer gives each worker a call in turn, busy or not."""
    dice = random.Random(seed)
    free = [0.0] * fleet.workers
    now, waits = 0.0, []
    for number, service in zip(range(calls), _services(fleet, dice), strict=False):
        now += dice.expovariate(fleet.rate)
        place = number % fleet.workers
        begins = max(now, free[place])
        free[place] = begins + service
        waits.append(begins - now)
    return _counted(waits)


def _counted(waits: Sequence[float]) -> Waits:
    steady = sorted(waits[len(waits) // 10 :])  # without the beginning, when all were idle
    last = len(steady) - 1
    delayed = sum(wait > 0 for wait in steady) / len(steady)
    return Waits(sum(steady) / len(steady), steady[last // 2], steady[int(last * 0.99)], delayed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate", description=__doc__)
    parser.add_argument("--rate", type=float, default=100_000, help="calls a second")
    parser.add_argument("--service", type=float, default=30, help="microseconds of CPU a call")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.6, 0.7, 0.8, 0.9])
    parser.add_argument("--calls", type=int, default=300_000, help="calls to play through")
    given = parser.parse_args()
    service = given.service / 1e6
    print(f"{given.rate:,.0f} calls/s of {given.service:g} us each; waits in microseconds, mean / 99 %")
    print(f"{'load':>6} {'workers':>8} {'formula':>18} {'one queue':>18} {'by turns':>18}")
    for load in given.loads:
        fleet = Fleet(given.rate, service, workers_needed(given.rate, service, load))
        row = [erlang_c(fleet), one_queue(fleet, given.calls), by_turns(fleet, given.calls)]
        cells = " ".join(f"{f'{one.mean * 1e6:.1f} / {one.p99 * 1e6:.0f}':>18}" for one in row)
        print(f"{fleet.load:>6.0%} {fleet.workers:>8} {cells}")


if __name__ == "__main__":
    main()
