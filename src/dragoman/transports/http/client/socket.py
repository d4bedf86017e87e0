"""Dials a WebSocket whose handshake is authorized, where `Options.auth` says where tokens come from.

Each handshake asks for the token anew, so a channel that is dialled again comes with a fresh one. A handshake that was
refused began nothing, so it may be sent again.
"""

from __future__ import annotations

from contextlib import nullcontext

from msgspec.structs import replace
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from ....channel import Broken, Options
from ....net import urls
from ..websocket import WebSocket
from ..websocket import dial as dial_plainly
from .authorized import MOST


async def dial(url: str, options: Options) -> WebSocket:
    """As `channel.Dial`: `ws://` and `wss://`. Raises Broken when the handshake fails, or there is no token for it."""
    authorizing = getattr(options.auth, "authorizing", None)
    if authorizing is None:
        return await dial_plainly(url, options)
    where = urls.parse(url)
    # tokens are for the resource, whose URL has the scheme of HTTP (RFC 6455 section 4.1: the handshake is a GET of it)
    resource = f"http{'s' if where.tls else ''}://{where.address}{where.target}"
    authorization = authorizing(resource, options.client_tls)
    try:
        attempt = authorization.begin("connect", nullcontext)
        for tries in range(MOST):
            fields = await attempt.fields("GET", resource)
            try:
                return await dial_plainly(url, replace(options, auth=None, headers={**options.headers, **fields}))
            except Broken as why:
                refused = why.__cause__
                if not isinstance(refused, InvalidStatus) or tries == MOST - 1:
                    raise
                if not await attempt.again(refused.response.status_code, _headers(refused.response)):
                    raise
        raise AssertionError("the last try returns or raises")
    finally:
        await authorization.close()


def _headers(response: Response) -> dict[str, str]:
    """The header fields of an answer, names in lower case, equal ones joined by ", " (RFC 9110 section 5.2)."""
    found: dict[str, str] = {}
    for name, value in response.headers.raw_items():
        before = found.get(name.lower())
        found[name.lower()] = value if before is None else f"{before}, {value}"
    return found
