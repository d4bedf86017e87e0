"""Middleware of an MCP server: arguments and results as values, in every revision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman import LocalError, Service
from dragoman.mcp import CallToolResult, Server, TextContent
from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from dragoman.middleware import Call, Middleware, Next

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda revision: revision.date)


def shop(middleware: Middleware) -> Server:
    server = Server("shop", middleware=[middleware])

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(inline=True)
    def plain() -> str:
        return "plain"

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}"

    return server


@every
async def test_arguments_are_seen_and_changed(revision: Revision) -> None:
    seen: list[Any] = []

    async def more(call: Call, next: Next) -> Any:
        if call.id is not msgspec.UNSET:
            seen.append((call.method, dict(call.arguments)))
        if "a" in call.arguments:
            with pytest.raises(TypeError):
                call.arguments["a"] = 40
            call.arguments = {**call.arguments, "a": 40}
        if "name" in call.arguments:
            call.arguments = {"name": "Ada"}
        return await next(call)

    async with calling(shop(more), revision) as calls:
        seen.clear()
        assert (await calls.call("add", {"a": 1, "b": 2}))["content"][0]["text"] == "42"
        assert (await calls.call("plain"))["content"][0]["text"] == "plain"
        greeted = await calls.result("prompts/get", name="greet", arguments={"name": "x"})
        assert greeted["messages"][0]["content"]["text"] == "Greet Ada"
        await calls.result("tools/list")
    assert seen == [
        ("tools/call", {"a": 1, "b": 2}),
        ("tools/call", {}),
        ("prompts/get", {"name": "x"}),
        ("tools/list", {}),
    ]


@every
async def test_results_are_values_where_they_are_asked_for(revision: Revision) -> None:
    async def shout(call: Call, next: Next) -> Any:
        result = call.decoded(await next(call))
        if isinstance(result, CallToolResult):
            return msgspec.structs.replace(result, content=[TextContent(result.text.upper())])
        return result

    async with calling(shop(shout), revision) as calls:
        found = await calls.call("plain")  # checked by the official schema
        assert found["content"] == [{"type": "text", "text": "PLAIN"}]
        assert ("_meta" in found) is not revision.stateful
        assert [one["name"] for one in (await calls.result("tools/list"))["tools"]] == ["add", "plain"]


@every
async def test_a_result_of_ones_own(revision: Revision) -> None:
    async def closed(call: Call, next: Next) -> Any:
        return CallToolResult(content=[TextContent("closed")]) if call.method == "tools/call" else await next(call)

    async with calling(shop(closed), revision) as calls:
        assert (await calls.call("plain"))["content"] == [{"type": "text", "text": "closed"}]


@every
@pytest.mark.parametrize("value", [None, 5, "x", ["x"], b"{}"], ids=repr)
async def test_what_is_no_result_is_not_sent(revision: Revision, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def forgets(call: Call, next: Next) -> Any:
        found = await next(call)
        return value if call.method == "tools/call" else found

    async with calling(shop(forgets), revision) as calls:
        error = (await calls.unchecked("tools/call", name="plain"))["error"]
    assert error["code"] == -32603
    assert "is no result: middleware returns what `await next(call)` returned" in caplog.text


async def test_what_is_not_looked_at_is_passed_on_as_text() -> None:
    seen: list[Any] = []

    async def blind(call: Call, next: Next) -> Any:
        result = await next(call)
        seen.append(type(result))
        return result

    async with calling(shop(blind), REVISIONS["2026-07-28"]) as calls:
        await calls.call("add", {"a": 1, "b": 2})
    assert seen[-1] is Raw


@pytest.mark.parametrize(
    ("params", "arguments"),
    [("[1,2]", (1, 2)), ('{"a":1,"b":2}', {"a": 1, "b": 2}), ("[]", ())],
)
def test_arguments_of_a_service(params: str, arguments: Any) -> None:
    seen: list[Any] = []

    async def more(call: Call, next: Next) -> Any:
        seen.append(call.arguments)
        call.arguments = [5, 6]
        return call.decoded(await next(call))

    service = Service("s", middleware=[more])
    service.method("add", inline=True)(lambda a, b: a + b)
    answer = service.answer(b'{"jsonrpc":"2.0","method":"add","params":%s,"id":1}' % params.encode())
    assert answer == b'{"jsonrpc":"2.0","result":11,"id":1}'
    assert seen == [arguments]


@pytest.mark.parametrize("params", [Raw(b"{"), Raw(b"5"), None, msgspec.UNSET])
def test_what_has_no_arguments_has_none(params: Any) -> None:
    assert not Call("m", params).arguments


async def test_a_method_without_arguments_has_none_to_change() -> None:
    async def wrong(call: Call, next: Next) -> Any:
        if call.method == "tools/list":
            with pytest.raises(LocalError, match="tools/list has no arguments to change"):
                call.arguments = {"a": 1}
        return await next(call)

    async with calling(shop(wrong), REVISIONS["2026-07-28"]) as calls:
        await calls.tools()
