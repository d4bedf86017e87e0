"""Changes of lists and resources, and notifications of topics, on their way to clients.

A change of a list concerns the callers who may see the entry that changed. This process evaluates the entry's own
`visible` for a caller; another replica evaluates that of its own entry of the same id, since a function cannot be sent.

A notification of a topic has content: it is not merged with others. Who gets it is decided by its key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from ...channel import Caller
from ...repeats import Repeats
from ..protocol.admission import SessionState

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated"]
EntryId: TypeAlias = tuple[str, str, str]
"""An entry: its kind, its name or URI, its version."""
Visible: TypeAlias = Callable[[Caller], bool]

QUEUED: Final = 16 * 1024 * 1024
"""Bytes of topics' notifications that wait for the loop's next turn at most: threads may notify while the loop is held
up. Further ones are dropped."""
_OVERHEAD: Final = 256
"""Bytes that a topic's notification takes beside its texts."""
NAMED: Final = 256
"""Entries that one event names at most: 16 KiB with names of usual length, of the log's one megabyte."""


class ChangeEvent(Struct, frozen=True):
    """A change of a list, or (`updated`) of the resource at `uri`."""

    kind: ChangeKind
    uri: str = ""
    entries: tuple[EntryId, ...] = ()
    """The entries that changed in a list, if only some callers may see them; empty: every caller is notified."""

    @property
    def bare(self) -> ChangeEvent:
        """The event without its entries, as one of this process's subscribers gets it."""
        return ChangeEvent(self.kind, self.uri)

    def parts(self) -> Iterator[ChangeEvent]:
        """Split it into events that name at most `NAMED` entries each."""
        yield ChangeEvent(self.kind, self.uri, self.entries[:NAMED])
        for start in range(NAMED, len(self.entries), NAMED):
            yield ChangeEvent(self.kind, self.uri, self.entries[start : start + NAMED])


class TopicEvent(Struct, frozen=True, eq=False):
    """A notification of those who were granted the key of a topic. It equals no other, so each is sent."""

    topic: str
    key: str
    params: bytes
    """The params as JSON, an object."""

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, about."""
        return len(self.topic) + len(self.key) + len(self.params) + _OVERHEAD

    @property
    def bare(self) -> TopicEvent:
        """The event itself."""
        return self

    def parts(self) -> Iterator[TopicEvent]:
        """Yield the event itself."""
        yield self


HubEvent: TypeAlias = ChangeEvent | TopicEvent


class ChangeHub(Protocol):
    """The server's subscriptions: the part that sessions and replicas use."""

    dropped: int
    """Notifications that were dropped."""

    def spread(self, tell: Callable[[HubEvent], None] | None) -> None:
        """Call `tell` with every local event from now on; None: stop that."""

    def take(self, event: HubEvent, number: int, *, own: bool) -> None:
        """Notify this process's subscribers of an event of any replica. `number`: the event's, 0 if events are not
        numbered; `own`: whether it began in this process."""

    def restore(self, peer: Any, session: SessionState) -> None:
        """Set the subscriptions of a session, made here or at another replica."""

    def leave(self, peer: Any) -> None:
        """Forget the subscriptions of a session that is over."""

    def written(self, event: HubEvent) -> bytes:
        """Encode an event as the notification for a session."""

    async def keys_known(self, peer: Any) -> None:
        """Wait until it is known which keys of topics a session is granted."""

    def concerns(self, event: HubEvent, peer: Any) -> bool:
        """Return whether this peer's session is to be notified of an event."""


class Changes:
    """Events that are collected and sent together, in order: the change of each list and each resource once, each
    notification of a topic."""

    def __init__(self) -> None:
        self._changes: dict[tuple[ChangeKind, str] | TopicEvent, dict[int, tuple[EntryId, Visible]] | None] = {}
        """By kind and URI: None: every caller is notified. Otherwise one entry for each function that decides who may
        see it."""
        self._size = 0

    def add(
        self, kind: ChangeKind, uri: str = "", entry: EntryId | None = None, visible: Visible | None = None
    ) -> None:
        """Add a change. `visible`: decides who may see the `entry` that changed; None: every caller."""
        if entry is None or visible is None:
            self._changes[kind, uri] = None
        elif (some := self._changes.setdefault((kind, uri), {})) is not None:
            some[id(visible)] = entry, visible

    def add_topic_event(self, event: TopicEvent) -> bool:
        """Add a notification of a topic; False: there are too many (`QUEUED`)."""
        if self._size + event.size > QUEUED:
            return False
        self._size += event.size
        self._changes[event] = None
        return True

    def events(self) -> Iterator[tuple[HubEvent, tuple[Visible, ...]]]:
        """Yield each as an event, with the functions that decide who may see it; without one: every caller."""
        for about, some in self._changes.items():
            if isinstance(about, TopicEvent):
                yield about, ()
                continue
            kind, uri = about
            those = () if some is None else tuple(some.values())
            yield ChangeEvent(kind, uri, tuple(entry for entry, _ in those)), tuple(visible for _, visible in those)


def sees(visible: Visible, caller: Caller) -> bool:
    """Return whether a caller may see an entry; False if `visible` raises."""
    try:
        return visible(caller)
    except Exception:
        repeats.error("the function visible= of an entry raised", exc_info=True)
        return False
