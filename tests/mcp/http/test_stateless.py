"""The stateless era over HTTP: 2026-07-28's basic/transports/streamable-http, basic/index and basic/versioning."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from dragoman.channel import Options
from dragoman.jsonrpc.limits import Limits
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import NEWEST, R2025_06, R2025_11, R2026_07
from tests.behind import behind
from tests.transports.ends import until
from tests.transports.http.cases import PATIENCE, answer
from tests.transports.http.ends import wire

from ..http_tools import Stage, tools
from ..http_wire import Place, body, called, meta, served, standard


class Deep(Struct):
    """An argument with members of its own."""

    a: int


LIST = body("tools/list", {"_meta": meta()})
LIST_HEADERS = standard("tools/list")


def error(raw: bytes) -> Any:
    return json.loads(raw)["error"]


# -- answers --------------------------------------------------------------------------------------


async def test_a_call_is_answered_in_json(both: tuple[Place, Stage]) -> None:
    """ "a single JSON object" (Sending Messages, 6)."""
    found = await both[0].call("add", {"a": 2, "b": 3})
    assert found.status == 200
    assert found.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in found.headers  # "do not mint or echo session IDs"
    result = json.loads(found.body)["result"]
    assert result["content"] == [{"type": "text", "text": "5"}]
    assert result["resultType"] == "complete"


async def test_calls_of_one_connection(there: tuple[Place, Stage]) -> None:
    """Heads that repeat are known; what is decided about them is applied to each body."""
    place = there[0]
    async with wire(place.port) as (reader, writer):
        for number in range(5):
            raw, headers = called("add", {"a": number, "b": 1})
            writer.write(place.head(headers, len(raw)) + raw)
            assert json.loads((await answer(reader)).body)["result"]["content"][0]["text"] == str(number + 1)
        raw, headers = called("add", {"a": 0, "b": 1})
        raw = raw.replace(b'"add"', b'"abc"')
        writer.write(place.head(headers, len(raw)) + raw)
        assert (await answer(reader)).status == 400


async def test_it_turns_into_a_stream_when_the_handler_speaks_first(both: tuple[Place, Stage]) -> None:
    """ "an SSE stream scoped to that request, carrying request-related notifications followed by the final
    response"."""
    raw, headers = called("talk", {"times": 2}, progressToken="t")
    async with both[0].stream(raw, headers) as events:
        assert events.status == 200
        assert events.headers["content-type"] == "text/event-stream"
        assert (
            events.headers["x-accel-buffering"] == "no"
        )  # "servers SHOULD include the `X-Accel-Buffering: no` header"
        assert events.headers["cache-control"] == "no-store"
        first, second, last = await events.rest()
        assert [first["method"], first["params"]["progress"], second["params"]["progress"]] == [
            "notifications/progress",
            1,
            2,
        ]
        assert last["id"] == 1
        assert last["result"]["content"][0]["text"] == "said"
        assert events.parser.last_id == ""  # "Resumable SSE streams via `Last-Event-ID` are not supported"


async def test_an_accept_without_streams_gets_none(there: tuple[Place, Stage]) -> None:
    raw, headers = called("talk", progressToken="t")
    found = await there[0].ask(raw, headers | {"Accept": "application/json"})
    assert found.headers["content-type"] == "application/json"
    assert json.loads(found.body)["result"]["content"][0]["text"] == "said"


async def test_an_accept_without_json_gets_a_stream(there: tuple[Place, Stage]) -> None:
    raw, headers = called("add", {"a": 1, "b": 1})
    async with there[0].stream(raw, headers | {"Accept": "text/event-stream"}) as events:
        (only,) = await events.rest()
        assert only["result"]["content"][0]["text"] == "2"


async def test_a_quiet_stream_is_kept_alive() -> None:
    """ "servers are encouraged to periodically emit an SSE comment line" (Receiving Messages)."""
    server, stage = tools(http=HttpOptions(keep_alive=0.02))
    async with served(server) as place:
        raw, headers = called("talk_and_wait", progressToken=7)
        async with place.stream(raw, headers) as events:
            assert (await events.message())["method"] == "notifications/progress"
            waiting = asyncio.create_task(events.message())
            await until(lambda: events.comments >= 2)
            stage.go.set()
            assert (await waiting)["params"]["progress"] == 2


