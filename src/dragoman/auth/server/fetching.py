"""Fetches what clients and trusted issuers publish, by the rules of `dragoman.auth.fetch`."""

from __future__ import annotations

from ..fetch import By, Fetcher
from ..keys import Answer
from .clients import Fetch

TIMEOUT = 5.0
"""Seconds: a user waits for the page meanwhile."""


def fetched_for(issuer: str) -> Fetch:
    """A `Fetch` for this issuer. A stranger's URL leads to public addresses; to loopback where the issuer is there."""
    fetcher = Fetcher(timeout=TIMEOUT)

    async def fetch(url: str, limit: int, trusted: bool) -> Answer:
        by: By = "operator" if trusted else "document"
        return await fetcher.get(url, by=by, origin=issuer, redirects=0, limit=limit)

    return fetch
