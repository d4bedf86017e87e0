"""What a server over HTTP MUST and SHOULD do, sentence by sentence (basic/transports; 2026's streamable-http)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.mcp.protocol.revisions import NEWEST, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision

from ..http_tools import Stage, tools
from ..http_wire import Place, body, called, meta, served, standard

VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.fixture
async def there() -> AsyncIterator[tuple[Place, Stage]]:
    server, stage = tools()
    async with served(server) as place:
        yield place, stage


@pytest.fixture
def place(there: tuple[Place, Stage]) -> Place:
    return there[0]


def code(raw: bytes) -> Any:
    return json.loads(raw)["error"]["code"]


# -- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tools/list", "tools/of/the/future", "initialize"])
async def test_an_unknown_version_is_a_400_that_lists_the_known(place: Place, method: str) -> None:
    """basic/transports/streamable-http: "If the server does not implement the requested protocol version [...] it MUST
    respond with `400 Bad Request` and an `UnsupportedProtocolVersionError` listing its supported versions"."""
    params = {"_meta": {VERSION: "2099-01-01", "io.modelcontextprotocol/clientCapabilities": ["other"]}, "more": 1}
    found = await place.ask(body(method, params), standard(method, version="2099-01-01"))
    assert (found.status, code(found.body)) == (400, -32022)
    assert json.loads(found.body)["error"]["data"]["supported"] == [*reversed(REVISIONS)]
    told = await place.ask(body(method, params, id=None), standard(method, version="2099-01-01"))
    assert told.status == 400


async def test_an_unknown_method_is_a_404_that_says_which(place: Place) -> None:
    """ "it MUST respond with `404 Not Found` and a JSON-RPC error with code `-32601`"."""
    for method in ("no/such", "ping", "logging/setLevel", "resources/subscribe", "notifications/initialized"):
        found = await place.ask(body(method, {"_meta": meta()}), standard(method))
        assert (found.status, code(found.body)) == (404, -32601), method


HEADERS: list[tuple[dict[str, str | None], int]] = [
    ({}, 200),
    ({"mcp-method": "tools/call", "Mcp-Method": None}, 200),
    ({"MCP-PROTOCOL-VERSION": NEWEST.date, "MCP-Protocol-Version": None}, 200),
    ({"Mcp-Method": "TOOLS/CALL"}, 400),
    ({"Mcp-Method": "tools/call "}, 200),
    ({"Mcp-Method": None}, 400),
    ({"Mcp-Method": ""}, 400),
    ({"Mcp-Method": "=?base64?dG9vbHMvY2FsbA==?="}, 400),
    ({"Mcp-Name": "Add"}, 400),
    ({"Mcp-Name": None}, 400),
    ({"Mcp-Name": "=?base64?YWRk?="}, 200),
    ({"Mcp-Name": "=?BASE64?YWRk?="}, 400),
    ({"Mcp-Name": "=?base64?YWRk"}, 400),
    ({"Mcp-Name": "=?base64?!!!?="}, 400),
    ({"Mcp-Name": "=?base64?/w==?="}, 400),
    ({"MCP-Protocol-Version": R2025_11.date}, 400),
    ({"Mcp-Param-Unknown": "\x80 anything"}, 200),
]


@pytest.mark.parametrize(("headers", "status"), HEADERS, ids=[str(one[0]) for one in HEADERS])
async def test_headers_repeat_the_body(place: Place, headers: dict[str, str | None], status: int) -> None:
    """ "Servers that process the request body MUST reject requests where the values specified in the headers do not
    match", "Clients and servers MUST use case-insensitive comparisons for header names", values "are case-sensitive",
    "servers MUST decode encoded values before comparing", "MUST return HTTP status `400 Bad Request`" and -32020."""
    found = await place.call("add", {"a": 1, "b": 2}, headers=headers)
    assert found.status == status, found.body
    if status == 400:
        assert code(found.body) == -32020


async def test_a_header_that_comes_twice_agrees_with_nothing(place: Place) -> None:
    """Server Validation: "different sources of truth" are what the rule is against."""
    raw, headers = called("add", {"a": 1, "b": 2})
    for name in ("Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"):
        found = await place.ask(raw, headers | {name: f"{headers[name]}\r\n{name}: {headers[name]}"})
        assert found.status == 400, name


# -- what a POST is ---------------------------------------------------------------------------------

