"""Our client and our server, each feature in each revision, from one table over every wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from dragoman.jsonrpc.errors import BadAnswer, InvalidParams, LocalError, RpcError
from dragoman.mcp.asking.ask import QuestionFailed
from dragoman.mcp.client.client import Client
from dragoman.mcp.client.subscriptions import Changed
from dragoman.mcp.protocol.errors import ToolError
from dragoman.mcp.protocol.params import (
    CreateMessageRequestParams,
    ElicitRequestParams,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
)
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.protocol.types import TextContent
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from dragoman.rpc.tracing import Event
from dragoman.serving import serve

WIRES: dict[str, list[Revision]] = {
    "memory": list(REVISIONS.values()),
    "http://127.0.0.1:0/mcp": [R2025_03, R2025_06, R2025_11, R2026_07],
    "ws://127.0.0.1:0/mcp": [R2025_11, R2026_07],
    "tcp://127.0.0.1:0": [R2024_11, R2026_07],
}
PAIRS = [(wire, revision) for wire, some in WIRES.items() for revision in some]
everywhere = pytest.mark.parametrize(
    ("wire", "revision"), PAIRS, ids=[f"{wire.partition(':')[0]}-{revision.date}" for wire, revision in PAIRS]
)


class Forecast(Struct):
    city: str
    degrees: float


class Guest(Struct):
    name: str
    age: int = 30


def make() -> Server:
    """A server with a bit of everything."""
    app = Server("all", version="3.1", title="All", instructions="be kind", page_size=2, ttl=60)

    @app.tool
    async def forecast(city: str, country: str = "CN") -> Forecast:
        "Tell the weather."
        return Forecast(f"{city}, {country}", 21.5)

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fails(how: str) -> str:
        if how == "tool":
            raise ToolError("no such city")
        raise RpcError("nothing here", code=1234) if how == "rpc" else ZeroDivisionError("secret")

    @app.tool
    async def counts(ctx: Context, to: int) -> str:
        for step in range(1, to + 1):
            await ctx.progress(step, to, f"step {step}")
            await ctx.log("info", {"step": step}, logger="counter")
        return "counted"

    @app.tool
    async def hangs(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @app.tool
    async def greets(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Guest)
        return f"Hello, {answer.content.name}, {answer.content.age}" if answer.content is not None else answer.action

    @app.tool
    async def thinks(ctx: Context) -> str:
        return (await ctx.sample("capital of France?")).text

    @app.tool
    async def looks(ctx: Context) -> str:
        return ",".join(root.uri for root in await ctx.roots())

    @app.resource("file:///readme", name="readme", mime_type="text/plain")
    async def readme() -> str:
        return "read me"

    @app.resource("file:///{path}", name="files")
    async def files(path: str) -> bytes:
        return path.encode()

    @app.prompt
    async def review(code: str) -> str:
        "Review code."
        return f"Review: {code}"

    @app.completion("review", "code")
    async def codes(value: str) -> list[str]:
        return [one for one in ("python", "pascal", "rust") if one.startswith(value)]

    return app


started: asyncio.Event
stopped: asyncio.Event


@pytest.fixture(autouse=True)
def _events() -> None:
    global started, stopped
    started, stopped = asyncio.Event(), asyncio.Event()


@asynccontextmanager
async def opened(wire: str, revision: Revision, app: Server | None = None, **options: Any) -> AsyncIterator[Client]:
    """A client of a server over a wire."""
    app = app or make()
    if wire == "memory":
        async with Client(app, revision=revision, **options) as client:
            assert client.revision is revision
            yield client
        return
    async with serve(app, urls=[wire]) as serving, Client(serving.urls[0], revision=revision, **options) as client:
        assert client.revision is revision
        yield client


@everywhere
async def test_a_question_that_is_refused_is_a_tool_s_failure(wire: str, revision: Revision) -> None:
    """client/sampling, Error Handling: "User rejected sampling request" is an error of the client's, and none of
    ours."""
    app = Server("asks")

    @app.tool
    async def left_alone(ctx: Context) -> str:
        return str(await ctx.sample("hi", max_tokens=1))

    @app.tool
    async def caught(ctx: Context) -> str:
        try:
            return str(await ctx.sample("hi", max_tokens=1))
        except QuestionFailed as error:
            return f"{error.error.code}: {error.error.message}"

    def refuses(asked: CreateMessageRequestParams) -> None:
        raise RpcError("User rejected sampling request", code=-1)

    async with opened(wire, revision, app, on_sample=refuses) as client:
        if revision.server_calls:
            failed = await client.call_tool("left_alone")
            assert failed.is_error
            assert failed.text == "The client could not answer a question: User rejected sampling request"
            assert (await client.call_tool("caught")).text == "-1: User rejected sampling request"
        else:  # the client ends its own call
            with pytest.raises(BadAnswer, match="User rejected"):
                await client.call_tool("left_alone")


@everywhere
async def test_names_and_versions_of_both_ends(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        assert client.server is not None
        assert (client.server.name, client.server.version) == ("all", "3.1")
        assert client.instructions == "be kind"
        assert client.capabilities.tools
        assert client.capabilities.resources
        assert client.capabilities.prompts
        await client.ping()
        assert revision.date in (await client.discover()).supported_versions


async def test_the_newest_revision_is_found_out() -> None:
    async with Client(make()) as client:
        assert client.revision.date == max(REVISIONS)
    old = Server("old", revisions=[R2025_06])
    async with Client(old) as client:
        assert client.revision is R2025_06


@everywhere
async def test_lists(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["forecast", "add", "fails", "counts", "hangs", "greets", "thinks", "looks"]
        assert [one.uri for one in await client.list_resources()] == ["file:///readme"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["file:///{path}"]
        assert [one.name for one in await client.list_prompts()] == ["review"]


@everywhere
async def test_tools(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        await client.list_tools()
        result = await client.call_tool("forecast", {"city": "Bonn"})
        assert "Bonn, CN" in result.text
        assert await client.call_tool("forecast", {"city": "Bonn"}, result=Forecast) == Forecast("Bonn, CN", 21.5)
        assert await client.call_tool("add", {"a": 2, "b": 3}, result=int) == 5
        assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"


@everywhere
async def test_failures(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        failed = await client.call_tool("fails", {"how": "tool"})
        assert (failed.is_error, failed.text) == (True, "no such city")
        masked = await client.call_tool("fails", {"how": "otherwise"})
        assert masked.is_error is True
        assert "secret" not in masked.text
        with pytest.raises(RpcError) as caught:
            await client.call_tool("fails", {"how": "rpc"})
        assert caught.value.code == 1234
        with pytest.raises(InvalidParams):
            await client.call_tool("missing")
        with pytest.raises(RpcError) as missing:
            await client.read_resource("other:thing")
        assert missing.value.code == revision.missing_resource
        with pytest.raises(InvalidParams):
            await client.get_prompt("missing")


@everywhere
async def test_wrong_arguments(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        result = await client.call_tool("add", {"a": "x"})
        assert result.is_error is True
        assert "- a: " in result.text
        assert "- b: " in result.text


@everywhere
async def test_resources_and_prompts_and_completion(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        assert (await client.read_resource("file:///readme")).contents[0].text == "read me"
        assert (await client.read_resource("file:///a.bin")).contents[0].decoded() == b"a.bin"
        (message,) = (await client.get_prompt("review", {"code": "x = 1"})).messages
        assert message.content == TextContent("Review: x = 1")
        assert (await client.complete("review", "code", "p")).values == ["python", "pascal"]


@everywhere
async def test_progress_and_logging(wire: str, revision: Revision) -> None:
    steps: list[ProgressNotificationParams] = []
    logged: list[LoggingMessageNotificationParams] = []
    async with opened(wire, revision, on_log=logged.append) as client:
        await client.set_log_level("info")
        assert (await client.call_tool("counts", {"to": 3}, on_progress=steps.append)).text == "counted"
    assert [(one.progress, one.total) for one in steps] == [(1, 3), (2, 3), (3, 3)]
    assert [one.data for one in logged] == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert logged[0].logger == "counter"


@everywhere
async def test_a_cancelled_call_stops_the_handler(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        calling = asyncio.ensure_future(client.call_tool("hangs"))
        async with asyncio.timeout(20):
            await started.wait()
            calling.cancel()
            await stopped.wait()
        assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2"


@everywhere
async def test_elicitation(wire: str, revision: Revision) -> None:
    asked: list[ElicitRequestParams] = []

    async def guest(question: ElicitRequestParams) -> dict[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    async with opened(wire, revision, on_elicit=guest) as client:
        if revision.order < R2025_06.order:
            with pytest.raises(RpcError):  # no such question then
                await client.call_tool("greets")
        else:
            assert (await client.call_tool("greets")).text == "Hello, Ada, 30"
            assert asked[0].message == "Who are you?"
    async with opened(wire, revision) as client:
        with pytest.raises(RpcError):  # undeclared
            await client.call_tool("greets")


@everywhere
async def test_sampling_and_roots(wire: str, revision: Revision) -> None:
    def model(question: CreateMessageRequestParams) -> str:
        assert question.max_tokens == 512
        return "Paris"

    async with opened(wire, revision, on_sample=model, roots=["file:///a", "file:///b"]) as client:
        assert (await client.call_tool("thinks")).text == "Paris"
        assert (await client.call_tool("looks")).text == "file:///a,file:///b"
        await client.set_roots(["file:///c"])
        assert (await client.call_tool("looks")).text == "file:///c"


@everywhere
async def test_subscriptions(wire: str, revision: Revision) -> None:
    app = make()
    async with opened(wire, revision, app) as client:
        before = len(await client.list_tools())
        async with client.subscribe(["file:///readme"], tools=True) as changes:
            assert changes.granted.resource_subscriptions == ["file:///readme"]
            assert changes.granted.tools_list_changed is True
            app.notify_resource_updated("file:///other")
            app.notify_resource_updated("file:///readme")
            async with asyncio.timeout(20):
                assert await anext(changes) == Changed("resource", "file:///readme")
                app.remove_tool("add")
                assert await anext(changes) == Changed("tools")
            assert len(await client.list_tools()) == before - 1


@everywhere
async def test_many_at_once(wire: str, revision: Revision) -> None:
    async with opened(wire, revision) as client:
        calls = [client.call_tool("add", {"a": n, "b": n}, result=int) for n in range(200)]
        assert await asyncio.gather(*calls) == [2 * n for n in range(200)]


@everywhere
async def test_a_trace_sees_every_message(wire: str, revision: Revision) -> None:
    events: list[Event] = []
    async with opened(wire, revision, trace=events.append) as client:
        assert await client.call_tool("add", {"a": 2, "b": 3}, result=int) == 5
    assert [event.kind for event in events if event.method == "tools/call"] == ["started", "complete"]


async def test_a_client_is_entered_once_at_a_time() -> None:
    async with Client(make()) as client:
        with pytest.raises(LocalError, match="entered already"):
            await client.__aenter__()
    async with client:
        await client.ping()
