"""What a follower of events gets, in whichever way they come: events, gaps between them, and the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from ....jsonrpc.errors import BadAnswer
from ...protocol.encoding import decode
from .model import EventOccurrence

T = TypeVar("T")


class ReceivedEvent(Struct, frozen=True, kw_only=True):
    """An event. Its content comes from outside, as that of a tool's result does: treat it as data, not as words of the
    user."""

    id: str
    """The `eventId`: the same however often, and in whichever way, the event comes."""
    name: str
    """The event type, such as "orders.shipped"."""
    timestamp: str
    """When it happened, as ISO 8601."""
    raw: Raw
    """The payload as JSON text."""
    cursor: str | None = None
    """A position that may be kept: who begins there misses nothing that has not come yet. None: the event type has
    none, or the position is not known for a single event."""
    truncated: bool = False
    """Whether events before this one were skipped."""
    subscription: str | None = None
    """The id of the webhook subscription; None for events that came in another way."""
    meta: Mapping[str, Any] = {}
    """Its `_meta`."""

    @property
    def data(self) -> Any:
        """The payload as JSON values."""
        return msgspec.json.decode(self.raw)

    def read(self, type: type[T]) -> T:
        """Return the payload as a type that msgspec knows. Raises BadAnswer if it does not fit."""
        try:
            return msgspec.json.decode(self.raw, type=type)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadAnswer(f"the event {self.name} does not fit: {error}") from error


class ReceivedGap(Struct, frozen=True, kw_only=True):
    """Events of the webhook subscription with the id `subscription` were skipped; it goes on at `cursor`."""

    subscription: str
    cursor: str | None = None


class ReceivedEnd(Struct, frozen=True, kw_only=True):
    """The server has ended the webhook subscription with the id `subscription`: it does not exist there any more."""

    subscription: str
    error: Exception
    """Why: an RpcError of the server, or a ChannelError where it has refused the client (401, 403)."""


def received(
    event: EventOccurrence,
    *,
    truncated: bool = False,
    subscription: str | None = None,
    cursor: str | None = None,
) -> ReceivedEvent:
    """Return an event of the wire for its follower. `cursor`: the position after it, where the event itself has none.
    Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for a payload that is no JSON."""
    decode(event.data, dict[str, Any])  # raw text is not checked before
    return ReceivedEvent(
        id=event.event_id,
        name=event.name,
        timestamp=event.timestamp,
        raw=event.data.copy(),
        cursor=event.cursor if isinstance(event.cursor, str) else cursor,
        truncated=truncated,
        subscription=subscription,
        meta={} if event.meta is UNSET else event.meta,
    )
