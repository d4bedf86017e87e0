"""The client over HTTP: which era an endpoint speaks, headers, lost sessions (basic/transports)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.auth import Token
from dragoman.channel import Closed
from dragoman.jsonrpc.errors import BadAnswer, RpcError
from dragoman.mcp.client import negotiation
from dragoman.mcp.client.client import Client
from dragoman.mcp.client.http.posts import StreamableHttp
from dragoman.mcp.client.http.refusals import HttpRefused
from dragoman.mcp.client.subscriptions import Changed
from dragoman.mcp.protocol.revisions import R2024_11, R2025_11, R2026_07

from ...scripted import discovered, initialized
from ...scripted_http import Scripted, Seen, Talk, answer, error, forever, scripted

SAID = {"resultType": "complete", "content": []}
Handler = Callable[[Seen, Talk], Awaitable[None] | None]


@pytest.fixture(autouse=True)
def _forgetful() -> None:
    """No test knows what another found out about a port."""
    negotiation._remembered.clear()


def modern(handler: Handler) -> Any:
    """A server of the stateless era."""

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "POST" and seen.message["method"] == "server/discover":
            talk.result(seen, discovered(tools={}).value)
            return
        waits = handler(seen, talk)
        if waits is not None:
            await waits

    return scripted(script)


def legacy(handler: Handler, *, refusal: Any = None, status: str = "400 Bad Request", session: str = "s-1") -> Any:
    """A server of the stateful era, with sessions s-1, s-2 ..."""
    sessions: list[str] = []

    async def script(seen: Seen, talk: Talk) -> None:
        method = seen.message["method"] if seen.method == "POST" else seen.method
        if method == "server/discover":
            talk.say(refusal, status)
        elif method == "initialize":
            sessions.append(f"s-{len(sessions) + 1}")
            talk.result(seen, initialized().value, headers={"Mcp-Session-Id": sessions[-1]} if session else {})
        elif method == "GET":
            talk.say(None, "405 Method Not Allowed")
        elif method == "DELETE":
            talk.say(None, "204 No Content")
        elif "id" not in seen.message:
            talk.say(None, "202 Accepted")
        else:
            waits = handler(seen, talk)
            if waits is not None:
                await waits

    return scripted(script)


def methods(server: Scripted) -> list[str]:
    return [one.message["method"] if one.method == "POST" else one.method for one in server.seen]


async def test_every_call_of_the_stateless_era_has_its_headers() -> None:
    """basic/transports/streamable-http, Request Metadata: version, method and name mirror the body."""
    async with (
        modern(lambda seen, talk: talk.result(seen, SAID)) as server,
        Client(server.url, headers={"X-Ours": "1"}) as client,
    ):
        assert client.revision is R2026_07
        await client.call_tool("tést")
    discover, call = server.seen
    for one in (discover, call):
        assert one.headers["mcp-protocol-version"] == "2026-07-28"
        assert one.headers["x-ours"] == "1"
        assert "mcp-session-id" not in one.headers
        assert {"application/json", "text/event-stream"} <= {part.strip() for part in one.headers["accept"].split(",")}
    assert discover.headers["mcp-method"] == "server/discover"
    assert "mcp-name" not in discover.headers
    assert (call.headers["mcp-method"], call.headers["mcp-name"]) == ("tools/call", "=?base64?dMOpc3Q=?=")


async def test_resources_and_prompts_are_named_too() -> None:
    """ "`params.name` or `params.uri`: `tools/call`, `resources/read`, `prompts/get` requests"."""

    def handler(seen: Seen, talk: Talk) -> None:
        talk.result(seen, {"resultType": "complete", "contents": [], "messages": [], "ttlMs": 0})

    async with modern(handler) as server, Client(server.url) as client:
        await client.read_resource("file:///a/b")
        await client.get_prompt("p")
    assert [one.headers.get("mcp-name") for one in server.seen] == [None, "file:///a/b", "p"]


REGION = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "Deep-N"}}},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "plain": {"type": "string"},
    },
}


def page(*tools: Any) -> dict[str, Any]:
    return {"resultType": "complete", "tools": list(tools), "ttlMs": 60_000, "cacheScope": "public"}


async def test_marked_arguments_become_headers() -> None:
    """basic/transports/streamable-http, Client Behavior; `null` and absent arguments have none."""

    def handler(seen: Seen, talk: Talk) -> None:
        listing = seen.message["method"] == "tools/list"
        talk.result(seen, page({"name": "t", "inputSchema": REGION}) if listing else SAID)

    async with modern(handler) as server, Client(server.url) as client:
        await client.list_tools()
        await client.call_tool("t", {"region": "Köln", "deep": {"n": -7}, "flag": True, "plain": "x"})
        await client.call_tool("t", {"region": None})
    first, second = ({k: v for k, v in one.headers.items() if "param" in k} for one in server.seen[-2:])
    assert first == {"mcp-param-region": "=?base64?S8O2bG4=?=", "mcp-param-deep-n": "-7", "mcp-param-flag": "true"}
    assert second == {}


async def test_a_header_mismatch_asks_for_the_tools_and_calls_once_more() -> None:
    """ "the client SHOULD call `tools/list` to check for changes, then retry the original request"."""

    def handler(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "tools/list":
            talk.result(seen, page({"name": "t", "inputSchema": REGION}))
        elif "mcp-param-region" in seen.headers:
            talk.result(seen, SAID)
        else:
            talk.say(error(-32020, "Header mismatch", id=seen.id), "400 Bad Request")

    async with modern(handler) as server, Client(server.url) as client:
        await client.call_tool("t", {"region": "eu"})
        assert methods(server)[1:] == ["tools/call", "tools/list", "tools/call"]
        with pytest.raises(RpcError, match="Header mismatch"):
            await client.call_tool("other", {})
        assert methods(server)[4:] == ["tools/call", "tools/list", "tools/call"]


async def test_tools_with_bad_headers_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """ "the client MUST exclude the invalid tool from the result of `tools/list`" and "SHOULD log a warning"."""
    bad = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "bad name"}}}
    tools = [{"name": "fine", "inputSchema": REGION}, {"name": "spoilt", "inputSchema": bad}]
    async with modern(lambda seen, talk: talk.result(seen, page(*tools))) as server, Client(server.url) as client:
        with caplog.at_level(logging.WARNING, "dragoman.mcp"):
            assert [one.name for one in await client.list_tools()] == ["fine"]
    assert "'spoilt'" in caplog.text
    assert "bad name" in caplog.text


async def test_bad_headers_leave_out_no_tool_where_no_headers_are_sent() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "bad name"}}}
    listed = page({"name": "spoilt", "inputSchema": bad})
    async with legacy(lambda seen, talk: talk.result(seen, listed)) as server, Client(server.url) as client:
        assert [one.name for one in await client.list_tools()] == ["spoilt"]


async def test_an_unsupported_version_is_asked_for_again_over_http() -> None:
    """basic/versioning: a 400 with a modern error identifies a modern server."""

    async def script(seen: Seen, talk: Talk) -> None:
        method = seen.message["method"]
        if method == "server/discover":
            data = {"supported": ["2025-11-25"], "requested": "2026-07-28"}
            refusal = {"code": -32022, "message": "no", "data": data}
            talk.say({"jsonrpc": "2.0", "id": seen.id, "error": refusal}, "400 Bad Request")
        elif method == "initialize":
            talk.result(seen, initialized().value)
        else:
            talk.say(None, "202 Accepted" if seen.method == "POST" else "405 Method Not Allowed")

    async with scripted(_posts(script)) as server, Client(server.url) as client:
        assert client.revision is R2025_11


def _posts(script: Callable[[Seen, Talk], Awaitable[None]]) -> Callable[[Seen, Talk], Awaitable[None]]:
    """Nothing but POST is taken."""

    async def posts(seen: Seen, talk: Talk) -> None:
        if seen.method != "POST":
            talk.say(None, "405 Method Not Allowed")
        else:
            await script(seen, talk)

    return posts


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (None, "400 Bad Request"),
        (None, "404 Not Found"),
        (None, "405 Method Not Allowed"),
        (b"<html>", "406 Not Acceptable"),
        (error(-32000, "Bad Request: no session", id=None), "400 Bad Request"),
        (error(-32600, "Missing session ID"), "400 Bad Request"),
        (error(-32601, "Method not found", id=1), "200 OK"),
        (error(-32603, "it crashed"), "500 Internal Server Error"),
        (None, "501 Not Implemented"),
    ],
)
async def test_a_refusal_without_a_modern_error_means_a_legacy_server(refusal: Any, status: str) -> None:
    """basic/transports/streamable-http, Backward Compatibility: "fall back to `initialize`"."""
    async with (
        legacy(lambda seen, talk: talk.result(seen, {}), refusal=refusal, status=status) as server,
        Client(server.url) as client,
    ):
        assert client.revision is R2025_11
        await client.ping()
    assert methods(server)[:3] == ["server/discover", "initialize", "notifications/initialized"]
    for one in server.seen[2:]:
        assert one.headers["mcp-session-id"] == "s-1"
        # "the client MUST include the `MCP-Protocol-Version` header on all subsequent requests"
        assert one.headers["mcp-protocol-version"] == "2025-11-25"
    ping = next(one for one in server.seen if one.method == "POST" and one.message["method"] == "ping")
    assert "mcp-method" not in ping.headers
    assert "_meta" not in ping.message.get("params", {})
    assert methods(server)[-1] == "DELETE"


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "499 Closed", "500 Internal Server Error", "501 Not Implemented"]
)
async def test_a_refusal_as_legacy_servers_make_it_is_followed_by_a_handshake(status: str) -> None:
    async with legacy(lambda seen, talk: None, status=status) as server, Client(server.url) as client:
        assert client.revision is R2025_11


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "503 Service Unavailable", "302 Found"])
async def test_a_client_that_is_denied_does_not_try_another_era(status: str) -> None:
    async with legacy(lambda seen, talk: None, status=status) as server:
        with pytest.raises(HttpRefused, match=status[:3]):
            await Client(server.url).__aenter__()
    assert methods(server) == ["server/discover"]


BUSY = {"code": -32603, "message": "Busy", "data": {"retry_after": 1}}
OVERLOADED = {"code": -32000, "message": "Server overloaded"}


def speaks_both(first: Handler) -> Any:
    """A server of both eras that says `first` to its first request."""
    asked: list[str] = []

    async def script(seen: Seen, talk: Talk) -> None:
        method = seen.message["method"]
        asked.append(method)
        if len(asked) == 1:
            waits = first(seen, talk)
            if waits is not None:
                await waits
        elif method == "server/discover":
            talk.result(seen, discovered().value)
        elif method == "initialize":
            talk.result(seen, initialized().value)
        else:
            talk.say(None, "202 Accepted")

    return scripted(_posts(script))


@pytest.mark.parametrize("revision", [None, "2026-07-28"])
@pytest.mark.parametrize(
    ("status", "failure", "own"),
    [
        ("503 Service Unavailable", BUSY, True),
        ("503 Service Unavailable", OVERLOADED, True),
        ("503 Service Unavailable", OVERLOADED, False),
        ("503 Service Unavailable", None, False),
        ("429 Too Many Requests", OVERLOADED, True),
        ("429 Too Many Requests", None, False),
        ("425 Too Early", OVERLOADED, True),
        ("408 Request Timeout", None, False),
        ("502 Bad Gateway", None, False),
        ("504 Gateway Timeout", OVERLOADED, True),
        ("401 Unauthorized", OVERLOADED, True),
        ("403 Forbidden", None, False),
        ("400 Bad Request", BUSY, True),
        ("200 OK", BUSY, True),
    ],
)
async def test_what_says_later_says_nothing_of_the_era(
    status: str, failure: Any, own: bool, revision: str | None
) -> None:
    """basic/versioning: only what a server of a revision says tells that revision."""

    def first(seen: Seen, talk: Talk) -> None:
        found = None if failure is None else {"jsonrpc": "2.0", "id": seen.id if own else None, "error": failure}
        talk.say(found, status)

    async with speaks_both(first) as server:
        with pytest.raises((RpcError, HttpRefused)) as caught:
            await Client(server.url, revision=revision).__aenter__()
        assert "does not speak" not in str(caught.value)
        assert methods(server) == ["server/discover"]
        async with Client(server.url) as client:
            assert client.revision is R2026_07


@pytest.mark.parametrize("first", ["500 Internal Server Error", "not JSON", "another result"])
async def test_what_may_be_a_fault_of_the_moment_is_not_remembered(first: str) -> None:
    def says(seen: Seen, talk: Talk) -> None:
        if first.startswith("500"):
            talk.say(None, first)
        else:
            talk.say(b"<html>" if first == "not JSON" else {"jsonrpc": "2.0", "id": seen.id, "result": {"a": 1}})

    async with speaks_both(says) as server:
        async with Client(server.url) as client:
            assert client.revision is R2025_11
        async with Client(server.url) as client:
            assert client.revision is (R2025_11 if first == "another result" else R2026_07)


async def test_a_busy_server_of_the_stateful_era_stays_one() -> None:
    busy = False

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "server/discover":
            talk.say(None, "400 Bad Request")
        elif busy:
            talk.say({"jsonrpc": "2.0", "id": seen.message.get("id"), "error": BUSY}, "503 Service Unavailable")
        elif seen.message["method"] == "initialize":
            talk.result(seen, initialized().value)
        else:
            talk.say(None, "202 Accepted")

    async with scripted(_posts(script)) as server:
        async with Client(server.url):
            pass
        busy = True
        with pytest.raises(RpcError, match="Busy"):
            await Client(server.url).__aenter__()
        busy = False
        async with Client(server.url) as client:
            assert client.revision is R2025_11
    assert methods(server).count("server/discover") == 1


async def test_the_era_of_an_endpoint_is_remembered_and_looked_for_again() -> None:
    """basic/versioning: cache per origin, "re-probing if the cached assumption later fails"."""
    new = False

    async def script(seen: Seen, talk: Talk) -> None:
        method = seen.message["method"]
        if method == "server/discover":
            talk.result(seen, discovered().value) if new else talk.say(None, "400 Bad Request")
        elif method == "initialize":
            talk.say(None, "404 Not Found") if new else talk.result(seen, initialized().value)
        else:
            talk.say(None, "202 Accepted")

    async with scripted(_posts(script)) as server:
        for _ in range(2):
            async with Client(server.url) as client:
                assert client.revision is R2025_11
        assert methods(server).count("server/discover") == 1
        new = True
        async with Client(server.url) as client:
            assert client.revision is R2026_07


async def test_an_endpoint_that_takes_no_post_may_be_http_sse() -> None:
    """2024-11-05 HTTP+SSE: the endpoint is told by the first event of a GET."""
    streams: list[Talk] = []

    async def script(seen: Seen, talk: Talk) -> None:
        if seen.method == "GET":
            streams.append(talk)
            talk.stream()
            talk.event(b"/messages?s=1", kind="endpoint")
            await forever()
        if seen.target == "/mcp":
            talk.say(None, "405 Method Not Allowed")
            return
        talk.say(None, "202 Accepted")
        if seen.message["method"] == "initialize":
            streams[0].event(answer(seen.id, initialized("2024-11-05").value), kind="message")
        elif "id" in seen.message:
            streams[0].event(answer(seen.id, {}), kind="message")

    async with scripted(script) as server, Client(server.url) as client:
        assert client.revision is R2024_11
        await client.ping()


async def test_a_lost_session_is_begun_anew_and_the_call_repeated_once() -> None:
    """2025-11-25's basic/transports: on 404 the client "MUST start a new session by sending a new
    `InitializeRequest`"."""

    def handler(seen: Seen, talk: Talk) -> None:
        if seen.message["method"] == "tools/call" and seen.headers["mcp-session-id"] == "s-1":
            talk.say(error(-32001, "Session not found"), "404 Not Found")
        else:
            talk.result(seen, {"content": []})

    async with legacy(handler) as server, Client(server.url) as client:
        await client.set_log_level("error")
        assert (await client.call_tool("t")).content == []
    found = [one for one in methods(server) if one not in ("GET", "DELETE")]
    after = found[found.index("tools/call") :]
    assert after == ["tools/call", "initialize", "notifications/initialized", "logging/setLevel", "tools/call"]


