"""A server whose events are posted to receivers that accept them, that fail, and that are away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from dragoman.channel import Caller, Identity
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events.model import NAME
from dragoman.mcp.protocol.revisions import R2026_07
from tests.mcp.calling import Calls, calling
from tests.mcp.extensions.events.receiving import LOOPBACK, SECRET, Posted, Receiver, echo, reply, settle

LIMITS = EventLimits(verifications=1_000, verifications_each=1_000)


class Shipments:
    """The server, with two event types."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"allow_private": LOOPBACK, "limits": LIMITS} | options
        self.events = events = Events(**given)
        self.app = Server("shop", version="1", extensions=[events])

        @events.event("orders.shipped", filters=["carrier", "token"])
        class Shipped(Struct):
            "An order has left the house."

            order: str
            carrier: str = "DHL"
            token: str = ""

        @events.event("orders.returned")
        class Returned(Struct):
            "An order has come back."

            order: str

        self._shipped, self._returned = Shipped, Returned

    async def ship(self, *orders: str) -> None:
        """Emit an event for each of these orders."""
        for order in orders:
            await self.events.emit(self._shipped(order))

    async def give_back(self, order: str) -> None:
        """Emit an event of the other type."""
        await self.events.emit(self._returned(order))

    async def until_delivered(self, times: int) -> None:
        """Wait until so many events were accepted."""
        await settle(lambda: self.events.measures()["event_deliveries_total"] >= times)


@asynccontextmanager
async def subscriber(shipments: Shipments, who: str, *, declared: bool = True) -> AsyncIterator[Calls]:
    """A client that subscribes. `declared`: it speaks the profile of the SEP."""
    caller = Caller(identity=Identity(subject=who, issuer="https://id.example.org"))
    async with calling(shipments.app, R2026_07, caller, extensions={NAME: {}} if declared else {}) as calls:
        yield calls


async def subscribe(
    calls: Calls, receiver: Receiver, name: str = "orders.shipped", path: str = "", **arguments: Any
) -> str:
    """Subscribe; the id."""
    delivery = {"mode": "webhook", "url": f"{receiver.url}{path}", "secret": SECRET}
    found = await calls.unchecked("events/subscribe", name=name, arguments=arguments, delivery=delivery)
    return str(found["result"]["id"])


def failing(statuses: Sequence[int] = (503,)) -> Any:
    """Return the challenge, and answer events by these statuses, one after the other, the last for ever."""
    left = list(statuses)

    def behave(posted: Posted) -> bytes:
        return echo(posted) if posted.is_verification else reply(left.pop(0) if len(left) > 1 else left[0])

    return behave
