"""The errors of a call over HTTP, and a quick look at a message that came over HTTP.

`look` reads only for which call a message is: the peer decodes it, once.
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
    """The server answered with an HTTP status and no JSON-RPC answer to this call; 401 and 403 always are this."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str], request: str) -> None:
        super().__init__(status, body, headers, request)
        self.request = request
        """The HTTP method and the URL."""
        self.status = status
        self.body = body
        self.headers = headers
        """Names in lower case. `www-authenticate` says what a 401 or 403 asks for."""
        self.error: RpcError | None = error_of(body)
        """The JSON-RPC error in the body, where there is one."""

    def __str__(self) -> str:
        what = _STATUS.get(self.status, "")
        said = str(self.error) if self.error is not None else excerpt(self.body)
        challenge = self.headers.get("www-authenticate", "") if self.status in (401, 403) else ""
        target = self.headers.get("location", "nowhere") if 300 <= self.status < 400 else ""
        if target:
            said = f"it redirects to {target}, which is not followed; connect there"
        line = f"{self.request} answered HTTP {self.status}{what and ' ' + what}"
        parts = [line, said, challenge and f"it asks for {challenge}"]
        return printable(": ".join(part for part in parts if part), 500)


class SessionLost(Broken):
    """The server no longer knows the session: nothing was run, and a new `initialize` starts a new one."""


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


class _Glance(Struct, gc=False):
    method: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_one = msgspec.json.Decoder(_Glance).decode
_many = msgspec.json.Decoder(list[_Glance]).decode


class PeekedMessage(Struct, frozen=True, gc=False):
    """The kind, id and method of a message."""

    kind: Literal["request", "notification", "answer", "orphan"]
    """An orphan is an answer without the id of a call."""
    id: bytes = b""
    """Its id in its JSON text."""
    method: bytes = b""
    """Its method in its JSON text."""


def look(raw: bytes) -> list[PeekedMessage] | None:
    """Return the messages in `raw`; None if it is not JSON-RPC."""
    try:
        raw.isascii() or raw.decode()
        glances = _many(raw) if raw.lstrip()[:1] == b"[" else [_one(raw)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    looks = []
    for glance in glances:
        id = b"" if glance.id is UNSET else bytes(glance.id)
        if glance.method is not UNSET:
            looks.append(PeekedMessage("request" if id else "notification", id, bytes(glance.method)))
        elif glance.result is UNSET and glance.error is UNSET:
            return None
        elif not id or id == b"null":
            looks.append(PeekedMessage("orphan"))
        else:
            looks.append(PeekedMessage("answer", id))
    return looks or None


def error_of(body: bytes) -> RpcError | None:
    """Return the one JSON-RPC error in a body, with any id."""
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
