"""A cache of results, for as long as the server allows, and lists that come in pages.

Rules (server/utilities/caching and pagination):

- A result is identified by its method and the params that matter (a cursor, a URI). It is fresh for `ttlMs` after it
  came; a notification of a change ends that at once, even for a result that is still on its way.
- A cache belongs to one client and one token: "a different access token requires a different cache".
- Cursors are opaque and may be empty. A server that repeats a cursor, or whose list is beyond the limits `list_size`,
  `list_pages` and `list_time`, is a BadAnswer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from ...jsonrpc.errors import BadAnswer, InvalidParams
from ...jsonrpc.limits import MIB, Limits

T = TypeVar("T")
Page: TypeAlias = Callable[[str | None], Awaitable[tuple[list[T], str | None, int]]]

ENTRIES = 10_000
"""Results that are kept at most; beyond that the oldest is dropped."""
KEPT = 64 * MIB
"""Bytes of all results that are kept, as they came; beyond that the oldest is dropped."""


class Cache:
    """The fresh results. `keeps`: False: none are kept. `clock`: monotonic seconds."""

    def __init__(self, *, keeps: bool = True, clock: Callable[[], float] = monotonic) -> None:
        self._keeps = keeps
        self._clock = clock
        self._kept: dict[tuple[str, str | None], tuple[float, Any, int]] = {}
        self.size: int = 0
        """Bytes of the results that are kept."""
        self._changes: dict[str, int] = {}
        self._cleared = 0

    def get(self, method: str, key: str | None) -> Any:
        """Return the fresh result, or None."""
        found = self._kept.get((method, key))
        if found is None:
            return None
        # "considered fresh while: now < t_received + ttlMs"
        if self._clock() < found[0]:
            return found[1]
        self._forget((method, key))
        return None

    def changes(self, method: str) -> int:
        """Return how many changes of a method's results were notified; an argument of `put`."""
        return self._changes.get(method, 0) + self._cleared

    def put(self, method: str, key: str | None, result: Any, ttl_ms: int, changes: int, size: int = 0) -> None:
        """Keep a result of `size` bytes, unless a change was notified since the request. `changes`: what `changes`
        returned before the request."""
        # "If `ttlMs` is negative, clients SHOULD ignore it and treat it as `0`"
        if not self._keeps or ttl_ms <= 0 or changes != self.changes(method):
            return
        self._forget((method, key))
        if size > KEPT:
            return
        while self._kept and (len(self._kept) >= ENTRIES or self.size + size > KEPT):
            self._forget(next(iter(self._kept)))
        self._kept[method, key] = (self._clock() + ttl_ms / 1000, result, size)
        self.size += size

    def _forget(self, key: tuple[str, str | None]) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self.size -= found[2]

    def drop(self, method: str, key: str | None = None) -> None:
        """Drop a result, or without a key all of a method, because it changed: "the notification invalidates the cached
        response"."""
        self._changes[method] = self._changes.get(method, 0) + 1
        if key is not None:
            self._forget((method, key))
            return
        for kept in [one for one in self._kept if one[0] == method]:
            self._forget(kept)

    def clear(self) -> None:
        """Drop all results, also those on their way: the server, or the identity of the client, has changed."""
        self._cleared += 1
        self._kept.clear()
        self.size = 0


async def pages(
    method: str, page: Page[T], forget: Callable[[], None], *, limits: Limits, clock: Callable[[], float] = monotonic
) -> list[T]:
    """Return all items of a list. `page(cursor)` returns the page's items, the next cursor (None at the end) and its
    size in bytes; `forget` drops the cached pages. `clock`: monotonic seconds.

    Raises BadAnswer for a server whose pages have no end, and what `page` raises.
    """
    try:
        return await _read_pages(method, page, limits, clock)
    except _StaleCursor:
        # "If a cursor becomes invalid, the client SHOULD discard all cached pages and re-fetch from the beginning"
        forget()
    try:
        return await _read_pages(method, page, limits, clock)
    except _StaleCursor as again:
        raise again.error from None


class _StaleCursor(Exception):
    """The server refuses a cursor that it has sent."""

    def __init__(self, error: InvalidParams) -> None:
        self.error = error


async def _read_pages(method: str, page: Page[T], limits: Limits, clock: Callable[[], float]) -> list[T]:
    items: list[T] = []
    size, begun = 0, clock()
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(limits.list_pages):
        try:
            more, cursor, length = await page(cursor)
        except InvalidParams as error:
            if cursor is None or not error.remote:
                raise
            raise _StaleCursor(error) from error
        size += length
        if size > limits.list_size and size > length:
            raise BadAnswer(
                f"{method}: the list has {size} bytes and goes on, limits.list_size allows {limits.list_size}"
            )
        items += more
        # "an empty string is a valid cursor and thus MUST NOT be treated as the end of results"
        if cursor is None:
            return items
        if limits.list_time is not None and clock() - begun > limits.list_time:
            raise BadAnswer(f"{method}: the list has not ended within {limits.list_time:g} s (limits.list_time)")
        if cursor in seen:
            raise BadAnswer(f"{method}: the cursor {cursor[:40]!r} came twice, so its pages would never end")
        seen.add(cursor)
    raise BadAnswer(f"{method}: more than {limits.list_pages} pages, which limits.list_pages allows")
