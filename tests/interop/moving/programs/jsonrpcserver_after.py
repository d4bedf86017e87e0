# [program]
from typing import Annotated

from msgspec import Meta

from dragoman import RpcError, Service

stock = {"tea": 3, "rice": 0}
api = Service("shop")


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"


@api.method(inline=True)
def count(item: str) -> int:
    return stock[item]


@api.method(inline=True)
def take(item: str, amount: Annotated[int, Meta(ge=1)] = 1) -> str:
    if stock[item] < amount:
        raise OutOfStock(data={"left": stock[item]})
    stock[item] -= amount
    return f"{amount} {item}"


@api.method("reports.low", inline=True)
def low(below: int) -> list[str]:
    return [item for item, left in stock.items() if left < below]


if __name__ == "__main__":
    api.run("http://127.0.0.1:5000")
# [/program]
