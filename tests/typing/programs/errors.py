"""Errors: declared, raised and caught."""

from __future__ import annotations

from msgspec import Struct

from dragoman import BadAnswer, CallTimeout, ChannelError, LocalError, MethodNotFound, Peer, RpcError, Service
from dragoman.mcp import ResourceNotFound, Server, ToolError


class Shortage(Struct):
    item: str


class OutOfStock(RpcError):
    code = 1001
    message = "Out of stock"
    data: Shortage


api = Service("shop", errors=[OutOfStock])
app = Server("shop")


@api.method(errors=[OutOfStock])
def order(item: str) -> None:
    raise OutOfStock(data=Shortage(item))


@app.tool
def buy(item: str) -> None:
    raise ToolError(f"no {item}")


@app.resource("item://{name}")
def item(name: str) -> str:
    raise ResourceNotFound(name)


async def main(peer: Peer) -> None:
    try:
        await peer.call("order", ["tea"])
    except OutOfStock as error:
        missing: str = error.data.item
        print(missing, error.code, error.remote)
    except MethodNotFound as error:
        print(error.message, error.data)
    except (CallTimeout, BadAnswer, LocalError) as error:
        print(error)
    except ChannelError as error:
        print(error.reason)
    try:
        await peer.call("order", ["tea"])
    except OutOfStock as error:
        count: int = error.data.item  # wrong: text
        print(error.data.number, count)  # wrong: no such member
    raise RpcError("slow", code="busy")  # wrong: a number


class Wrong(RpcError):
    code = "1002"  # wrong: a number


Service("a", errors=[OutOfStock()])  # wrong: the class
api.method(errors=OutOfStock)  # wrong: a list of them
raise ToolError("no", 3, retry=True)  # wrong: no such option
