"""What a client does with a server's tools, resources and prompts, in both eras, against scripted servers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Struct

from dragoman.channel import ChannelError, Closed
from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, InvalidParams, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT
from dragoman.mcp import Context, Server
from dragoman.mcp.client.cache import KEPT, Cache, pages
from dragoman.mcp.client.client import Client
from dragoman.mcp.protocol.errors import ToolError
from dragoman.mcp.protocol.foreign import ForeignContent
from dragoman.mcp.protocol.params import LoggingMessageNotificationParams, ProgressNotificationParams
from dragoman.mcp.protocol.types import TextContent
from dragoman.rpc.binding.bounded_schema import BoundedSchema

from ..scripted import (
    META,
    Dies,
    Error,
    Message,
    Result,
    Scripted,
    discovered,
    initialized,
    legacy,
    modern,
    notification,
    said,
)

EMPTY = {"type": "object"}
FORECAST = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
}


class Forecast(Struct):
    city: str
    degrees: float


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": EMPTY, **members}


def listed(member: str, *items: Any, **members: Any) -> Result:
    """A page of a list."""
    return Result({"resultType": "complete", member: list(items), "ttlMs": 0, "cacheScope": "private", **members})


eras = pytest.mark.parametrize("server", [modern, legacy])


# -- lists


@eras
async def test_what_is_no_longer_listed_is_forgotten(server: Any) -> None:
    """A call of it is not held to a schema of before."""
    tools = [tool("one"), tool("gone", outputSchema=FORECAST)]

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "tools/list":
            return [listed("tools", *tools)]
        return [Result({"resultType": "complete", "content": [], "structuredContent": {"other": 1}})]

    async with Client(server(answers)) as client:
        await client.list_tools()
        with pytest.raises(BadAnswer, match="does not fit its output schema"):
            await client.call_tool("gone")
        del tools[1]
        await client.list_tools()
        assert (await client.call_tool("gone")).structured_content == {"other": 1}


@eras
async def test_every_page_of_a_list_is_read(server: Any) -> None:
    """server/utilities/pagination: "an empty string is a valid cursor"; "Treat a missing `nextCursor` as the end"."""
    pages = {None: ("a", ""), "": ("b", "\u00e9 opaque"), "\u00e9 opaque": ("c", None)}

    def answers(message: Message) -> Iterable[Any]:
        name, following = pages[message.get("params", {}).get("cursor")]
        return [listed("tools", tool(name), **({} if following is None else {"nextCursor": following}))]

    async with Client(server(answers)) as client:
        assert [one.name for one in await client.list_tools()] == ["a", "b", "c"]


@eras
@pytest.mark.parametrize(
    ("method", "member", "item", "call"),
    [
        ("tools/list", "tools", tool("t"), "list_tools"),
        ("resources/list", "resources", {"uri": "x:y", "name": "r"}, "list_resources"),
        (
            "resources/templates/list",
            "resourceTemplates",
            {"uriTemplate": "x:{y}", "name": "r"},
            "list_resource_templates",
        ),
        ("prompts/list", "prompts", {"name": "p"}, "list_prompts"),
    ],
)
async def test_each_list(server: Any, method: str, member: str, item: Any, call: str) -> None:
    peer = server(lambda message: [listed(member, item)])
    async with Client(peer) as client:
        (found,) = await getattr(client, call)()
        assert found.name == item["name"]
    assert peer.methods()[-1] == method


async def test_marks_for_headers_leave_out_no_tool_where_there_are_no_headers() -> None:
    """Over HTTP such a tool cannot be called."""
    bad = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "bad name"}}}
    async with Client(modern(lambda message: [listed("tools", tool("spoilt") | {"inputSchema": bad})])) as client:
        assert [one.name for one in await client.list_tools()] == ["spoilt"]


async def test_a_list_that_never_ends_is_an_error() -> None:
    async with Client(modern(lambda message: [listed("tools", nextCursor="again")])) as client:
        with pytest.raises(BadAnswer, match="'again' came twice"):
            await client.list_tools()
    count = iter(range(10_000))
    async with Client(modern(lambda message: [listed("tools", nextCursor=str(next(count)))])) as client:
        with pytest.raises(BadAnswer, match="more than 1000 pages"):
            await client.list_tools()


async def test_a_stale_cursor_begins_the_list_anew_once() -> None:
    """server/utilities/caching: "the client SHOULD discard all cached pages and re-fetch from the beginning"."""
    state = {"refuse": True}

    def answers(message: Message) -> Iterable[Any]:
        if "cursor" not in message["params"]:
            return [listed("tools", tool("a"), nextCursor="c", ttlMs=60_000)]
        if state.pop("refuse", False):
            return [Error(-32602, "bad cursor")]
        return [listed("tools", tool("b"))]

    server = modern(answers)
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == ["a", "b"]
    assert len(server.of("tools/list")) == 4
    async with Client(modern(lambda message: [Error(-32602, "not allowed")])) as client:
        with pytest.raises(InvalidParams, match="not allowed"):
            await client.list_tools()


# -- caching (server/utilities/caching)


async def test_a_fresh_list_is_kept_until_it_changes() -> None:
    """ "If `ttlMs` is positive, the client SHOULD consider the result fresh"; a notification "invalidates" it."""
    server = modern(lambda message: [listed("tools", tool("a"), ttlMs=60_000)])
    async with Client(server) as client:
        for _ in range(3):
            assert len(await client.list_tools()) == 1
        assert len(server.of("tools/list")) == 1
        server.say(notification("notifications/prompts/list_changed"))
        await client.list_tools()
        await client.ping()
        await client.list_tools()
        assert len(server.of("tools/list")) == 1
        server.say(notification("notifications/tools/list_changed"))
        await client.ping()
        await client.list_tools()
        assert len(server.of("tools/list")) == 2


@pytest.mark.parametrize("ttl", [0, -1, None])
async def test_a_stale_list_is_asked_for_again(ttl: int | None) -> None:
    """ "If `ttlMs` is negative, clients SHOULD ignore it and treat it as `0`"; absent is 0."""
    page = listed("tools", tool("a"), ttlMs=ttl)
    if ttl is None:
        del page.value["ttlMs"]
    server = modern(lambda message: [page])
    async with Client(server) as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.of("tools/list")) == 2


@pytest.mark.parametrize("code", [-32601, -32602])
async def test_a_server_without_a_list_of_templates_has_none(code: int) -> None:
    """Servers of the SDK 1.x with resources and no template have no `resources/templates/list`."""
    async with Client(modern(lambda message: [Error(code)], resources={})) as client:
        if code == -32601:
            assert await client.list_resource_templates() == []
        else:
            with pytest.raises(RpcError):
                await client.list_resource_templates()


@pytest.mark.parametrize(("keep", "times"), [(True, 2), (False, 3)])
async def test_what_a_server_says_of_itself_is_kept_as_long_as_it_says(keep: bool, times: int) -> None:
    """server/utilities/caching: `server/discover` is a result that may be kept; the first question is the opening's."""
    server = modern()
    found = discovered(tools={})
    found.value["ttlMs"] = 60_000
    server.script = lambda message: [found]
    async with Client(server, cache=keep) as client:
        assert (await client.discover()).capabilities == (await client.discover()).capabilities
    assert len(server.of("server/discover")) == times


