"""What each middleware of `dragoman.middleware` costs a call: beside one that does nothing, and beside none."""

from __future__ import annotations

from bench.figures import Row
from bench.referee import Contestant, Referee

PROGRAM = "bench.servers.middleware"
NAMES = ("timing", "audit", "rate_limit", "response_cache", "size_limit", "map_errors")


def middleware(referee: Referee) -> list[Row]:
    """`subtract`, inline, bytes to bytes in process, with middleware that does nothing."""
    made = [Contestant("nothing", ["-m", PROGRAM, "nothing"], 50_000)]
    made += [Contestant("no middleware", ["-m", PROGRAM, "none"], 50_000)]
    made += [Contestant(name, ["-m", PROGRAM, name], 50_000) for name in NAMES]
    referee.in_process(made)
    also = [one.figure for one in made[1:]]
    return [Row("middleware", "a call with middleware that does nothing", "us", made[0].figure, None, [], also)]