async def test_a_session_that_is_lost_every_time_is_an_error() -> None:
    async with legacy(lambda seen, talk: talk.say(None, "404 Not Found")) as server, Client(server.url) as client:
        with pytest.raises(ConnectionError):
            await client.call_tool("t")
    assert methods(server).count("tools/call") == 2


async def test_another_token_has_another_cache() -> None:
    """server/utilities/caching: "Caches MUST NOT be shared across authorization contexts (e.g. a different access token
    requires a different cache)"."""
    good = "one"

    def handler(seen: Seen, talk: Talk) -> None:
        token = seen.headers["authorization"]
        if token != f"Bearer {good}":
            talk.say(None, "401 Unauthorized")
        elif seen.message["method"] == "tools/list":
            talk.result(seen, page({"name": token[7:], "inputSchema": {"type": "object"}}) | {"ttlMs": 60_000})
        else:
            talk.result(seen, SAID)

    async with modern(handler) as server, Client(server.url, auth=Token(lambda: good)) as client:
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["one"]
        assert methods(server).count("tools/list") == 1
        good = "two"
        await client.call_tool("one")
        assert [tool.name for tool in await client.list_tools()] == ["two"]


def losing(lost: Callable[[Seen], bool], **capabilities: Any) -> Any:
    """A server of the stateful era that does not know the session of some requests. Its sessions are 1, 2 ..."""
    sessions = 0

    async def script(seen: Seen, talk: Talk) -> None:
        nonlocal sessions
        method = seen.message["method"] if seen.method == "POST" else seen.method
        if method == "initialize":
            sessions += 1
            talk.result(seen, initialized(**capabilities).value, headers={"Mcp-Session-Id": str(sessions)})
        elif method in ("GET", "server/discover"):
            talk.say(None, "405 Method Not Allowed")
        elif method == "DELETE" or "id" not in seen.message:
            talk.say(None, "202 Accepted")
        elif lost(seen):
            talk.say(None, "404 Not Found")
        elif method == "resources/subscribe" and seen.message["params"]["uri"] == "x:gone" and sessions > 1:
            talk.say(error(-32002, "it is gone", id=seen.id))
        else:
            talk.result(seen, {"content": []})

    return scripted(script)


