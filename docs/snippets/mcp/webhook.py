# [server]
from msgspec import Struct

from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events

events = Events(allow_private=["127.0.0.1/32"])  # webhooks may be on this machine
app = Server("shop", extensions=[events])


@events.event("orders.shipped")
class OrderShipped(Struct):
    "An order has left the house."

    order: str


@app.tool
async def ship(order: str) -> str:
    "Ship an order."
    await events.emit(OrderShipped(order))
    return "shipped"


# [/server]
# [receiver]
import asyncio

from dragoman import Service, serve
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventReceiver, EventsClient, ReceivedEvent

received = asyncio.Event()


async def handle(event: ReceivedEvent) -> None:
    print(event.name, event.data)  # orders.shipped {'order': '42'}
    received.set()


async def main() -> None:
    hooks, receiver, follower = Service("hooks"), EventReceiver(handle), EventsClient()
    receiver.mount(hooks, "/hooks/orders")
    url = "http://127.0.0.1:8001/hooks/orders"
    async with serve(hooks, urls="http://127.0.0.1:8001/rpc"), Client(app, extensions=[follower]) as client:
        async with await follower.subscribe("orders.shipped", url=url, receiver=receiver):
            await client.call_tool("ship", {"order": "42"})
            await received.wait()


asyncio.run(main())
# [/receiver]
