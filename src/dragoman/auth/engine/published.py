"""What clients and trusted issuers publish: fetched within bounds, since anyone may name a URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from ...allowance import Owner
from ..errors import AuthError, IssuerAway, OAuthError
from ..fetch import By, Fetcher
from ..fetching import FetchedAnswer
from ..flights import Flights
from .documents import DOCUMENT
from .messages import oauth_error

TIMEOUT = 5.0
"""Seconds for one fetch: a user waits for the page meanwhile."""
KEYS = 256 * 1024
"""Bytes of the keys or metadata of an issuer that the operator trusts."""
FETCHES = 32
"""Documents and keys of clients that are fetched at once: anyone may name one, at a host that is slow to answer."""
RETRY = (("Retry-After", "5"),)

Fetch: TypeAlias = Callable[[str, int, bool], Awaitable[FetchedAnswer]]
"""GETs a URL, an answer of at most so many bytes, without following redirects. The flag: True if the operator named the
URL, or an issuer that the operator trusts; False if a stranger did. Raises AuthError."""


def fetch_for(issuer: str) -> Fetch:
    """Return a `Fetch` for this issuer. A stranger's URL may only have public addresses, or loopback ones where the
    issuer is on loopback."""
    fetcher = Fetcher(timeout=TIMEOUT)

    async def fetch(url: str, limit: int, trusted: bool) -> FetchedAnswer:
        by: By = "operator" if trusted else "document"
        return await fetcher.get(url, by=by, origin=issuer, redirects=0, limit=limit)

    return fetch


class PublishedDocuments:
    """Fetches documents of clients and of trusted issuers. `fetch`: None: every fetch is refused."""

    def __init__(self, fetch: Fetch | None) -> None:
        self._fetch = fetch
        self._flights: Flights[str] = Flights(FETCHES, f"{FETCHES} documents of clients are fetched already")

    async def _get(self, url: str, what: str, trusted: bool = False) -> FetchedAnswer:
        if self._fetch is None:
            raise oauth_error("invalid_client", f"{what} is not fetched here: there is no fetcher")
        try:
            fetched = await self._fetch(url, DOCUMENT if not trusted else KEYS, trusted)
        except OAuthError:
            raise
        except AuthError as error:
            raise oauth_error("invalid_client", f"{what} cannot be fetched: {error}") from None
        # "The authorization server MUST NOT automatically follow HTTP redirects"; 200 is the only status that counts
        if fetched.status != 200:
            raise oauth_error("invalid_client", f"{what} is answered with status {fetched.status}, not 200")
        return fetched

    async def fetch_of_stranger(self, url: str, what: str, owner: Owner) -> FetchedAnswer:
        """Return the answer of a URL that a stranger named: one request for all who wait for it, within fair shares.
        `what`: the document, for errors; `owner`: to whose share it counts. Raises OAuthError."""
        try:
            found: FetchedAnswer = await self._flights.join(url, owner, lambda: self._get(url, what))
        except IssuerAway as error:
            raise oauth_error("temporarily_unavailable", error.description, 503, RETRY) from None
        return found

    async def get(self, url: str, *, by: Any = None, origin: str | None = None, headers: Any = None) -> FetchedAnswer:
        """Return the metadata or the keys of an issuer that the operator trusts. Raises OAuthError."""
        return await self._get(url, "The key set", trusted=True)

    async def client_keys(self, url: str, owner: Owner) -> Mapping[str, Any]:
        """Return the JWK Set of a client at a URL. Raises OAuthError."""
        try:
            fetched = await self.fetch_of_stranger(url, "The key set", owner)
            return msgspec.json.decode(fetched.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise oauth_error("invalid_client", "The key set is not a JSON object") from None
