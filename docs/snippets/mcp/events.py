# [server]
from msgspec import Struct

from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events

events = Events()
app = Server("shop", version="1.0.0", extensions=[events])


@events.event("orders.shipped", filters=["carrier"])
class OrderShipped(Struct):
    """An order has left the house."""

    order: str
    carrier: str


@app.tool
async def ship(order: str, carrier: str) -> str:
    """Ship an order."""
    await events.emit(OrderShipped(order, carrier))
    return "shipped"


# [/server]
# [arguments]
class Heavier(Struct):
    than: float = 0.0


def is_heavier(arguments: Heavier, event: "ParcelWeighed") -> bool:
    return event.kilograms > arguments.than


@events.event(arguments=Heavier, match=is_heavier, modes=["poll", "push"], scopes="parcels")
class ParcelWeighed(Struct):
    """A parcel was weighed."""

    parcel: str
    kilograms: float


# [/arguments]
# [client]
import asyncio

import msgspec

from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventsClient


async def main() -> None:
    poll = {"name": "orders.shipped", "arguments": {"carrier": "DHL"}}
    async with Client(app, extensions=[EventsClient()]) as client:
        here = msgspec.json.decode(await client.request_raw("events/poll", poll))
        await client.call_tool("ship", {"order": "41", "carrier": "UPS"})
        await client.call_tool("ship", {"order": "42", "carrier": "DHL"})
        poll["cursor"] = here["cursor"]
        found = msgspec.json.decode(await client.request_raw("events/poll", poll))
        print(found["events"][0]["data"])  # {'order': '42', 'carrier': 'DHL'}


asyncio.run(main())
# [/client]
