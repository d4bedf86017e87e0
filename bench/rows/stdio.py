"""stdio with Content-Length framing, 32 calls in flight; the load is the parent of the server."""

from __future__ import annotations

from bench.figures import Row, at_least, ratio
from bench.referee import Contestant, Referee
from bench.rows.in_process import speed

SERVER = ["-m", "bench.servers.wires", "stdio:?framing=content-length"]


def stdio(referee: Referee) -> list[Row]:
    """Beside the peers that language servers are written with."""
    ours = Contestant("dragoman", SERVER, 40_000)
    limit = Contestant("bare loop + msgspec", ["-m", "bench.limits.stdio"], 80_000)
    pylsp = Contestant("pylsp-jsonrpc", ["-m", "bench.peers.pylsp_jsonrpc_peer"], 40_000, peer="pylsp-jsonrpc")
    vscode = Contestant("vscode-jsonrpc", ["bench/peers/vscode_jsonrpc.js"], 40_000, peer="vscode-jsonrpc")
    pygls = Contestant("pygls", ["-m", "bench.peers.pygls_peer"], 1_500, peer="pygls")
    also = [
        Contestant("async def", SERVER, 20_000, method="subtract_async"),
        Contestant("plain function in a thread", SERVER, 6_000, method="subtract_plain"),
    ]
    referee.over_wire([ours, limit, pylsp, vscode, pygls, *also], framing="content-length", wire="stdio")
    peers = [one.figure for one in (pylsp, vscode, pygls)]
    title = "stdio, Content-Length, 32 in flight"
    row = Row("stdio", title, "us", ours.figure, limit.figure, peers, [a.figure for a in also])
    row.goals = [
        at_least("ahead of pylsp-jsonrpc", speed(ratio(ours.figure, pylsp.figure)), 1),
        at_least("ahead of vscode-jsonrpc", speed(ratio(ours.figure, vscode.figure)), 1),
    ]
    return [row]
