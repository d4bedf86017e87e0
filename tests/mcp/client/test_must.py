"""What a client MUST and SHOULD do, sentence by sentence; bytes in, bytes out, against servers made of a function."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, RpcError
from dragoman.mcp import CallToolResult, Client, ElicitRequestParams
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.protocol.types import TextContent

from ..scripted import META, Dies, Error, Message, Result, Scripted, discovered, initialized, legacy, modern, said

STATEFUL = [one for one in REVISIONS.values() if one.stateful]


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}} | members


async def everything(client: Client) -> None:
    """One of each call."""
    await client.list_tools()
    await client.list_resources()
    await client.list_resource_templates()
    await client.list_prompts()
    await client.call_tool("x", {"a": 1})
    await client.read_resource("test://1")
    await client.get_prompt("p")
    await client.complete("p", "a", "v")
    await client.ping()


def whole(message: Message) -> Iterable[Any]:
    """An answer to everything."""
    if "id" not in message:
        return []
    return [
        Result(
            {
                "resultType": "complete",
                "tools": [],
                "resources": [],
                "resourceTemplates": [],
                "prompts": [],
                "content": [],
                "contents": [],
                "messages": [],
                "completion": {"values": []},
            }
        )
    ]


async def test_every_request_carries_its_envelope() -> None:
    """basic/index: "fields marked as required MUST be included on every request", "Clients SHOULD include
    `io.modelcontextprotocol/clientInfo` on every request"; client/elicitation, roots and sampling: "MUST declare the
    [...] capability in `_meta.io.modelcontextprotocol/clientCapabilities` on each request"."""
    server = modern(whole, tools={}, resources={}, prompts={}, completions={})
    answers: Any = lambda params: None  # noqa: E731
    async with Client(server, name="us", roots=["/tmp"], on_sample=answers, on_elicit=answers) as client:
        await everything(client)
    assert len(server.heard) == 10
    for message in server.heard:
        envelope = message["params"]["_meta"]
        assert envelope[f"{META}protocolVersion"] == R2026_07.date
        assert envelope[f"{META}clientInfo"]["name"] == "us"
        assert envelope[f"{META}clientCapabilities"].keys() == {"roots", "sampling", "elicitation"}


@pytest.mark.parametrize("make", [modern, legacy])
async def test_messages_are_whole_and_ids_are_never_used_twice(make: Any) -> None:
    """basic/index: "Requests MUST include a string or integer ID", "MUST NOT match the ID of any other request";
    JSON-RPC 2.0; basic/transports/stdio: "The client MUST NOT write anything to the server's `stdin` that is not a
    valid MCP message", "MUST NOT contain embedded newlines"."""
    server = make(whole, tools={}, resources={}, prompts={}, completions={})
    async with Client(server) as client:
        await asyncio.gather(*(client.call_tool(f"line\n{number}", {"a": "\r\n\u2028"}) for number in range(20)))
        await everything(client)
    ids = [message["id"] for message in server.heard if "id" in message]
    assert len(ids) == len(set(ids))
    assert all(type(id) in (int, str) for id in ids)
    for raw, message in zip(server.raw, server.heard, strict=True):
        assert b"\n" not in raw
        assert b"\r" not in raw
        assert message["jsonrpc"] == "2.0"
        assert isinstance(message.get("params", {}), dict)


@pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
async def test_the_handshake_is_first_and_ends_with_initialized(revision: Revision) -> None:
    """basic/lifecycle: "The client MUST initiate this phase by sending an `initialize` request", "After successful
    initialization, the client MUST send an `initialized` notification"."""
    server = legacy(whole, version=revision.date, tools={})
    async with Client(server, revision=revision) as client:
        await client.call_tool("x")
    assert server.methods() == ["initialize", "notifications/initialized", "tools/call"]
    params = server.heard[0]["params"]
    assert (params["protocolVersion"], params["clientInfo"]["name"]) == (revision.date, "dragoman")
    assert isinstance(params["capabilities"], dict)
    assert server.heard[2]["params"]["_meta"].keys() == {"progressToken"}  # nothing of the stateless era


@pytest.mark.parametrize("spoken", ["2026-07-28", "2099-01-01", "1"])
async def test_a_server_that_chooses_a_version_that_is_not_ours_is_left(spoken: str) -> None:
    """basic/lifecycle: "If the client does not support the version in the server's response, it SHOULD disconnect"."""
    server = legacy(whole, version=spoken)
    with pytest.raises(BadAnswer, match="answers with revision"):
        await Client(server).__aenter__()
    assert "notifications/initialized" not in server.methods()


CURSORS = ["", " ", "null", "\u4f60\u597d", '"\\', "a" * 10_000, "0", "<>&"]