async def test_what_a_server_says_of_itself_to_another_token_is_not_kept() -> None:
    """Also where the token changes while the answer is on its way."""
    server = modern()
    found = discovered(tools={})
    found.value["ttlMs"] = 60_000

    def answers(message: Message) -> Iterable[Any]:
        if len(server.of("server/discover")) == 2:
            client._session.reauthorized()
        return [found]

    server.script = answers
    async with Client(server) as client:
        await client.discover()
        await client.discover()
    assert len(server.of("server/discover")) == 3


async def test_a_client_without_a_cache_asks_every_time() -> None:
    server = modern(lambda message: [listed("tools", ttlMs=60_000)])
    async with Client(server, cache=False) as client:
        await client.list_tools()
        await client.list_tools()
    assert len(server.of("tools/list")) == 2


async def test_resources_are_kept_one_by_one() -> None:
    """ "Clients MUST NOT serve a cached response for a request whose method or parameters differ"."""

    def answers(message: Message) -> Iterable[Any]:
        uri = message["params"]["uri"]
        return [listed("contents", {"uri": uri, "text": uri}, ttlMs=60_000)]

    server = modern(answers)
    async with Client(server) as client:
        for uri in ("x:1", "x:2", "x:1"):
            assert (await client.read_resource(uri)).contents[0].text == uri
        assert len(server.of("resources/read")) == 2
        server.say(notification("notifications/resources/updated", uri="x:1"))
        await client.ping()
        await client.read_resource("x:1")
        await client.read_resource("x:2")
        assert len(server.of("resources/read")) == 3


def test_the_clock_of_a_cache() -> None:
    """ "now < t_received + ttlMs"; what changed while it was on its way is not kept."""
    now = [100.0]
    cache = Cache(clock=lambda: now[0])
    cache.put("m", None, "value", 1500, cache.changes("m"))
    now[0] = 101.4
    assert cache.get("m", None) == "value"
    assert cache.get("m", "other") is None
    now[0] = 101.5
    assert cache.get("m", None) is None
    before = cache.changes("m")
    cache.drop("m")
    cache.put("m", None, "old", 1500, before)
    assert cache.get("m", None) is None
    before = cache.changes("m")
    cache.clear()
    cache.put("m", None, "another's", 1500, before)
    assert cache.get("m", None) is None


# -- calling tools


@eras
async def test_a_call_and_its_result(server: Any) -> None:
    peer = server(lambda message: [said("one", content=[{"type": "text", "text": t} for t in ("one", "two")])])
    async with Client(peer) as client:
        result = await client.call_tool("t", {"a": [1, None]})
        assert result.text == "one\ntwo"
        await client.call_tool("t")
    first, second = peer.of("tools/call")
    assert first["params"]["arguments"] == {"a": [1, None]}
    assert "arguments" not in second["params"]


@eras
async def test_a_failed_tool_is_a_result_and_a_missing_one_an_error(server: Any) -> None:
    """server/tools, Error Handling."""
    failed = said("no such city", isError=True)
    async with Client(server(lambda message: [failed])) as client:
        assert (await client.call_tool("t")).is_error is True
        with pytest.raises(ToolError, match="no such city"):
            await client.call_tool("t", result=str)
    async with Client(server(lambda message: [Error(-32602, "Unknown tool: t")])) as client:
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("t")