async def test_the_callers_going_away_cancels(both: tuple[Place, Stage]) -> None:
    """ "The server MUST treat a client disconnect as cancellation of that request" (basic/patterns/cancellation)."""
    place, stage = both
    raw, headers = called("slow")
    async with wire(place.port) as (_, writer):
        writer.write(place.head(headers, len(raw)) + raw)
        await stage.started.wait()
        writer.transport.abort()
    async with asyncio.timeout(PATIENCE):
        await stage.cancelled.wait()


async def test_closing_the_stream_cancels(there: tuple[Place, Stage]) -> None:
    """ "Closing the SSE response stream MUST be treated by the server as cancellation" (Cancellation)."""
    place, stage = there
    raw, headers = called("talk_and_wait", progressToken=7)
    async with place.stream(raw, headers) as events:
        await events.message()
    async with asyncio.timeout(PATIENCE):
        await stage.cancelled.wait()
    await until(lambda: not behind(place.server).call_limit.in_flight)


async def test_a_hundred_aborted_posts_leave_nothing(there: tuple[Place, Stage]) -> None:
    place, _ = there
    raw, headers = called("slow")
    head = place.head(headers, len(raw))
    for _ in range(100):
        async with wire(place.port) as (_, writer):
            writer.write(head + raw)
            await writer.drain()
            writer.transport.abort()
    assert (await place.call("add", {"a": 1, "b": 1})).status == 200
    await until(lambda: not behind(place.server).call_limit.in_flight and not behind(place.server).host.runs)


async def test_a_notification_is_202_without_a_body(both: tuple[Place, Stage]) -> None:
    """ "the server MUST return HTTP status code 202 Accepted with no body"."""
    found = await both[0].ask(
        body("notifications/cancelled", {"requestId": 9}, id=None), standard("notifications/cancelled")
    )
    assert (found.status, found.body) == (202, b"")


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks", ["protocolVersion", "clientCapabilities"])
async def test_an_envelope_that_lacks_what_it_must_have(there: tuple[Place, Stage], lacks: str) -> None:
    """ "MUST reject it with JSON-RPC error code -32602. On HTTP, the response status MUST be 400" (basic/index)."""
    said = meta()
    del said[f"io.modelcontextprotocol/{lacks}"]
    found = await there[0].ask(body("tools/list", {"_meta": said}, 5), LIST_HEADERS)
    assert (found.status, error(found.body)["code"]) == (400, -32602)
    assert json.loads(found.body)["id"] == 5


async def test_no_envelope_at_all(there: tuple[Place, Stage]) -> None:
    for method in ("tools/list", "server/discover"):
        found = await there[0].ask(body(method), standard(method))
        assert (found.status, error(found.body)["code"]) == (400, -32602)


async def test_client_info_may_be_missing(there: tuple[Place, Stage]) -> None:
    """ "clientInfo ... Required: No" (basic/index)."""
    said = meta()
    del said["io.modelcontextprotocol/clientInfo"]
    assert (await there[0].ask(body("tools/list", {"_meta": said}), LIST_HEADERS)).status == 200


async def test_an_unknown_version(there: tuple[Place, Stage]) -> None:
    """ "400 Bad Request and an UnsupportedProtocolVersionError listing its supported versions"."""
    for headers in (standard("tools/list", version="1900-01-01"), standard("tools/list", version="1900-01-01")):
        found = await there[0].ask(body("tools/list", {"_meta": meta("1900-01-01")}), headers)
        assert found.status == 400
        told = error(found.body)
        assert told["code"] == -32022
        assert told["data"]["requested"] == "1900-01-01"
        assert told["data"]["supported"][0] == NEWEST.date


