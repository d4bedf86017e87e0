"""The least work that still is JSON-RPC: decode the envelope, decode the arguments, call, encode the answer. In process, on
bare wires, and in memory."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from bench.messages import BATCH, SINGLE
from bench.worker import measure, measure_async


class Envelope(Struct):
    """A request with its params and id undecoded."""

    jsonrpc: Literal["2.0"]
    method: str
    id: Raw
    params: Raw = Raw(b"[]")


class Arguments(Struct, array_like=True):
    """What `subtract` takes, by position."""

    minuend: int
    subtrahend: int


class Answer(Struct):
    """A response."""

    id: Raw
    result: int
    jsonrpc: str = "2.0"


class Call(Struct):
    """A request as it is written."""

    method: str
    params: Any
    id: int
    jsonrpc: str = "2.0"


class Reply(Struct):
    """A response as it is read."""

    jsonrpc: str
    result: Raw
    id: int


def subtract(minuend: int, subtrahend: int) -> int:
    """The method."""
    return minuend - subtrahend


METHODS = {"subtract": (msgspec.json.Decoder(Arguments).decode, subtract)}
ENVELOPE = msgspec.json.Decoder(Envelope).decode
ENVELOPES = msgspec.json.Decoder(list[Envelope]).decode
REPLY, RESULT = msgspec.json.Decoder(Reply).decode, msgspec.json.Decoder(int).decode
ENCODE = msgspec.json.Encoder().encode


def answer(raw: bytes) -> bytes:
    """One request's answer."""
    envelope = ENVELOPE(raw)
    arguments, function = METHODS[envelope.method]
    args = arguments(envelope.params)
    return ENCODE(Answer(envelope.id, function(args.minuend, args.subtrahend)))


def answer_batch(raw: bytes) -> bytes:
    """A batch's answers."""
    answers = []
    for envelope in ENVELOPES(raw):
        arguments, function = METHODS[envelope.method]
        args = arguments(envelope.params)
        answers.append(Answer(envelope.id, function(args.minuend, args.subtrahend)))
    return ENCODE(answers)


def single() -> None:
    measure(lambda: answer(SINGLE))


def batch() -> None:
    measure(lambda: answer_batch(BATCH))


async def http(port: str) -> None:
    from bench.contestants.bare_http import Front, listen

    await listen(port, lambda: Front(answer))


def asgi(port: str) -> None:
    from bench.contestants.bare_http import application, uvicorn_run

    uvicorn_run(application(answer), port)


def stdio() -> None:
    """Content-Length framing in a blocking loop that reads a header, a body, and writes the answer."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while header := source.readline():
        source.readline()
        out = answer(source.read(int(header[16:])))
        sink.write(b"Content-Length: %d\r\n\r\n%b" % (len(out), out))
        sink.flush()


async def memory() -> None:
    """An awaited call: two ends on one loop, each message handed over by `call_soon`."""
    loop = asyncio.get_running_loop()
    ids, waiting = count(1), dict[int, asyncio.Future[int]]()

    def asked(raw: bytes) -> None:
        loop.call_soon(answered, answer(raw))

    def answered(raw: bytes) -> None:
        reply = REPLY(raw)
        waiting.pop(reply.id).set_result(RESULT(reply.result))

    async def call() -> object:
        id = next(ids)
        future = waiting[id] = loop.create_future()
        loop.call_soon(asked, ENCODE(Call("subtract", [42, 23], id)))
        return await future

    await measure_async(call)
