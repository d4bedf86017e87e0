"""What the parts of Events share in one client: the client, the streams, what is listened to, and their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from msgspec import UNSET, UnsetType

from ....jsonrpc.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    BadAnswer,
    LocalError,
    RpcError,
)
from ...client.extension_client import ExtensionClient
from ...client.http.refusals import HttpRefused
from ...protocol.params import PaginatedRequestParams
from .model import CODES, SEP_CODES, EventType, ListEventsResult
from .stream_call import StreamCalls

MIN_POLL: Final = 1.0
"""Seconds between two polls at least, "to guard against a misbehaving server inducing a tight loop"."""
LONGEST_RETRY: Final = 600.0
"""Seconds by which a server's `retry_after` can defer the next try at most."""
MAX_PAGES: Final = 1_000
"""Pages of a list of event types; a server that has more sends the same ones again and again."""
MAX_TYPES: Final = 100_000
"""Event types of a server."""
_REFUSALS: Final = frozenset(
    {INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS}
    | {code for codes in (CODES, SEP_CODES) for code in (codes.not_found, codes.forbidden, codes.unsupported)}
)
"""The codes of errors that the same call would have again."""
_REFUSED_STATUSES: Final = (401, 403)


class ClientHome:
    """The client to which the extension belongs, and what its parts share."""

    def __init__(self, *, min_poll: float, silence: float, clock: Callable[[], float]) -> None:
        self.min_poll: float = min_poll
        self.clock: Callable[[], float] = clock
        self.streams: StreamCalls = StreamCalls(silence)
        self.listening: WeakSet[Any] = WeakSet()
        """What is read; each has `close`."""
        self._client: ExtensionClient | None = None

    @property
    def client(self) -> ExtensionClient:
        """The client. Raises LocalError before it is entered."""
        if self._client is None:
            raise LocalError("events are there within their client: async with Client(url, extensions=[events])")
        return self._client

    def enter(self, client: ExtensionClient) -> None:
        """Use this client from now on."""
        self._client = client

    async def close(self) -> None:
        """End all that is read."""
        for one in tuple(self.listening):
            await one.close()
        await self.streams.close()

    async def types(self) -> list[EventType]:
        """Return all event types of the server; `EventsClient.list` describes it."""
        found: list[EventType] = []
        cursor: str | UnsetType = UNSET
        seen: set[str] = set()
        while True:
            page = await self.client.request("events/list", PaginatedRequestParams(cursor=cursor))
            assert isinstance(page, ListEventsResult)
            found += page.events
            cursor = page.next_cursor
            if cursor is UNSET:
                return found
            if cursor in seen or len(seen) >= MAX_PAGES or len(found) > MAX_TYPES:
                raise BadAnswer(f"events/list: the pages have no end: {len(found)} event types in {len(seen) + 1}")
            seen.add(cursor)


def pause_after(error: Exception) -> float | None:
    """Return the seconds for which a server wants to be left alone at least, after a call that failed; None: it has
    refused the call for good. An error that says neither is that of a server which fails, or starts again."""
    if isinstance(error, HttpRefused) and error.status in _REFUSED_STATUSES:
        return None
    if not isinstance(error, RpcError):
        return 0.0
    seconds = error.data.get("retry_after") if isinstance(error.data, dict) else None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        return min(max(seconds, 0.0), LONGEST_RETRY)
    return None if error.code in _REFUSALS else 0.0