async def test_an_unknown_version_without_an_envelope(there: tuple[Place, Stage]) -> None:
    found = await there[0].ask(body("tools/list"), {"MCP-Protocol-Version": "1900-01-01"})
    assert (found.status, error(found.body)["code"]) == (400, -32022)


@pytest.mark.parametrize(
    "headers",
    [
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": R2025_06.date},
        {"MCP-Protocol-Version": R2025_11.date},
        {"MCP-Protocol-Version": "1900-01-01"},
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/call"},
        {"Mcp-Method": "Tools/List"},
    ],
)
async def test_headers_that_do_not_say_what_the_body_says(
    both: tuple[Place, Stage], headers: dict[str, str | None]
) -> None:
    """ "servers MUST return HTTP status 400 Bad Request and MUST include [...] -32020" (Server Validation). A legacy
    version over a modern body is a mismatch too."""
    found = await both[0].ask(LIST, LIST_HEADERS | headers)
    assert (found.status, error(found.body)["code"]) == (400, -32020)
    assert json.loads(found.body)["id"] == 1


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("add", 200),
        ("  add  ", 200),
        ("=?base64?YWRk?=", 200),
        ("ADD", 400),
        ("other", 400),
        (None, 400),
        ("=?base64?YWR?=", 400),
        ("=?BASE64?YWRk?=", 400),
        ("ädd", 400),
    ],
)
async def test_the_name_of_a_tool_in_its_header(there: tuple[Place, Stage], name: str | None, status: int) -> None:
    found = await there[0].call("add", {"a": 1, "b": 2}, headers={"Mcp-Name": name})
    assert found.status == status
    if status == 400:
        assert error(found.body)["code"] == -32020


async def test_names_of_headers_have_no_case(there: tuple[Place, Stage]) -> None:
    """ "Clients and servers MUST use case-insensitive comparisons for header names"."""
    raw, headers = called("add", {"a": 1, "b": 2})
    for change in (str.lower, str.upper):
        found = await there[0].ask(raw, {change(name): value for name, value in headers.items()})
        assert found.status == 200


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, 200),
        ({"region": "eu"}, {"mcp-param-REGION": "eu"}, 200),
        ({"region": "eu"}, {}, 400),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, 400),
        ({}, {"Mcp-Param-Region": "us"}, 400),
        ({}, {}, 200),
        ({"region": "Zürich"}, {"Mcp-Param-Region": "=?base64?WsO8cmljaA==?="}, 200),
        ({"count": 42}, {"Mcp-Param-Count": "42.0"}, 200),
        ({"count": 42}, {"Mcp-Param-Count": "=?base64?NDI=?="}, 200),
        ({"count": 42}, {"Mcp-Param-Count": "=?base64?ND!I=?="}, 400),
        ({"count": 42}, {"Mcp-Param-Count": "43"}, 400),
        ({}, {"Mcp-Param-Other": "whatever"}, 200),
    ],
)
async def test_marked_parameters(
    there: tuple[Place, Stage], arguments: Any, headers: dict[str, str | None], status: int
) -> None:
    """ "Any server that processes the message body MUST validate" (Server Behavior for Custom Headers)."""
    found = await there[0].call("marked", arguments, headers=headers)
    assert found.status == status
    if status == 400:
        assert error(found.body)["code"] == -32020


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "no/such"]
)
async def test_a_method_that_is_not_there(there: tuple[Place, Stage], method: str) -> None:
    """ "404 Not Found and a JSON-RPC error with code -32601" (Protocol Version Header)."""
    params = {"_meta": meta(), "uri": "a:b", "level": "info", "protocolVersion": "x", "capabilities": {}}
    params["clientInfo"] = {"name": "a", "version": "1"}
    found = await there[0].ask(body(method, params, "x"), standard(method))
    assert (found.status, error(found.body)["code"]) == (404, -32601)
    assert json.loads(found.body)["id"] == "x"


async def test_a_legacy_initialize_under_a_modern_header(there: tuple[Place, Stage]) -> None:
    params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    found = await there[0].ask(body("initialize", params), standard("initialize"))
    assert 400 <= found.status < 500
    assert "mcp-session-id" not in found.headers


