"""Peer to peer in memory: both ends in one process, one awaited call after the other."""

from __future__ import annotations

from bench.figures import Row, at_least
from bench.referee import Contestant, Referee

PROGRAM = ["-m", "bench.servers.memory"]


def memory(referee: Referee) -> list[Row]:
    """The cost of both peers together."""
    ours = Contestant("dragoman", PROGRAM, 20_000)
    limit = Contestant("call_soon + msgspec by hand", ["-m", "bench.limits.memory"], 20_000)
    also = [
        Contestant("async def", PROGRAM, 20_000, task="async"),
        Contestant("32 at once, for all", PROGRAM, 700, task="together"),
    ]
    referee.in_process([ours, limit, *also])
    row = Row(
        "memory", "peer to peer in memory, awaited call", "us", ours.figure, limit.figure, also=[a.figure for a in also]
    )
    rate = 1e3 / ours.figure.median if ours.figure.samples else None
    row.goals = [at_least(">= 50 k calls/s", rate, 50, " k/s")]
    return [row]
