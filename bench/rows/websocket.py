"""WebSocket, 32 calls in flight on one connection, no compression."""

from __future__ import annotations

from bench.figures import Row, at_most, ratio
from bench.referee import Contestant, Referee

SERVER = ["-m", "bench.servers.wires", "ws://127.0.0.1:%", "PORT"]


def websocket(referee: Referee) -> list[Row]:
    """Beside the echo of the same library."""
    ours = Contestant("dragoman", SERVER, 16_000)
    limit = Contestant("echo of websockets", ["-m", "bench.limits.websocket", "PORT"], 16_000, echo=True)
    also = [Contestant("async def", SERVER, 10_000, method="subtract_async")]
    referee.over_wire([ours, limit, *also], framing="websocket")
    row = Row("websocket", "WebSocket, 32 in flight", "us", ours.figure, limit.figure, [], [a.figure for a in also])
    row.goals = [at_most("<= 1.5x the limit", ratio(ours.figure, limit.figure), 1.5)]
    return [row]
