"""Dispatch in process, bytes to bytes: one request, and a batch of a hundred."""

from __future__ import annotations

from bench.figures import Row, at_least, ratio
from bench.referee import Contestant, Referee

LIMIT = "bench.limits.in_process"
OURS = "bench.servers.in_process"
NODE = "bench/peers/jayson.js"


def speed(cost: float | None) -> float | None:
    """How many times as fast as the other we are, from the ratio of the costs."""
    return None if cost is None else 1 / cost


def percent(cost: float | None) -> float | None:
    """How much of the limit's speed we reach."""
    return None if cost is None else 100 / cost


def dispatch(referee: Referee) -> list[Row]:
    """`subtract`, inline; then a plain function and an `async def`."""
    ours = Contestant("dragoman", ["-m", OURS, "1"], 200_000)
    limit = Contestant("msgspec by hand", ["-m", LIMIT], 400_000)
    pjrpc = Contestant("pjrpc", ["-m", "bench.peers.pjrpc_peer"], 20_000, peer="pjrpc")
    others = [
        Contestant("jsonrpcserver", ["-m", "bench.peers.jsonrpcserver_peer"], 3_000, peer="jsonrpcserver"),
        Contestant("jayson", [NODE], 200_000, peer="jayson"),
    ]
    also = [
        Contestant("plain function, answer", ["-m", OURS, "1"], 100_000, task="plain"),
        Contestant("inline, answer_async", ["-m", OURS, "async"], 100_000),
        Contestant("async def, answer_async", ["-m", OURS, "async"], 40_000, task="async"),
        Contestant("plain function in a thread, answer_async", ["-m", OURS, "async"], 8_000, task="thread"),
    ]
    referee.in_process([ours, limit, pjrpc, *others, *also])
    peers = [one.figure for one in (pjrpc, *others)]
    row = Row(
        "dispatch", "dispatch in process, inline", "us", ours.figure, limit.figure, peers, [a.figure for a in also]
    )
    row.goals = [
        at_least(">= 50 % of the limit", percent(ratio(ours.figure, limit.figure)), 50, " %"),
        at_least(">= 12x pjrpc", speed(ratio(ours.figure, pjrpc.figure)), 12),
    ]
    return [row]


def batch(referee: Referee) -> list[Row]:
    """A batch of 100 calls of `subtract`, inline."""
    ours = Contestant("dragoman", ["-m", OURS, "1"], 3_000, task="batch")
    limit = Contestant("msgspec by hand", ["-m", LIMIT], 8_000, task="batch")
    pjrpc = Contestant("pjrpc", ["-m", "bench.peers.pjrpc_peer"], 300, task="batch", peer="pjrpc")
    others = [
        Contestant("jsonrpcserver", ["-m", "bench.peers.jsonrpcserver_peer"], 30, task="batch", peer="jsonrpcserver"),
        Contestant("jayson", [NODE], 3_000, task="batch", peer="jayson"),
    ]
    also = [Contestant("inline, answer_async", ["-m", OURS, "async"], 2_000, task="batch")]
    referee.in_process([ours, limit, pjrpc, *others, *also])
    peers = [one.figure for one in (pjrpc, *others)]
    row = Row(
        "batch", "batch of 100 in process, inline", "us", ours.figure, limit.figure, peers, [a.figure for a in also]
    )
    row.goals = [at_least(">= 50 % of the limit", percent(ratio(ours.figure, limit.figure)), 50, " %")]
    return [row]
