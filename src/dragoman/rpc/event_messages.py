"""What is sent of the events of a service (docs/events.md).

`events.subscribe` is a call that lasts as long as the subscription: it is answered at its end, and cancelled to end it.
Ahead of the answer come notifications: `events.active` first, then `events.event` for each event (`events.messages`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

SUBSCRIBE: Final = "events.subscribe"
LIST: Final = "events.list"
ACTIVE: Final = "events.active"
"""The notification that a subscription lives: at its begin, after events that were skipped, and otherwise every
`HEARTBEAT` seconds."""
HEARTBEAT: Final = 25.0
"""Seconds between two notifications of a subscription at most."""

SubscriptionId: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=32, pattern="^[!-~]*$", description="A name, repeated in each notification.")
]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]


class ActiveMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The params of `events.active`."""

    subscription: str
    """The id of the subscription."""
    cursor: str
    """The position up to which nothing is still to be sent."""
    truncated: bool = False
    """Whether events before that were skipped, because they are not kept any more."""


class ListedEvent(Struct, frozen=True, kw_only=True):
    """An event type, as `events.list` describes it."""

    name: str
    description: str
    arguments: dict[str, Any]
    """The JSON Schema of the arguments of a subscription."""
    data: dict[str, Any]
    """The JSON Schema of the payload of its events."""
