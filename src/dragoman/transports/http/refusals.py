"""Refusals, and the answers given to `Exchange.respond`, as HTTP responses. Pure.

A JSON-RPC answer is 200, also with an error in it; 204 when nothing is owed (`options.empty_status`); 503 when busy or
draining, 429 above a rate, 413 when too large. A refusal has the form that the endpoint's callers expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from ...jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, MESSAGES, PLAIN, Refusal, RpcError, too_large
from ...observer import RejectionKind
from .messages import JSON, JSON_LINES, STATUSES, Answer, Head, Lines, retry_after

MEDIA = "application/json (or application/json-rpc, or a type that ends in +json), in UTF-8"


_KINDS: Mapping[int, RejectionKind] = {
    400: "malformed",
    401: "denied",
    403: "denied",
    404: "not_found",
    408: "timed_out",
    413: "too_large",
    414: "too_large",
    421: "denied",
    429: "busy",
    431: "too_large",
    500: "failed",
    503: "busy",
}


def kind_of(status: int) -> RejectionKind:
    """Return the kind of rejection that a status means: "unsupported" for all that are not listed above."""
    return _KINDS.get(status, "unsupported")


def rpc_error(status: int, error: RpcError, *lines: tuple[str, str]) -> Answer:
    """A JSON-RPC error for a request whose id was not read."""
    members: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        members["data"] = error.data
    body = msgspec.json.encode({"jsonrpc": "2.0", "error": members, "id": None})
    return Answer(status, (*JSON_LINES, *lines) if lines else JSON_LINES, body, error.message)


def plain_refusal(status: int, text: str, headers: Lines = (), advice: str = "") -> Answer:
    """A plain HTTP refusal with a text, and with advice for the caller alone."""
    body = msgspec.json.encode({"error": f"{text}; {advice}" if advice else text})
    return Answer(status, (("Content-Type", JSON), *headers), body, text, plain=True)


def rpc_refusal(answer: Answer, data: dict[str, Any] | UnsetType = UNSET) -> Answer:
    """A refusal for an endpoint whose callers expect JSON-RPC.

    "The HTTP response body MAY comprise a JSON-RPC error response that has no `id`" (MCP 2026-07-28, Streamable HTTP)
    """
    error: dict[str, Any] = {"code": INVALID_REQUEST, "message": answer.reason}
    if data is not UNSET:
        error["data"] = data
    return structs.replace(answer, body=msgspec.json.encode({"jsonrpc": "2.0", "error": error}), plain=False)


def refusal(head: Head | None, status: int, text: str, headers: Lines = ()) -> Answer:
    """A refusal in the form for the request's head: JSON-RPC if its endpoint speaks that."""
    if head is not None and head.speaks_rpc:
        return rpc_refusal(plain_refusal(status, text, headers))
    if head is not None and head.served is not None:
        return rpc_error(status, RpcError.of(INVALID_REQUEST, text), *headers)
    return plain_refusal(status, text, headers)


def too_large_answer(head: Head, allowed: int, received: int | None) -> Answer:
    """413, as a JSON-RPC error if the request was for a JSON-RPC endpoint."""
    refusal = too_large("message_size", allowed, received)
    if head.speaks_rpc:
        return rpc_refusal(plain_refusal(413, refusal.reason), refusal.data)
    if head.served is None:
        return plain_refusal(413, refusal.reason)
    return rpc_error(413, PLAIN.error(refusal))


def rpc_answer(answer: bytes | None, refusal: Refusal | None, empty_status: int) -> Answer:
    """The answer given to `Exchange.respond` as HTTP: 200, `empty_status` for none, one of `STATUSES` for refusals."""
    if refusal is None or refusal.kind not in STATUSES:
        return Answer(empty_status) if answer is None else Answer(200, JSON_LINES, answer)
    kind: Lines = () if answer is None else JSON_LINES
    return Answer(STATUSES[refusal.kind], (*kind, *retry_after(refusal)), answer or b"")


def wrong_media_type(kind: bytes | None) -> Answer:
    """415, as a JSON-RPC error that says what would be right."""
    got = "there is none" if kind is None else f"not {kind.decode('latin-1')!r}"
    text = f"Content-Type must be {MEDIA}; {got} (a server with the option any_media_type accepts others)"
    return rpc_error(415, RpcError.of(INVALID_REQUEST, text))


def refuse_coding(headers: Mapping[bytes, bytes]) -> Answer | None:
    """415 for a body with a content coding: none is supported, and ignoring it would be wrong (RFC 9110, 8.4). The
    answer says what would be right (15.5.16)."""
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() == b"identity":
        return None
    text = f"Content-Encoding {coding.decode('latin-1')!r} is not understood here; send the body as it is"
    return rpc_error(415, RpcError.of(INVALID_REQUEST, text), ("Accept-Encoding", "identity"))


def failure() -> Answer:
    """500: our own code raised, which it must not."""
    return rpc_error(500, RpcError.of(INTERNAL_ERROR, MESSAGES[INTERNAL_ERROR]))
