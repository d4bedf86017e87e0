"""The header fields that the options of an HTTP or WebSocket client add, checked before anything is sent."""

from __future__ import annotations

import re
from base64 import b64encode

from ..channel import Options
from ..jsonrpc.errors import LocalError
from .urls import Url, printable

NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields in which the wire itself states a message's length and connection (RFC 9110, section 7.6.1; RFC 9112, section
6): with a second statement beside it, a message could be read as ending elsewhere than where it was sent to end."""
VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def fields(url: Url, options: Options) -> dict[str, str]:
    """Return `options.headers`, and the authorization of these, `options.auth` or the URL, in this order of precedence;
    names in lower case. Raises LocalError for a header or a secret that cannot be sent."""
    found: dict[str, str] = {}
    auth = options.auth or url.auth
    if hasattr(auth, "authorizing"):  # `transports.http.client` calls it for each request
        auth = None
    if isinstance(auth, str):
        found["authorization"] = f"Bearer {auth}"
    elif auth is not None:
        if ":" in auth[0]:
            raise LocalError("auth: the user of basic authentication has no colon (RFC 7617)")
        found["authorization"] = "Basic " + b64encode(":".join(auth).encode()).decode()
    for name, value in options.headers.items():
        if not NAME.fullmatch(name):
            raise LocalError(f"headers: {printable(name)!r} is not a name of an HTTP header")
        if name.lower() in FRAMING:
            raise LocalError(f"headers: {name} is for the wire to say, not for options")
        found[name.lower()] = value
    for name, value in found.items():
        if not VALUE.fullmatch(value):  # the value may be a secret, so it isn't shown
            raise LocalError(f"headers: the value of {name} has a line break or a NUL in it")
    return found
