"""Changes of lists and resources, and notifications of topics, on their way to clients.

A change of a list concerns the callers who may see the entry that changed. This process evaluates the entry's own
`visible` for a caller; another replica evaluates that of its own entry of the same id, since a function cannot be sent.

A notification of a topic has content, so it is not merged with others. Those who were granted its key get it.
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
"""A list that changed, or "updated": a resource did."""
EntryId: TypeAlias = tuple[str, str, str]
"""An entry: its kind, its name or URI, its version."""
Visible: TypeAlias = Callable[[Caller], bool]
"""Returns whether a caller may see an entry."""

QUEUED: Final = 16 * 1024 * 1024
"""Bytes of topics' notifications that wait for the loop's next turn at most, because threads may notify while the loop
is held up; further ones are dropped."""
_OVERHEAD: Final = 256
"""Bytes that a topic's notification takes in memory beside its texts, about."""
NAMED: Final = 256
"""Entries that one event names at most: 16 KiB with names of usual length, of the log's one megabyte."""


class ChangeEvent(Struct, frozen=True):
    """A change of a list, or (`updated`) of the resource at `uri`."""

    kind: ChangeKind
    uri: str = ""
    entries: tuple[EntryId, ...] = ()
    """The entries that changed in a list, if only some callers may see them; empty: notify every caller."""

    @property
    def bare(self) -> ChangeEvent:
        """The event without its entries, as this process's subscribers get it."""
        return ChangeEvent(self.kind, self.uri)

    def parts(self) -> Iterator[ChangeEvent]:
        """Yield it as events that name at most `NAMED` entries each."""
        yield ChangeEvent(self.kind, self.uri, self.entries[:NAMED])
        for start in range(NAMED, len(self.entries), NAMED):
            yield ChangeEvent(self.kind, self.uri, self.entries[start : start + NAMED])


class TopicEvent(Struct, frozen=True, eq=False):
    """A notification for those who were granted a key of a topic. It equals no other event, so none is merged."""

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
"""What subscribers are notified of."""


class ChangeHub(Protocol):
    """The server's subscriptions: the part that sessions and replicas use."""

    dropped: int
    """Notifications that were dropped."""

    def spread(self, tell: Callable[[HubEvent], None] | None) -> None:
        """Call `tell` with every event of this process from now on; None: stop that."""

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
    """Events that are collected and sent together, in order: one for each list or resource that changed, and every
    notification of a topic."""

    def __init__(self) -> None:
        self._changes: dict[tuple[ChangeKind, str] | TopicEvent, dict[int, tuple[EntryId, Visible]] | None] = {}
        """By kind and URI, or by a topic's event. None: every caller is notified; otherwise, by the `id` of each
        function that decides who may see what changed, an entry and the function."""
        self._size = 0
        """Bytes of the topics' events."""

    def add(
        self, kind: ChangeKind, uri: str = "", entry: EntryId | None = None, visible: Visible | None = None
    ) -> None:
        """Add a change. `visible`: decides who may see the `entry` that changed; None: every caller."""
        if entry is None or visible is None:
            self._changes[kind, uri] = None
        elif (by_function := self._changes.setdefault((kind, uri), {})) is not None:
            by_function[id(visible)] = entry, visible

    def add_topic_event(self, event: TopicEvent) -> bool:
        """Add a notification of a topic, and return True; return False if more than `QUEUED` bytes would wait."""
        if self._size + event.size > QUEUED:
            return False
        self._size += event.size
        self._changes[event] = None
        return True

    def events(self) -> Iterator[tuple[HubEvent, tuple[Visible, ...]]]:
        """Yield each event, with functions of which one must accept a caller that is notified; without functions every
        caller is."""
        for about, by_function in self._changes.items():
            if isinstance(about, TopicEvent):
                yield about, ()
                continue
            kind, uri = about
            those = () if by_function is None else tuple(by_function.values())
            yield ChangeEvent(kind, uri, tuple(entry for entry, _ in those)), tuple(visible for _, visible in those)


def sees(visible: Visible, caller: Caller) -> bool:
    """Return whether a caller may see an entry; False if `visible` raises."""
    try:
        return visible(caller)
    except Exception:
        repeats.error("the function visible= of an entry raised", exc_info=True)
        return False
