"""The bounds of events, each with its reason. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError
from ..jsonrpc.options import TIME, check_struct, rules_of, whole

EVENT_SIZE: Final = 256 * 1024
"""Bytes of the body of a webhook at most: receivers may refuse more by 413."""


class EventLimits(Struct, frozen=True, kw_only=True):
    """The bounds of one `EventPublisher`, and of those who deliver its events. Raises LocalError for a value that makes
    no sense."""

    event_size: int = EVENT_SIZE
    """Bytes of an event as it is sent, at most: receivers of webhooks may refuse more (SEP-3415, Delivery profile)."""
    events: int = 10_000
    """Events of a type that are kept for clients that come back, and for receivers that are away."""
    events_size: int = 64 * 1024 * 1024
    """Bytes of those."""
    events_age: float = 86_400.0
    """Seconds for which they are kept: a client that refreshes its subscription once a day finds all of them."""
    file_size: int = 2 * 1024 * 1024 * 1024
    """Bytes of the file, or of the memory, in which everything is kept."""
    subscriptions: int = 10_000
    """Subscriptions of webhooks in all: each event of a type is compared with those to it."""
    subscriptions_each: int = 100
    """Those of one account, lest one caller takes the place of all."""
    arguments_size: int = 16 * 1024
    """Bytes of the arguments of a subscription, which are kept and compared with each event."""
    ttl_least: float = 60.0
    """Seconds that a subscription lives at least: clients that refresh theirs more often cost more than they tell."""
    ttl_most: float = 86_400.0
    """Seconds that it lives at most without a refresh: what its client has forgotten is posted no longer."""
    verified: float = 86_400.0
    """Seconds for which a receiver that has proved itself to a caller is not asked again: a storm of refreshes is no
    storm of challenges."""
    verifications: int = 10
    """Challenges to one host in a minute: nobody shall flood another's host by subscribing its URLs."""
    verifications_each: int = 60
    """Challenges that one account may cause in a minute: nobody shall look through us which ports are open."""
    streams: int = 10_000
    """Streams, and polls that wait, in all: they do not count among the calls in flight."""
    streams_each: int = 64
    """Those of one account or address; as many as a channel may have subscriptions of the protocol's own."""
    poll_events: int = 100
    """Events of one poll."""
    poll_size: int = 1024 * 1024
    """Bytes of those, unless the first alone has more."""
    poll_wait: float = 25.0
    """Seconds that a poll may wait: proxies give up after 30."""
    connections: int = 64
    """Connections to receivers at once. Those that failed before have half of them at most, so that however many are
    away, the others are served."""
    connections_each: int = 4
    """Those to one receiver, so that it is not flooded; one while it fails."""
    answer_time: float = 10.0
    """Seconds that a receiver may take, from the look-up of its name to its answer."""
    answer_size: int = 16 * 1024
    """Bytes of an answer that are read: it has to repeat a challenge, and nothing more."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)
        if self.events_size < self.event_size or self.ttl_most < self.ttl_least:
            raise LocalError("EventLimits: events_size is at least event_size, and ttl_most at least ttl_least")


_TIMES = ("events_age", "ttl_least", "ttl_most", "verified", "poll_wait", "answer_time")
_RULES = rules_of(EventLimits, event_size=whole(1024), **dict.fromkeys(_TIMES, TIME))
