"""Servers, services and instances within a server: what is there, under which names, and that it stays in step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest

from dragoman import Caller, Depends, Service, serve
from dragoman.channel import Identity
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Client, Context, Server, prompt, resource, tool
from dragoman.mcp.protocol.revisions import R2026_07, REVISIONS, Revision
from dragoman.mcp.server.including import joined_uri, own_uri
from tests.behind import behind

from ..calling import calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)


def number() -> int:
    return 5


def notes(name: str = "notes") -> Server:
    server = Server(name)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.resource("notes://today")
    def today(uri: str) -> str:
        return f"read as {uri}"

    @server.resource("notes://{day}/lines")
    def lines(day: str, uri: str) -> str:
        return f"{day}, read as {uri}"

    @server.prompt
    def summary(style: str) -> str:
        return f"Summarize, {style}."

    @server.completion("summary", "style")
    def styles(value: str) -> list[str]:
        return [one for one in ("short", "long") if one.startswith(value)]

    return server


@every
async def test_all_of_a_server_is_there_in_its_namespace(revision: Revision) -> None:
    outer = Server("outer")
    outer.include(notes(), namespace="work")
    async with calling(outer, revision) as calls:
        assert list(await calls.tools()) == ["work_add"]
        assert (await calls.call("work_add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"
        listed = await calls.result("resources/list")
        assert [one["uri"] for one in listed["resources"]] == ["notes://work/today"]
        found = (await calls.result("resources/read", uri="notes://work/today"))["contents"][0]
        assert (found["uri"], found["text"]) == ("notes://work/today", "read as notes://today")
        templates = (await calls.result("resources/templates/list"))["resourceTemplates"]
        assert [one["uriTemplate"] for one in templates] == ["notes://work/{day}/lines"]
        found = (await calls.result("resources/read", uri="notes://work/monday/lines"))["contents"][0]
        assert found["text"] == "monday, read as notes://monday/lines"
        shown = await calls.result("prompts/get", name="work_summary", arguments={"style": "short"})
        assert shown["messages"][0]["content"]["text"] == "Summarize, short."
        completed = await calls.result(
            "completion/complete",
            ref={"type": "ref/prompt", "name": "work_summary"},
            argument={"name": "style", "value": "l"},
        )
        assert completed["completion"]["values"] == ["long"]
        assert "add" in (await calls.error("tools/call", name="add"))["message"]
        if not revision.stateful:
            assert (await calls.result("tools/list"))["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "outer"


@pytest.mark.parametrize("scheme", ["tcp", "http"])
async def test_what_is_added_or_taken_away_later_is_there_or_not(scheme: str) -> None:
    inner, middle, outer = notes("inner"), Server("middle"), Server("outer")
    middle.include(inner, namespace="b")
    outer.include(middle, namespace="a")
    async with serve(outer, urls=f"{scheme}://127.0.0.1:0") as serving, Client(serving.urls[0]) as client:

        async def names() -> list[str]:
            return [one.name for one in await client.list_tools()]

        changes = client.subscribe(uris=["notes://a/b/today"], tools=True)
        async with changes:
            told = aiter(changes)
            assert await names() == ["a_b_add"]
            inner.add_tool(number, name="five")
            assert (await anext(told)).kind == "tools"
            assert await names() == ["a_b_add", "a_b_five"]
            assert await client.call_tool("a_b_five", result=int) == 5
            inner.notify_resource_updated("notes://today")
            assert (await anext(told)).uri == "notes://a/b/today"
            inner.remove_tool("add")
            assert (await anext(told)).kind == "tools"
            middle.disable("tool", "b_five")
            assert (await anext(told)).kind == "tools"
            assert await names() == []
            middle.enable("tool", "b_five")
        assert await names() == ["a_b_five"]
        outer.remove_tool("a_b_five")
        inner.remove_tool("five")
        inner.add_prompt(lambda: "Hi", name="hello")
        inner.completion("notes://{day}/lines", "day")(lambda value: [value + "!"])
        assert {one.name for one in await client.list_prompts()} == {"a_b_summary", "a_b_hello"}
        assert behind(outer).catalog.entries("templates")[0].completions.keys() == {"day"}


async def test_middleware_and_lifespans_of_a_server_are_around_its_own_alone() -> None:
    seen: list[str] = []

    async def living(app: Server) -> AsyncIterator[str]:
        seen.append(f"begin {app.name}")
        yield f"state of {app.name}"
        seen.append(f"end {app.name}")

    def tells(word: str) -> Any:
        async def middleware(call: Any, next: Any) -> Any:
            seen.append(word)
            return await next(call)

        return middleware

    async def asked() -> str:
        return "a dependency"

    inner = Server("inner", lifespan=living, middleware=[tells("inner 1")])
    outer = Server("outer", lifespan=living, middleware=[tells("outer")])

    @inner.tool
    async def state(context: Context, given: Annotated[str, Depends(asked)]) -> list[str]:
        return [context.state, given]

    @outer.tool
    async def own(context: Context) -> str:
        return str(context.state)

    outer.include(inner, namespace="x")
    inner.use(tells("inner 2"))

    async def faked() -> str:
        return "a fake"

    async with Client(outer) as client:
        assert seen[:2] == ["begin outer", "begin inner"]
        await client.list_tools()
        seen.clear()
        assert await client.call_tool("x_state", result=list[str]) == ["state of inner", "a dependency"]
        assert seen == ["outer", "inner 1", "inner 2"]
        seen.clear()
        assert await client.call_tool("own", result=str) == "state of outer"
        assert seen == ["outer"]
        with outer.override(asked, faked):
            assert await client.call_tool("x_state", result=list[str]) == ["state of inner", "a fake"]
    assert seen[-2:] == ["end inner", "end outer"]


@pytest.mark.parametrize("late", [False, True])
async def test_completions_have_the_middleware_and_the_state_of_their_server(late: bool) -> None:
    seen: list[str] = []

    async def living(app: Server) -> AsyncIterator[str]:
        yield f"state of {app.name}"

    async def tells(call: Any, next: Any) -> Any:
        seen.append(call.method)
        return await next(call)

    inner, outer = Server("inner", lifespan=living, middleware=[tells]), Server("outer", lifespan=living)

    @inner.prompt
    def summary(style: str) -> str:
        return style

    def completes() -> None:
        @inner.completion("summary", "style")
        def styles(value: str, ctx: Context) -> list[str]:
            return [str(ctx.state)]

    if not late:
        completes()
    outer.include(inner, namespace="x")
    if late:
        completes()
    async with Client(outer) as client:
        seen.clear()
        found = await client.complete("x_summary", "style", "s")
    assert found.values == ["state of inner"]
    assert seen == ["completion/complete"]


async def test_a_dependency_that_lives_with_a_server_and_comes_later_is_opened() -> None:
    inner, outer = Server("inner"), Server("outer")
    outer.include(inner, namespace="x")
    opened: list[str] = []

    async def pool() -> AsyncIterator[str]:
        opened.append("open")
        yield "pool"
        opened.append("closed")

    async with Client(outer) as client:

        @inner.tool
        async def uses(pool: Annotated[str, Depends(pool, scope="lifespan")]) -> str:
            return pool

        assert await client.call_tool("x_uses", result=str) == "pool"
        assert await client.call_tool("x_uses", result=str) == "pool"
    assert opened == ["open", "closed"]


async def test_what_only_some_may_see_stays_so() -> None:
    inner, outer = Server("inner"), Server("outer")
    inner.add_tool(lambda: 1, name="secret", visible=lambda caller: caller.identity is not None)
    outer.include(inner, namespace="x")
    assert await outer.list_tools() == []
    ada = Caller(identity=Identity(subject="ada"))
    assert [one.name for one in await outer.list_tools(caller=ada)] == ["x_secret"]
    async with calling(outer, R2026_07) as calls:
        assert (await calls.result("tools/list"))["cacheScope"] == "private"


async def test_a_service_and_an_instance_stay_in_step_too() -> None:
    api, outer = Service("api"), Server("outer")
    outer.include(api, namespace="api")

    class Marked:
        @tool
        def one(self) -> int:
            return 1

        @prompt
        def asks(self) -> str:
            return "?"

        @resource("data://numbers")
        def numbers(self) -> str:
            return "1 2 3"

    outer.include(Marked(), namespace="m")

    @api.method
    async def twice(a: int) -> int:
        return 2 * a

    async with Client(outer) as client:
        assert await client.call_tool("api_twice", {"a": 4}, result=int) == 8
        assert await client.call_tool("m_one", result=int) == 1
        assert [one.uri for one in await client.list_resources()] == ["data://m/numbers"]
        assert [one.name for one in await client.list_prompts()] == ["m_asks"]

        @api.use
        async def more(call: Any, next: Any) -> Any:
            return await next(call) + 1

        assert await client.call_tool("api_twice", {"a": 4}, result=int) == 9


def test_names_that_clash_and_servers_that_include_one_another_are_refused() -> None:
    inner, outer = notes(), Server("outer")
    outer.add_tool(lambda: 0, name="x_later")
    outer.add_tool(lambda: 0, name="add")
    with pytest.raises(LocalError, match=r"there is a tool 'add' already: give another name, or .* a namespace"):
        outer.include(inner)
    assert [entry.key for entry in behind(outer).catalog.everything()] == ["x_later", "add"], "nothing of it was taken"
    outer.include(inner, namespace="x")
    with pytest.raises(LocalError, match="there is a tool 'x_later' already"):
        inner.add_tool(lambda: 0, name="later")
    assert "later" not in [entry.key for entry in behind(inner).catalog.everything()]
    inner.add_tool(lambda: 0, name="other")
    for one in (inner, outer):
        with pytest.raises(LocalError, match="cannot include outer: outer is it, or includes it"):
            one.include(outer, namespace="y")
    with pytest.raises(LocalError, match="give namespace='a' or prefix='b', not both"):
        outer.include(notes(), namespace="a", prefix="b")
    other = Server("other")
    other.add_resource(lambda whole: "", "{+whole}")
    with pytest.raises(LocalError, match="a template begins with a scheme"):
        outer.include(other, namespace="z")


@pytest.mark.parametrize("name", ["a.b", "x" * 65])
def test_a_name_that_hosts_refuse_is_told_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    Server("dots").add_tool(number, name=name)
    assert f"tool {name!r}: many hosts take 1 to 64 of A-Z a-z 0-9 _ and - alone" in caplog.text


@pytest.mark.parametrize(
    ("own", "there"),
    [
        ("notes://today", "notes://x/today"),
        ("notes://{day}/lines", "notes://x/{day}/lines"),
        ("file:///etc/hosts", "file://x//etc/hosts"),
        ("weather:beijing", "weather:x/beijing"),
        ("data://{+path}", "data://x/{+path}"),
    ],
)
def test_a_uri_and_back(own: str, there: str) -> None:
    assert joined_uri(own, "x") == there
    assert own_uri(there, "x") == own
    assert joined_uri(own, "") == own_uri(own, "") == own


async def test_a_clash_while_it_is_served_changes_nothing() -> None:
    inner, outer = notes(), Server("outer")
    outer.include(inner, namespace="x")
    outer.add_tool(number, name="x_new")
    async with Client(outer) as client:
        with pytest.raises(LocalError):
            inner.add_tool(number, name="new")
        assert await client.call_tool("x_new", result=int) == 5


# -- pages of tools (MCP Apps) ---------------------------------------------------------------------

with_meta = pytest.mark.parametrize(
    "revision", [one for one in REVISIONS.values() if one.date >= "2025-06-18"], ids=lambda one: one.date
)
PAGE: dict[str, Any] = {"ui": {"csp": {"connectDomains": []}}}


def charts() -> Server:
    inner = Server("charts")

    @inner.tool(meta={"ui": {"resourceUri": "ui://chart/view", "visibility": ["model"]}, "a": 1})
    def show() -> list[int]:
        return [1]

    @inner.tool(meta={"ui/resourceUri": "ui://chart/view", "openai/outputTemplate": "UI://chart/view"})
    def draw() -> str:
        return "drawn"

    @inner.resource("ui://chart/view", mime_type="text/html;profile=mcp-app", meta=PAGE)
    def view() -> str:
        return "<!doctype html>"

    return inner


class Charts:
    @tool(meta={"ui": {"resourceUri": "ui://chart/view", "visibility": ["model"]}, "a": 1})
    def show(self) -> list[int]:
        return [1]

    @tool(meta={"ui/resourceUri": "ui://chart/view", "openai/outputTemplate": "UI://chart/view"})
    def draw(self) -> str:
        return "drawn"

    @resource("ui://chart/view", mime_type="text/html;profile=mcp-app", meta=PAGE)
    def view(self) -> str:
        return "<!doctype html>"


@with_meta
@pytest.mark.parametrize("what", [charts, Charts])
@pytest.mark.parametrize(("spaces", "uri"), [(["C"], "ui://c/chart/view"), (["c", "d"], "ui://d/c/chart/view")])
async def test_a_tool_s_page_has_its_uri_there(revision: Revision, what: Any, spaces: list[str], uri: str) -> None:
    found: Any = what()
    for space in spaces:
        outer = Server(space)
        outer.include(found, namespace=space)
        found = outer
    async with calling(found, revision) as calls:
        show, draw = (await calls.tools()).values()
        assert show["_meta"] == {"ui": {"resourceUri": uri, "visibility": ["model"]}, "a": 1}
        assert draw["_meta"] == {"ui/resourceUri": uri, "openai/outputTemplate": uri}
        [page] = (await calls.result("resources/read", uri=uri))["contents"]
        assert (page["uri"], page["text"]) == (uri, "<!doctype html>")


async def test_without_a_namespace_a_tool_s_page_is_where_it_was() -> None:
    outer = Server("outer")
    outer.include(charts())
    async with Client(outer) as client:
        show, _ = await client.list_tools()
        assert show.meta == {"ui": {"resourceUri": "ui://chart/view", "visibility": ["model"]}, "a": 1}
