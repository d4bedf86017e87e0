# mypy: ignore-errors
# [program]
import fastapi_jsonrpc as jsonrpc
import uvicorn
from fastapi import Depends, Header
from pydantic import BaseModel, Field

stock = {"tea": 3, "rice": 0}


class OutOfStock(jsonrpc.BaseError):
    CODE = 1001
    MESSAGE = "Out of stock"

    class DataModel(BaseModel):
        left: int


class Order(BaseModel):
    item: str
    amount: int = Field(1, ge=1)


def user(x_user: str = Header("no one")) -> str:
    return x_user


rpc = jsonrpc.Entrypoint("/rpc")


@rpc.method()
async def count(item: str) -> int:
    return stock[item]


@rpc.method(errors=[OutOfStock])
async def take(order: Order, who: str = Depends(user)) -> str:
    if stock[order.item] < order.amount:
        raise OutOfStock(data={"left": stock[order.item]})
    stock[order.item] -= order.amount
    return f"{order.amount} {order.item} for {who}"


app = jsonrpc.API()
app.bind_entrypoint(rpc)

if __name__ == "__main__":
    uvicorn.run(app, port=5000)
# [/program]
