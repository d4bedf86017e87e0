"""What a client of MCP adds to the authorization of HTTP: a name for what a request does. It limits how often a refusal
leads to a login for more scopes. The rest is in `dragoman.auth` and `transports.http.client.authorized`. Pure.

"Clients SHOULD track scope upgrade attempts to avoid repeated failures for the same resource and operation
combination."
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

LONGEST = 200
"""Characters of an operation's name at most."""


class _Params(Struct, gc=False):
    name: str | None = None
    uri: str | None = None


class _Message(Struct, gc=False):
    method: str = ""
    params: _Params | None = None


_decode = msgspec.json.Decoder(_Message).decode


def operation(body: bytes) -> str:
    """Return the method of a message, with the tool, prompt or resource that it names; "batch" for several."""
    try:
        message = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "batch"
    named = None if message.params is None else message.params.name or message.params.uri
    return f"{message.method} {named}"[:LONGEST] if named else message.method