async def test_cursors_are_opaque_and_pages_of_any_size() -> None:
    """server/utilities/pagination: "Clients MUST treat cursors as opaque tokens", "clients MUST NOT assume a fixed page
    size", "an empty string is a valid cursor and thus MUST NOT be treated as the end of results"."""
    sizes = [0, 3, 1, 0, 7, 1, 1, 2, 1]

    def script(message: Message) -> Iterable[Any]:
        at = CURSORS.index(message["params"]["cursor"]) + 1 if "cursor" in message["params"] else 0
        page: dict[str, Any] = {"tools": [tool(f"{at}.{number}") for number in range(sizes[at])]}
        return [Result(page | ({"nextCursor": CURSORS[at]} if at < len(CURSORS) else {}))]

    server = modern(script, tools={})
    async with Client(server) as client:
        assert len(await client.list_tools()) == sum(sizes)
    assert [one["params"].get("cursor") for one in server.of("tools/list")] == [None, *CURSORS]


@pytest.mark.parametrize("hints", [{}, {"ttlMs": 0}, {"ttlMs": -5}, {"ttlMs": 0, "cacheScope": "public"}])
async def test_what_is_stale_is_asked_for_again_and_not_before(hints: dict[str, Any]) -> None:
    """server/utilities/caching: "If `ttlMs` is `0`, the response SHOULD be considered immediately stale"; absent and
    negative are 0; "Clients SHOULD NOT treat TTL as a polling interval"."""
    server = modern(lambda message: [Result({"tools": []} | hints)], tools={})
    async with Client(server) as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.of("tools/list")) == 2


async def test_a_cached_result_serves_its_own_request_alone() -> None:
    """server/utilities/caching: "Clients MUST NOT serve a cached response for a request whose method or parameters
    differ"."""

    def script(message: Message) -> Iterable[Any]:
        uri = message["params"]["uri"]
        return [Result({"contents": [{"uri": uri, "text": uri}], "ttlMs": 60_000, "cacheScope": "private"})]

    server = modern(script, resources={})
    async with Client(server) as client:
        for uri in ("test://a", "test://A", "test://a/"):
            for _ in range(2):
                assert (await client.read_resource(uri)).contents[0].text == uri
    assert len(server.of("resources/read")) == 3


async def test_a_retry_has_an_id_of_its_own_and_no_state_where_none_was_given() -> None:
    """basic/patterns/mrtr: "The JSON-RPC `id` MUST be different between the initial request and the retry", "If the
    `InputRequiredResult` does not contain a `requestState` field, the client MUST NOT include one in the retry",
    "MUST NOT be used for any other request that the client may be sending in parallel"."""
    asked = {
        "q": {
            "method": "elicitation/create",
            "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
        }
    }
    states = iter(["one \u00fc\n", None, ""])

    def script(message: Message) -> Iterable[Any]:
        if message["method"] != "tools/call" or message["params"]["name"] == "other":
            return [said("other")]
        state = next(states, "end")
        if state == "end":
            return [said("done")]
        more = {} if state is None else {"requestState": state}
        return [Result({"resultType": "input_required", "inputRequests": asked} | more)]

    server = modern(script, tools={})
    other: list[CallToolResult] = []

    async def on_elicit(params: ElicitRequestParams) -> dict[str, Any]:
        other.append(await client.call_tool("other"))
        return {}

    async with Client(server, on_elicit=on_elicit) as client:
        assert (await client.call_tool("x", {"a": 1})).text == "done"
    tries = [one for one in server.of("tools/call") if one["params"]["name"] == "x"]
    assert len({one["id"] for one in server.heard}) == len(server.heard)
    assert [one["params"].get("requestState", "none") for one in tries] == ["none", "one \u00fc\n", "none", ""]
    assert [("inputResponses" in one["params"]) for one in tries] == [False, True, True, True]
    assert all(one["params"]["arguments"] == {"a": 1} for one in tries)
    for one in server.of("tools/call"):
        if one["params"]["name"] == "other":
            assert not {"inputResponses", "requestState"} & one["params"].keys()


@pytest.mark.parametrize("make", [modern, legacy])
async def test_an_answer_that_comes_after_the_cancellation_is_ignored(make: Any) -> None:
    """basic/utilities/cancellation: "The sender of the cancellation notification SHOULD ignore any response to the
    request that arrives afterward"; "Both parties MUST handle these race conditions gracefully"."""
    late: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "notifications/cancelled":
            (found,) = late
            assert message["params"]["requestId"] == found["id"]
            answer = {"jsonrpc": "2.0", "id": found["id"], "result": {"content": []}}
            return [answer, answer, {"jsonrpc": "2.0", "id": found["id"], "error": {"code": 1, "message": "late"}}]
        if message["params"]["name"] == "slow":
            late.append(message)
            return []
        return [said("fine")]

    server = make(script, tools={})
    async with Client(server) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("slow", timeout=0.05)
        assert (await client.call_tool("quick")).text == "fine"
    assert len(server.of("notifications/cancelled")) == 1


