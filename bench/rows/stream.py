"""Newline framing over TCP and Unix sockets, 32 calls in flight on one connection."""

from __future__ import annotations

from bench.figures import Row, at_most, ratio
from bench.referee import Contestant, Referee


def stream(referee: Referee, wire: str, title: str, server: list[str], place: str) -> list[Row]:
    """Beside an echo of lines that does no JSON at all."""
    ours = Contestant("dragoman", server, 40_000)
    limit = Contestant("asyncio line echo", ["-m", "bench.limits.lines", wire, place], 80_000, echo=True)
    gather = Contestant(
        "echo, one write a wake-up", ["-m", "bench.limits.lines", wire, place, "gather"], 80_000, echo=True
    )
    streams = Contestant(
        "echo, start_server + readline", ["-m", "bench.limits.streams", wire, place], 40_000, echo=True
    )
    also = [
        Contestant("async def", server, 20_000, method="subtract_async"),
        Contestant("plain function in a thread", server, 6_000, method="subtract_plain"),
    ]
    referee.over_wire([ours, limit, gather, streams, *also], framing="newline", wire=wire)
    extra = [one.figure for one in (gather, streams, *also)]
    row = Row(wire, title, "us", ours.figure, limit.figure, [], extra)
    row.goals = [at_most("<= 3x the limit", ratio(ours.figure, limit.figure), 3)]
    return [row]


def tcp(referee: Referee) -> list[Row]:
    """TCP."""
    server = ["-m", "bench.servers.wires", "tcp://127.0.0.1:%", "PORT"]
    return stream(referee, "tcp", "TCP, newline, 32 in flight", server, "PORT")


def unix(referee: Referee) -> list[Row]:
    """A Unix socket."""
    server = ["-m", "bench.servers.wires", "unix:%", "SOCKET"]
    return stream(referee, "unix", "Unix socket, newline, 32 in flight", server, "SOCKET")
