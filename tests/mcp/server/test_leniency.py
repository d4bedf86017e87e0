"""Every option of leniency at an MCP server and a client, against what it accepts and what it refuses all the same.

Tools are like those of servers for time, git, fetch and sqlite; hosts send their arguments as text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from dragoman import Service
from dragoman.jsonrpc import LENIENT, STRICT, Leniency
from dragoman.jsonrpc.errors import BadAnswer, InvalidParams
from dragoman.mcp import Server
from dragoman.mcp.client.client import Client
from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from dragoman.rpc.binding.loose_arguments import ROUNDS

from ..calling import calling
from ..scripted import Message, legacy, modern, said

EVERY = tuple(REVISIONS.values())
NULL = Leniency(null_params=True)
TEXT = Leniency(text_arguments=True)
UNKNOWN = Leniency(unknown_arguments=True)


class Range(Struct):
    start: int
    end: int | None = None


QUERY = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "values": {"type": "array", "items": {"type": ["number", "string"]}},
        "limit": {"type": "integer", "minimum": 1},
        "options": {"type": "object", "properties": {"read_only": {"type": "boolean"}}},
    },
    "required": ["query"],
    "additionalProperties": False,
}


def hosted(**options: Any) -> Server:
    server = Server("hosted", **options)

    @server.tool(inline=True)
    def convert_time(source: str, time: str, targets: list[str], hours: float = 0) -> str:
        return repr((source, time, targets, hours))

    @server.tool(inline=True)
    def git_log(
        repo: str,
        max_count: int = 10,
        oneline: bool = False,
        ranges: tuple[Range, ...] = (),
        mode: Literal["all"] | int = 1,
    ) -> str:
        return repr((repo, max_count, oneline, [(r.start, r.end) for r in ranges], mode))

    @server.tool(inline=True)
    def fetch(url: str, max_length: Annotated[int, Meta(gt=0, lt=1_000_000)] = 5_000, raw: bool | None = False) -> str:
        return repr((url, max_length, raw))

    @server.tool(inline=True)
    def short(text: Annotated[str, Meta(max_length=3)]) -> str:
        return text

    @server.tool(input_schema=QUERY, inline=True)
    def query(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    @server.tool(inline=True)
    def anything(a: int, **others: int) -> str:
        return repr((a, others))

    return server


AS_TEXT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("convert_time", {"source": "UTC", "time": "12:00", "targets": '["CET"]', "hours": "1.5"},
     {"source": "UTC", "time": "12:00", "targets": ["CET"], "hours": 1.5}),
    ("git_log", {"repo": "5", "max_count": "3", "oneline": "true"}, {"repo": "5", "max_count": 3, "oneline": True}),
    ("git_log", {"repo": ".", "ranges": '[{"start":"1","end":null},{"start":2,"end":"3"}]', "mode": "7"},
     {"repo": ".", "ranges": [{"start": 1, "end": None}, {"start": 2, "end": 3}], "mode": 7}),
    ("git_log", {"repo": ".", "ranges": ['{"start":1}'], "mode": "all"},
     {"repo": ".", "ranges": [{"start": 1}], "mode": "all"}),
    ("fetch", {"url": "http://x", "max_length": "100", "raw": "null"},
     {"url": "http://x", "max_length": 100, "raw": None}),
    ("query", {"query": "select 1", "values": '[1,"2"]', "limit": "5", "options": '{"read_only":"true"}'},
     {"query": "select 1", "values": [1, "2"], "limit": 5, "options": {"read_only": True}}),
    ("anything", {"a": "1", "b c": "2"}, {"a": 1, "b c": 2}),
]  # fmt: skip
"""A tool, arguments as a host may send them, and what they mean."""

NEVER: list[tuple[str, Any, str]] = [
    ("git_log", {"repo": 3}, "a string, got an integer"),
    ("git_log", {"repo": ".", "max_count": "three"}, "an integer, got a string"),
    ("git_log", {"repo": ".", "max_count": "1e999"}, "an integer, got a string"),
    ("git_log", {"repo": ".", "max_count": "NaN"}, "an integer, got a string"),
    ("git_log", {"repo": ".", "max_count": "[1]"}, "an integer, got a string"),
    ("git_log", {"repo": ".", "max_count": '"3"'}, "an integer, got a string"),
    ("git_log", {"repo": ".", "oneline": "yes"}, "true or false"),
    ("git_log", {"repo": ".", "ranges": '[{"start":"x"}]'}, "ranges[0].start"),
    ("git_log", {"repo": ".", "ranges": "["}, "an array, got a string"),
    ("git_log", {"repo": ".", "ranges": "[" * 5_000}, "an array, got a string"),
    ("fetch", {"url": "x", "max_length": "0"}, "max_length"),
    ("short", {"text": "12345"}, 'received "12345"'),
    ("query", {"query": "x", "limit": "0"}, "limit"),
    ("query", {"query": "x", "limit": "one"}, "limit"),
    ("query", {}, "query"),
]
"""What no option accepts, and a part of what is told."""


@pytest.mark.parametrize("revision", EVERY, ids=lambda revision: revision.date)
@pytest.mark.parametrize(("tool", "sent", "meant"), AS_TEXT, ids=lambda value: str(value)[:40])
async def test_arguments_as_text(tool: str, sent: dict[str, Any], meant: dict[str, Any], revision: Revision) -> None:
    async with calling(hosted(lenient=TEXT), revision) as lenient, calling(hosted(), revision) as strict:
        right = await strict.result("tools/call", name=tool, arguments=meant)
        assert await lenient.result("tools/call", name=tool, arguments=sent) == right
        assert await lenient.result("tools/call", name=tool, arguments=meant) == right
        assert (await strict.result("tools/call", name=tool, arguments=sent))["isError"] is True


@pytest.mark.parametrize(
    "lenient", [STRICT, LENIENT, TEXT, UNKNOWN, NULL], ids=["strict", "all", "text", "drop", "null"]
)
@pytest.mark.parametrize(("tool", "sent", "told"), NEVER, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_told_to_the_model(tool: str, sent: Any, told: str, lenient: Leniency) -> None:
    async with calling(hosted(lenient=lenient), EVERY[-1]) as caller:
        found = await caller.result("tools/call", name=tool, arguments=sent)
        assert found["isError"] is True
        text = found["content"][0]["text"]
        assert text.startswith(f"Invalid arguments for {tool}:")
        if lenient in (LENIENT, TEXT) or "ranges[0]" not in told:
            assert told in text


@pytest.mark.parametrize(("depth", "read"), [(ROUNDS, True), (ROUNDS + 1, False)])
async def test_text_within_text_has_a_bound(depth: int, read: bool) -> None:
    value: Any = 1
    kind: Any = int
    for _ in range(depth):
        value, kind = [json.dumps(value)], list[kind]

    def nested(value: Any) -> str:
        return "read"

    nested.__annotations__["value"] = kind
    server = Server("s", lenient=True)
    server.add_tool(nested)
    async with calling(server, EVERY[-1]) as caller:
        assert ("isError" not in await caller.call("nested", {"value": value})) is read


@pytest.mark.parametrize("revision", EVERY, ids=lambda revision: revision.date)
async def test_unknown_arguments_are_dropped(revision: Revision) -> None:
    async with calling(hosted(lenient=UNKNOWN), revision) as caller:
        for tool, arguments in (("fetch", {"url": "x"}), ("query", {"query": "x"})):
            right = await caller.result("tools/call", name=tool, arguments=arguments)
            more = arguments | {"toolCallId": "n8n", "sessionId": None}
            assert await caller.result("tools/call", name=tool, arguments=more) == right
        wrong = await caller.result("tools/call", name="fetch", arguments={"url": 1, "toolCallId": "n8n"})
        assert "toolCallId" not in wrong["content"][0]["text"]
        assert "url: Expected a string" in wrong["content"][0]["text"]
        told = await caller.result("tools/call", name="anything", arguments={"a": 1, "b": 2})
        assert told["content"][0]["text"] == "(1, {'b': 2})"
    async with calling(hosted(), revision) as caller:
        wrong = await caller.result("tools/call", name="fetch", arguments={"url": "x", "toolCallId": "n8n"})
        assert "toolCallId: Unknown argument" in wrong["content"][0]["text"]


@pytest.mark.parametrize("revision", EVERY, ids=lambda revision: revision.date)
async def test_null_for_what_is_absent(revision: Revision) -> None:
    server = hosted(lenient=NULL)
    server.add_tool(lambda: "none needed", name="plain")
    meta = None if revision.stateful else {"progressToken": None, "traceparent": None}
    async with calling(server, revision) as caller:
        given: dict[str, Any] = {} if meta is None else {"_meta": meta}
        found = await caller.result("tools/call", name="plain", arguments=None, **given)
        assert found["content"][0]["text"] == "none needed"
        assert (await caller.result("tools/list", cursor=None, **given))["tools"]
        if revision.stateful:
            assert (await caller.result("tools/list", _meta=None))["tools"]
        wrong = await caller.ask("tools/call", name=None, arguments=None, **given)
        assert wrong["error"]["code"] == -32602
        kept = await caller.result("tools/call", name="fetch", arguments={"url": "x", "raw": None}, **given)
        assert kept["content"][0]["text"] == "('x', 5000, None)"
    async with calling(hosted(), revision) as caller:
        assert (await caller.ask("tools/list", cursor=None))["error"]["code"] == -32602


@pytest.mark.parametrize("lenient", [NULL, LENIENT], ids=["null", "all"])
@pytest.mark.parametrize(
    ("tool", "sent", "meant"),
    [
        ("fetch", {"url": "x", "max_length": None, "raw": None}, {"url": "x", "raw": None}),
        ("git_log", {"repo": ".", "max_count": None, "oneline": None, "ranges": None, "mode": None}, {"repo": "."}),
        ("query", {"query": "x", "values": None, "limit": None, "options": {"read_only": None}},
         {"query": "x", "options": {}}),
        ("anything", {"a": 1, "b": None}, {"a": 1}),
    ],
)  # fmt: skip
async def test_null_for_an_argument_that_takes_none(
    tool: str, sent: dict[str, Any], meant: dict[str, Any], lenient: Leniency
) -> None:
    async with calling(hosted(lenient=lenient), EVERY[-1]) as caller, calling(hosted(), EVERY[-1]) as strict:
        right = await strict.result("tools/call", name=tool, arguments=meant)
        assert await caller.result("tools/call", name=tool, arguments=sent) == right
        assert (await strict.result("tools/call", name=tool, arguments=sent))["isError"] is True
        required = await caller.result("tools/call", name=tool, arguments=dict.fromkeys(sent))
        assert required["isError"] is True
        assert "null" in required["content"][0]["text"]


@pytest.mark.parametrize("revision", EVERY, ids=lambda revision: revision.date)
async def test_wrong_arguments_by_the_letter_of_a_revision(revision: Revision) -> None:
    async with calling(hosted(argument_errors="revision"), revision) as caller:
        answer = await caller.ask("tools/call", name="fetch", arguments={})
        if revision.argument_results:
            assert answer["result"]["isError"] is True
        else:
            assert answer["error"]["code"] == InvalidParams.code
            assert answer["error"]["data"]["errors"][0]["field"] == "url"
    async with calling(hosted(), revision) as caller:
        assert (await caller.result("tools/call", name="fetch", arguments={}))["isError"] is True
        # "Malformed requests" are protocol errors
        assert (await caller.ask("tools/call", name="fetch", arguments=[1]))["error"]["code"] == -32602


async def test_the_server_that_answers_decides_for_what_it_includes() -> None:
    inner = Service("inner")

    @inner.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    outer = Server("outer", lenient=True)
    outer.include(inner)
    outer.include(hosted(), namespace="h")
    async with calling(outer, EVERY[-1]) as caller:
        found = await caller.result("tools/call", name="add", arguments={"a": "1", "b": "2", "c": 3})
        assert found["structuredContent"] == 3
        found = await caller.result("tools/call", name="h_fetch", arguments={"url": "x", "max_length": "7"})
        assert found["content"][0]["text"] == "('x', 7, False)"
    closed = Server("outer")
    closed.include(hosted(lenient=True), namespace="h")
    async with calling(closed, EVERY[-1]) as caller:
        found = await caller.result("tools/call", name="h_fetch", arguments={"url": "x", "max_length": "7"})
        assert found["isError"] is True


ABSENT = b'{"jsonrpc":"2.0","id":%d,"result":%s,"error":null}'
WORD = b'{"jsonrpc":"2.0","id":%d,"error":{"code":"INVALID_PARAMS","message":"no city"}}'


@pytest.mark.parametrize("era", [modern, legacy])
async def test_a_client_takes_what_servers_write(era: Any) -> None:
    asked: list[Message] = []

    def script(message: Message) -> Iterable[Any]:
        if "method" not in message:
            asked.append(message)
        elif message["params"].get("name") == "logs":
            yield {"jsonrpc": "2.0", "method": "notifications/message",
                   "params": {"level": "info", "logger": None, "data": "x", "_meta": None}}  # fmt: skip
            yield said("logged")
        elif message["params"].get("name") == "word":
            yield WORD % message["id"]
        else:
            yield ABSENT % (message["id"], json.dumps(said("fine").value).encode())

    heard: list[Any] = []
    async with Client(era(script, tools={}, logging={}), lenient=True, on_log=heard.append) as client:
        assert (await client.call_tool("null")).text == "fine"
        with pytest.raises(InvalidParams, match="no city"):
            await client.call_tool("word")
        await client.call_tool("logs")
        assert [one.data for one in heard] == ["x"]
    heard.clear()
    async with Client(era(script, tools={}, logging={}), on_log=heard.append) as client:
        with pytest.raises(BadAnswer, match="both `result` and `error`"):
            await client.call_tool("null")
        with pytest.raises(BadAnswer, match="must be an integer"):
            await client.call_tool("word")
        await client.call_tool("logs")
        assert heard == []


async def test_a_lenient_client_takes_a_question_with_nulls() -> None:
    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "tools/call":
            yield {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                   "params": {"message": "How many?", "mode": None, "_meta": None, "requestedSchema":
                              {"type": "object", "properties": {"n": {"type": "integer"}}}}}  # fmt: skip
            yield said("asked")
        elif message.get("id") == "q":
            answered.set_result(message)

    for lenient in (True, False):
        answered = asyncio.get_running_loop().create_future()
        scripted = legacy(script, tools={})
        async with Client(scripted, lenient=lenient, on_elicit=lambda asked: {"n": 1}) as client:
            await client.call_tool("asks")
            answer: Message = await asyncio.wait_for(answered, 20)
        if lenient:
            assert answer["result"] == {"action": "accept", "content": {"n": 1}}
        else:
            assert answer["error"]["code"] == InvalidParams.code
