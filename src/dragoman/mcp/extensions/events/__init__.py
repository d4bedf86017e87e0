"""MCP Events (SEP-3415, `io.modelcontextprotocol/events`): clients learn that something has happened on a server, by
polling, on a stream, or by a signed webhook.

`model` has the messages, `signing` signs webhooks. The server's half is `Events`, an extension: `catalog` has its event
types, `outbox` keeps events and subscriptions, `delivery` posts them by a `sender`. The client's half is
`EventsClient`, an extension, too: `listening` follows events, `subscribing` keeps webhook subscriptions, `receiver`
answers webhooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....doors import door

if TYPE_CHECKING:
    from ....events.clock import Clock
    from ....events.limits import EventLimits
    from .client import EventsClient
    from .listening import Listening
    from .received import ReceivedEnd, ReceivedEvent, ReceivedGap
    from .receiver import EventReceiver, Registration, SeenStore
    from .server import Events
    from .signing import InvalidSignature, new_secret, sign_headers, verify
    from .subscribing import WebhookSubscription
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "client": "EventsClient",
            "...events.clock": "Clock",
            "...events.limits": "EventLimits",
            "listening": "Listening",
            "received": "ReceivedEnd ReceivedEvent ReceivedGap",
            "receiver": "EventReceiver Registration SeenStore",
            "server": "Events",
            "signing": "InvalidSignature new_secret sign_headers verify",
            "subscribing": "WebhookSubscription",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "Clock",
    "EventLimits",
    "EventReceiver",
    "Events",
    "EventsClient",
    "InvalidSignature",
    "Listening",
    "ReceivedEnd",
    "ReceivedEvent",
    "ReceivedGap",
    "Registration",
    "SeenStore",
    "WebhookSubscription",
    "new_secret",
    "sign_headers",
    "verify",
]