def structured(value: Any, schema: Any = None) -> Scripted:
    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "tools/list":
            return [listed("tools", tool("t", **({} if schema is None else {"outputSchema": schema})))]
        return [said(json.dumps(value), **({} if value is None else {"structuredContent": value}))]

    return modern(answers)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ({"city": "Bonn", "degrees": 3}, Forecast, Forecast("Bonn", 3.0)),
        ({"city": "Bonn", "degrees": 3}, dict[str, Any], {"city": "Bonn", "degrees": 3}),
        ({"result": 5}, int, 5),
        ({"result": [1, 2]}, list[int], [1, 2]),
        ([1, 2], list[int], [1, 2]),
        (None, type(None), None),
    ],
)
async def test_a_structured_result_as_a_type(value: Any, kind: Any, expected: Any) -> None:
    async with Client(structured(value)) as client:
        assert await client.call_tool("t", result=kind) == expected


async def test_text_as_a_type() -> None:
    async with Client(modern(lambda message: [said("5 o'clock")])) as client:
        assert await client.call_tool("t", result=str) == "5 o'clock"
        with pytest.raises(BadAnswer):
            await client.call_tool("t", result=int)
    async with Client(modern(lambda message: [said('{"city": "Bonn", "degrees": 3}')])) as client:
        assert await client.call_tool("t", result=Forecast) == Forecast("Bonn", 3)


async def test_a_structured_result_that_does_not_fit_is_an_error() -> None:
    """server/tools: "Clients SHOULD validate structured results against this schema"."""
    server = structured({"city": "Bonn", "degrees": "cold"}, FORECAST)
    async with Client(server) as client:
        with pytest.raises(BadAnswer, match="degrees"):
            await client.call_tool("t")
        with pytest.raises(BadAnswer, match="degrees"):
            await client.call_tool("t")
    assert len(server.of("tools/list")) == 1  # asked once, for the schema
    async with Client(structured(None, FORECAST)) as client:
        await client.list_tools()
        with pytest.raises(BadAnswer, match="no structuredContent"):
            await client.call_tool("t")
    async with Client(structured({"city": "Bonn", "degrees": 3}, FORECAST)) as client:
        await client.list_tools()
        await client.call_tool("t")


@pytest.mark.parametrize("levels", [16, 60])
async def test_a_schema_that_doubles_with_each_level_is_checked_in_few_steps(levels: int) -> None:
    """basic/index: a schema is "a Denial-of-Service vector against the validator"."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    twice = {"allOf": [{"items": {"$ref": "#/$defs/r"}}] * 2, "not": {"type": "integer"}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/r"}}, "$defs": {"r": twice}}
    server = structured({"a": value}, schema)
    async with Client(server) as client:
        async with asyncio.timeout(30):
            with pytest.raises(BadAnswer, match="what it must not"):
                await client.call_tool("t")
        assert (check := client._tools.get("t")) is not None
        assert isinstance(check.check, BoundedSchema)
        assert check.check.steps < 5_000


def form(**field: Any) -> dict[str, Any]:
    return {"message": "?", "requestedSchema": {"type": "object", "properties": {"x": field}}}


@pytest.mark.parametrize(
    ("field", "accepted"),
    [
        ({"type": "string", "pattern": "^(a+)+$", "default": "a" * 5_000 + "!"}, False),
        ({"type": "string", "pattern": "^(a+)+$", "default": "a" * 5_000}, True),
        ({"type": "string", "pattern": "^(a+)+(?=b)$", "default": "a" * 5_000 + "!"}, True),  # it is not run
        ({"type": "string", "pattern": r"^(a|aa)+\1$", "default": "a" * 5_000 + "!"}, True),
        ({"type": "string", "pattern": "((", "default": "a"}, True),
        ({"type": "string", "pattern": ["a"], "default": "a"}, True),  # no form as forms are: nothing is checked
        ({"type": "string", "minLength": "3", "default": "a"}, True),
        ({"type": "integer", "maximum": {}, "default": 3}, True),
        (
            {
                "type": "array",
                "items": {"type": "string", "enum": [f"c{one}" for one in range(50_000)]},
                "default": [f"c{one}" for one in range(50_000)],
            },
            True,
        ),
    ],
)
async def test_a_form_that_is_slow_to_check(field: dict[str, Any], accepted: bool) -> None:
    """client/elicitation: pattern and default are both the server's."""
    seen: list[Message] = []

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "tools/call" and "inputResponses" not in message["params"]:
            ask = {"method": "elicitation/create", "params": form(**field)}
            return [Result({"resultType": "input_required", "inputRequests": {"q": ask}})]
        seen.append(message)
        return [said("done")]

    async with Client(modern(answers), on_elicit=lambda question: True) as client:
        if not accepted:
            with pytest.raises(LocalError, match="does not fit the form"):
                await client.call_tool("t")
            return
        await client.call_tool("t")
    assert seen[-1]["params"]["inputResponses"]["q"]["content"] == {"x": field["default"]}


