"""One request to a server, to see which authorization it demands."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..challenge import Challenge, parse_challenges
from ..fetch import Fetcher
from .authorizer import choose_challenge

_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT = {"accept": "application/json, text/event-stream"}


class Probe(Struct, frozen=True):
    """What a server answered to a request."""

    status: int
    challenges: tuple[Challenge, ...]
    field: str
    """Its `WWW-Authenticate` header, as it came."""
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def challenge(self) -> Challenge | None:
        """The challenge that a client of OAuth would answer."""
        return choose_challenge(list(self.challenges))


async def probe(url: str, fetcher: Fetcher, headers: Mapping[str, str] | None = None) -> Probe:
    """Send a `ping` without a token, or with these headers, and return the answer. Raises FetchRefused, FetchFailed."""
    got = await fetcher.post_json(url, _PING, by="operator", headers=_ACCEPT | dict(headers or {}))
    field = got.headers.get("www-authenticate", "")
    return Probe(got.status, tuple(parse_challenges(field)), field, got.headers, got.body)
