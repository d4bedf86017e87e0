# mypy: ignore-errors
# [program]
from typing import ClassVar

from aiohttp import web
from pjrpc.server import MethodRegistry
from pjrpc.server.exceptions import TypedError
from pjrpc.server.integration.aiohttp import Application, is_aiohttp_request
from pjrpc.server.validators.pydantic import PydanticValidatorFactory
from pydantic import BaseModel, Field

stock = {"tea": 3, "rice": 0}
methods = MethodRegistry(PydanticValidatorFactory(exclude=is_aiohttp_request))


class OutOfStock(TypedError):
    CODE: ClassVar[int] = 1001
    MESSAGE: ClassVar[str] = "Out of stock"


class Order(BaseModel):
    item: str
    amount: int = Field(1, ge=1)


@methods.add()
async def count(item: str) -> int:
    return stock[item]


@methods.add(pass_context="request")
async def take(request: web.Request, order: Order) -> str:
    if stock[order.item] < order.amount:
        raise OutOfStock(data={"left": stock[order.item]})
    stock[order.item] -= order.amount
    return f"{order.amount} {order.item} for {request.headers.get('X-User', 'no one')}"


app = Application("/rpc")
app.add_methods(methods)

if __name__ == "__main__":
    web.run_app(app.http_app, host="127.0.0.1", port=5000)
# [/program]
