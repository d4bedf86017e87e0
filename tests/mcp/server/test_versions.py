"""Several versions under one name: which one answers, what a list tells, and how each is switched and removed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import InvalidParams, LocalError, RpcError
from dragoman.mcp import Client, Server, tool
from dragoman.mcp.client.blocking import connect
from dragoman.mcp.protocol.entry_versions import order
from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from tests.behind import behind

from ..calling import Calls, calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
ADA = Caller(identity=Identity(subject="ada"))


def shop() -> Server:
    """Three versions of everything, the highest in the middle."""
    server = Server("shop")
    for version in ("1", "10.0", "2"):
        server.add_tool(lambda version=version: f"sum {version}", name="sum", version=version)
        server.add_resource(lambda version=version: f"page {version}", "shop://page", version=version)
        server.add_resource(lambda id, version=version: f"{id} {version}", "item://{id}", version=version)
        server.add_prompt(lambda version=version: f"poem {version}", name="poem", version=version)
    server.add_tool(lambda: "plain", name="plain")
    return server


async def answers(calls: Calls, version: Any = None) -> list[str]:
    """What a tool, a resource, a template and a prompt say, in this version."""
    meta: dict[str, Any] = {} if version is None else {"_meta": {"fastmcp": {"version": version}}}
    sum = await calls.result("tools/call", name="sum", arguments={}, **meta)
    pages = [await calls.result("resources/read", uri=uri, **meta) for uri in ("shop://page", "item://tea")]
    poem = await calls.result("prompts/get", name="poem", **meta)
    texts = [sum["content"][0]["text"], *(page["contents"][0]["text"] for page in pages)]
    return [text.split()[-1] for text in [*texts, poem["messages"][0]["content"]["text"]]]


@every
@pytest.mark.parametrize("around", [False, True])
async def test_the_highest_answers_and_each_where_it_is_asked_for(revision: Revision, around: bool) -> None:
    inner, outer = shop(), Server("outer")
    outer.include(inner)
    async with calling(outer if around else inner, revision) as calls:
        assert await answers(calls) == ["10.0"] * 4
        assert await answers(calls, "1") == ["1"] * 4
        assert await answers(calls, "v2.0") == ["2"] * 4  # the same version
        inner.disable(tag="none")
        inner.disable("tool", "sum", version="10.0")
        inner.remove_prompt("poem", version="10.0")
        inner.remove_resource("shop://page", version="10.0")
        inner.disable("resource", "item://{id}", version="10.0")
        assert await answers(calls) == ["2"] * 4
        inner.disable("tool", "sum")
        assert (await calls.error("tools/call", name="sum"))["message"] == "Unknown tool: sum"
        inner.enable("tool", "sum")
        assert (await calls.call("sum"))["content"][0]["text"] == "sum 10.0"


@every
async def test_what_has_no_version_answers_every_request(revision: Revision) -> None:
    async with calling(shop(), revision) as calls:
        asked = {"_meta": {"fastmcp": {"version": "7"}}}
        assert (await calls.result("tools/call", name="plain", **asked))["content"][0]["text"] == "plain"


@every
@pytest.mark.parametrize("kind", ["tools/call", "prompts/get", "resources/read"])
async def test_a_version_that_is_not_there_is_unknown(revision: Revision, kind: str) -> None:
    given = {"uri": "shop://page"} if kind == "resources/read" else {"name": "sum" if "tools" in kind else "poem"}
    async with calling(shop(), revision) as calls:
        error = await calls.error(kind, **given, _meta={"fastmcp": {"version": "3"}})
    if kind != "resources/read":
        assert error["code"] == -32602
        assert error["message"].endswith(", in that version; there are 10.0, 2, 1")


@every
@pytest.mark.parametrize("wrong", [3, None, {"version": 2}, {"version": ""}, {"version": "a b"}, {"version": "1" * 65}])
async def test_a_version_that_cannot_be_is_refused_with_what_to_write(revision: Revision, wrong: Any) -> None:
    async with calling(shop(), revision) as calls:
        error = await calls.error("tools/call", name="sum", _meta={"fastmcp": wrong})
        assert error["code"] == -32602
        assert error["message"].endswith('so: {"version": "2"}')
        assert await answers(calls, None) == ["10.0"] * 4


@every
async def test_a_list_has_the_highest_and_tells_the_others(revision: Revision) -> None:
    server = shop()
    async with calling(server, revision) as calls:
        for method, member, key in (
            ("tools/list", "tools", "sum"),
            ("prompts/list", "prompts", "poem"),
            ("resources/list", "resources", "shop://page"),
            ("resources/templates/list", "resourceTemplates", "item://{id}"),
        ):
            (one,) = [one for one in (await calls.result(method))[member] if key in one.values()]
            told = {"fastmcp": {"version": "10.0", "versions": ["10.0", "2", "1"]}}
            assert one.get("_meta") in (told, None)
            assert ("_meta" in one) is (revision.date >= "2025-06-18")
        server.disable("tool", "sum", version="10.0")
        assert [one["name"] for one in (await calls.result("tools/list"))["tools"]] == ["sum", "plain"]
        if revision.date >= "2025-06-18":
            assert (await calls.tools())["sum"]["_meta"] == {"fastmcp": {"version": "2", "versions": ["2", "1"]}}


async def test_each_caller_has_the_highest_that_is_there_for_it() -> None:
    server = shop()
    server.add_tool(lambda: "sum 11", name="sum", version="11", visible=lambda caller: caller.identity is not None)
    server.remove_tool("sum", version="1")
    for caller, versions in ((ADA, ["11", "10.0", "2"]), (Caller(), ["10.0", "2"])):
        found = (await server.list_tools(caller=caller))[0]
        assert found.meta == {"fastmcp": {"version": versions[0], "versions": versions}}
        told = (await server.call_tool("sum", caller=caller)).text
        assert told == f"sum {versions[0]}"
    assert (await server.call_tool("sum", caller=ADA, version="2")).text == "sum 2"
    with pytest.raises(InvalidParams, match=r"Unknown tool: sum, in that version; there are 10\.0, 2 \(-32602\)$"):
        await server.call_tool("sum", version="11")
    with pytest.raises(LocalError, match="version"):
        await server.call_tool("sum", version="a b")


async def test_versions_of_what_is_not_visible_are_not_told() -> None:
    server = Server("shop")
    server.add_tool(lambda: "", name="sum", version="1", visible=lambda caller: caller.identity is not None)
    with pytest.raises(RpcError, match=r"^Unknown tool: sum \(-32602\)$"):
        await server.call_tool("sum", version="3")
    assert await server.list_tools() == []


async def test_a_caller_gets_the_version_that_its_list_shows() -> None:
    """A version for others is passed over; one that demands a scope is listed, so it is the one that is refused."""
    server = Server("shop")
    server.add_tool(lambda: "1", name="sum", version="1")
    server.add_tool(lambda: "2", name="sum", version="2", allow=lambda identity, arguments: identity.subject == "ada")
    bob = Caller(identity=Identity(subject="bob"))
    for caller, version in ((ADA, "2"), (bob, "1")):
        (found,) = await server.list_tools(caller=caller)
        assert isinstance(found.meta, dict)
        assert found.meta["fastmcp"]["version"] == version
        assert (await server.call_tool("sum", caller=caller)).text == version
    with pytest.raises(RpcError, match="Forbidden"):
        await server.call_tool("sum", caller=bob, version="2")
    server.add_tool(lambda: "3", name="sum", version="3", scopes="sums")
    assert (await server.list_tools(caller=bob))[0].meta == {"fastmcp": {"version": "3", "versions": ["3", "1"]}}
    with pytest.raises(RpcError, match="this call needs the scopes sums"):
        await server.call_tool("sum", caller=bob)
    with pytest.raises(RpcError, match=r"Unknown tool: sum, in that version; there are 3, 1 \("):
        await server.call_tool("sum", caller=bob, version="9")


async def test_pages_stay_in_the_order_of_names_whichever_version_is_listed() -> None:
    server = Server("many", page_size=2)
    for version in ("1", "2"):
        for name in "abcde":
            server.add_tool(lambda: "", name=name, version=version)
    async with Client(server) as client:
        assert [one.name for one in await client.list_tools()] == list("abcde")
        server.disable("tool", "c", version="2")
        server.remove_tool("b")
        assert [one.name for one in await client.list_tools()] == list("acde")


@every
async def test_a_completion_is_that_of_every_version_with_the_argument(revision: Revision) -> None:
    server = Server("poems")
    server.add_prompt(lambda: "", name="poem", version="1")
    server.add_prompt(lambda topic: topic, name="poem", version="2")
    server.add_prompt(lambda topic, tone: topic + tone, name="poem", version="3")
    server.completion("poem", "topic")(lambda value: ["tea"])
    server.completion("poem", "tone")(lambda value: ["calm"])
    with pytest.raises(LocalError, match="has no argument 'metre'; it has topic, tone"):
        server.completion("poem", "metre")(lambda value: [])
    with pytest.raises(LocalError, match="is completed by a function already"):
        server.completion("poem", "topic")(lambda value: [])
    async with calling(server, revision) as calls:
        ref = {"type": "ref/prompt", "name": "poem"}
        for version, name, values in (("2", "topic", ["tea"]), ("3", "topic", ["tea"]), ("3", "tone", ["calm"])):
            meta = {"fastmcp": {"version": version}}
            asked = {"ref": ref, "argument": {"name": name, "value": ""}, "_meta": meta}
            assert (await calls.result("completion/complete", **asked))["completion"]["values"] == values


async def test_a_client_asks_for_a_version() -> None:
    server = Server("shop", ttl=60)
    for version in ("1", "2"):
        server.add_tool(lambda version=version: version, name="sum", version=version)
        server.add_resource(lambda version=version: version, "shop://page", version=version)
        server.add_prompt(lambda version=version: version, name="poem", version=version)
    async with Client(server) as client:
        for asked in (None, "1", "2", "1", None):
            expected = asked or "2"
            assert (await client.call_tool("sum", version=asked)).text == expected
            (page,) = (await client.read_resource("shop://page", version=asked)).contents
            assert getattr(page, "text", None) == expected  # what is kept is of no other version
            (message,) = (await client.get_prompt("poem", version=asked)).messages
            assert getattr(message.content, "text", None) == expected
        assert (await client.call_tool("sum", meta={"fastmcp": {"version": "1"}, "own": 1})).text == "1"
        with pytest.raises(LocalError, match="version"):
            await client.call_tool("sum", version="a b")


def test_a_blocking_client_asks_for_a_version() -> None:
    with connect(shop()) as client:
        assert client.call_tool("sum", version="1").text == "sum 1"
        (page,) = client.read_resource("shop://page", version="2").contents
        (message,) = client.get_prompt("poem", version="1").messages
        assert [getattr(one, "text", None) for one in (page, message.content)] == ["page 2", "poem 1"]


async def test_the_result_of_another_version_is_not_held_against_the_listed_schema() -> None:
    server = Server("sums")

    @server.tool("sum", version="1")
    async def first() -> dict[str, int]:
        return {"sum": 1}

    @server.tool("sum", version="2")
    async def second() -> dict[str, str]:
        return {"sum": "2"}

    async with Client(server) as client:
        await client.list_tools()
        for version, value in ((None, "2"), ("1", 1), ("2", "2")):
            assert (await client.call_tool("sum", version=version)).structured_content == {"sum": value}


def test_what_cannot_be_a_version_is_refused_at_registration() -> None:
    server = shop()
    for version, said in (
        ("10", r"there is a tool 'sum' of version '10\.0' already: give another version"),
        ("V1.0", "there is a tool 'sum' of version '1' already"),
        (None, "there is a tool 'sum' with versions already: give this a version"),
        ("a b", "version"),
        ("", "version"),
        (2, "version"),
    ):
        with pytest.raises(LocalError, match=said):
            server.add_tool(lambda: "", name="sum", version=version)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match=r"there is a tool 'plain' already.*, or a version to both"):
        server.add_tool(lambda: "", name="plain", version="1")
    for call in (server.remove_tool, lambda name, version: server.disable("tool", name, version=version)):
        with pytest.raises(LocalError, match="there is no version '3' of the tool 'sum'"):
            call("sum", version="3")


def test_two_of_one_instance_may_be_versions_of_one_name() -> None:
    class Old:
        @tool("sum", version="1")
        def first(self) -> int:
            return 1

        @tool("sum", version="2")
        def second(self) -> int:
            return 2

    server = Server("sums")
    server.include(Old())
    assert [(one.key, one.version) for one in behind(server).catalog.everything()] == [("sum", "2"), ("sum", "1")]


def test_the_order_of_versions() -> None:
    versions = [
        "beta",
        "0.9",
        "1.0a",
        "1",
        "1.0.1",
        "1.10-rc1",
        "1.10",
        "1.10.1",
        "2",
        "v3",
        "2025-01-15",
        "2025-06-01",
    ]
    assert sorted(sorted(versions), key=order) == versions
    assert order("1") == order("1.0.0") == order("v1.0")
    assert order("1.0a") == order("1a")
    assert order("10") > order("9")
    assert order("v") != order("") != order("0") == order("0.0")


async def test_a_user_s_own_meta_stays() -> None:
    server = Server("shop")
    server.add_tool(lambda: "", name="sum", version="1", meta={"fastmcp": {"tags": ["a"]}, "own": 1})
    (found,) = await server.list_tools()
    assert json.loads(json.dumps(found.meta)) == {
        "fastmcp": {"tags": ["a"], "version": "1", "versions": ["1"]},
        "own": 1,
    }
