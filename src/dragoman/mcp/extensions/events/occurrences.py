"""Makes an event, as it is kept, what clients get of it."""

from __future__ import annotations

from msgspec import UNSET, Raw

from ....events.outbox import KeptEvent
from ...protocol.times import to_iso
from .model import Cursor, EventOccurrence


def occurrence_of(name: str, event: KeptEvent, cursor: Cursor = UNSET) -> EventOccurrence:
    """Return an event of a type as clients get it. `cursor`: the position after it."""
    return EventOccurrence(
        event_id=event.id, name=name, timestamp=to_iso(event.timestamp), data=Raw(event.data), cursor=cursor
    )