async def test_a_schema_of_the_network_is_never_fetched(caplog: pytest.LogCaptureFixture) -> None:
    """basic/index: "Implementations MUST NOT automatically dereference `$ref` values that resolve to a network URI".
    The tool has run, so that its result is handed on, with a warning."""
    server = structured({"a": 1}, {"$ref": "http://127.0.0.1:9/schema.json"})
    async with Client(server) as client:
        assert len(await client.list_tools()) == 1
        assert (await client.call_tool("t")).structured_content == {"a": 1}
    assert any("its output schema cannot be used" in said for said in caplog.messages)


@eras
@pytest.mark.parametrize("more", [{}, {"isError": None, "x": 1}], ids=["plain", "nulls"])
async def test_content_of_an_unknown_type_is_handed_on(server: Any, more: Message) -> None:
    blocks: list[Message] = [{"type": "text", "text": "x"}, {"type": "hologram", "data": [1]}, {"type": "tool_use"}]
    result = Result({"resultType": "complete", "content": blocks, **more})
    async with Client(server(lambda message: [result])) as client:
        found = await client.call_tool("t")
    plain, *unknown = found.content
    assert (plain, found.text) == (TextContent("x"), "x")
    for one, block in zip(unknown, blocks[1:], strict=True):
        assert isinstance(one, ForeignContent)
        assert (one.type, json.loads(bytes(one.raw))) == (block["type"], block)


@eras
async def test_a_result_as_it_came(server: Any) -> None:
    """Also after questions."""
    raw = '{"resultType":"complete","x":1.0,"content":[],"y":{"b":1e2,"a":"\\u00e9"}}'

    def answers(message: Message) -> Iterable[Any]:
        if server is modern and "inputResponses" not in message["params"]:
            yield Result({"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}})
        else:
            yield f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{raw}}}'.encode()

    async with Client(server(answers), roots=[]) as client:
        assert bytes(await client.request_raw("tools/call", {"name": "t"})).decode() == raw
        for method in ("tools/call/x", "notifications/initialized", "sampling/createMessage"):
            with pytest.raises(LocalError, match="is not a method"):
                await client.request_raw(method)
        with pytest.raises(TypeError, match="request_raw"):
            await client.request_raw("tools/list", result=int)  # type: ignore[call-arg]
        with pytest.raises(LocalError, match="lists no entries; did you mean tools/list"):
            await client.list_raw("tools/lst")


async def test_a_result_that_may_not_ask_is_not_taken_raw() -> None:
    async with Client(
        modern(lambda message: [Result({"resultType": "input_required", "requestState": "s"})])
    ) as client:
        with pytest.raises(BadAnswer, match="must not ask"):
            await client.request_raw("tools/list")
    async with Client(modern(lambda message: [Result({"resultType": "odd"})])) as client:
        with pytest.raises(BadAnswer, match="'odd' is not known"):
            await client.request_raw("tools/call", {"name": "t"})


@eras
@pytest.mark.parametrize("page", [{"tools": 5}, {}, {"tools": [], "nextCursor": 7}])
async def test_a_raw_list_that_makes_no_sense(server: Any, page: Message) -> None:
    async with Client(server(lambda message: [Result({"resultType": "complete"} | page)], tools={})) as client:
        with pytest.raises(BadAnswer, match="tools/list: the result does not fit"):
            await client.list_raw("tools/list")


@eras
async def test_a_raw_list_has_every_page_and_every_entry(server: Any) -> None:
    def answers(message: Message) -> Iterable[Any]:
        cursor = message["params"].get("cursor")
        more = {"nextCursor": "b"} if cursor is None else {}
        yield Result({"resultType": "complete", "tools": [{"name": cursor, "x": 1}, 5], **more})

    async with Client(server(answers, tools={}), limits=CLIENT) as client:
        found = [json.loads(bytes(one)) for one in await client.list_raw("tools/list")]
    assert found == [{"name": None, "x": 1}, 5, {"name": "b", "x": 1}, 5]