async def test_other_errors_are_answers(there: tuple[Place, Stage]) -> None:
    found = await there[0].call("no such tool")
    assert (found.status, error(found.body)["code"]) == (200, -32602)


@pytest.mark.parametrize("id", [None, 1.5])
async def test_ids_that_are_none(there: tuple[Place, Stage], id: Any) -> None:
    """ "Requests MUST include a string or integer ID. Unlike base JSON-RPC, the ID MUST NOT be `null`"
    (basic/index)."""
    raw = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta()}}).encode()
    found = await there[0].ask(raw, LIST_HEADERS)
    assert (found.status, error(found.body)["code"]) == (400, -32600)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"1", -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b"[" + LIST + b"]", -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}', -32600),
    ],
)
async def test_what_is_not_a_single_request(both: tuple[Place, Stage], raw: bytes, code: int) -> None:
    """ "The body of the HTTP POST MUST be a single JSON-RPC request or notification"."""
    found = await both[0].ask(raw, LIST_HEADERS)
    assert (found.status, error(found.body)["code"]) == (400, code)
    if code == -32700:
        assert "id" not in json.loads(found.body)  # an error response that has no id


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
async def test_other_http_methods(both: tuple[Place, Stage], method: str) -> None:
    """ "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not Allowed"."""
    found = await both[0].ask(b"", LIST_HEADERS, method=method)
    assert found.status == 405
    assert "POST" in found.headers["allow"]


async def test_without_the_stateful_era() -> None:
    server, _ = tools(revisions=[R2026_07])
    async with served(server) as place:
        for method in ("GET", "DELETE"):
            found = await place.ask(b"", {}, method=method)
            assert (found.status, found.headers["allow"]) == (405, "POST")
        # "MUST reject a request without the header per Server Validation"
        found = await place.ask(body("tools/list"))
        assert (found.status, error(found.body)["code"]) == (400, -32020)
        # "SHOULD name the protocol versions it supports in any error it returns to an `initialize` request"
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        found = await place.ask(body("initialize", params))
        assert found.status == 400
        assert error(found.body)["data"] == {"supported": [R2026_07.date], "requested": R2025_11.date}
        # "An `Mcp-Session-Id` header on a request: ignore it"
        raw, headers = called("add", {"a": 1, "b": 1})
        assert (await place.ask(raw, headers | {"Mcp-Session-Id": "x", "Last-Event-ID": "1-1"})).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": None}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "application/json;q=0, text/html"}, 406),
        ({"Accept": None}, 200),
        ({"Accept": "*/*"}, 200),
    ],
)
async def test_content_negotiation(both: tuple[Place, Stage], headers: dict[str, str | None], status: int) -> None:
    found = await both[0].ask(LIST, LIST_HEADERS | headers)
    assert found.status == status
    json.loads(found.body)


async def test_foreign_pages(both: tuple[Place, Stage]) -> None:
    """ "If the `Origin` header is present and invalid, servers MUST respond with HTTP 403 Forbidden"."""
    place, stage = both
    raw, headers = called("add", {"a": 1, "b": 1})
    assert (await place.ask(raw, headers | {"Origin": "http://evil.example.com"})).status == 403
    assert stage.runs == 0


@pytest.mark.parametrize(("face", "hosts"), [("native", None), ("native", ["127.0.0.1"]), ("asgi", ["127.0.0.1"])])
async def test_foreign_hosts(face: str, hosts: list[str] | None) -> None:
    server, stage = tools()
    async with served(server, face, options=Options(hosts=hosts)) as place:
        raw, headers = called("add", {"a": 1, "b": 1})
        assert (await place.ask(raw, headers | {"Host": "evil.example.com"})).status == 421
        assert stage.runs == 0
        assert (await place.ask(raw, headers)).status == 200


async def test_busy_is_503() -> None:
    server, stage = tools(limits=Limits(calls=1))
    async with served(server, options=Options(limits=Limits(calls=1))) as place:
        raw, headers = called("slow")
        first = asyncio.create_task(place.ask(raw, headers))
        await stage.started.wait()
        found = await place.call("add", {"a": 1, "b": 1})
        assert (found.status, error(found.body)["code"]) == (503, -32603)
        assert found.headers["retry-after"] == "1"
        stage.go.set()
        assert (await first).status == 200