async def test_a_stateless_server_is_told_nothing_but_requests_and_notifications() -> None:
    """basic/transports/stdio: "The client MUST NOT write JSON-RPC responses"; whatever the server asks."""

    def script(message: Message) -> Iterable[Any]:
        asks = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": {}}
            for number, method in enumerate(("ping", "roots/list", "sampling/createMessage", "no/such"))
        ]
        return [*asks, b"{", b"[]", b'{"jsonrpc":"2.0","id":5}', said("fine")]

    server = modern(script, tools={})
    async with Client(server, roots=["/tmp"]) as client:
        for _ in range(3):
            assert (await client.call_tool("x")).text == "fine"
    assert all("method" in message for message in server.heard)


@pytest.mark.parametrize("code", [-32002, -32602])
async def test_a_missing_resource_is_an_error_in_either_code(code: int) -> None:
    """server/resources: "clients SHOULD also accept `-32002` as a resource not found error"."""
    async with Client(modern(lambda message: [Error(code, "Resource not found")], resources={})) as client:
        with pytest.raises(RpcError) as caught:
            await client.read_resource("test://none")
    assert caught.value.code == code


async def test_a_lost_server_is_reached_anew_and_calls_are_not_repeated() -> None:
    """basic/transports/stdio: "If the server process exits unexpectedly, the client SHOULD restart it [...] any
    in-flight requests are simply lost and the client can retry them"."""
    dying = [True]

    def script(message: Message) -> Iterable[Any]:
        return [Dies()] if dying and dying.pop() else [said("alive")]

    server = modern(script, tools={})
    async with Client(server, restart=True) as client:
        with pytest.raises(ChannelError):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "alive"
    assert (server.attached, len(server.of("tools/call"))) == (2, 2)


async def test_a_client_that_is_refused_a_version_takes_a_common_one() -> None:
    """basic/versioning: "The client SHOULD select a mutually supported version from the `supported` list and retry the
    request, or surface an error to the user"."""

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            supported = ["2099-01-01", R2025_11.date]
            return [Error(-32022, "Unsupported protocol version", {"supported": supported, "requested": "x"})]
        return [initialized()] if message["method"] == "initialize" else whole(message)

    async with Client(Scripted(script)) as client:
        assert client.revision is R2025_11

    def strange(message: Message) -> Iterable[Any]:
        return [Error(-32022, "Unsupported protocol version", {"supported": ["2099-01-01"], "requested": "x"})]

    with pytest.raises(BadAnswer, match="no common revision: the server speaks 2099-01-01"):
        await Client(Scripted(strange)).__aenter__()


@pytest.mark.parametrize("type", ["", "later", "Complete", "task"])
async def test_a_result_type_that_is_not_known_is_invalid(type: str) -> None:
    """basic/index: "A `resultType` of any value unrecognized by the client MUST be considered invalid"."""
    async with Client(modern(lambda message: [Result({"resultType": type, "content": []})], tools={})) as client:
        with pytest.raises(BadAnswer, match="resultType"):
            await client.call_tool("x")


async def test_a_result_without_a_type_is_complete() -> None:
    """basic/index: "clients MUST treat an absent `resultType` as `"complete"`"."""
    answer = Result({"content": [{"type": "text", "text": "old"}]})
    async with Client(modern(lambda message: [answer], tools={})) as client:
        assert (await client.call_tool("x")).content == [TextContent("old")]


async def test_a_server_may_know_more_than_we_do() -> None:
    """Members that a schema does not name pass; an unknown capability, extension or field is not an error."""
    strange: dict[str, Any] = {
        "zzz": {"a": 1},
        "extensions": {"com.example/x": {}},
        "experimental": {"y": {}},
        "tools": {"fast": True},
    }

    def script(message: Message) -> Iterable[Any]:
        if message["method"] == "server/discover":
            found = discovered(**strange).value
            return [Result(found | {"motto": "more", "supportedVersions": ["2099-01-01", R2026_07.date]})]
        return [Result({"content": [{"type": "text", "text": "hi", "shade": "red"}], "weight": 7, "_meta": {"a": [1]}})]

    async with Client(Scripted(script)) as client:
        found = await client.call_tool("x")
        assert client.revision is R2026_07
    assert (found.text, found.meta) == ("hi", {"a": [1]})
