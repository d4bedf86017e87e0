"""The contract of fetchers for authorization: `auth.fetch.Fetcher`, or a user's object with the same methods.

It is apart from `Fetcher`, which needs the extra "http": where the user gives the keys, nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Protocol

from ..jsonrpc.options import NONE, Rule


class FetchedAnswer(Protocol):
    """The answer to a request: a `Fetched`, or what the user's fetcher returns."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> bytes: ...


class FetchesDocuments(Protocol):
    """Fetches documents, by the rules of `auth.fetch`. Raises AuthError or OSError where there is no answer."""

    async def get(self, url: str, *, by: Any = ..., origin: str | None = ..., headers: Any = ...) -> FetchedAnswer: ...


class Fetches(FetchesDocuments, Protocol):
    """Fetches documents, and posts forms and JSON."""

    async def post_form(
        self, url: str, form: Any, *, by: Any = ..., origin: str | None = ..., headers: Any = ...
    ) -> FetchedAnswer: ...
    async def post_json(
        self, url: str, content: Any, *, by: Any = ..., origin: str | None = ..., headers: Any = ...
    ) -> FetchedAnswer: ...


FETCHER: Final = Rule(lambda value: callable(getattr(value, "get", None)), "a Fetcher of dragoman.auth") | NONE


def fetcher_of(given: Fetches | None) -> Callable[[], Fetches]:
    """Return a function that returns the user's fetcher, or a `Fetcher` that is made at its first call."""
    return _default if given is None else lambda: given


@cache
def _default() -> Fetches:
    from .fetch import Fetcher  # noqa: PLC0415  (an extra: nothing is fetched where keys are given)

    return Fetcher()
