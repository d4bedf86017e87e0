"""Errors that callers can tell apart, and a long call that says how far it is.

python examples/errors_and_progress.py
"""

import asyncio

from msgspec import Struct

from dragoman import Context, InvalidParams, RpcError, Service, connect, serve

shop = Service("shop", version="1.0.0")
stock = {"tea": 3}


class Shortage(Struct):
    item: str
    left: int


class OutOfStock(RpcError):
    "There is not enough of it."

    code = 1001
    message = "Out of stock"
    data: Shortage


@shop.method(errors=[OutOfStock])
async def order(item: str, count: int, context: Context) -> int:
    "Take `count` of `item`; the answer is how many are left."
    if stock[item] < count:
        raise OutOfStock(data=Shortage(item, stock[item]))
    for packed in range(count):
        await context.progress({"done": packed + 1, "total": count})
    stock[item] -= count
    return stock[item]


async def main() -> None:
    async with serve(shop, urls="memory:shop"), connect("memory:shop", errors=[OutOfStock]) as peer:
        left = await peer.call("order", ["tea", 2], on_progress=lambda value: print("packed", value["done"]))
        print("left", left)  # left 1
        try:
            await peer.call("order", ["tea", 2])
        except OutOfStock as error:
            print(error.message, error.data)  # Out of stock Shortage(item='tea', left=1)
        try:
            await peer.call("order", {"item": 5, "count": "many"})
        except InvalidParams as error:
            for fault in error.data["errors"]:
                print(fault["field"], "-", fault["message"])


if __name__ == "__main__":
    asyncio.run(main())