SUBSCRIBES = {"resources": {"subscribe": True}}


async def test_sessions_that_are_lost_while_they_are_renewed_hang_nothing() -> None:
    """A balancer that sends each request to another server: what is restored in the new session meets the loss, too."""
    calls = 0

    def lost(seen: Seen) -> bool:
        nonlocal calls
        calls += b"tools/call" in seen.body
        return calls > 0

    async with asyncio.timeout(20), losing(lost, **SUBSCRIBES) as server, Client(server.url) as client:
        async with client.subscribe(["x:a"]) as changes:
            with pytest.raises(ConnectionError):
                await client.call_tool("t")
            with pytest.raises(ConnectionError):
                await anext(changes)
        assert methods(server).count("initialize") <= 6  # the first, and two for each of two calls
    with pytest.raises(Closed):
        await client.call_tool("t")


async def test_a_subscription_outlives_sessions_that_are_lost_at_once() -> None:
    def lost(seen: Seen) -> bool:
        session = seen.headers["mcp-session-id"]
        return b"tools/call" in seen.body if session == "1" else session in ("2", "3")

    async with (
        asyncio.timeout(20),
        losing(lost, **SUBSCRIBES) as server,
        Client(server.url) as client,
        client.subscribe(["x:a"], again=True) as changes,
    ):
        with pytest.raises(ConnectionError):
            await client.call_tool("t")
        assert await anext(changes) == Changed("again")
        asked = [one.headers["mcp-session-id"] for one in server.seen if b"resources/subscribe" in one.body]
        assert asked == ["1", "2", "3", "4"]


