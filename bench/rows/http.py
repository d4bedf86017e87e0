"""JSON-RPC over HTTP with keep-alive: the native front, and the ASGI app on uvicorn."""

from __future__ import annotations

from bench.figures import Row, at_least, at_most, ratio
from bench.referee import Contestant, Referee
from bench.rows.in_process import NODE, percent, speed

SERVER = ["-m", "bench.servers.wires", "http://127.0.0.1:%", "PORT"]


def native(referee: Referee, connections: int, calls: int) -> list[Row]:
    """The native front beside a bare protocol with the same parser."""
    ours = Contestant("dragoman", SERVER, calls)
    limit = Contestant("Protocol + httptools + msgspec", ["-m", "bench.limits.http", "PORT"], calls)
    pjrpc = Contestant("pjrpc on aiohttp", ["-m", "bench.peers.pjrpc_peer", "PORT"], calls // 4, peer="pjrpc")
    jayson = Contestant("jayson", [NODE, "PORT"], calls, peer="jayson")
    program = ["-m", "bench.peers.jsonrpcserver_peer", "PORT"]
    slow = Contestant("jsonrpcserver on aiohttp", program, calls // 8, peer="jsonrpcserver")
    also = []
    if connections == 32:
        also = [
            Contestant("on uvloop", [*SERVER, "uvloop"], calls),
            Contestant("the limit on uvloop", ["-m", "bench.limits.http", "PORT", "uvloop"], calls),
            Contestant("async def", SERVER, calls // 2, method="subtract_async"),
            Contestant("plain function in a thread", SERVER, calls // 4, method="subtract_plain"),
        ]
    referee.over_wire([ours, limit, pjrpc, jayson, slow, *also], framing="http", connections=connections)
    peers = [one.figure for one in (pjrpc, jayson, slow)]
    title = f"HTTP keep-alive, native front, c = {connections}"
    row = Row(f"http{connections}", title, "us", ours.figure, limit.figure, peers, [a.figure for a in also])
    row.goals = [
        at_most("<= 1.7x the limit", ratio(ours.figure, limit.figure), 1.7),
        at_least(">= 8x pjrpc on aiohttp", speed(ratio(ours.figure, pjrpc.figure)), 8),
        at_least("ahead of jayson", speed(ratio(ours.figure, jayson.figure)), 1),
    ]
    return [row]


def native_32(referee: Referee) -> list[Row]:
    """32 connections."""
    return native(referee, 32, 16_000)


def native_256(referee: Referee) -> list[Row]:
    """256 connections."""
    return native(referee, 256, 16_000)


def asgi(referee: Referee) -> list[Row]:
    """`http_app` on uvicorn with httptools and uvloop."""
    ours = Contestant("dragoman", ["-m", "bench.servers.asgi", "PORT"], 12_000)
    limit = Contestant("raw ASGI app + msgspec", ["-m", "bench.limits.asgi", "PORT"], 12_000)
    program = ["-m", "bench.peers.fastapi_jsonrpc_peer", "PORT"]
    named = '{"minuend":42,"subtrahend":23}'  # it takes no positional params
    fastapi = Contestant("fastapi-jsonrpc", program, 2_000, peer="fastapi-jsonrpc", params=named)
    referee.over_wire([ours, limit, fastapi], framing="http", connections=32)
    title = "HTTP as an ASGI app on uvicorn, c = 32"
    row = Row("asgi", title, "us", ours.figure, limit.figure, [fastapi.figure])
    row.goals = [at_least(">= 75 % of the limit", percent(ratio(ours.figure, limit.figure)), 75, " %")]
    return [row]
