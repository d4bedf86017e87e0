"""Interprets a reply that did not settle its call, on wires where one message in has one answer out.

A server that could not read a request, or its id, answers with `"id": null` (specification 5.1). If the reply
came for one message, it is clear which call the error belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from ..jsonrpc.codec import decode
from ..jsonrpc.errors import BadAnswer, RpcError
from ..jsonrpc.leniency import Leniency
from ..jsonrpc.messages import Batch, Failure, Malformed, Result, Single
from .urls import printable

_LENIENT = Leniency(accept_v1=True, string_codes=True)
_EXCERPT = 200


def no_answer_error(body: bytes) -> Exception:
    """The exception for a call whose reply `body` did not settle it."""
    if (error := orphan(body)) is not None:
        return error
    faults = [one.reason for one in _messages(body) if isinstance(one, Malformed)]
    if faults:
        return BadAnswer(f"the reply is not a JSON-RPC answer: {printable(faults[0])}: {excerpt(body)}")
    if not holds_response(body):
        return BadAnswer(f"the reply is not a JSON-RPC answer: {excerpt(body)}")
    return BadAnswer(f"the reply's id does not match the call: {excerpt(body)}")


def orphan(body: bytes) -> RpcError | None:
    """The error of a response with id null, as an exception; None for any other body."""
    if b'"error"' not in body or (b"null" not in body and b'"id"' in body):
        return None
    messages = _messages(body)
    if len(messages) != 1 or not isinstance(failed := messages[0], Failure):
        return None
    if not isinstance(failed.id, Raw) or bytes(failed.id) != b"null" or not _is_response(failed, body):
        return None
    data = failed.error.data
    if isinstance(data, Raw):
        data = msgspec.json.decode(data)  # cannot fail: `decode` has read it as part of the body
    error = RpcError.of(failed.error.code, failed.error.message, data)
    error.name = failed.error.name
    return error


def holds_response(body: bytes) -> bool:
    """Whether a body contains a JSON-RPC response, not just any JSON with an `error` member."""
    return any(isinstance(one, Result | Failure) and _is_response(one, body) for one in _messages(body))


def excerpt(body: bytes) -> str:
    """The beginning of a body as one line that is safe to print."""
    text = body[:_EXCERPT].decode("utf-8", "replace")
    if not text.isprintable():
        text = printable(" ".join(text.split()), 2 * _EXCERPT)
    return text if len(body) <= _EXCERPT else f"{text}..."


def _messages(body: bytes) -> Sequence[Single]:
    message = decode(body, lenient=_LENIENT)
    return message.messages if isinstance(message, Batch) else (message,)


def _is_response(response: Result | Failure, body: bytes) -> bool:
    """Return whether a response that was decoded is one: 1.0 has no version to check, but always an id."""
    return response.version == "2.0" or b'"id"' in body
