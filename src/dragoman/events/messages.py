"""What is sent of events as JSON-RPC: to the peers of a service, and to the topics of brokers. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from .outbox import KeptEvent

EVENT: Final = "events.event"
"""The notification of an event."""


class EventMessage(Struct, frozen=True, kw_only=True):
    """The params of `events.event`."""

    subscription: str | UnsetType = UNSET
    """The id of the subscription that it is for; UNSET: it is for no particular one."""
    id: str
    """The same wherever the event is delivered, and however often: receivers recognise what they have by it."""
    name: str
    """The event type."""
    timestamp: float
    """When it happened, in Unix seconds."""
    data: Raw
    """The payload, a JSON object."""
    cursor: str | UnsetType = UNSET
    """The position after it, which may be kept; UNSET: it has none."""


def message_of(
    name: str, event: KeptEvent, cursor: str | UnsetType = UNSET, subscription: str | UnsetType = UNSET
) -> EventMessage:
    """Return the params for an event of a type."""
    return EventMessage(
        subscription=subscription,
        id=event.id,
        name=name,
        timestamp=event.timestamp,
        data=Raw(event.data),
        cursor=cursor,
    )