async def test_a_subscription_outlives_a_session_whose_home_stream_is_lost_while_it_is_restored() -> None:
    def home_is_lost(session: str) -> None:
        channel = client._session.peer._channel
        assert isinstance(channel, StreamableHttp)
        channel._session_lost(session)

    def lost(seen: Seen) -> bool:
        if seen.headers["mcp-session-id"] == "2":
            home_is_lost("2")
        return False  # it is answered all the same

    async with (
        asyncio.timeout(20),
        losing(lost, **SUBSCRIBES) as server,
        Client(server.url) as client,
        client.subscribe(["x:a"], again=True) as changes,
    ):
        home_is_lost("1")
        asked: list[str] = []
        while asked != ["1", "2", "3"]:
            assert await anext(changes) == Changed("again")
            asked = [one.headers["mcp-session-id"] for one in server.seen if b"resources/subscribe" in one.body]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_new_session_that_could_not_be_had_is_asked_for_by_the_next_call(cancelled: bool) -> None:
    sessions = 0
    held = asyncio.Event()

    async def script(seen: Seen, talk: Talk) -> None:
        nonlocal sessions
        method = seen.message["method"] if seen.method == "POST" else seen.method
        if method == "initialize":
            sessions += 1
            if sessions in (2, 3):  # of the loss itself, and of the call that met it
                if cancelled and sessions == 3:
                    held.set()
                    await forever()
                talk.say(None, "503 Service Unavailable")
            else:
                talk.result(seen, initialized().value, headers={"Mcp-Session-Id": str(sessions)})
        elif method in ("GET", "server/discover"):
            talk.say(None, "405 Method Not Allowed")
        elif method == "DELETE" or "id" not in seen.message:
            talk.say(None, "202 Accepted")
        elif "mcp-session-id" not in seen.headers:
            talk.say(error(-32600, "a session is missing", id=seen.id), "400 Bad Request")
        elif sessions == 1:
            talk.say(None, "404 Not Found")
        else:
            talk.result(seen, {"content": []})

    async with asyncio.timeout(20), scripted(script) as server, Client(server.url) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        if cancelled:
            await held.wait()
            calling.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else HttpRefused):
            await calling
        assert (await client.call_tool("t")).content == []
        assert sessions == 4


