"""What logs, metrics and traces cost a call, on against off; beside them an observer that does nothing."""

from __future__ import annotations

import statistics

from bench.figures import Figure, Row, at_most
from bench.referee import Contestant, Referee

PROGRAM = "bench.servers.telemetry"


def more(one: Figure, other: Figure) -> float | None:
    """How many microseconds a call costs more than with the other."""
    if not one.samples or not other.samples:
        return None
    return statistics.median(a - b for a, b in zip(one.samples, other.samples, strict=True))


def telemetry(referee: Referee) -> list[Row]:
    """`subtract`, inline, bytes to bytes in process, with metrics."""
    names = {
        "metrics": "metrics",
        "nothing": "an observer that does nothing",
        "log": "access log",
        "traces": "traces, not sampled",
        "none": "no observer",
    }
    made = [Contestant(told, ["-m", PROGRAM, name], 50_000) for name, told in names.items()]
    ours, _, _, traces, none = made
    referee.in_process(made)
    row = Row("telemetry", "a call with metrics", "us", ours.figure, None, [], [one.figure for one in made[1:]])
    row.goals = [
        at_most("<= 2 us for the metrics", more(ours.figure, none.figure), 2.0, " us"),
        at_most("<= 8 us for traces that are not sampled", more(traces.figure, none.figure), 8.0, " us"),
    ]
    return [row]
