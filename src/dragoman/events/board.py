"""What the operator of a server may see of the subscriptions to its events, and do with them.

Whoever implements an `EventBoard` leaves out what nobody may see: secrets, and URLs, which may hold some.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

SubscriptionState: TypeAlias = Literal["active", "retrying", "resting"]
"""Whether its receiver has accepted everything so far, the event that it did not accept is tried again at a time, or
nothing is tried until its client comes back."""


class EventSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription whose events are posted to a receiver. Times are Unix seconds."""

    id: str
    """With several processes "KEY:ID" in the console."""
    name: str
    """The event type."""
    server: str
    receiver: str
    """Scheme, host and port of its URL."""
    principal: str
    """The subject of its caller's identity."""
    issuer: str = ""
    """Who says so, where that is known."""
    state: SubscriptionState
    position: int
    """The number of the last event of the type that is settled."""
    behind: int
    """Events of the type after that, whether or not it gets them."""
    attempts: int = 0
    """How often the event after the position was sent in vain."""
    due: float | None = None
    """When that is sent next; None where it is not `retrying`."""
    refusal: str = ""
    """Why the last attempt that failed did."""
    refused: float | None = None
    """Since when the receiver has accepted nothing; None: it accepted the last one."""
    delivered: float | None = None
    """When the receiver last accepted an event."""
    expires: float
    """When it ends unless its client refreshes it."""
    arguments: str = ""
    """What chooses among the events, as JSON text."""
    store: str
    """Which store keeps it."""
    here: bool = False
    """Whether the process that lists it delivers its events."""
    worker: str = ""
    """The key of the process that delivers its events, if that answers; "": there is only one."""


class KeptSubscriptions(Struct, frozen=True, kw_only=True):
    """How many subscriptions a store keeps, and how many of those are in trouble."""

    subscriptions: int = 0
    retrying: int = 0
    resting: int = 0


class EventCounts(Struct, frozen=True, kw_only=True):
    """What a process has done since it serves, and the streams that are open there."""

    emitted: int = 0
    delivered: int = 0
    failed: int = 0
    """Attempts to deliver."""
    abandoned: int = 0
    """Events that were given up for a subscription."""
    streams: int = 0


class SubscriptionPage(Struct, frozen=True, kw_only=True):
    """Subscriptions in the order of their types and ids. `more`: whether others follow."""

    subscriptions: list[EventSubscription]
    more: bool
    kept: KeptSubscriptions


@runtime_checkable
class EventBoard(Protocol):
    """The subscriptions to the events of one server, of all its callers. Every method raises StoreLost while their
    store is away, or full."""

    server: str
    """The server's name."""
    store: str
    """Which store keeps them, as in `EventSubscription.store`."""

    def list_subscriptions(
        self, state: SubscriptionState | None, words: list[str], after: tuple[str, str], limit: int
    ) -> SubscriptionPage:
        """Return subscriptions in this state (None: any), whose id, type, receiver and caller together hold all words:
        those that follow this type and id."""

    def find_subscription(self, id: str) -> EventSubscription | None:
        """Return a subscription; None where there is none."""

    async def end_subscription(self, id: str) -> bool:
        """End a subscription, and tell its receiver so where that knows how; False if there is none."""

    async def retry_subscription(self, id: str) -> bool:
        """Try the event that the receiver did not accept again at once, also where nothing is tried any more; False if
        there is no such event."""

    def count_events(self) -> EventCounts:
        """Return what this process has done."""
