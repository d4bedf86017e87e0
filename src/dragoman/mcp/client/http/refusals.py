"""The errors of a call over HTTP, and `peek`, which finds out to which calls a message belongs.

`peek` reads no more than that: the peer decodes the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ....channel import Broken
from ....jsonrpc.codec import decode
from ....jsonrpc.errors import RpcError
from ....jsonrpc.messages import Failure
from ....net.replies import excerpt
from ....net.urls import printable


class HttpRefused(Broken):
    """The server answered with an HTTP error status and no JSON-RPC answer to this call; 401 and 403 always raise
    this."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str], request: str) -> None:
        super().__init__(status, body, headers, request)
        self.request = request
        """The HTTP method and the URL."""
        self.status = status
        self.body = body
        self.headers = headers
        """The response's headers, names in lower case. `www-authenticate` says what a 401 or 403 demands."""
        self.error: RpcError | None = error_of(body)
        """The JSON-RPC error in the body, where there is one."""

    def __str__(self) -> str:
        what = _STATUS.get(self.status, "")
        detail = str(self.error) if self.error is not None else excerpt(self.body)
        challenge = self.headers.get("www-authenticate", "") if self.status in (401, 403) else ""
        target = self.headers.get("location", "nowhere") if 300 <= self.status < 400 else ""
        if target:
            detail = f"it redirects to {target}, which is not followed; connect there"
        line = f"{self.request} answered HTTP {self.status}{what and ' ' + what}"
        parts = [line, detail, challenge and f"it asks for {challenge}"]
        return printable(": ".join(part for part in parts if part), 500)


class SessionLost(Broken):
    """The server no longer knows the session: the call was not run, and a new `initialize` begins a new session."""


class StreamLost(Broken):
    """The event stream of a call ended before the call's answer, and could not be resumed."""


_STATUS = {
    400: "Bad Request",
    401: "Unauthorized: the server wants its callers to log in",
    403: "Forbidden: the server does not let this caller in",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


# -- which message an error answers ------------------------------------------------------------------------


class _Peek(Struct, gc=False):
    method: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_one = msgspec.json.Decoder(_Peek).decode
_many = msgspec.json.Decoder(list[_Peek]).decode


class PeekedMessage(Struct, frozen=True, gc=False):
    """The kind, id and method of a message."""

    kind: Literal["request", "notification", "answer", "orphan"]
    """An orphan is an answer without the id of a call."""
    id: bytes = b""
    """Its id in its JSON text."""
    method: bytes = b""
    """Its method in its JSON text."""


def peek(raw: bytes) -> list[PeekedMessage] | None:
    """Return the kind, id and method of each message in `raw`; None if it is not JSON-RPC."""
    try:
        raw.isascii() or raw.decode()
        several = _many(raw) if raw.lstrip()[:1] == b"[" else [_one(raw)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    peeked = []
    for one in several:
        id = b"" if one.id is UNSET else bytes(one.id)
        if one.method is not UNSET:
            peeked.append(PeekedMessage("request" if id else "notification", id, bytes(one.method)))
        elif one.result is UNSET and one.error is UNSET:
            return None
        elif not id or id == b"null":
            peeked.append(PeekedMessage("orphan"))
        else:
            peeked.append(PeekedMessage("answer", id))
    return peeked or None


def error_of(body: bytes) -> RpcError | None:
    """Return the JSON-RPC error in a body, whatever its id; None if the body is not one error."""
    if b'"error"' not in body:
        return None
    message = decode(body)
    if not isinstance(message, Failure):
        return None
    data = message.error.data
    if isinstance(data, Raw):
        try:
            data = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            data = None
    return RpcError.of(message.error.code, message.error.message, data)
