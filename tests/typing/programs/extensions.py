"""An extension of MCP, on both ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from dragoman.mcp import Client, ClientExtension, Context, Extension, Row, Server, ServerExtension


class Ping(Struct):
    number: int = 0


class Pong(Struct):
    number: int = 0


echo = Extension(name="com.example/echo", settings={"loud": True}, methods=(Row("com.example/ping", Ping, Pong),))
app = Server("app", extensions=[echo])


@app.method("com.example/ping", timeout=3)
async def ping(params: Ping, context: Context) -> Pong:
    return Pong(params.number)


class Both(ServerExtension, ClientExtension):
    declares = echo

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        return {"com.example/ping": ping}


Server("two", extensions=[Both()])


async def main() -> None:
    async with Client(app, extensions=[Both()]) as client:
        await client.request("com.example/ping", Ping(1), total=3)
        await client.request("com.example/ping", [1])  # wrong: params have names
        await client.request("com.example/ping", timeout="3")  # wrong: seconds are a number


Extension("com.example/echo")  # wrong: by name
Extension(name="com.example/echo", methods=(Row("ping", dict, Pong),))  # wrong: a Struct
Server("a", extensions=["com.example/echo"])  # wrong: an Extension
Server("a", extensions=echo)  # wrong: a list of them
app.method(ping)  # wrong: the name of the method
