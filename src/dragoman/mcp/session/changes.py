"""What changed, and whom it concerns: changes of lists and resources on their way to those who are told.

A change of a list concerns the callers who may see the entry that changed. This process asks what the entry itself says
of a caller; another replica asks its own entry of that id, since a function cannot be sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ...channel import Caller
from ...repeats import Repeats

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

Kind: TypeAlias = Literal["tools", "prompts", "resources", "updated"]
EntryId: TypeAlias = tuple[str, str, str]
"""An entry: its kind, its name or URI, its version."""
Visible: TypeAlias = Callable[[Caller], bool]

NAMED: Final = 256
"""Entries that one event names: 16 KiB with names of the usual length, of the megabyte that the log of events keeps."""


class Event(Struct, frozen=True):
    """A change of a list, or (`updated`) of the resource at `uri`."""

    kind: Kind
    uri: str = ""
    entries: tuple[EntryId, ...] = ()
    """What changed in a list, where not every caller may see it; none: every caller is told."""

    def parts(self) -> Iterator[Event]:
        """The same as events that name no more entries than one may."""
        yield Event(self.kind, self.uri, self.entries[:NAMED])
        for start in range(NAMED, len(self.entries), NAMED):
            yield Event(self.kind, self.uri, self.entries[start : start + NAMED])


class Changes:
    """Changes that are told together: each list and each resource once."""

    def __init__(self) -> None:
        self._of: dict[tuple[Kind, str], dict[int, tuple[EntryId, Visible]] | None] = {}
        """None: for every caller. Otherwise one entry for each function that says who may see it."""

    def add(self, kind: Kind, uri: str = "", entry: EntryId | None = None, visible: Visible | None = None) -> None:
        """Have one more. `visible`: who may see the `entry` that changed; None: every caller."""
        if entry is None or visible is None:
            self._of[kind, uri] = None
        elif (some := self._of.setdefault((kind, uri), {})) is not None:
            some[id(visible)] = entry, visible

    def told(self) -> Iterator[tuple[Event, tuple[Visible, ...]]]:
        """Each as an event, with what says who may see it; nothing: every caller."""
        for (kind, uri), some in self._of.items():
            those = () if some is None else tuple(some.values())
            yield Event(kind, uri, tuple(entry for entry, _ in those)), tuple(visible for _, visible in those)


def sees(visible: Visible, caller: Caller) -> bool:
    """Whether this says that a caller may see an entry; no, if it raises."""
    try:
        return visible(caller)
    except Exception:
        repeats.error("what says whether an entry is visible raised", exc_info=True)
        return False
