"""Entries of another server, passed on: what this library does not know comes through unharmed, in every revision."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman import serve
from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import InvalidParams, LocalError, RpcError
from dragoman.mcp import CallToolResult, Client, Context, ForeignContent, GetPromptResult, Server, TextContent
from dragoman.mcp.protocol.encoding import decode
from dragoman.mcp.protocol.revisions import R2024_11, R2025_11, R2026_07, REVISIONS, Revision
from dragoman.mcp.server.listing import DEPTH, LISTED
from tests.behind import behind

from ..calling import calling
from ..scripted import META, Message, legacy, modern

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)

# a member of no revision, with what a parser that made values of it would not write again
ODD = '{"n":1.0,"e":1e2,"big":123456789012345678901234567890,"u":"\\u00e9\\/","null":null,"z":[],"a":{"b":1,"a":2}}'
PLAIN = {"x-before": ODD, "title": '"T"', "description": '"D"'}
ICON = '[{"src":"https:\\/\\/a","x-icon":' + ODD + "}]"
MEMBERS: dict[str, dict[str, str]] = {
    "tool": PLAIN
    | {
        "name": '"t"',
        "inputSchema": '{"type":"object","properties":{"a":{"default":1.0}},"x-schema":' + ODD + "}",
        "outputSchema": '{"type":"object","x-schema":' + ODD + "}",
        "icons": ICON,
        "annotations": '{"readOnlyHint":true,"x-hint":' + ODD + "}",
        "execution": '{"taskSupport":"optional","x-execution":' + ODD + "}",
        "_meta": '{"org.example/k":' + ODD + "}",
        "x-after": ODD,
    },
    "resource": PLAIN
    | {"uri": '"a:\\/\\/b"', "name": '"r"', "mimeType": '"text/x"', "annotations": '{"priority":1.0,"x":' + ODD + "}"}
    | {"icons": ICON, "_meta": '{"org.example/k":' + ODD + "}", "size": "7"},
    "template": PLAIN
    | {"uriTemplate": '"a://c/{d}"', "name": '"m"', "annotations": '{"x":' + ODD + "}", "_meta": ODD, "x-after": ODD},
    "prompt": PLAIN
    | {"name": '"p"', "arguments": '[{"name":"a","x-argument":' + ODD + "}]", "icons": ICON, "_meta": ODD},
}
"""The members of a foreign entry, by its kind, with members that are not known at every level."""
SINCE = {"title": "2025-06-18", "icons": "2025-11-25", "_meta": "2025-06-18", "outputSchema": "2025-06-18"}
METHODS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tool": ("tools/list", "tools/call", {"name": "t", "arguments": {"a": "1"}}),
    "resource": ("resources/list", "resources/read", {"uri": "a://b"}),
    "template": ("resources/templates/list", "resources/read", {"uri": "a://c/7"}),
    "prompt": ("prompts/list", "prompts/get", {"name": "p", "arguments": {"a": "1"}}),
}
HOLOGRAM = '{"x":1.0,"type":"hologram","data":' + ODD + "}"
KNOWN = '{"type":"text","text":"\\u00e9","x-block":' + ODD + ',"annotations":{"priority":1.0,"x-note":' + ODD + "}}"
RESULTS = {
    "tools/call": f'{{"x-result":{ODD},"content":[{KNOWN},{HOLOGRAM}],"structuredContent":{ODD},"_meta":{{"k":{ODD}}}}}',
    "prompts/get": f'{{"x-result":{ODD},"messages":[{{"role":"user","content":{KNOWN},"x-message":{ODD}}},'
    f'{{"role":"user","content":{HOLOGRAM}}}],"_meta":{{"k":{ODD}}}}}',
    "resources/read": f'{{"x-result":{ODD},"contents":[{{"uri":"a://b","text":"\\u00e9","x-contents":{ODD}}}]}}',
}


def text_of(members: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}"


def listed_in(kind: str, revision: Revision) -> str:
    """The description of the entry in a revision: without the members that it does not have."""
    since = SINCE | ({"annotations": "2025-03-26"} if kind == "tool" else {})

    def has(name: str) -> bool:
        return revision is R2025_11 if name == "execution" else since.get(name, "") <= revision.date

    return text_of({name: text for name, text in MEMBERS[kind].items() if has(name)})


def complete(result: str, revision: Revision) -> str:
    return result if revision.stateful else '{"resultType":"complete",' + result[1:]


class Upstream:
    """A server made of texts, with one entry of each kind."""

    def __init__(self, revision: Revision) -> None:
        def answers(message: Message) -> Iterable[Any]:
            method = message["method"]
            if method in RESULTS:
                result = complete(RESULTS[method], revision)
            else:
                kind = next(kind for kind, methods in METHODS.items() if methods[0] == method)
                member = {"template": "resourceTemplates"}.get(kind, f"{kind}s")
                hints = "" if revision.stateful else ',"ttlMs":0,"cacheScope":"private"'
                result = complete(f'{{"{member}":[{text_of(MEMBERS[kind])}],"x-page":{ODD}{hints}}}', revision)
            return [f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'.encode()]

        declared: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        self.scripted = legacy(answers, revision.date, **declared) if revision.stateful else modern(answers, **declared)


async def gateway(upstream: Client) -> Server:
    """A server that passes on all entries of another."""
    server = Server("gateway")

    def forward(method: str) -> Any:
        async def call(params: Raw, ctx: Context) -> Raw:
            return await upstream.request_raw(method, params)

        return call

    for kind, (listing, method, _) in METHODS.items():
        for text in await upstream.list_raw(listing):
            behind(server).catalog.add_foreign(kind, text, forward(method))
    return server


@asynccontextmanager
async def hop(revision: Revision, wire: str) -> AsyncIterator[tuple[Client, Upstream]]:
    """A client of a gateway, which is a client of the upstream."""
    upstream = Upstream(revision)
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(Client(upstream.scripted, revision=revision))
        target: Any = await gateway(far)
        if wire != "memory":
            url = {"tcp": "tcp://127.0.0.1:0", "http": "http://127.0.0.1:0/mcp"}[wire]
            target = (await stack.enter_async_context(serve(target, urls=url))).urls[0]
        yield await stack.enter_async_context(Client(target, revision=revision)), upstream


@every
@pytest.mark.parametrize("wire", ["memory", "tcp", "http"])
@pytest.mark.parametrize("kind", METHODS)
async def test_an_entry_and_its_result_come_through_unharmed(revision: Revision, wire: str, kind: str) -> None:
    listing, method, params = METHODS[kind]
    async with hop(revision, wire) as (client, upstream):
        (listed,) = await client.list_raw(listing)
        assert bytes(listed).decode() == listed_in(kind, revision)
        result = await client.request_raw(method, params)
        assert bytes(result).decode() == complete(RESULTS[method], revision)
        assert bytes(await client.request_raw(method, Raw(json.dumps(params).encode()))) == bytes(result)
    sent = [one["params"] for one in upstream.scripted.of(method)]
    assert [{name: value for name, value in one.items() if name != "_meta"} for one in sent] == [params] * 2
    if not revision.stateful:
        assert {one["_meta"][f"{META}protocolVersion"] for one in sent} == {revision.date}


@every
async def test_a_client_gets_unknown_blocks_as_they_came(revision: Revision) -> None:
    async with hop(revision, "memory") as (client, _):
        result = await client.call_tool("t", {"a": 1})
        prompt = await client.get_prompt("p", {"a": "1"})
        contents = (await client.read_resource("a://b")).contents
    for known, unknown in (result.content, [one.content for one in prompt.messages]):
        assert isinstance(known, TextContent)
        assert known.text == "é"
        assert isinstance(unknown, ForeignContent)
        assert (unknown.type, bytes(unknown.raw).decode()) == ("hologram", HOLOGRAM)
    assert result.text == "é"
    assert contents[0].text == "é"


@every
async def test_a_function_returns_unknown_blocks_as_they_came(revision: Revision) -> None:
    block = ForeignContent("hologram", Raw(HOLOGRAM.encode()))
    server = Server("x")
    server.add_tool(lambda: block, name="block")
    server.add_tool(lambda: ["a", block], name="mixed")
    server.add_tool(lambda: CallToolResult(content=[block]), name="whole")
    server.add_prompt(lambda: [block], name="block")
    server.add_prompt(lambda: GetPromptResult(messages=[]), name="none")
    async with Client(server, revision=revision) as client:
        for name in ("block", "mixed", "whole"):
            assert HOLOGRAM in bytes(await client.request_raw("tools/call", {"name": name})).decode()
            assert (await client.call_tool(name)).content[-1] == block
        assert HOLOGRAM in bytes(await client.request_raw("prompts/get", {"name": "block"})).decode()
        (message,) = (await client.get_prompt("block")).messages
        assert message.content == block
    assert (await server.call_tool("mixed")).content == [TextContent("a"), block]


@pytest.mark.parametrize(
    ("type", "raw", "why"),
    [
        ("hologram", b'{"type":"other"}', "is a block of the type 'other', and not of 'hologram'"),
        ("hologram", b'{"type":7}', "raw is the JSON text of a block"),
        ("hologram", b"[]", "raw is the JSON text of a block"),
        ("hologram", b'{"type":"hologram"', "raw is the JSON text of a block"),
        ("hologram", b'{"type":"hologram","a":"\xff"}', "raw is the JSON text of a block"),
    ],
)
def test_a_foreign_block_is_the_text_of_one(type: str, raw: bytes, why: str) -> None:
    with pytest.raises(LocalError, match=why):
        ForeignContent(type, Raw(raw))


# -- what may be registered ------------------------------------------------------------------------


async def echo(params: Raw, ctx: Context) -> Raw:
    return Raw(msgspec.json.encode({"content": [], "params": params}))


def add(server: Server, kind: str, text: str | bytes, function: Any = echo, **options: Any) -> None:
    raw = Raw(text.encode() if isinstance(text, str) else text)
    behind(server).catalog.add_foreign(kind, raw, function, **options)


TOOL = '{"name":"t","inputSchema":{"type":"object"},"x":1.0}'
DEEP = '{"name":"t","inputSchema":{"type":"object"},"x":' + "[" * (DEPTH + 1) + "]" * (DEPTH + 1) + "}"


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("tools", TOOL, "one of tool, resource, template, prompt"),
        ("tool", "[]", "this describes no tool"),
        ("tool", "{", "this describes no tool"),
        ("tool", '{"name":"t"}', "this describes no tool: .*inputSchema"),
        ("tool", '{"name":"","inputSchema":{}}', "has a name"),
        ("tool", b'{"name":"t","inputSchema":{},"x":"\xff"}', "this describes no tool"),
        ("tool", '{"name":"t","inputSchema":{},"_meta":null}', "this describes no tool"),
        ("tool", DEEP, "nested more than"),
        ("tool", '{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}}', "t: "),
        ("resource", '{"uri":"nowhere","name":"r"}', "is not a URI"),
        ("resource", '{"uri":"a://{b}","name":"r"}', "is not a URI"),
        ("template", '{"uriTemplate":"a://b","name":"r"}', "no template of URIs"),
        ("prompt", '{"title":"P"}', "this describes no prompt"),
    ],
)
def test_what_describes_no_entry(kind: str, text: str | bytes, why: str) -> None:
    server = Server("x")
    with pytest.raises(LocalError, match=why):
        add(server, kind, text)
    assert not any(behind(server).catalog.has(one) for one in ("tools", "resources", "prompts"))


def test_wrong_uses() -> None:
    server = Server("x")
    with pytest.raises(LocalError, match="described by its JSON text"):
        behind(server).catalog.add_foreign("tool", {"name": "t"}, echo)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="returns the result"):
        add(server, "tool", TOOL, function=None)
    with pytest.raises(LocalError, match="title"):
        add(server, "tool", TOOL, title="T")
    server.add_tool(lambda: "", name="t")
    with pytest.raises(LocalError, match="there is a tool 't' already"):
        add(server, "tool", TOOL)


async def test_a_result_that_is_no_text(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x")
    add(server, "tool", TOOL, lambda params, ctx: {"content": []})
    add(server, "prompt", '{"name":"p"}', lambda params, ctx: b"{}")
    async with calling(server, R2026_07) as calls:
        assert "t failed" in await calls.refusal("t")
        assert (await calls.error("prompts/get", name="p"))["code"] == -32603
    assert "returns its result as JSON text" in caplog.text


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_errors_of_the_function_are_those_of_the_call(revision: Revision, kind: str) -> None:
    def plain(params: Raw, ctx: Context) -> Raw:
        raise RpcError("no", {"a": 1}, code=17) if b"other" in bytes(params) else InvalidParams("Unknown tool: t")

    async def slow(params: Raw, ctx: Context) -> Raw:
        return plain(params, ctx)

    server = Server("x")
    add(server, "tool", TOOL, plain if kind == "plain" else slow)
    async with calling(server, revision) as calls:
        assert (await calls.error("tools/call", name="t"))["code"] == -32602
        other = await calls.error("tools/call", name="t", arguments={"other": 1})
        assert other == {"code": 17, "message": "no", "data": {"a": 1}}


# -- what the server does with them ----------------------------------------------------------------


@pytest.mark.parametrize("wire", ["tcp", "http"])
async def test_texts_may_have_several_lines(wire: str) -> None:
    several = '{\n "name": "t",\r\n "inputSchema": {"type":"object"},\n "x": {\n "y": "\\n" }}'
    result = '{\r\n "content": [\n],\n "resultType": "complete", "x": 1.0\n}'
    block = ForeignContent("hologram", Raw(b'{\n"type":"hologram"\n}'))
    server = Server("x")
    add(server, "tool", several, lambda params, ctx: Raw(result.encode()))
    server.add_tool(lambda: block, name="block")
    url = {"tcp": "tcp://127.0.0.1:0", "http": "http://127.0.0.1:0/mcp"}[wire]
    async with serve(server, urls=url) as serving, Client(serving.urls[0]) as client:
        listed, _ = await client.list_raw("tools/list")
        assert json.loads(bytes(listed)) == json.loads(several)
        found = await client.request_raw("tools/call", Raw(b'{\n"name":"t"\n}'))
        assert json.loads(bytes(found)) == json.loads(result)
        (found_block,) = (await client.call_tool("block")).content
        assert isinstance(found_block, ForeignContent)
        assert bytes(found_block.raw).split() == bytes(block.raw).split()


@every
async def test_versions_are_named_beside_what_came(revision: Revision) -> None:
    server = Server("x")
    more = f'"_meta":{{"k":{ODD},"fastmcp":{{"own":1}}}},"x":{ODD}'
    for version in ("1", "2"):
        add(server, "tool", f'{{"name":"t","inputSchema":{{"type":"object"}},{more}}}', version=version)
    async with Client(server, revision=revision) as client:
        (listed,) = await client.list_raw("tools/list")
    meta = f'"_meta":{{"k":{ODD},"fastmcp":{{"own":1,"version":"2","versions":["2","1"]}}}},'
    kept = "" if revision.date < "2025-06-18" else meta
    assert bytes(listed).decode() == f'{{"name":"t","inputSchema":{{"type":"object"}},{kept}"x":{ODD}}}'


@every
async def test_schemas_of_newer_revisions_are_cut_for_older_ones(revision: Revision) -> None:
    server = Server("x")
    flags = '{"type":"object","properties":{"a":true,"b":{"default":1.0}}}'
    add(server, "tool", f'{{"name":"t","inputSchema":{flags},"outputSchema":{{"type":"array"}},"x":{ODD}}}')
    async with Client(server, revision=revision) as client:
        (listed,) = await client.list_raw("tools/list")
    found = msgspec.json.decode(listed)
    assert ("outputSchema" in found) == (revision is R2026_07)
    assert found["inputSchema"]["properties"]["a"] == (True if revision is R2026_07 else {})
    assert f'"x":{ODD}' in bytes(listed).decode()


async def test_in_a_namespace_only_the_name_is_another() -> None:
    inner, outer = Server("inner"), Server("outer")
    page = '"_meta":{"k":' + ODD + ',"ui":{"resourceUri":"ui://page","n":1},"openai/outputTemplate":"ui://page"}'
    for kind, members in MEMBERS.items():
        add(inner, kind, text_of(members))
    add(inner, "tool", '{"x":1.0,"name":"paged","inputSchema":{"type":"object"},' + page + "}")
    outer.include(inner, namespace="n")
    add(inner, "prompt", '{"x":1.0,"name":"late"}')
    async with Client(outer, revision=R2026_07) as client:
        found = {kind: [bytes(one).decode() for one in await client.list_raw(METHODS[kind][0])] for kind in METHODS}
        sent = msgspec.json.decode(await client.request_raw("tools/call", {"name": "n_t", "arguments": {"a": 1}}))
        assert sent["params"]["name"] == "n_t", "as the client sent it"
    cut = {kind: {name: text for name, text in all.items() if name != "execution"} for kind, all in MEMBERS.items()}
    renamed = {
        "tool": {"name": '"n_t"'},
        "resource": {"uri": '"a://n/b"'},
        "template": {"uriTemplate": '"a://n/c/{d}"'},
        "prompt": {"name": '"n_p"'},
    }
    for kind, change in renamed.items():
        assert found[kind][0] == text_of(cut[kind] | change)
    assert (
        found["tool"][1]
        == '{"x":1.0,"name":"n_paged","inputSchema":{"type":"object"},' + page.replace("ui://page", "ui://n/page") + "}"
    )
    assert found["prompt"][1] == '{"x":1.0,"name":"n_late"}'


async def test_it_is_found_switched_and_hidden_like_any_other() -> None:
    server = Server("x")
    for kind, members in MEMBERS.items():
        add(server, kind, text_of(members), tags={"far"}, visible=lambda caller: caller.identity is not None)
    catalog = behind(server).catalog
    known = Caller(identity=Identity(subject="ada"))

    def names(caller: Caller) -> list[str]:
        pages = [msgspec.json.decode(catalog.page(one, R2024_11, caller)) for one in ("tools", "prompts", "resources")]
        return [one["name"] for page in pages for many in page.values() for one in many]

    assert (names(known), names(Caller())) == (["t", "p", "r"], [])
    for kind, entries in (("tool", catalog.entries("tools")), ("prompt", catalog.entries("prompts"))):
        assert isinstance(entries[0].known, LISTED[kind])
    server.disable(tag="far")
    assert names(known) == []
    server.enable(tag="far")
    server.remove_tool("t")
    assert names(known) == ["p", "r"]


async def test_demands_get_the_arguments_of_the_call() -> None:
    seen: list[Any] = []

    def allow(identity: Identity, arguments: Mapping[str, Any] | None) -> bool:
        if arguments is not None:
            seen.append(dict(arguments))
        return True

    server = Server("x")
    for kind, members in MEMBERS.items():
        add(server, kind, text_of(members), allow=allow)
    async with Client(server, revision=R2026_07) as client:
        for _, method, params in METHODS.values():
            await client.request_raw(method, params)
    assert seen == [{"a": "1"}, {"uri": "a://b"}, {"uri": "a://c/7", "d": "7"}, {"a": "1"}]


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize("kind", ["tool", "prompt"])
async def test_arguments_of_middleware_are_those_of_the_function(kind: str, size: int) -> None:
    server = Server("x")
    add(server, kind, text_of(MEMBERS[kind]))
    given = {"a": "1" * size}
    method = METHODS[kind][1]
    async with Client(server, revision=R2026_07) as client:
        plain = msgspec.json.decode(await client.request_raw(method, METHODS[kind][2] | {"arguments": given}))
        assert plain["params"]["arguments"] == given

        @server.use
        async def change(call: Any, next: Any) -> Any:
            call.arguments = {"b": "changed"}
            return await next(call)

        for arguments in ({"arguments": given}, {}):
            found = msgspec.json.decode(await client.request_raw(method, {"name": kind[0]} | arguments))
            assert found["params"]["arguments"] == {"b": "changed"}
            assert found["params"]["name"] == kind[0]


async def test_a_prompt_s_arguments_can_be_completed() -> None:
    server = Server("x")
    add(server, "prompt", text_of(MEMBERS["prompt"]))
    server.completion("p", "a")(lambda typed: [typed + "b"])
    async with Client(server) as client:
        assert (await client.complete("p", "a", "a")).values == ["ab"]
    with pytest.raises(LocalError, match="no argument 'z'"):
        server.completion("p", "z")(lambda typed: [])


def test_what_is_decoded_of_it() -> None:
    server = Server("x")
    add(server, "tool", TOOL)
    (entry,) = behind(server).catalog.entries("tools")
    assert bytes(entry.listed if isinstance(entry.listed, Raw) else b"").decode() == TOOL
    assert entry.known is entry.known
    assert entry.known == decode(TOOL.encode(), LISTED["tool"])