async def test_several_posts_at_once(both: tuple[Place, Stage]) -> None:
    found = await asyncio.gather(*(both[0].call("add", {"a": n, "b": 0}, id=1) for n in range(20)))
    assert [json.loads(one.body)["result"]["content"][0]["text"] for one in found] == [str(n) for n in range(20)]


# -- what the headers say is what is done ---------------------------------------------------------

META = json.dumps(meta())
TWICE = [
    # params, Mcp-Name, whether they agree; of two members with one name the last counts
    ("tools/call", '"name":"slow","name":"at_once"', "at_once", True),
    ("tools/call", '"name":"slow","name":"at_once"', "slow", False),
    ("tools/call", '"name":"slow","na\\u006de":"at_once"', "slow", False),
    ("tools/call", '"name":"at_once","uri":"slow"', "slow", False),
    # members that the method has not, of a kind that it would not take
    ("tools/call", '"name":"at_once","uri":5', "slow", False),
    ("tools/call", '"name":"at_once","uri":5', "at_once", True),
    ("prompts/get", '"name":"greet","uri":[1]', "other", False),
    ("resources/read", '"uri":"test://one","name":5', "test://two", False),
    ("resources/read", '"uri":"test://one","name":5', "test://one", True),
    ("resources/read", '"uri":"test://two","uri":"test://one"', "test://two", False),
]


@pytest.mark.parametrize(("method", "members", "name", "agree"), TWICE)
async def test_the_header_and_the_method_see_the_same_name(
    there: tuple[Place, Stage], method: str, members: str, name: str, agree: bool
) -> None:
    place, _ = there
    place.server.add_prompt(lambda: "hello", name="greet")
    place.server.add_resource(lambda: "one", "test://one", name="one")
    raw = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{members},"_meta":{META}}}}}'
    found = await place.ask(raw.encode(), standard(method, name))
    assert (found.status, b"-32020" in found.body) == ((200, False) if agree else (400, True)), found.body


ARGUMENTS = [
    ('{"region":"eu","region":"us"}', "us", True),
    ('{"region":"eu","region":"us"}', "eu", False),
    ('{"region":"eu"},"arguments":{"region":"us"}', "eu", False),
    ('{"region":"eu","deep":{"a":1,"b":1e400}}', None, False),
    ('{"region":"eu","deep":{"a":1,"b":1e400}}', "eu", False),
]


@pytest.mark.parametrize(("arguments", "header", "agree"), ARGUMENTS)
async def test_the_header_and_the_tool_see_the_same_argument(
    there: tuple[Place, Stage], arguments: str, header: str | None, agree: bool
) -> None:
    """A number that nothing holds, in a place that the tool passes over, hides nothing from the headers."""
    place, _ = there

    @place.server.tool
    async def routed(
        region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})], deep: Deep | None = None
    ) -> str:
        return region

    raw = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"routed","arguments":{arguments},"_meta":{META}}}}}'
    found = await place.ask(raw.encode(), standard("tools/call", "routed") | {"Mcp-Param-Region": header})
    assert (found.status, b"-32020" in found.body) == ((200, False) if agree else (400, True)), found.body
    if agree:
        assert json.loads(found.body)["result"]["content"][0]["text"] == header


@pytest.mark.parametrize("token", [1.5, True, None, {}, ["t"]])
async def test_a_progress_token_is_a_text_or_an_integer(there: tuple[Place, Stage], token: Any) -> None:
    """basic/patterns/progress: "Progress tokens MUST be a string or integer value"; it is the caller's fault."""
    place, _ = there
    raw, headers = called("talk", progressToken=token)
    found = await place.ask(raw, headers)
    error = json.loads(found.body)["error"]
    assert (found.status, error["code"]) == (400, -32602)
    assert "progressToken" in error["message"]
