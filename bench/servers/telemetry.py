"""dragoman in process with an observer (argument): `none`, `nothing` (one that does nothing), `metrics`, `log`,
`traces` (which nothing records)."""

from __future__ import annotations

import sys

from bench.servers.calculator import calculator
from bench.worker import SINGLE, offer
from dragoman.observer import Observation, Observer, Rejection
from dragoman.telemetry import AccessLog, Metrics, Traces


class Nothing:
    """An observer that does nothing."""

    def came_in(self, seen: Observation) -> None: ...

    def outbound(self, seen: Observation) -> None: ...

    def started(self, seen: Observation) -> None: ...

    def ended(self, seen: Observation) -> None: ...

    def rejected(self, seen: Rejection) -> None: ...


def observer(name: str) -> Observer:
    """The observer of a contestant."""
    if name == "metrics":
        return Metrics()
    if name == "traces":
        return Traces()
    return AccessLog(lambda line: None) if name == "log" else Nothing()


if __name__ == "__main__":
    api = calculator(1)
    if sys.argv[1] != "none":
        api.observe(observer(sys.argv[1]))
    offer({"single": lambda: api.answer(SINGLE)})
