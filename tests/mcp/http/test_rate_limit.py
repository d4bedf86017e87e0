"""A rate limit is told over HTTP as HTTP tells it, of the first request of a session as of any other."""

from __future__ import annotations

import json

import pytest

from dragoman.channel import Options
from dragoman.mcp import Server
from dragoman.middleware import rate_limit
from tests.transports.http.cases import post
from tests.transports.http.ends import face
from tests.transports.http.test_behind_proxies import exchanged

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}


@pytest.mark.parametrize("kind", ["native", "asgi"])
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_initialize_is_refused_as_every_request(kind: str, revision: str) -> None:
    server = Server("weather", version="1", middleware=[rate_limit(0.001, burst=1)])
    asked = INITIALIZE | {"params": INITIALIZE["params"] | {"protocolVersion": revision}}  # type: ignore[operator]
    raw = post(json.dumps(asked).encode(), path="/mcp", more="Accept: application/json, text/event-stream\r\n")
    async with face(kind, {"/mcp": server.__servable__()}, Options()) as port:
        first, second = await exchanged(port, raw, raw)
    assert (first.status, second.status) == (200, 429)
    assert int(second.headers["retry-after"]) > 0
    assert second.headers["content-type"] == "application/json"
    told = json.loads(second.body)
    assert told["id"] == 1
    assert told["error"]["data"]["limit"] == "rate"
    assert "mcp-session-id" not in second.headers
