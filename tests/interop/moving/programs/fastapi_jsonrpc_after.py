# [program]
from typing import Annotated

from msgspec import Meta, Struct

from dragoman import Context, Depends, RpcError, Service

stock = {"tea": 3, "rice": 0}


class Left(Struct):
    left: int


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"
    data: Left


class Order(Struct):
    item: str
    amount: Annotated[int, Meta(ge=1)] = 1


def user(context: Context) -> str:
    return context.headers.get("x-user", "no one")


api = Service("shop")


@api.method
async def count(item: str) -> int:
    return stock[item]


@api.method(errors=[OutOfStock])
async def take(order: Order, who: Annotated[str, Depends(user, inline=True)]) -> str:
    if stock[order.item] < order.amount:
        raise OutOfStock(data=Left(stock[order.item]))
    stock[order.item] -= order.amount
    return f"{order.amount} {order.item} for {who}"


if __name__ == "__main__":
    api.run("http://127.0.0.1:5000/rpc")
# [/program]
