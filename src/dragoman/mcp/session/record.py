"""A session in the store: a log of its changes, from `initialize` on. Pure.

Rules:

- It begins with a `Snapshot`, its state at that time; each `Delta` is a change since. Replicas append without
  coordination, and every reader comes to the same state.
- Before the snapshot is removed from the bounded log, a replica appends a new `Snapshot`, which includes the changes up
  to a given number.
- A log without a `Snapshot` is not a session: a late change was appended after its end. An entry that cannot be read is
  ignored.
- `known` is the number of the last change of lists and resources at that time: up to it, changes do not concern the
  session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from ...bus.contract import reader
from ..protocol.admission import SessionState
from ..protocol.revisions import REVISIONS
from ..protocol.types import ClientCapabilities, Implementation

MESSAGES = 256
"""Entries that the log keeps."""
SIZE = 32 * 1024 * 1024
"""Bytes that the log keeps."""
ANEW = 64
"""Entries after which a new `Snapshot` is appended."""


class Snapshot(Struct, tag="whole", omit_defaults=True):
    """The whole state after the entry number `upto`."""

    revision: str
    client: Implementation
    capabilities: ClientCapabilities
    principal: str | None = None
    log_level: str | None = None
    uris: dict[str, int] = field(default_factory=dict)
    """The subscribed resources, each with the `known` of its subscription."""
    initialized: int | None = None
    """`known` when the client was initialized; None: it is not."""
    upto: int = 0
    """The number of the last entry that is included; 0: none before it."""


class Delta(Struct, tag="change", omit_defaults=True):
    """A change; unchanged members are empty."""

    log_level: str | None = None
    subscribed: list[str] = field(default_factory=list)
    unsubscribed: list[str] = field(default_factory=list)
    initialized: bool = False
    known: int = 0

    def __bool__(self) -> bool:
        return self.log_level is not None or bool(self.subscribed) or bool(self.unsubscribed) or self.initialized


RecordEntry: TypeAlias = Snapshot | Delta

_decoded: Callable[[bytes], RecordEntry] = msgspec.json.Decoder(RecordEntry).decode
_read = reader(_decoded, "records of sessions")
encode_entry: Callable[[RecordEntry], bytes] = msgspec.json.Encoder().encode
"""An entry in the form of the log."""


class SessionRecord:
    """One replica's copy of a session's record. `number`: that of the last entry in it."""

    __slots__ = ("number", "whole")

    def __init__(self, whole: Snapshot, number: int) -> None:
        self.whole: Snapshot = whole
        self.number: int = number

    def change(self, change: Delta) -> None:
        """Apply a change."""
        whole = self.whole
        if change.log_level is not None:
            whole.log_level = change.log_level
        for uri in change.subscribed:
            whole.uris.setdefault(uri, change.known)
        for uri in change.unsubscribed:
            whole.uris.pop(uri, None)
        if change.initialized and whole.initialized is None:
            whole.initialized = change.known

    def take(self, entries: Sequence[tuple[int, bytes]]) -> bool:
        """Apply entries that were read from `number - 1` on; return False if some are missing in between: then the
        whole log has to be read."""
        if not entries or entries[0][0] > self.number + 1:
            return False
        for number, raw in entries:
            if number > self.number:
                self.number = number
                entry = _read(raw)
                if isinstance(entry, Delta):
                    self.change(entry)
        return True

    def changed(self, session: SessionState) -> Delta:
        """Return the changes of a session that are not in the record yet."""
        whole = self.whole
        change = Delta()
        if session.log_level != whole.log_level:
            change.log_level = session.log_level
        known = whole.uris.keys()
        if session.subscriptions != known:
            change.subscribed = [uri for uri in session.subscriptions if uri not in known]
            change.unsubscribed = [uri for uri in known if uri not in session.subscriptions]
        return change


def first_snapshot(session: SessionState) -> Snapshot:
    """Return the first entry of a new session."""
    return Snapshot(session.revision.date, session.client, session.capabilities, session.principal)


def read_record(entries: Sequence[tuple[int, bytes]]) -> SessionRecord | None:
    """Return the record of a whole log; None if that is not a session."""
    read = [(number, _read(raw)) for number, raw in entries]
    wholes = [(number, one) for number, one in read if isinstance(one, Snapshot)]
    if not wholes or wholes[-1][1].revision not in REVISIONS:
        return None
    at, whole = wholes[-1]
    found = SessionRecord(whole, read[-1][0])
    upto = whole.upto or at
    for number, one in read:
        if number > upto and isinstance(one, Delta):
            found.change(one)
    return found


def session_state(whole: Snapshot) -> SessionState:
    """Return the state of a session from its record."""
    return SessionState(
        REVISIONS[whole.revision],
        whole.client,
        whole.capabilities,
        whole.log_level,
        set(whole.uris),
        whole.initialized is not None,
        whole.principal,
    )