BODIES: list[tuple[bytes, int, int]] = [
    (b"", 400, -32700),
    (b"{", 400, -32700),
    (b"\xff", 400, -32700),
    (b"null", 400, -32600),
    (b"[]", 400, -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', 400, -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', 400, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', 400, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{}}}', 400, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":null}}', 400, -32602),
]


@pytest.mark.parametrize(("raw", "status", "expected"), BODIES, ids=[str(one[0][:50]) for one in BODIES])
async def test_a_post_is_one_request_or_notification(place: Place, raw: bytes, status: int, expected: int) -> None:
    """ "The body of the HTTP POST MUST be a single JSON-RPC request or notification"; "The HTTP response body MAY
    comprise a JSON-RPC error response that has no `id`"; basic/index: "On HTTP, the response status MUST be `400`"."""
    found = await place.ask(raw, standard("tools/list"))
    assert (found.status, code(found.body)) == (status, expected)
    assert found.headers["content-type"] == "application/json"
    answer = json.loads(found.body)
    assert answer.get("id", 1) == 1


async def test_a_notification_is_accepted_without_a_body(place: Place) -> None:
    """ "If the server accepts it, the server MUST return HTTP status code `202 Accepted` with no body"."""
    raw = body("notifications/cancelled", {"requestId": 1, "_meta": meta()}, id=None)
    found = await place.ask(raw, standard("notifications/cancelled"))
    assert (found.status, found.body) == (202, b"")


@pytest.mark.parametrize("path", ["/", "/mcp//", "/mcp/x", "/MCP", "/sse", "/messages"])
async def test_there_is_one_endpoint(place: Place, path: str) -> None:
    """ "The server MUST provide a single HTTP endpoint path"."""
    raw, headers = called("add", {"a": 1, "b": 2})
    assert (await place.ask(raw, headers, path=path)).status == 404


async def test_a_slash_at_the_end_of_the_path_makes_no_difference(place: Place) -> None:
    """Clients add it and leave it out, and follow no redirect with a POST."""
    raw, headers = called("add", {"a": 1, "b": 2})
    assert (await place.ask(raw, headers, path="/mcp/")).status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_other_methods_are_not_for_the_endpoint(place: Place, method: str) -> None:
    """ "HTTP GET or DELETE to the MCP endpoint: respond with `405 Method Not Allowed`"."""
    found = await place.ask(headers=standard("tools/list"), method=method)
    assert found.status == 405
    assert "POST" in found.headers["allow"]


ACCEPTS: list[tuple[str | None, int, str]] = [
    (None, 200, "application/json"),
    ("*/*", 200, "application/json"),
    ("application/json", 200, "application/json"),
    ("text/event-stream", 200, "text/event-stream"),
    ("Application/JSON;q=0.5, TEXT/event-stream", 200, "application/json"),
    ("application/json;q=0, text/event-stream", 200, "text/event-stream"),
    ("text/html", 406, "application/json"),
    ("text/*", 200, "text/event-stream"),
    ("application/*", 200, "application/json"),
    ("application/json;q=none, text/event-stream", 200, "text/event-stream"),
    ("application/json;q=none", 406, "application/json"),
]


@pytest.mark.parametrize(("accept", "status", "kind"), ACCEPTS, ids=[str(one[0]) for one in ACCEPTS])
async def test_an_answer_is_json_or_events(place: Place, accept: str | None, status: int, kind: str) -> None:
    """ "the server MUST return either `Content-Type: application/json` [...] or `Content-Type: text/event-stream`"."""
    found = await place.call("add", {"a": 1, "b": 2}, headers={"Accept": accept})
    assert found.status == status
    assert found.headers["content-type"].partition(";")[0] == kind


async def test_a_stream_ends_with_its_answer(place: Place) -> None:
    """ "These notifications MUST relate to the originating client request", "The final JSON-RPC response SHOULD
    terminate the stream", "servers SHOULD include the `X-Accel-Buffering: no` header"."""
    raw, headers = called("talk", {"times": 3}, progressToken="mine")
    async with place.stream(raw, headers) as events:
        assert events.headers["x-accel-buffering"] == "no"
        *ahead, last = await events.rest()
    assert [one["params"]["progressToken"] for one in ahead] == ["mine"] * 3
    assert last["result"]["resultType"] == "complete"


async def test_a_client_that_goes_away_cancels(there: tuple[Place, Stage]) -> None:
    """ "Closing the SSE response stream MUST be treated by the server as cancellation of that request"."""
    place, stage = there
    raw, headers = called("talk_and_wait", progressToken=1)
    async with place.stream(raw, headers) as events:
        assert (await events.message())["method"] == "notifications/progress"
        assert not stage.cancelled.is_set()
    await asyncio.wait_for(stage.cancelled.wait(), 10)


async def test_an_error_with_a_status_of_its_own_is_json_to_whatever_accepts_only_events(place: Place) -> None:
    found = await place.ask(body("no/such", {"_meta": meta()}), standard("no/such") | {"Accept": "text/event-stream"})
    assert (found.status, found.headers["content-type"], code(found.body)) == (404, "application/json", -32601)


async def test_a_notification_that_is_refused_is_an_error_without_an_id(place: Place) -> None:
    """ "If the server cannot accept it, the server MUST return an HTTP error status code"; its body "has no `id`"."""
    method, version = "notifications/cancelled", "2099-01-01"
    found = await place.ask(body(method, {"_meta": meta(version)}, None), standard(method, version=version))
    assert (found.status, code(found.body), "id" in json.loads(found.body)) == (400, -32022, False)
    assert "retry-after" not in found.headers


async def test_why_several_requests_at_once_are_refused(place: Place) -> None:
    for raw, words in (
        (b"[" + body("tools/list") + b"]", "no batches"),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', "waits"),
    ):
        found = await place.ask(raw, standard("tools/list"))
        assert (found.status, words in json.loads(found.body)["error"]["message"]) == (400, True)


# -- the stateful era -----------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_s_version_header_is_one_that_is_known(place: Place, revision: Revision) -> None:
    """2025-11-25's basic/transports: "If the server receives a request with an invalid or unsupported
    `MCP-Protocol-Version`, it MUST respond with `400 Bad Request`"."""
    sitting = await place.begin(revision)
    ping = body("ping")
    assert (await sitting.post(ping)).status == 200
    for version in ("2099-01-01", "", "1", f"{revision.date}, {revision.date}"):
        assert (await sitting.post(ping, {"MCP-Protocol-Version": version})).status == 400, version
    # "if the server does not receive an `MCP-Protocol-Version` header [...] SHOULD assume protocol version
    # `2025-03-26`";
    # here it can be identified: "for example, by relying on the protocol version negotiated during initialization"
    assert (await sitting.post(ping, {"MCP-Protocol-Version": None})).status == 200


@pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_session_that_is_none_is_a_404_and_none_at_all_a_400(place: Place, revision: Revision) -> None:
    """2025-11-25's basic/transports, Session Management 3 and 2: "it MUST respond to requests containing that session
    ID with HTTP 404 Not Found", "SHOULD respond to requests without an `MCP-Session-Id` header [...] with HTTP 400"."""
    sitting = await place.begin(revision)
    for raw in (body("ping"), body("notifications/initialized", id=None), b'{"jsonrpc":"2.0","id":1,"result":{}}'):
        assert (await sitting.post(raw, {"Mcp-Session-Id": "none"})).status == 404
        assert (await sitting.post(raw, {"Mcp-Session-Id": None})).status == 400
        assert (await sitting.post(raw, {"Mcp-Session-Id": sitting.id.swapcase()})).status == 404
    assert all("\x21" <= letter <= "\x7e" for letter in sitting.id)
    other = await place.begin(revision)
    assert other.id != sitting.id
    assert (await sitting.place.ask(headers=sitting.headers, method="DELETE")).status in (200, 204)
    assert (await sitting.post(body("ping"))).status == 404
    assert (await other.post(body("ping"))).status == 200


async def test_both_eras_on_one_endpoint(place: Place) -> None:
    """basic/versioning: the era is the server's property, and ours has both."""
    sitting = await place.begin(R2025_11)
    assert (await place.call("add", {"a": 1, "b": 2})).status == 200
    assert (await sitting.post(sitting.tool("add", a=1, b=2))).status == 200
    # a session's id means nothing to a stateless request
    found = await place.call("add", {"a": 1, "b": 2}, headers={"Mcp-Session-Id": "none"})
    assert found.status == 200
    assert "mcp-session-id" not in found.headers
    assert (
        R2026_07.date
        in json.loads((await place.ask(body("server/discover", {"_meta": meta()}), standard("server/discover"))).body)[
            "result"
        ]["supportedVersions"]
    )
