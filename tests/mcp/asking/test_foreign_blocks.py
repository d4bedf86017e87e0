"""Blocks of unknown types in the messages and the answer of a sampling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.jsonrpc.errors import BadAnswer
from dragoman.mcp import (
    Client,
    Context,
    CreateMessageRequestParams,
    CreateMessageResult,
    ForeignContent,
    Sample,
    SamplingMessage,
    Server,
    TextContent,
)
from dragoman.mcp.protocol.foreign_decoding import decode_content
from dragoman.mcp.protocol.params import CallToolResult
from dragoman.mcp.protocol.results import read_back
from dragoman.mcp.protocol.revisions import R2025_11, REVISIONS, Revision
from dragoman.mcp.protocol.types import PromptMessage, ToolResultContent, ToolUseContent

every = pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
TEXT = b'{"n":1.0,"type":"hologram","u":"\\u00e9"}'
HOLOGRAM = ForeignContent("hologram", Raw(TEXT))


@every
async def test_they_come_to_the_model_and_back(revision: Revision) -> None:
    asked: list[CreateMessageRequestParams] = []

    async def on_sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(params)
        return CreateMessageResult(role="assistant", content=HOLOGRAM, model="m")

    server = Server("x")

    @server.tool
    async def greets(ctx: Context) -> Any:
        (answer,) = await ctx.ask(Sample(messages=["Greet!", SamplingMessage("user", HOLOGRAM)], key="q"))
        return [answer.text, answer.content]

    async with Client(server, revision=revision, on_sample=on_sample) as client:
        found = await client.call_tool("greets")
    assert [one.content for one in asked[-1].messages] == [TextContent("Greet!"), HOLOGRAM]
    assert found.content == [TextContent(""), HOLOGRAM]


@pytest.mark.parametrize(
    "revision", [one for one in REVISIONS.values() if one.sampling_tools], ids=lambda one: one.date
)
async def test_they_come_in_lists_and_in_results_of_tools(revision: Revision) -> None:
    asked: list[CreateMessageRequestParams] = []
    use = ToolUseContent(id="1", name="t", input={})
    result = ToolResultContent(tool_use_id="1", content=[TextContent("a"), HOLOGRAM])

    def on_sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append(params)
        return CreateMessageResult(role="assistant", content=[TextContent("b"), HOLOGRAM], model="m")

    server = Server("x")

    @server.tool
    async def greets(ctx: Context) -> Any:
        messages = [SamplingMessage("assistant", [use, HOLOGRAM]), SamplingMessage("user", [result])]
        (answer,) = await ctx.ask(Sample(messages=messages, key="q"))
        return answer.content

    async with Client(server, revision=revision, on_sample=on_sample, sample_tools=True) as client:
        found = await client.call_tool("greets")
    assert [one.content for one in asked[-1].messages] == [[use, HOLOGRAM], [result]]
    assert found.content == [TextContent("b"), HOLOGRAM]


DECODED = [
    (b'{"role":"user","content":%s}' % TEXT, PromptMessage, PromptMessage("user", HOLOGRAM)),
    (b'{"role":"user","content":%s}' % TEXT, SamplingMessage, SamplingMessage("user", HOLOGRAM)),
    (b'{"role":"user","content":[%s]}' % TEXT, SamplingMessage, SamplingMessage("user", [HOLOGRAM])),
    (b'{"content":[%s]}' % TEXT, CallToolResult, CallToolResult(content=[HOLOGRAM])),
    (b'{"content":[]}', CallToolResult, CallToolResult(content=[])),
    (TEXT, ForeignContent, HOLOGRAM),
]


@pytest.mark.parametrize(("text", "kind", "value"), DECODED)
def test_what_is_decoded(text: bytes, kind: type[Any], value: Any) -> None:
    assert decode_content(Raw(text), kind) == value
    assert read_back(value) == value


def test_a_peer_cannot_make_one_by_our_own_tag() -> None:
    """It is a block of an unknown type like any other, and keeps its text."""
    text = b'{"type":"x-dragoman/foreign","foreignType":"hologram","raw":{"type":"hologram"}}'
    (block,) = decode_content(Raw(b'{"content":[%s]}' % text), CallToolResult).content
    assert isinstance(block, ForeignContent)
    assert (block.type, bytes(block.raw)) == ("x-dragoman/foreign", text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"content":[%s,{"type":"text"}]}' % TEXT,
        b'{"content":[%s,{"type":7}]}' % TEXT,
        b'{"content":[%s,{}]}' % TEXT,
        b'{"content":[%s,5]}' % TEXT,
        b'{"content":%s}' % TEXT,
        b'{"content":[%s],"isError":7}' % TEXT,
        b"[]",
    ],
)
def test_bad_blocks_of_known_types_do_not_fit(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_content(Raw(text), CallToolResult)


async def test_a_bad_answer_of_the_model_is_one() -> None:
    question = Sample(messages="Greet!")
    with pytest.raises(BadAnswer):
        question.read(Raw(b'{"role":"assistant","model":"m","content":[%s,{"type":"text"}]}' % TEXT))
    assert question.request(R2025_11)
