"""Changes of lists and resources on their way to clients.

A change of a list concerns the callers who may see the entry that changed. This process evaluates the entry's own
`visible` for a caller; another replica evaluates that of its own entry of the same id, since a function cannot be sent.
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

NAMED: Final = 256
"""Entries that one event names at most: 16 KiB with names of usual length, of the log's one megabyte."""


class ChangeEvent(Struct, frozen=True):
    """A change of a list, or (`updated`) of the resource at `uri`."""

    kind: ChangeKind
    uri: str = ""
    entries: tuple[EntryId, ...] = ()
    """The entries that changed in a list, if only some callers may see them; empty: every caller is notified."""

    def parts(self) -> Iterator[ChangeEvent]:
        """Split it into events that name at most `NAMED` entries each."""
        yield ChangeEvent(self.kind, self.uri, self.entries[:NAMED])
        for start in range(NAMED, len(self.entries), NAMED):
            yield ChangeEvent(self.kind, self.uri, self.entries[start : start + NAMED])


class ChangeHub(Protocol):
    """The server's subscriptions: the part that sessions and replicas use."""

    def spread(self, tell: Callable[[ChangeEvent], None] | None) -> None:
        """Call `tell` with every local event from now on; None: stop that."""

    def take(self, event: ChangeEvent, number: int, *, own: bool) -> None:
        """Notify this process's subscribers of an event of any replica. `number`: the event's, 0 if events are not
        numbered; `own`: whether it began in this process."""

    def restore(self, peer: Any, session: SessionState) -> None:
        """Set the subscriptions of a session, made here or at another replica."""

    def leave(self, peer: Any) -> None:
        """Forget the subscriptions of a session that is over."""

    def written(self, event: ChangeEvent) -> bytes:
        """Encode an event as the notification for a session."""

    def concerns(self, event: ChangeEvent, peer: Any) -> bool:
        """Return whether this peer's session is to be notified of an event."""


class Changes:
    """Changes that are collected and sent together: each list and each resource once."""

    def __init__(self) -> None:
        self._changes: dict[tuple[ChangeKind, str], dict[int, tuple[EntryId, Visible]] | None] = {}
        """By kind and URI: None: every caller is notified. Otherwise one entry for each function that decides who may
        see it."""

    def add(
        self, kind: ChangeKind, uri: str = "", entry: EntryId | None = None, visible: Visible | None = None
    ) -> None:
        """Add a change. `visible`: decides who may see the `entry` that changed; None: every caller."""
        if entry is None or visible is None:
            self._changes[kind, uri] = None
        elif (some := self._changes.setdefault((kind, uri), {})) is not None:
            some[id(visible)] = entry, visible

    def events(self) -> Iterator[tuple[ChangeEvent, tuple[Visible, ...]]]:
        """Yield each change as an event, with the functions that decide who may see it; without one: every caller."""
        for (kind, uri), some in self._changes.items():
            those = () if some is None else tuple(some.values())
            yield ChangeEvent(kind, uri, tuple(entry for entry, _ in those)), tuple(visible for _, visible in those)


def sees(visible: Visible, caller: Caller) -> bool:
    """Return whether a caller may see an entry; False if `visible` raises."""
    try:
        return visible(caller)
    except Exception:
        repeats.error("the function visible= of an entry raised", exc_info=True)
        return False
