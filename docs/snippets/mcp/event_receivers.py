from msgspec import Struct

from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events


class OrderShipped(Struct):
    """An order has left the house."""

    order: int
    carrier: str


shop = Events(allow_private=["127.0.0.1/32"])
shop.event("orders.shipped", filters=["carrier"])(OrderShipped)
app = Server("shop", extensions=[shop])
# [listen]
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventsClient


async def follow() -> None:
    events = EventsClient()
    async with Client(app, extensions=[events]):  # or a URL
        async with events.listen("orders.shipped", {"carrier": "DHL"}) as shipped:
            async for event in shipped:
                print(event.data["order"])  # 7
                break


# [/listen]
# [receiver]
import asyncio

from dragoman import Service, serve
from dragoman.mcp.extensions.events import EventReceiver, ReceivedEvent

hooks = Service("hooks")
handled = asyncio.Event()


async def handle(event: ReceivedEvent) -> None:
    print(event.read(OrderShipped))  # OrderShipped(order=8, carrier='DHL')
    handled.set()  # when this function returns, the server is told that you have the event: keep it before


receiver = EventReceiver(handle)
receiver.mount(hooks, "/hooks/orders")


# [/receiver]
# [subscribe]
async def receive() -> None:
    events = EventsClient()
    async with serve(hooks, urls="http://127.0.0.1:0/rpc") as serving, Client(app, extensions=[events]):
        url = serving.urls[0].replace("/rpc", "/hooks/orders")  # https://hooks.example.org/hooks/orders
        async with await events.subscribe("orders.shipped", {"carrier": "DHL"}, url=url, receiver=receiver):
            await shop.emit(OrderShipped(8, "DHL"))  # this the server does
            await handled.wait()


# [/subscribe]


async def ship() -> None:
    while True:
        await asyncio.sleep(0.05)
        await shop.emit(OrderShipped(7, "DHL"))


async def main() -> None:
    shipping = asyncio.create_task(ship())
    await follow()
    shipping.cancel()
    await receive()


asyncio.run(main())
