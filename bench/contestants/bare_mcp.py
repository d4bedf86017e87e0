"""MCP's `tools/call` with msgspec by hand and no check at all. On a bare protocol it also answers what a client asks before
it calls."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from bench.contestants.bare import subtract


class Envelope(Struct):
    """A request with its params and id undecoded."""

    jsonrpc: Literal["2.0"]
    method: str
    id: Raw = Raw()
    params: Raw = Raw(b"{}")


class Params(Struct):
    """Of `tools/call`, but for `_meta`."""

    name: str
    arguments: Raw


class Arguments(Struct):
    """What `subtract` takes."""

    minuend: int
    subtrahend: int


class Text(Struct, tag_field="type", tag="text"):
    """A text block."""

    text: str


class Value(Struct):
    """A structured result."""

    result: int


class Result(Struct, rename="camel"):
    """Of `tools/call`."""

    content: list[Text]
    structured_content: Value
    result_type: str = "complete"


class Answer(Struct):
    """A response."""

    id: Raw
    result: Result
    jsonrpc: str = "2.0"


TOOLS = {"subtract": (msgspec.json.Decoder(Arguments).decode, subtract)}
ENVELOPE = msgspec.json.Decoder(Envelope).decode
PARAMS = msgspec.json.Decoder(Params).decode
ENCODE = msgspec.json.Encoder().encode
SCHEMA = {"type": "object", "properties": {"minuend": {"type": "integer"}, "subtrahend": {"type": "integer"}}}
HINTS = {"resultType": "complete", "ttlMs": 600_000, "cacheScope": "public"}
ABOUT = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **HINTS},
    "tools/list": {"tools": [{"name": "subtract", "inputSchema": SCHEMA}], **HINTS},
}


def answer(raw: bytes) -> bytes:
    """One request's answer."""
    envelope = ENVELOPE(raw)
    if envelope.method in ABOUT:
        return ENCODE({"jsonrpc": "2.0", "id": envelope.id, "result": ABOUT[envelope.method]})
    params = PARAMS(envelope.params)
    arguments, function = TOOLS[params.name]
    args = arguments(params.arguments)
    value = function(args.minuend, args.subtrahend)
    return ENCODE(Answer(envelope.id, Result([Text(str(value))], Value(value))))


async def http(port: str) -> None:
    from bench.contestants.bare_http import Front, listen

    await listen(port, lambda: Front(answer))


def asgi(port: str) -> None:
    from bench.contestants.bare_http import application, uvicorn_run

    uvicorn_run(application(answer), port)


def stdio() -> None:
    """Lines in a blocking loop over standard input and output."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        sink.write(answer(line) + b"\n")
        sink.flush()
