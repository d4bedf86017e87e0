"""The fetcher of verifiers: the user's, or one that is made when something is first fetched."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from ..jsonrpc.options import NONE, Rule
from .keys import Fetches

FETCHER: Final = Rule(lambda value: callable(getattr(value, "get", None)), "a Fetcher of dragoman.auth") | NONE


def fetching(given: Fetches | None) -> Callable[[], Fetches]:
    """What gives the fetcher."""
    return _default if given is None else lambda: given


@cache
def _default() -> Fetches:
    from .fetch import Fetcher  # noqa: PLC0415  (an extra: nothing is fetched where keys are given)

    return Fetcher()
