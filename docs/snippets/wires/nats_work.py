# [work]
import asyncio

from dragoman import Context, Service, connect, serve

orders = Service("orders")
URL = "nats://127.0.0.1:4222/orders?stream=work"


@orders.method
async def place(item: str, context: Context) -> str:
    if context.redelivered:  # a worker may have had this order before, and done it
        return f"{item}: looked up first"
    return f"{item}: placed"


async def main() -> None:
    async with serve(orders, urls=URL, bus="nats://127.0.0.1:4222"):  # workers share their recent answers
        async with connect(URL) as peer:
            print(await peer.call("place", ["lamp"]))  # lamp: placed


asyncio.run(main())
# [/work]
