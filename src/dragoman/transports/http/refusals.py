"""The answers of our own: refusals, and what `Exchange.respond` was given, as HTTP. Pure.

A JSON-RPC answer is 200, also with an error in it; 204 when nothing is owed (`options.empty_status`); 503 when busy or
draining, 413 when too large. A refusal is in the form that its endpoint's callers read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from ...jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, MESSAGES, PLAIN, Refusal, RpcError, too_large
from .messages import JSON, JSON_LINES, Answer, Head, Lines

MEDIA = "application/json (or application/json-rpc, or a type that ends in +json), in UTF-8"


def rpc_error(error: RpcError) -> bytes:
    """A JSON-RPC error for a request whose id was not read."""
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not msgspec.UNSET:
        told["data"] = error.data
    return msgspec.json.encode({"jsonrpc": "2.0", "error": told, "id": None})


def turned_away(status: int, text: str, headers: Lines = ()) -> Answer:
    """A plain HTTP refusal in words."""
    return Answer(status, (("Content-Type", JSON), *headers), msgspec.json.encode({"error": text}), text)


def to_endpoint(answer: Answer, data: dict[str, Any] | UnsetType = UNSET) -> Answer:
    """A refusal in words as an endpoint's callers read it, who expect JSON-RPC.

    "The HTTP response body MAY comprise a JSON-RPC error response that has no `id`" (MCP 2026-07-28, Streamable HTTP)
    """
    error: dict[str, Any] = {"code": INVALID_REQUEST, "message": answer.reason}
    if data is not UNSET:
        error["data"] = data
    return structs.replace(answer, body=msgspec.json.encode({"jsonrpc": "2.0", "error": error}), reason="")


def refusal(head: Head | None, status: int, text: str, headers: Lines = ()) -> Answer:
    """A refusal in words, as those read it who asked with this head: JSON-RPC where that is spoken."""
    if head is not None and head.endpoint is not None:
        return to_endpoint(turned_away(status, text, headers))
    if head is not None and head.served is not None:
        return Answer(status, (*JSON_LINES, *headers), rpc_error(RpcError.of(INVALID_REQUEST, text)))
    return turned_away(status, text, headers)


def oversized(head: Head, allowed: int, received: int | None) -> Answer:
    """413, as a JSON-RPC error where a JSON-RPC endpoint was meant."""
    refusal = too_large("message_size", allowed, received)
    if head.endpoint is not None:
        return to_endpoint(turned_away(413, refusal.reason), refusal.data)
    if head.served is None:
        return turned_away(413, refusal.reason)
    return Answer(413, JSON_LINES, rpc_error(PLAIN.error(refusal)))


def rpc_answer(answer: bytes | None, refusal: Refusal | None, empty_status: int) -> Answer:
    """What `Exchange.respond` was given, as HTTP: 200, `empty_status` for nothing, 503 and 413 for refusals."""
    if refusal is None or refusal.kind not in ("busy", "draining", "too_large"):
        return Answer(empty_status) if answer is None else Answer(200, JSON_LINES, answer)
    kind: Lines = () if answer is None else JSON_LINES
    if refusal.kind == "too_large":
        return Answer(413, kind, answer or b"")
    return Answer(503, (*kind, ("Retry-After", str(refusal.data.get("retry_after", 1)))), answer or b"")


def unsupported(kind: bytes | None) -> Answer:
    """415, as a JSON-RPC error that says what would be right."""
    got = "there is none" if kind is None else f"not {kind.decode('latin-1')!r}"
    error = RpcError.of(INVALID_REQUEST, f"Content-Type must be {MEDIA}; {got}")
    return Answer(415, JSON_LINES, rpc_error(error))


def uncoded(headers: Mapping[bytes, bytes]) -> Answer | None:
    """415 for a body in a content coding: none is undone here, and to take it as it is would be wrong (RFC 9110, 8.4).
    The answer says what would be right (15.5.16)."""
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() == b"identity":
        return None
    text = f"Content-Encoding {coding.decode('latin-1')!r} is not understood here; send the body as it is"
    error = rpc_error(RpcError.of(INVALID_REQUEST, text))
    return Answer(415, (*JSON_LINES, ("Accept-Encoding", "identity")), error)


def failure() -> Answer:
    """500: something of ours raised that must not."""
    return Answer(500, JSON_LINES, rpc_error(RpcError.of(INTERNAL_ERROR, MESSAGES[INTERNAL_ERROR])))
