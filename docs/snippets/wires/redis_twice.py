# [twice]
import asyncio

from dragoman import Context, Service, connect, serve

orders = Service("orders")
URL = "redis://127.0.0.1:6379/orders"


@orders.method
async def place(item: str, context: Context) -> str:
    if context.redelivered:  # a worker had this order before, and may have done it
        return f"{item}: looked up first"
    return f"{item}: placed"


async def main() -> None:
    async with serve(orders, urls=URL, bus="redis://127.0.0.1:6379"):  # workers share their recent answers
        async with connect(URL) as peer:
            print(await peer.call("place", ["lamp"]))  # lamp: placed


asyncio.run(main())
# [/twice]
