# [service]
import asyncio

from msgspec import Struct

from dragoman import EventPublisher, Service, connect, serve

events = EventPublisher()
api = Service("shop", events=events)


@events.event("orders.shipped", filters=["carrier"])
class OrderShipped(Struct):
    """An order has left the house."""

    order: str
    carrier: str


@api.method
async def ship(order: str, carrier: str) -> str:
    await events.emit(OrderShipped(order, carrier))
    return "shipped"


# [/service]
# [caller]
async def main() -> None:
    async with serve(api, urls="tcp://127.0.0.1:0") as serving, connect(serving.urls[0]) as peer:
        async with peer.subscribe("orders.shipped", {"carrier": "DHL"}, result=OrderShipped) as shipped:
            await peer.call("ship", ["41", "UPS"])
            await peer.call("ship", ["42", "DHL"])
            async for event in shipped:
                print(event.data)  # OrderShipped(order='42', carrier='DHL')
                break


asyncio.run(main())
# [/caller]

# [forward]
TOPIC = "memory+broker:shipped"  # in earnest amqp://host/shipped, mqtt://host/shipped, redis://host/shipped
taker = Service("warehouse")
taken = asyncio.Event()


@taker.method("events.event")
async def take(id: str, name: str, timestamp: float, data: OrderShipped) -> None:
    """Take an event from the topic: at least once, recognised by its id."""
    print(name, data.order)  # orders.shipped 42
    taken.set()


async def forward() -> None:
    events = EventPublisher(forward=TOPIC)
    events.event("orders.shipped")(OrderShipped)
    async with serve(taker, urls=TOPIC), serve(Service("shop", events=events), urls="tcp://127.0.0.1:0"):
        await events.emit(OrderShipped("42", "DHL"))
        await taken.wait()


asyncio.run(forward())
# [/forward]
