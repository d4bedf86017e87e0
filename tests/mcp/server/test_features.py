"""Resources, templates, prompts and completions, and the lists they stand in."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Struct

from dragoman import RpcError
from dragoman.channel import Caller
from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.mcp import (
    Completion,
    Context,
    EmbeddedResource,
    File,
    GetPromptResult,
    Image,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    ResourceNotFound,
    Server,
    TextContent,
    ToolError,
)
from dragoman.mcp.protocol.revisions import R2024_11, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.options import (
    OF_EXTENSIONS,
    PROMPT,
    RESOURCE,
    TOOL,
    PromptOptions,
    ResourceOptions,
    ToolOptions,
)
from dragoman.rpc.method import RUNNING, RunOptions
from tests.behind import behind

from ..calling import Calls, calling

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)


@pytest.fixture
def server() -> Server:
    return Server("tests", version="1.0", page_size=3, ttl=2.5, cache_scope="public")


# -- resources ------------------------------------------------------------------------------------


@every
async def test_resources(server: Server, revision: Revision) -> None:
    @server.resource("test://text", mime_type="text/markdown", size=5, title="Text", meta={"example.com/a": 1})
    def text() -> str:
        """A text."""
        return "# Hi"

    @server.resource("test://bytes", name="raw", mime_type="image/png")
    async def data() -> bytes:
        return b"\x00\x01"

    async with calling(server, revision) as calls:
        one, two = (await calls.result("resources/list"))["resources"]
        assert (one["uri"], one["name"], one["description"], one["mimeType"], one["size"]) == (
            "test://text",
            "text",
            "A text.",
            "text/markdown",
            5,
        )
        assert two["name"] == "raw"
        result = await calls.result("resources/read", uri="test://text")
        [content] = result["contents"]
        content.pop("_meta", None)
        assert content == {"uri": "test://text", "mimeType": "text/markdown", "text": "# Hi"}
        if not revision.stateful:
            # server/utilities/caching: hints on `resources/read`, too
            assert (result["ttlMs"], result["cacheScope"]) == (2500, "public")
        (content,) = (await calls.result("resources/read", uri="test://bytes"))["contents"]
        assert content == {"uri": "test://bytes", "mimeType": "image/png", "blob": "AAE="}


@every
async def test_templates(server: Server, revision: Revision) -> None:
    @server.resource("test://template/{id}/data", mime_type="application/json")
    def data(id: int, ctx: Context, uri: str) -> dict[str, Any]:
        return {"id": id, "uri": uri, "revision": ctx.revision.order}

    @server.resource("db://rows{?limit,flag}")
    def rows(limit: int = 3, flag: bool = False) -> str:
        return f"{limit} {flag}"

    async with calling(server, revision) as calls:
        assert (await calls.result("resources/list"))["resources"] == []
        one, two = (await calls.result("resources/templates/list"))["resourceTemplates"]
        assert one == {"uriTemplate": "test://template/{id}/data", "name": "data", "mimeType": "application/json"}
        assert two["uriTemplate"] == "db://rows{?limit,flag}"

        async def read(uri: str) -> str:
            (content,) = (await calls.result("resources/read", uri=uri))["contents"]
            assert content["uri"] == uri
            return str(content["text"])

        uri = "test://template/123/data"
        assert msgspec.json.decode(await read(uri)) == {"id": 123, "uri": uri, "revision": revision.order}
        assert await read("db://rows") == "3 False"
        assert await read("db://rows?flag=true&limit=7") == "7 True"
        error = await calls.error("resources/read", uri="test://template/abc/data")
        assert error["code"] == -32602
        assert error["data"]["errors"] == [
            {"field": "id", "message": "Expected an integer, got a string", "received": "abc"}
        ]


@every
async def test_resources_that_are_not_there(server: Server, revision: Revision) -> None:
    """server/resources, Error Handling: -32602 in 2026-07-28, -32002 before; "MUST NOT return an empty `contents`"."""

    @server.resource("file:///{+path}")
    def file(path: str) -> Any:
        if path == "raised":
            raise ResourceNotFound
        return None if path == "none" else File("/no/such/file")

    code = -32602 if revision is R2026_07 else -32002
    async with calling(server, revision) as calls:
        for uri in (
            "nope://x",
            "file:///none",
            "file:///raised",
            "file:///missing",
            "file:///a/../b",
            "file:///%2e%2e",
        ):
            error = await calls.error("resources/read", uri=uri)
            told = uri.replace("%2e", ".")
            assert error == {"code": code, "message": "Resource not found", "data": {"uri": told}}


@every
async def test_resources_fail(server: Server, revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    """server/resources: "Servers SHOULD return `-32603` for internal errors"."""

    @server.resource("test://{how}")
    def fail(how: str) -> str:
        if how == "rpc":
            raise RpcError("Busy", code=7)
        raise (ToolError if how == "tool" else ValueError)("swordfish")

    async with calling(server, revision) as calls:
        assert await calls.error("resources/read", uri="test://rpc") == {"code": 7, "message": "Busy"}
        error = await calls.error("resources/read", uri="test://value")
        assert error["code"] == -32603
        assert "swordfish" not in str(error)
        assert error["data"]["reference"] in caplog.text


@every
async def test_what_was_raised_for_the_caller_reaches_the_caller(server: Server, revision: Revision) -> None:
    """A `ToolError` and a `ResourceNotFound` with their texts, from everything that can raise them."""

    @server.resource("test://{how}")
    def fail(how: str) -> str:
        raise ResourceNotFound("there is no book 7") if how == "missing" else ToolError("closed on Sundays")

    @server.prompt
    async def poem(topic: str = "") -> str:
        raise ToolError

    @server.completion("poem", "topic")
    def topics(typed: str) -> list[str]:
        raise ToolError("closed on Sundays")

    closed = {"code": -32603, "message": "closed on Sundays"}

    @server.prompt
    def about(title: str) -> str:
        raise ResourceNotFound(title)

    @server.tool
    def read(title: str) -> str:
        raise ResourceNotFound(f"there is no book {title}")

    async with calling(server, revision) as calls:
        assert await calls.error("prompts/get", name="about", arguments={"title": "no book 7"}) == {
            "code": -32602,
            "message": "no book 7",
        }
        found = await calls.error("prompts/get", name="about", arguments={"title": ""})
        assert found == {"code": -32602, "message": "about: there is no such resource"}
        told = await calls.result("tools/call", name="read", arguments={"title": "7"})
        assert (told["isError"], told["content"][0]["text"]) == (True, "there is no book 7")
        assert await calls.error("resources/read", uri="test://missing") == {
            "code": revision.missing_resource,
            "message": "Resource not found: there is no book 7",
            "data": {"uri": "test://missing"},
        }
        assert await calls.error("resources/read", uri="test://closed") == closed
        assert await calls.error("prompts/get", name="poem") == {"code": -32603, "message": "poem failed"}
        ref = {"type": "ref/prompt", "name": "poem"}
        found = await calls.error("completion/complete", ref=ref, argument={"name": "topic", "value": ""})
        assert found == closed


async def test_contents(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "unknown").write_bytes(b"\xff\xfe")
    values: dict[str, Any] = {
        "dict": {"a": [1]},
        "list": [1, "a"],
        "struct": Completion(["x"]),
        "markdown": File(tmp_path / "a.md"),
        "png": File(str(tmp_path / "a.png")),
        "unknown": File(tmp_path / "unknown"),
        "path": tmp_path / "a.md",
        "own": File(tmp_path / "a.md", "text/plain", "test://named"),
        "image": Image(b"\xff\xd8\xff"),
        "several": [
            "one",
            b"\x01",
            ResourceContents(uri="test://other", text="two"),
            EmbeddedResource(ResourceContents(uri="test://third", blob="AA==")),
            TextContent("four"),
        ],
        "whole": ReadResourceResult(contents=[ResourceContents(uri="x://y", text="z")], ttl_ms=7),
    }

    @server.resource("test://{key}")
    def value(key: str) -> Any:
        return values[key]

    async with calling(server, R2026_07) as calls:

        async def read(key: str) -> list[tuple[str, str, str]]:
            contents = (await calls.result("resources/read", uri=f"test://{key}"))["contents"]
            return [(one["uri"], one.get("mimeType", ""), one.get("text", one.get("blob"))) for one in contents]

        assert await read("dict") == [("test://dict", "application/json", '{"a":[1]}')]
        assert await read("list") == [("test://list", "application/json", '[1,"a"]')]
        assert await read("struct") == [("test://struct", "application/json", '{"values":["x"]}')]
        assert await read("markdown") == [("test://markdown", "text/markdown", "# A")]
        assert await read("png") == [("test://png", "image/png", "iVBORw0KGgo=")]
        assert await read("unknown") == [("test://unknown", "application/octet-stream", "//4=")]
        assert await read("path") == [("test://path", "text/plain", str(tmp_path / "a.md"))]
        assert await read("own") == [("test://named", "text/plain", "# A")]
        assert await read("image") == [("test://image", "image/jpeg", "/9j/")]
        assert await read("several") == [
            ("test://several", "text/plain", "one"),
            ("test://several", "application/octet-stream", "AQ=="),
            ("test://other", "", "two"),
            ("test://third", "", "AA=="),
            ("test://several", "text/plain", "four"),
        ]
        assert (await calls.result("resources/read", uri="test://whole"))["ttlMs"] == 7


def named(text: str) -> Any:
    def read(**values: str) -> str:
        return text

    return read


async def test_the_more_specific_template_wins(server: Server) -> None:
    order = ["x://{+all}", "x://{a}/{b}", "x://users/{b}", "x://users/me"]
    for uri in order:
        server.add_resource(named(uri), uri, name=uri)
    async with calling(server, R2026_07) as calls:
        for asked, expected in (("users/me", 3), ("users/you", 2), ("others/you", 1), ("a/b/c", 0), ("a", 0)):
            (content,) = (await calls.result("resources/read", uri=f"x://{asked}"))["contents"]
            assert content["text"] == order[expected]
        server.disable("resource", "x://users/me")
        (content,) = (await calls.result("resources/read", uri="x://users/me"))["contents"]
        assert content["text"] == "x://users/{b}"


def test_what_cannot_be_a_resource(server: Server) -> None:
    def nothing() -> None: ...
    def needs(a: str) -> None: ...
    def rest(*a: str) -> None: ...

    for function, uri, words in (
        (nothing, "no uri", "not a URI"),
        (nothing, "/path", "not a URI"),
        (nothing, "x://{a", "template"),
        (nothing, "x://{a}", "no parameter 'a'"),
        (needs, "x://y", "nothing in the URI is 'a'"),
        (needs, "x://y{?a}", "default"),
        (rest, "x://y", "names"),
    ):
        with pytest.raises(LocalError, match=words):
            server.add_resource(function, uri)
    with pytest.raises(LocalError, match="size"):
        server.add_resource(needs, "x://{a}", size=3)
    server.add_resource(nothing, "x://y")
    with pytest.raises(LocalError, match="already"):
        server.add_resource(nothing, "x://y")


# -- prompts --------------------------------------------------------------------------------------


class Style(Struct):
    tone: str


@every
async def test_prompts(server: Server, revision: Revision) -> None:
    @server.prompt("review", title="Review")
    async def review(code: str, ctx: Context, lines: int = 3, styles: list[Style] | None = None) -> str:
        """Ask for a review.

        Args:
            code: The code.
        """
        return f"{code} {lines} {[style.tone for style in styles or ()]} {ctx.revision.order}"

    async with calling(server, revision) as calls:
        (prompt,) = (await calls.result("prompts/list"))["prompts"]
        assert prompt["description"] == "Ask for a review."
        assert prompt["arguments"] == [
            {"name": "code", "description": "The code.", "required": True},
            {"name": "lines", "required": False},
            {"name": "styles", "required": False},
        ]
        result = await calls.result("prompts/get", name="review", arguments={"code": "5"})
        text = f"5 3 [] {revision.order}"
        assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": text}}]
        given = {"code": '"x"', "lines": "7", "styles": '[{"tone":"dry"}]'}
        (message,) = (await calls.result("prompts/get", name="review", arguments=given))["messages"]
        assert message["content"]["text"] == f"\"x\" 7 ['dry'] {revision.order}"


@every
async def test_prompts_fail(server: Server, revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    """server/prompts, Error Handling: -32602 for a bad name and missing arguments, -32603 for internal errors."""

    @server.prompt
    def ask(code: str, lines: int) -> str:
        raise ValueError("swordfish")

    async with calling(server, revision) as calls:
        error = await calls.error("prompts/get", name="missing")
        assert error == {"code": -32602, "message": "Unknown prompt: missing"}
        for more in ({"arguments": {"lines": "x", "y": "1"}}, {"arguments": {"lines": "x", "y": "1", "code": ""}}):
            error = await calls.error("prompts/get", name="ask", **more)
            assert error["code"] == -32602
            faults = {one["field"] for one in error["data"]["errors"]}
            assert faults == {"lines", "y"} | ({"code"} if "code" not in more["arguments"] else set())
        error = await calls.error("prompts/get", name="ask")
        assert {one["field"] for one in error["data"]["errors"]} == {"lines", "code"}
        error = await calls.error("prompts/get", name="ask", arguments={"code": "a", "lines": "1"})
        assert error["code"] == -32603
        assert error["data"]["reference"] in caplog.text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", [("user", "a")]),
        (["a", "b"], [("user", "a"), ("user", "b")]),
        (PromptMessage("assistant", TextContent("a")), [("assistant", "a")]),
        (["q", PromptMessage("assistant", TextContent("a"))], [("user", "q"), ("assistant", "a")]),
        ({"role": "assistant", "content": "a"}, [("assistant", "a")]),
        ([{"role": "user", "content": {"type": "text", "text": "a"}}], [("user", "a")]),
        (TextContent("a"), [("user", "a")]),
        ({"a": 1}, [("user", '{"a":1}')]),
        (None, []),
        (GetPromptResult(messages=[PromptMessage("user", TextContent("a"))], description="D"), [("user", "a")]),
        (Image(b"GIF89a"), [("user", "image/gif")]),
    ],
)
async def test_messages(server: Server, value: Any, expected: list[tuple[str, str]]) -> None:
    server.add_prompt(lambda: value, name="p")
    async with calling(server, R2025_11) as calls:
        result = await calls.result("prompts/get", name="p")
    told = [(m["role"], m["content"].get("text") or m["content"]["mimeType"]) for m in result["messages"]]
    assert told == expected


# -- completions ----------------------------------------------------------------------------------


def prompt_ref(name: str) -> dict[str, str]:
    return {"type": "ref/prompt", "name": name}


def template_ref(uri: str) -> dict[str, str]:
    return {"type": "ref/resource", "uri": uri}


@every
async def test_completions(server: Server, revision: Revision) -> None:
    @server.prompt
    def review(language: str, framework: str = "") -> str:
        return ""

    @server.resource("file:///{path}")
    def file(path: str) -> str:
        return ""

    @server.completion("review", "language")
    async def languages(value: str) -> list[str]:
        return [name for name in ("python", "pascal", "perl") if name.startswith(value)]

    @server.completion("review", "framework")
    def frameworks(typed: str, ctx: Context, arguments: dict[str, str]) -> Completion:
        return Completion([f"{typed} {arguments} {ctx.revision.order}"], 10, True)

    @server.completion("file:///{path}", "path")
    def paths(value: str) -> Any:
        return map(str, range(250))

    async with calling(server, revision) as calls:

        async def complete(ref: dict[str, str], name: str, value: str, **more: Any) -> dict[str, Any]:
            argument = {"name": name, "value": value}
            found = await calls.result("completion/complete", ref=ref, argument=argument, **more)
            return dict(found["completion"])

        found = await complete(prompt_ref("review"), "language", "p")
        assert found == {"values": ["python", "pascal", "perl"], "total": 3, "hasMore": False}
        known = {"arguments": {"language": "python"}}
        found = await complete(prompt_ref("review"), "framework", "fla", context=known)
        assert found["values"] == [f"fla {{'language': 'python'}} {revision.order}"]
        assert (found["total"], found["hasMore"]) == (10, True)
        assert (await complete(prompt_ref("review"), "framework", ""))["values"] == [f" {{}} {revision.order}"]
        # "Maximum 100 items per response"
        found = await complete(template_ref("file:///{path}"), "path", "")
        assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 250, True)
        # a reference is "a URI or URI template"
        assert len((await complete(template_ref("file:///a"), "path", ""))["values"]) == 100
        server.add_resource(lambda: "", "plain://a", name="plain")  # which has no arguments at all
        assert (await complete(template_ref("plain://a"), "path", ""))["values"] == []
        server.add_prompt(review, name="other")
        assert (await complete(prompt_ref("other"), "language", "p"))["values"] == []
        # "Invalid prompt name: -32602"
        for ref, name in (
            (prompt_ref("missing"), "a"),
            (prompt_ref("review"), "nothing"),
            (template_ref("x://y"), "a"),
            (template_ref("file:///{path}"), "nothing"),
        ):
            argument = {"name": name, "value": ""}
            assert (await calls.error("completion/complete", ref=ref, argument=argument))["code"] == -32602


async def test_a_server_without_completions_has_no_such_method(server: Server) -> None:
    """server/utilities/completion: "Method not found: -32601 (Capability not supported)"."""
    server.add_prompt(lambda a: a, name="p")
    asked: dict[str, Any] = {"ref": prompt_ref("p"), "argument": {"name": "a", "value": ""}}
    async with calling(server, R2026_07) as calls:
        assert (await calls.error("completion/complete", **asked))["code"] == -32601
        server.completion("p", "a")(lambda value: [])
        assert (await calls.result("completion/complete", **asked))["completion"]["values"] == []


async def test_a_completion_fails(server: Server) -> None:
    server.add_prompt(lambda a: a, name="p")
    server.completion("p", "a")(lambda value: 5)
    async with calling(server, R2026_07) as calls:
        argument = {"name": "a", "value": ""}
        error = await calls.error("completion/complete", ref=prompt_ref("p"), argument=argument)
    assert error["code"] == -32603


def test_what_cannot_be_a_completion(server: Server) -> None:
    server.add_prompt(lambda a: a, name="p")

    def good(value: str) -> list[str]:
        return []

    def many(value: str, other: str) -> list[str]:
        return []

    with pytest.raises(LocalError, match="register it before"):
        server.completion("q", "a")(good)
    with pytest.raises(LocalError, match="no argument 'b'; it has a"):
        server.completion("p", "b")(good)
    with pytest.raises(LocalError, match="takes the text"):
        server.completion("p", "a")(many)
    server.completion("p", "a")(good)
    with pytest.raises(LocalError, match="already"):
        server.completion("p", "a")(good)


# -- lists ----------------------------------------------------------------------------------------


async def pages(calls: Calls, method: str = "tools/list", member: str = "tools") -> list[list[str]]:
    found: list[list[str]] = []
    more: dict[str, Any] = {}
    while True:
        result = await calls.result(method, **more)
        found.append([one.get("name") for one in result[member]])
        if "nextCursor" not in result:
            return found
        more = {"cursor": result["nextCursor"]}


def fill(server: Server, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        server.add_tool(lambda: None, name=f"t{number}")


@every
async def test_pages(server: Server, revision: Revision) -> None:
    """server/utilities/pagination; server/tools: "Servers SHOULD return tools in a deterministic order"."""
    fill(server, 7)
    async with calling(server, revision) as calls:
        assert await pages(calls) == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]
        server.remove_tool("t1")
        fill(server, 1, 7)
        fill(server, 1, 1)
        assert await pages(calls) == [["t0", "t2", "t3"], ["t4", "t5", "t6"], ["t7", "t1"]]


async def test_exactly_full_pages(server: Server) -> None:
    fill(server, 6)
    async with calling(server, R2026_07) as calls:
        assert await pages(calls) == [["t0", "t1", "t2"], ["t3", "t4", "t5"]]
        assert await pages(calls, "prompts/list", "prompts") == [[]]


async def test_cursors_survive(server: Server) -> None:
    """ "Provide stable cursors": what was not seen is seen once, whatever comes and goes meanwhile."""
    fill(server, 9)
    async with calling(server, R2026_07) as calls:
        cursor = (await calls.result("tools/list"))["nextCursor"]
        for name in ("t0", "t2", "t4"):
            server.remove_tool(name)
        fill(server, 1, 9)
        result = await calls.result("tools/list", cursor=cursor)
        assert [one["name"] for one in result["tools"]] == ["t3", "t5", "t6"]
        result = await calls.result("tools/list", cursor=result["nextCursor"])
        assert [one["name"] for one in result["tools"]] == ["t7", "t8", "t9"]


@every
@pytest.mark.parametrize("cursor", ["", "garbage", "dG9vbHMuMQ==", "dG9vbHMuOTk", "cHJvbXB0cy4x", "é", "x" * 10_000])
async def test_garbage_cursors(server: Server, revision: Revision, cursor: str) -> None:
    """ "Invalid cursors SHOULD result in an error with code -32602"."""
    fill(server, 9)
    async with calling(server, revision) as calls:
        error = await calls.error("tools/list", cursor=cursor)
        assert error["code"] == -32602
        assert len(error["message"]) < 200


@every
async def test_caching_hints(server: Server, revision: Revision) -> None:
    """server/utilities/caching: "Servers MUST include caching hints" from 2026-07-28 on."""
    async with calling(server, revision) as calls:
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = await calls.result(method)
            if revision.stateful:
                assert not {"ttlMs", "cacheScope", "resultType", "_meta"} & result.keys()
            else:
                assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (2500, "public", "complete")
                assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tests"


async def test_at_run_time(server: Server) -> None:
    """Entries come, go, and are switched off and on."""
    fill(server, 2)
    async with calling(server, R2025_11) as calls:

        async def changes() -> list[str]:
            await calls.result("ping")
            told = [one["method"] for one in calls.told]
            calls.told.clear()
            return told

        assert await changes() == []
        server.disable("tool", "t0")
        assert await changes() == ["notifications/tools/list_changed"]
        server.disable("tool", "t0")
        assert await changes() == []
        assert await pages(calls) == [["t1"]]
        assert (await calls.error("tools/call", name="t0"))["message"] == "Unknown tool: t0"
        server.enable("tool", "t0")
        assert await pages(calls) == [["t0", "t1"]]
        assert (await calls.call("t0"))["content"] == []
        calls.told.clear()
        server.add_prompt(lambda: "", name="p")
        server.add_resource(lambda: "", "x://y", name="y")
        server.add_resource(lambda a: a, "z://{a}", name="z")
        assert set(await changes()) == {"notifications/prompts/list_changed", "notifications/resources/list_changed"}
        server.remove_resource("z://{a}")
        server.remove_resource("x://y")
        server.remove_prompt("p")
        assert set(await changes()) == {"notifications/prompts/list_changed", "notifications/resources/list_changed"}
        for kind in ("tool", "resource", "prompt", "nonsense"):
            with pytest.raises(LocalError, match="there is no"):
                server.disable(kind, "missing")  # type: ignore[arg-type]


def test_pages_of_one() -> None:
    """A page of one entry is the least there can be; none at all is refused."""
    server = Server("tests", page_size=1)
    fill(server, 3)
    found: list[str] = []
    cursor: Any = UNSET
    for _ in range(3):
        page = msgspec.json.decode(behind(server).catalog.page("tools", R2026_07, Caller(), cursor))
        found += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor", UNSET)
    assert (found, cursor) == (["t0", "t1", "t2"], UNSET)
    with pytest.raises(LocalError, match="page_size is a whole number of at least 1, or None, not 0"):
        Server("tests", page_size=0)


def test_kept_as_bytes() -> None:
    """A page is encoded once for each revision, until the list changes."""
    server = Server("tests", page_size=3)
    fill(server, 9)
    first = behind(server).catalog.page("tools", R2026_07, Caller())
    cursor = msgspec.json.decode(first)["nextCursor"]
    second = behind(server).catalog.page("tools", R2026_07, Caller(), cursor)
    assert behind(server).catalog.page("tools", R2026_07, Caller()) is first
    assert behind(server).catalog.page("tools", R2026_07, Caller(), cursor) is second
    assert behind(server).catalog.page("tools", R2024_11, Caller()) is not first
    server.disable("tool", "t8")
    assert behind(server).catalog.page("tools", R2026_07, Caller()) is not first


def test_from_threads() -> None:
    """Lists may be changed and read from any thread."""
    server = Server("tests", page_size=10)
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(50):
                server.add_tool(lambda: None, name=f"{number}.{index}")
                behind(server).catalog.page("tools", R2026_07, Caller())
                if index % 3 == 0:
                    behind(server).catalog.remove("tool", f"{number}.{index}")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    entries = behind(server).catalog.entries("tools")
    assert len(entries) == 4 * 33
    assert [one.number for one in entries] == sorted(one.number for one in entries)
    found, cursor = 0, UNSET
    while True:
        page = msgspec.json.decode(behind(server).catalog.page("tools", R2026_07, Caller(), cursor))
        found += len(page["tools"])
        if "nextCursor" not in page:
            break
        cursor = page["nextCursor"]
    assert found == len(entries)


def test_errors_name_what_is_long_shortly() -> None:
    server = Server("tests")
    with pytest.raises(InvalidParams) as caught:
        behind(server).catalog.tool("x" * 100_000, Caller())
    assert len(caught.value.message) < 200
    for name, told in (("x" * 128, "x" * 128), ("x" * 129, "x" * 125 + "...")):
        with pytest.raises(InvalidParams) as caught:
            behind(server).catalog.tool(name, Caller())
        assert caught.value.message == f"Unknown tool: {told}"


@pytest.mark.parametrize("inline", [True, False])
async def test_a_resource_is_read_where_it_is_told_to_be(server: Server, inline: bool) -> None:
    read: list[threading.Thread] = []

    @server.resource("plain://a", inline=inline)
    def text() -> str:
        read.append(threading.current_thread())
        return ""

    async with calling(server, R2026_07) as calls:
        await calls.result("resources/read", uri="plain://a")
    assert (read[0] is threading.current_thread()) is inline


@pytest.mark.parametrize(
    ("options", "rules", "beside"),
    [
        (ToolOptions, TOOL, {"name"}),
        (ResourceOptions, RESOURCE, {"uri"}),
        (PromptOptions, PROMPT, {"name"}),
        (RunOptions, RUNNING, set()),
    ],
)
def test_whatever_is_registered_may_be_told_all_of_its_options(options: Any, rules: Any, beside: set[str]) -> None:
    assert options.__annotations__.keys() - OF_EXTENSIONS.keys() == rules.keys() - beside


def test_a_description_as_deep_as_no_client_reads_is_named(server: Server) -> None:
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    server.add_tool(lambda: None, name="plain", meta={"example.com/a": [[1]]})
    assert b'"plain"' in bytes(behind(server).catalog.page("tools", R2026_07, Caller()))
    with pytest.raises(LocalError, match="the description of tool 'deep' is nested more than 504 levels deep"):
        server.add_tool(lambda: None, name="deep", meta={"example.com/a": deep})


@every
async def test_what_is_read_has_the_meta_of_its_resource(revision: Revision) -> None:
    """MCP Apps: "`_meta.ui`" of a page is looked for in the contents that are read."""
    server, meta = Server("pages"), {"ui": {"prefersBorder": True}}

    @server.resource("ui://page/{kind}", meta=meta)
    def page(kind: str) -> Any:
        own = ResourceContents(uri="ui://own", text="own")
        with_own = ResourceContents(uri="ui://own", text="own", meta={"a": 1})
        values: dict[str, Any] = {"text": "<p>", "blob": b"\0", "json": {"a": 1}, "own": [own, with_own, "<p>"]}
        return values[kind]

    has_meta = revision.order >= REVISIONS["2025-06-18"].order
    async with calling(server, revision) as calls:
        for kind, told in (("text", [meta]), ("blob", [meta]), ("json", [meta]), ("own", [None, {"a": 1}, meta])):
            found = (await calls.result("resources/read", uri=f"ui://page/{kind}"))["contents"]
            assert [one.get("_meta") for one in found] == (told if has_meta else [None] * len(told))
