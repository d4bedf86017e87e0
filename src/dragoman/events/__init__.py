"""Events: things that happen while nobody asks. An `EventPublisher` has the types of events, keeps the events that are
emitted, and hands them to those who deliver them: `rpc.service_events` to peers of a service, `mcp.extensions.events`
to clients of MCP.

`catalog` has event types, `outbox` keeps events in a file or in memory, `limits` has the bounds, `board` is what an
operator may see and do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .clock import Clock
    from .limits import EventLimits
    from .publisher import EventPublisher
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "clock": "Clock",
            "limits": "EventLimits",
            "publisher": "EventPublisher",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "Clock",
    "EventLimits",
    "EventPublisher",
]
