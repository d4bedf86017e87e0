"""Authorization: a call over HTTP with a token beside a call without."""

from __future__ import annotations

import json

from bench.figures import Row, at_most, ratio
from bench.referee import Contestant, Referee
from bench.rows.mcp_http import CONNECTIONS, SERVER, STATELESS

PROGRAM = ["-m", "bench.servers.auth"]


def http(referee: Referee) -> list[Row]:
    """MCP's `tools/call` of 2026-07-28 with a known token, with none, and where none is asked for."""
    from bench.servers.tokens import KEYS, token

    key = KEYS["ES256"]
    argv = [*PROGRAM, "PORT", json.dumps(key.public_jwk())]
    shown = {"lines": [f"Authorization: Bearer {token(key)}"]}
    ours = Contestant("dragoman", argv, 8_000, mcp=STATELESS | shown)
    refused = Contestant("refused with 401", argv, 8_000, mcp=STATELESS | {"refused": True})
    open_ = Contestant("without authorization", SERVER, 8_000, mcp=STATELESS)
    referee.over_wire([ours, refused, open_], framing="http", connections=CONNECTIONS)
    title = "MCP tools/call, HTTP 2026-07-28, with a token"
    row = Row("auth-http", title, "us", ours.figure, None, [], [open_.figure, refused.figure])
    row.goals = [
        at_most("<= 1.1x without", ratio(ours.figure, open_.figure), 1.1),
        at_most("a 401 <= 12 us", refused.figure.median, 12.0, " us"),
    ]
    return [row]
