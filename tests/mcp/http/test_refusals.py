"""What the front turns away before an endpoint sees it: at MCP's endpoint that is JSON-RPC too.

2026-07-28, basic/transports/streamable-http: "If the `Origin` header is present and invalid, servers MUST respond with
HTTP 403 Forbidden. The HTTP response body MAY comprise a JSON-RPC error response that has no `id`".
"""

from __future__ import annotations

import json

import pytest

from dragoman.channel import Options
from dragoman.jsonrpc.limits import Limits
from tests.transports.http.cases import answer
from tests.transports.http.ends import wire

from ..http_tools import tools
from ..http_wire import body, called, served

REFUSED: list[tuple[str, dict[str, str | None], bytes, int, str]] = [
    ("host", {"Host": "evil.example"}, b"", 421, "evil.example"),
    ("origin", {"Origin": "http://evil.example"}, b"", 403, "origin"),
    ("size", {}, b"x" * 2000, 413, "message_size"),
    ("chunks", {"Transfer-Encoding": "chunked", "Content-Length": None}, b"7d0\r\n" + b"x" * 2000, 413, "message_size"),
    ("expectation", {"Expect": "a miracle"}, b"", 417, "expectation"),
    ("time", {"Content-Length": "20"}, b"{", 408, "body"),
]


@pytest.mark.parametrize("kind", ["native", "asgi"])
@pytest.mark.parametrize(
    ("headers", "raw", "status", "words"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
async def test_what_the_front_refuses_is_an_error_without_an_id(
    kind: str, headers: dict[str, str | None], raw: bytes, status: int, words: str
) -> None:
    if kind == "asgi" and status == 417:
        pytest.skip("an ASGI server meets expectations by itself")
    server, _ = tools()
    options = Options(limits=Limits(message_size=1000, body_timeout=0.2), hosts=["127.0.0.1"])
    async with served(server, kind, options) as place, wire(place.port) as (reader, writer):
        head = place.head(called("add")[1] | {"Content-Length": str(len(raw))} | headers, len(raw))
        if "Transfer-Encoding" in headers:
            lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
            head = b"\r\n".join(lines)
        elif "Content-Length" in headers:
            head = head.replace(b"Content-Length: 1\r\n", b"Content-Length: 20\r\n")
        writer.write(head + raw)
        found = await answer(reader)
        assert found.status == status
        assert found.headers["content-type"] == "application/json"
        told = json.loads(found.body)
        assert told.keys() == {"jsonrpc", "error"}
        assert told["error"]["code"] == -32600
        assert words in json.dumps(told["error"])


async def test_elsewhere_it_is_said_in_words() -> None:
    """A JSON-RPC error at a path that is not an endpoint would tell a client that there is one."""
    server, _ = tools()
    async with served(server) as place:
        found = await place.ask(body("ping"), path="/other")
        assert (found.status, json.loads(found.body)) == (
            404,
            {"error": "There is nothing at /other; served here: /mcp"},
        )
