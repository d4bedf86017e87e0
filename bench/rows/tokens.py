"""What it costs to find out whose an access token is."""

from __future__ import annotations

from bench.figures import Figure, Row, at_most
from bench.referee import Contestant, Referee

OURS = "bench.servers.tokens"
LIMIT = "bench.limits.tokens"
PEERS = "bench.peers.jwt_peer"


def tokens(referee: Referee) -> list[Row]:
    """A token that was verified before, which the others verify anew; new ones; a DPoP proof; a refusal."""
    cached = Contestant("dragoman", ["-m", OURS], 100_000, task="cached")
    limit = Contestant("a hash and a lookup", ["-m", LIMIT], 200_000, task="cached")
    refused = Contestant("refused, seen before", ["-m", OURS], 20_000, task="refused")
    proof = Contestant("a DPoP proof", ["-m", OURS], 2_000, task="proof")
    new = {name: Contestant(f"dragoman, {name}", ["-m", OURS], 2_000, task=name) for name in ("ES256", "RS256")}
    raw = {name: Contestant(f"the signature, {name}", ["-m", LIMIT], 2_000, task=name) for name in new}
    pyjwt = {name: Contestant(f"PyJWT, {name}", ["-m", PEERS, "pyjwt"], 2_000, task=name, peer="pyjwt") for name in new}
    fastmcp = {
        name: Contestant(f"FastMCP, {name}", ["-m", PEERS, "fastmcp"], 1_000, task=name, peer="fastmcp") for name in new
    }
    referee.in_process([cached, limit, refused, proof])
    for name in new:
        referee.in_process([new[name], raw[name], pyjwt[name], fastmcp[name]])
    rows = [
        Row(
            "token",
            "a token that was verified before",
            "us",
            cached.figure,
            limit.figure,
            [fastmcp["ES256"].figure, pyjwt["ES256"].figure],
            [refused.figure, proof.figure],
        )
    ]
    rows[0].goals = [
        at_most("<= 2 us", _median(cached.figure), 2, " us"),
        at_most("a DPoP proof <= 260 us", _median(proof.figure), 260, " us"),
    ]
    for name, bound in (("ES256", 150), ("RS256", 90)):
        peers = [pyjwt[name].figure, fastmcp[name].figure]
        row = Row(f"token-{name.lower()}", f"a new token, {name}", "us", new[name].figure, raw[name].figure, peers, [])
        row.goals = [at_most(f"<= {bound} us", _median(new[name].figure), bound, " us")]
        rows.append(row)
    return rows


def _median(figure: Figure) -> float | None:
    return figure.median if figure.samples else None
