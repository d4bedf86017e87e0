"""The least work that still is JSON-RPC: decode the envelope, decode the arguments, call, encode the answer."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, Struct


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


def subtract(minuend: int, subtrahend: int) -> int:
    """The method."""
    return minuend - subtrahend


METHODS = {"subtract": (msgspec.json.Decoder(Arguments).decode, subtract)}
ENVELOPE = msgspec.json.Decoder(Envelope).decode
ENVELOPES = msgspec.json.Decoder(list[Envelope]).decode
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
