"""What to tell a call whose reply did not settle it, on the wires where one message in has one answer out.

A server that could not read a request, or its id, answers with `"id": null` (specification 5.1). Where the reply
came for one message, it is clear all the same which call that error is meant for.
"""

from __future__ import annotations

from msgspec import Raw

from ..jsonrpc.codec import Leniency, decode
from ..jsonrpc.errors import BadAnswer, RpcError
from ..jsonrpc.messages import Batch, Failure, Result
from .urls import printable

_LENIENT = Leniency(accept_v1=True, string_codes=True)
_EXCERPT = 200


def unanswered(body: bytes) -> Exception:
    """The error for a call whose reply is `body`, which did not settle it."""
    if (error := orphan(body)) is not None:
        return error
    text = printable(body[:_EXCERPT].decode("utf-8", "replace"), 2 * _EXCERPT)
    if not isinstance(decode(body, lenient=_LENIENT), Result | Failure | Batch):
        return BadAnswer(f"the reply is no JSON-RPC answer: {text}")
    return BadAnswer(f"the reply's id does not match the call: {text}")


def orphan(body: bytes) -> RpcError | None:
    """The error of a response with id null, as an exception; None where it is something else."""
    if b'"error"' not in body or (b"null" not in body and b'"id"' in body):
        return None
    message = decode(body, lenient=_LENIENT)
    if isinstance(message, Batch) and len(message.messages) == 1:
        message = message.messages[0]
    if not isinstance(message, Failure) or not isinstance(message.id, Raw) or bytes(message.id) != b"null":
        return None
    error = RpcError.of(message.error.code, message.error.message, message.error.data)
    error.name = message.error.name
    return error