@eras
@pytest.mark.parametrize("bad", [{"name": "b"}, {"inputSchema": EMPTY}, {"name": "b", "inputSchema": []}, 5, None])
async def test_one_bad_tool_hides_no_other(server: Any, bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    good = [tool("a"), tool("c", outputSchema=EMPTY)]
    answers = [listed("tools", good[0], bad, good[1])]
    async with Client(server(lambda message: answers, tools={})) as client:
        assert [one.name for one in await client.list_tools()] == ["a", "c"]
    assert any("is left out" in said for said in caplog.messages)
    async with Client(server(lambda message: [Result({"tools": "none"})], tools={})) as client:
        with pytest.raises(BadAnswer):
            await client.list_tools()


@eras
@pytest.mark.parametrize("content", [None, {}, [{"type": "text"}], [{"type": 5}], [{}], [5]])
async def test_a_result_that_makes_no_sense_fails_its_call(server: Any, content: Any) -> None:
    async with Client(server(lambda message: [Result({"resultType": "complete", "content": content})])) as client:
        with pytest.raises(BadAnswer):
            await client.call_tool("t")


# -- progress, cancelling, time (basic/patterns/progress, basic/patterns/cancellation)


@eras
async def test_progress_is_told_by_a_token_of_its_own(server: Any) -> None:
    """ "Progress tokens MUST be unique across all active requests"."""
    seen: list[ProgressNotificationParams] = []
    later: list[float] = []

    def answers(message: Message) -> Iterable[Any]:
        token = message["params"]["_meta"]["progressToken"]
        yield notification("notifications/progress", progressToken=token, progress=1, total=2, message="half")
        yield notification("notifications/progress", progressToken="other", progress=1)
        yield notification("notifications/progress", progressToken=token, progress="x")
        yield notification("notifications/progress", progressToken=token, progress=2.0)
        yield said("done")

    async def told(progress: ProgressNotificationParams) -> None:
        later.append(progress.progress)

    peer = server(answers)
    async with Client(peer, on_progress=told) as client:
        await client.call_tool("t", on_progress=seen.append)
        await client.call_tool("t")
        await asyncio.sleep(0)
    assert (seen[0].progress, seen[0].total, seen[0].message) == (1, 2, "half")
    assert [one.progress for one in seen] == [1, 2]
    assert later == [1, 2]
    tokens = [one["params"]["_meta"]["progressToken"] for one in peer.of("tools/call")]
    assert len(set(tokens)) == 2


@eras
async def test_progress_is_asked_for_where_it_keeps_a_call_from_its_timeout(server: Any) -> None:
    peer = server(lambda message: [said("done")])
    async with Client(peer) as client:
        await client.call_tool("t")
        await client.call_tool("t", timeout=60)
        await client.call_tool("t", total=60)
        await client.call_tool("t", timeout=None)
        await client.call_tool("t", meta={"a": 1})
        await client.call_tool("t", meta={"progressToken": "own"})
        await client.call("tools/call", {"name": "t"})
    async with Client(peer, timeout=None) as client:
        await client.call_tool("t")
    sent = [call["params"].get("_meta", {}).get("progressToken") for call in peer.of("tools/call")]
    ids = [call["id"] for call in peer.of("tools/call")]
    asks = [True, True, True, False, True, False, True, False]
    assert sent == [
        "own" if at == 5 else id if ask else None for at, (id, ask) in enumerate(zip(ids, asks, strict=True))
    ]


@eras
async def test_no_member_of_a_request_is_there_twice(server: Any) -> None:
    """RFC 8259 section 4: an object whose names are not unique is read by each peer in its own way."""
    peer = server(lambda message: [said("done")])
    seen: list[Any] = []
    own = {"progressToken": "own", "a": 1}
    version = "io.modelcontextprotocol/protocolVersion"
    async with Client(peer, on_progress=seen.append) as client:
        await client.call_tool("t", meta=own)
        await client.call("tools/call", {"name": "t", "_meta": own})
        await client.request("tools/call", {"name": "t", "_meta": own})
        await client.request("tools/call", {"name": "t", "_meta": {"a": 0, **own}}, meta={"a": 1})
        await client.call_tool("t", meta={version: "1999-01-01"})
        stateless = not client.revision.stateful
        for refused in ({"progressToken": "own"}, {"progressToken": 7}):
            with pytest.raises(LocalError, match="progressToken of its own"):
                await client.call_tool("t", meta=refused, on_progress=seen.append)
        with pytest.raises(LocalError, match="_meta in the params of a call is an object"):
            await client.call("tools/call", {"name": "t", "_meta": [1]})
    *owns, last = [call["params"]["_meta"] for call in peer.of("tools/call")]
    assert [(one["progressToken"], one["a"]) for one in owns] == [("own", 1)] * 4
    if stateless:
        assert all(one[version] == client.revision.date for one in (*owns, last))

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    for raw in peer.raw:
        json.loads(raw, object_pairs_hook=once)


async def test_progress_without_end_has_an_end() -> None:
    """ "implementations SHOULD always enforce a maximum timeout, regardless of progress notifications"."""
    peer = modern()
    stop = asyncio.Event()

    async def drip(id: int) -> None:
        while not stop.is_set():
            peer.say(notification("notifications/progress", progressToken=id, progress=1))
            await asyncio.sleep(0.005)

    async with Client(peer, timeout=0.5) as client:
        client._session.peer._longest = 0.1
        calling = asyncio.ensure_future(client.call_tool("t"))
        await peer.until("tools/call")
        dripping = asyncio.ensure_future(drip(peer.heard[-1]["id"]))
        with pytest.raises(CallTimeout, match="total time"):
            await calling
        stop.set()
        await dripping


@eras
async def test_a_cancelled_call_is_taken_back(server: Any) -> None:
    """basic/transports/stdio: "the client MUST send a `notifications/cancelled` notification"."""
    peer = server()
    async with Client(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t"))
        await peer.until("tools/call")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await peer.until("notifications/cancelled")
    assert peer.heard[-1]["params"]["requestId"] == peer.of("tools/call")[0]["id"]


@eras
async def test_a_call_ends_in_its_time_and_is_taken_back(server: Any) -> None:
    """basic/patterns/cancellation, Timeouts: "the sender SHOULD cancel the request and stop waiting"."""
    peer = server()
    async with Client(peer, timeout=5) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("t", timeout=0.01)
        await peer.until("notifications/cancelled")


async def test_progress_keeps_a_call_alive_and_the_total_time_does_not_move() -> None:
    """ "implementations SHOULD always enforce a maximum timeout, regardless of progress notifications"."""
    peer = modern()
    stop = asyncio.Event()

    async def drip(id: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            peer.say(notification("notifications/progress", progressToken=id, progress=count))
            await asyncio.sleep(0.005)

    async with Client(peer) as client:
        calling = asyncio.ensure_future(client.call_tool("t", timeout=2, total=3, on_progress=lambda step: None))
        await peer.until("tools/call")
        dripping = asyncio.ensure_future(drip(peer.heard[-1]["id"]))
        with pytest.raises(CallTimeout, match="total time"):
            await calling
        stop.set()
        await dripping


async def test_initialize_is_never_cancelled() -> None:
    """2025-11-25's basic/utilities/cancellation: "The `initialize` request MUST NOT be cancelled by clients"."""
    peer = Scripted(lambda message: [])
    with pytest.raises(CallTimeout):
        await Client(peer, revision="2025-11-25", timeout=0.01).__aenter__()
    assert peer.methods() == ["initialize"]


# -- logging


async def test_a_log_level_goes_with_every_call_of_the_stateless_era() -> None:
    """server/utilities/logging: "include `io.modelcontextprotocol/logLevel` in the request's `_meta`"."""
    logged: list[LoggingMessageNotificationParams] = []
    note = notification("notifications/message", level="info", data={"a": 1}, logger="db")
    peer = modern(lambda message: [note, said("done")])
    async with Client(peer, on_log=logged.append) as client:
        await client.call_tool("t")
        await client.set_log_level("info")
        await client.call_tool("t")
    first, second = (one["params"]["_meta"] for one in peer.of("tools/call"))
    assert f"{META}logLevel" not in first
    assert second[f"{META}logLevel"] == "info"
    assert (logged[0].level, logged[0].data, logged[0].logger) == ("info", {"a": 1}, "db")


async def test_a_log_level_is_set_once_in_the_stateful_era() -> None:
    peer = legacy(lambda message: [Result({})], logging={})
    async with Client(peer) as client:
        await client.set_log_level("warning")
        await client.call("x")
    assert peer.of("logging/setLevel")[0]["params"] == {"level": "warning"}
    assert peer.of("x")[0]["params"]["_meta"].keys() == {"progressToken"}


async def test_a_function_that_fails_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(message: LoggingMessageNotificationParams) -> None:
        raise ZeroDivisionError

    def also(method: str, params: dict[str, Any]) -> None:
        raise KeyError(method)

    note = notification("notifications/message", level="info", data=1)
    peer = modern(lambda message: [note, notification("notifications/message", level=5), said("done")])
    with caplog.at_level(logging.ERROR, "dragoman.mcp"):
        async with Client(peer, on_log=fails, on_notification=also) as client:
            await client.call_tool("t")
            await asyncio.sleep(0)
    assert "ZeroDivisionError" in caplog.text
    assert "notifications/message" in caplog.text


# -- the rest


@eras
async def test_completion(server: Any) -> None:
    """server/utilities/completion."""
    answer = Result({"resultType": "complete", "completion": {"values": ["python"], "total": 1, "hasMore": False}})
    peer = server(lambda message: [answer])
    async with Client(peer) as client:
        assert (await client.complete("code", "language", "py", {"a": "b"})).values == ["python"]
        await client.complete("file:///{path}", "path", "")
    first, second = (one["params"] for one in peer.of("completion/complete"))
    assert first["ref"] == {"type": "ref/prompt", "name": "code"}
    assert first["argument"] == {"name": "language", "value": "py"}
    assert first["context"] == {"arguments": {"a": "b"}}
    assert second["ref"] == {"type": "ref/resource", "uri": "file:///{path}"}
    assert "context" not in second


@eras
async def test_a_prompt(server: Any) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    peer = server(lambda _: [Result({"resultType": "complete", "messages": [message]})])
    async with Client(peer) as client:
        (found,) = (await client.get_prompt("p", {"a": "b"})).messages
        assert found.content == TextContent("hi")
    assert peer.heard[-1]["params"]["arguments"] == {"a": "b"}


async def test_a_ping_is_what_the_era_has() -> None:
    peer = legacy(lambda message: [Result({})])
    async with Client(peer) as client:
        await client.ping()
        assert (await client.discover()).supported_versions == ["2025-11-25"]
    assert peer.methods()[-1] == "ping"
    peer = modern()
    async with Client(peer) as client:
        await client.ping()
        assert (await client.discover()).supported_versions == ["2026-07-28"]
    assert set(peer.methods()) == {"server/discover"}


@pytest.mark.parametrize("code", [-32602, -32002])
async def test_a_missing_resource_is_an_error_in_either_code(code: int) -> None:
    """server/resources: "clients SHOULD also accept `-32002` as a resource-not-found error"."""
    async with Client(modern(lambda message: [Error(code, "Resource not found")])) as client:
        with pytest.raises(RpcError, match="Resource not found"):
            await client.read_resource("x:y")


async def test_a_client_is_entered_before_it_is_used_and_not_after() -> None:
    client = Client(modern())
    with pytest.raises(LocalError, match="async with"):
        await client.call_tool("t")
    with pytest.raises(LocalError, match="async with"):
        _ = client.revision
    async with client:
        pass
    with pytest.raises(Closed):
        await client.call_tool("t")


async def test_a_client_that_comes_back_does_not_after_its_end() -> None:
    peer = modern(lambda message: [said("x")])
    async with Client(peer, restart=True) as client:
        await client.call_tool("t")
    with pytest.raises(Closed):
        await client.call_tool("t")
    assert peer.attached == 1


async def test_a_client_that_is_closed_while_it_comes_back_stays_closed() -> None:
    """A call in another task has begun to connect again: what it gets must not outlive the client."""
    asked: list[Message] = []
    again = asyncio.Event()

    def script(message: Message) -> Iterable[Any]:
        if message["method"] != "initialize":
            return [Dies()] if message["method"] == "tools/call" else []
        asked.append(message)
        if len(asked) == 1:
            return [initialized()]
        again.set()
        return []

    server = Scripted(script)
    client = await Client(server, revision="2025-11-25", restart=True).__aenter__()
    with pytest.raises(ChannelError):
        await client.call_tool("t")
    calling = asyncio.ensure_future(client.call_tool("t"))
    await again.wait()
    await client.close()
    server.say(initialized(), asked[1])
    with pytest.raises(Closed):
        await calling
    assert not client._session.entered
    assert server.methods().count("tools/call") == 1


async def test_a_server_that_does_not_list_its_tools_is_asked_for_schemas_once() -> None:
    def answers(message: dict[str, Any]) -> list[Any]:
        return [Error(-32601) if message["method"] == "tools/list" else said("x", structuredContent={"a": 1})]

    peer = modern(answers)
    async with Client(peer) as client:
        for _ in range(3):
            assert (await client.call_tool("t")).structured_content == {"a": 1}
    assert peer.methods().count("tools/list") == 1


async def test_metadata_that_is_ours_is_not_the_users() -> None:
    peer = modern(lambda message: [said("x")])
    async with Client(peer) as client:
        await client.call_tool("t", meta={"example.com/a": {"b": 1}})
    assert peer.heard[-1]["params"]["_meta"]["example.com/a"] == {"b": 1}
    assert peer.heard[-1]["params"]["_meta"][f"{META}protocolVersion"] == "2026-07-28"


# -- numbers that nothing holds, messages that are too long ---------------------------------------

HUGE = {"an exponent": "1e400", "digits": "9" * 400}
PLACES = {
    "structured": '{"content":[],"resultType":"complete","structuredContent":{"a":%s}}',
    "meta": '{"content":[],"resultType":"complete","_meta":{"a":%s}}',
    "member": '{"content":[{"type":"text","text":"x","annotations":{"priority":%s}}],"resultType":"complete"}',
    "tag": '{"content":[],"resultType":%s}',
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize("make", [modern, legacy])
async def test_a_number_beyond_a_double_fails_its_call_at_once(make: Any, number: str, where: str) -> None:
    """A number that Python would not hold: it is named, and the next call works."""

    def answers(message: Message) -> Iterable[Any]:
        if message.get("method") != "tools/call":
            return []
        if message["params"]["name"] == "fine":
            return [said("fine")]
        return [b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], (PLACES[where] % HUGE[number]).encode())]

    async with Client(make(answers), timeout=None) as client:
        async with asyncio.timeout(10):
            other = asyncio.ensure_future(client.call_tool("fine"))
            with pytest.raises(BadAnswer, match=r"[Nn]umber"):
                await client.call_tool("huge")
            with pytest.raises(BadAnswer, match=r"[Nn]umber"):
                await client.call("tools/call", {"name": "huge"})
            assert (await other).text == "fine"


@pytest.mark.parametrize("make", [modern, legacy])
async def test_an_answer_that_is_too_long_fails_its_call_at_once(make: Any) -> None:
    def answers(message: Message) -> Iterable[Any]:
        return (
            [said("x" * (20_000 if message.get("params", {}).get("name") == "long" else 1))] if "id" in message else []
        )

    server = make(answers)
    async with Client(server, timeout=None, limits=CLIENT.but(message_size=10_000)) as client:
        async with asyncio.timeout(10):
            with pytest.raises(BadAnswer, match="message_size allows 10000 bytes"):
                await client.call_tool("long")
            assert (await client.call_tool("short")).text == "x"


async def test_what_a_handshake_said_is_what_is_discovered() -> None:
    async with Client(legacy()) as client:
        assert (await client.discover()).instructions == "be brief"
    async with Client(legacy(version="2025-06-18")) as client:
        assert (await client.discover()).supported_versions == ["2025-06-18"]


async def test_tools_that_were_listed_are_not_listed_again_for_one_that_is_not_among_them() -> None:
    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "tools/list":
            return [listed("tools", tool("shown"))]
        return [said("", structuredContent={"a": 1})]

    server = modern(answers)
    async with Client(server) as client:
        await client.list_tools()
        for _ in range(2):
            await client.call_tool("hidden")
    assert len(server.of("tools/list")) == 1


async def test_the_total_time_is_that_of_a_call_that_reports_progress_too() -> None:
    async with Client(modern(lambda message: [])) as client:
        with pytest.raises(CallTimeout):
            async with asyncio.timeout(20):
                await client.call_tool("slow", timeout=None, total=0.05, on_progress=lambda one: None)


async def test_a_call_that_is_answered_at_once_leaves_no_deadline() -> None:
    app = Server("app")

    @app.tool(inline=True)
    def steps(context: Context) -> str:
        context.progress(1)
        return "done"

    told: list[Any] = []
    async with Client(app) as client:
        assert (await client.call_tool("steps", on_progress=told.append)).text == "done"
        with pytest.raises(InvalidParams):
            await client.call_tool("nothing")
        deadlines = client._session.peer._clock._due
        assert (len(told), deadlines) == (1, {})


async def test_a_server_that_lists_no_tools_is_asked_for_them_once() -> None:
    def answers(message: Message) -> Iterable[Any]:
        return [Error(-32601)] if message["method"] == "tools/list" else [said("", structuredContent={"a": 1})]

    server = modern(answers)
    async with Client(server) as client:
        for _ in range(2):
            assert (await client.call_tool("any")).structured_content == {"a": 1}
    assert len(server.of("tools/list")) == 1


# -- what a server may make a client keep and do


def endless(size: int) -> Scripted:
    """A server whose lists have no end, in pages of so many bytes."""
    number = 0

    def answers(message: Message) -> Iterable[Any]:
        nonlocal number
        number += 1
        if message["method"] == "tools/call":
            return [said("1", structuredContent={"a": 1})]
        member = {"resources/templates/list": "resourceTemplates"}.get(message["method"], message["method"][:-5])
        return [listed(member, nextCursor=f"{number}", _meta={"x": "x" * size})]

    return modern(answers)


@pytest.mark.parametrize("method", ["list_tools", "list_resources", "list_resource_templates", "list_prompts"])
async def test_a_list_has_a_sum(method: str) -> None:
    server = endless(100_000)
    async with Client(server, limits=CLIENT.but(list_size=1_000_000)) as client:
        with pytest.raises(BadAnswer, match="list_size allows 1000000"):
            await getattr(client, method)()
    assert len([one for one in server.heard if one["method"].endswith("/list")]) == 10


async def test_one_page_is_always_accepted() -> None:
    page = listed("tools", tool("t", description="x" * 5_000))
    async with Client(modern(lambda message: [page]), limits=CLIENT.but(list_size=1_000)) as client:
        assert [one.name for one in await client.list_tools()] == ["t"]


async def test_a_list_has_so_many_pages_and_a_result_of_a_tool_reads_no_more() -> None:
    server = endless(1)
    async with Client(server, limits=CLIENT.but(list_pages=7)) as client:
        with pytest.raises(BadAnswer, match="more than 7 pages"):
            await client.list_prompts()
        await client.call_tool("t")
        await client.call_tool("t")
    assert len(server.of("tools/list")) == 7


async def test_a_list_has_its_time() -> None:
    now = 0.0

    async def page(cursor: str | None) -> tuple[list[int], str | None, int]:
        nonlocal now
        now += 20
        return [1], str(now), 1

    with pytest.raises(BadAnswer, match="within 100 s"):
        await pages("tools/list", page, lambda: None, limits=CLIENT.but(list_time=100), clock=lambda: now)
    assert now == 120


def test_what_is_kept_has_a_sum() -> None:
    cache = Cache(clock=lambda: 0.0)
    for number in range(20):
        cache.put("resources/read", f"u{number}", number, 1_000, 0, KEPT // 8)
    assert cache.size == KEPT
    assert [number for number in range(20) if cache.get("resources/read", f"u{number}") is not None] == [*range(12, 20)]
    cache.put("resources/read", "huge", 1, 1_000, 0, KEPT + 1)
    assert cache.get("resources/read", "huge") is None
    cache.drop("resources/read", "u19")
    assert cache.size == KEPT - KEPT // 8
    cache.drop("resources/read")
    assert cache.size == 0


async def test_questions_at_once_are_bounded() -> None:
    """A server of the stateful era asks as often as it likes."""
    open_at_once: list[int] = [0, 0]
    go = asyncio.Event()

    async def elicit(question: Any) -> bool:
        open_at_once[0] += 1
        open_at_once[1] = max(open_at_once)
        await go.wait()
        open_at_once[0] -= 1
        return False

    answers: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            for number in range(10):
                yield {"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create", "params": params}
            yield said("done")

    server = legacy(script)
    async with Client(server, on_elicit=elicit, limits=CLIENT.but(questions=3)) as client:
        await client.call_tool("t")
        go.set()
        async with asyncio.timeout(30):
            while len(answers) < 10:
                await asyncio.sleep(0)
                answers = [one for one in server.heard if str(one.get("id", "")).startswith("q")]
    assert open_at_once[1] == 3
    busy = [one for one in answers if "error" in one]
    assert len(busy) == 7
    assert busy[0]["error"]["data"] == {"limit": "questions", "allowed": 3, "retry_after": 1}


async def test_questions_of_one_result_are_bounded() -> None:
    ask = {"method": "elicitation/create", "params": form(type="string")}
    many = Result({"resultType": "input_required", "inputRequests": {f"q{one}": ask for one in range(40)}})
    async with Client(modern(lambda message: [many]), on_elicit=lambda question: False) as client:
        with pytest.raises(BadAnswer, match="asks 40 questions at once, limits"):
            await client.call_tool("t")