async def test_what_a_new_session_refuses_ends_that_subscription_alone() -> None:
    """Its reader would wait for ever; and those after it would not be subscribed to again."""

    def lost(seen: Seen) -> bool:
        return b"tools/call" in seen.body and seen.headers["mcp-session-id"] == "1"

    async with (
        losing(lost, **SUBSCRIBES) as server,
        Client(server.url) as client,
        client.subscribe(["x:gone"]) as gone,
        client.subscribe(["x:there"]) as there,
    ):
        assert (await client.call_tool("t")).content == []
        with pytest.raises(RpcError, match="it is gone"):
            await anext(gone)
        assert await anext(there) == Changed("again")


async def test_nonsense_fails_the_call_at_once() -> None:
    def handler(seen: Seen, talk: Talk) -> None:
        talk.say(b"<html>welcome</html>", kind="text/html")

    async with modern(handler) as server, Client(server.url) as client:
        with pytest.raises(BadAnswer):
            await client.call_tool("t")


async def test_a_cancelled_call_closes_its_post_and_sends_nothing() -> None:
    """basic/patterns/cancellation: "Closing the SSE response stream is the cancellation signal"."""
    async with modern(lambda seen, talk: forever()) as server, Client(server.url) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await server.next()
        await server.next()
        calling.cancel()
        assert (await server.left()).message["method"] == "tools/call"
    assert "notifications/cancelled" not in methods(server)


async def test_a_subscription_over_http() -> None:
    """basic/patterns/subscriptions: the stream of the POST; closing it is the end."""
    tag = "io.modelcontextprotocol/subscriptionId"

    async def handler(seen: Seen, talk: Talk) -> None:
        meta = {"_meta": {tag: seen.id}}
        wanted = seen.message["params"]["notifications"]
        talk.stream()
        method = "notifications/subscriptions/acknowledged"
        talk.event({"jsonrpc": "2.0", "method": method, "params": meta | {"notifications": wanted}})
        talk.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": meta})
        await forever()

    async with modern(handler) as server, Client(server.url) as client:
        async with client.subscribe(tools=True) as changes:
            assert changes.granted.tools_list_changed
            assert (await anext(changes)).kind == "tools"
        assert (await server.left()).message["method"] == "subscriptions/listen"
