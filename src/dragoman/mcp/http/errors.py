"""Refusals over HTTP: the status, and the JSON-RPC error in the body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from ...jsonrpc.codec import FailedAnswer, failure
from ...jsonrpc.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Refusal, RpcError
from ...transports.http.messages import JSON_LINES, STATUSES, Lines, Reply, retry_after
from ..protocol.dialect import MCP
from ..protocol.methods import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..session.refusals import SessionRefusal

_STATUS: Final = {
    METHOD_NOT_FOUND: 404,  # "it MUST respond with 404 Not Found" (2026's basic/transports/streamable-http)
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""The HTTP statuses of a stateless request's errors; any other error has the status of a result."""
MEDIA_TYPE: Final = (
    "Content-Type must be application/json, in UTF-8 (a server with the option any_media_type accepts others)"
)
_NOT_ACCEPTED: Final = frozenset({INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION})
"""The codes of errors by which a session says that the body of a POST is not a message for it."""
_REFUSED: Final[Mapping[str, int]] = {
    # "it MUST respond to requests containing that session ID with HTTP 404 Not Found" (basic/transports)
    "no session": 404,
    # after 404 clients would repeat the call in a new session, since it says that nothing was run
    "ended": 200,
    "too large": 413,
    "no stream": 400,
    "no batches": 400,
    "full": 503,
    "away": 503,
}
"""The HTTP statuses of a session's refusals."""


def status_of(answer: FailedAnswer) -> int:
    """Return the HTTP status of a stateless request's error."""
    refusal, code = answer.refusal, answer.error.code
    if refusal is not None and refusal.kind in STATUSES:
        return STATUSES[refusal.kind]
    if refusal is not None and code in (INVALID_PARAMS, INVALID_REQUEST):
        # "A request missing any required field is malformed; [...] the response status MUST be 400" (basic/index)
        return 400
    return _STATUS.get(code, 200)


def status_in_session(answer: FailedAnswer) -> int:
    """Return the HTTP status of a session's error.

    "If the server cannot accept the input, it MUST return an HTTP error status code (e.g., 400 Bad Request)"
    (basic/transports)
    """
    return 400 if answer.error.code in _NOT_ACCEPTED else 200


def refuse(
    reply: Reply, status: int, error: RpcError | str, *, id: Any = UNSET, null: bool = False, lines: Lines = ()
) -> None:
    """Refuse an HTTP request with a JSON-RPC error; a text stands for -32600. Without `id`: none could be read.

    `null`: whether an error without an id has `"id": null`, as older revisions have it.
    """
    if isinstance(error, str):
        error = RpcError.of(INVALID_REQUEST, error)
    reply.reject(status, error.message)
    reply.respond(status, (*JSON_LINES, *lines), failure(None if id is UNSET and null else id, error))


def send_refusal(reply: Reply, refusal: SessionRefusal, *, id: Any = UNSET, null: bool = False) -> None:
    """Send a session's refusal over HTTP."""
    status = _REFUSED[refusal.why]
    lines: Lines = (("Retry-After", "1"),) if status == 503 else ()
    refuse(reply, status, refusal.error, id=id, null=null, lines=lines)


def turn_away(reply: Reply, answer: bytes | None, refusal: Refusal, *, null: bool = False) -> None:
    """Refuse a message that was not accepted, in either era: 503 while the server is busy or drains and 429 above a
    rate, with the time to come back; 413 for what is too large, otherwise 400.

    For notifications the specification says: "If the server cannot accept it, it MUST return an HTTP error status code"
    (2026's basic/transports/streamable-http); for requests, that the body is JSON. `answer`: None for a notification.
    """
    known = refusal.kind in STATUSES
    if answer is None:
        error = MCP.error(refusal) if known else RpcError.of(INVALID_REQUEST, refusal.reason)
        answer = failure(None if null else UNSET, error)
    lines = (*JSON_LINES, *retry_after(refusal)) if known else JSON_LINES
    reply.respond(STATUSES.get(refusal.kind, 400), lines, answer)
