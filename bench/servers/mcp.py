"""dragoman as an MCP server and client: `serve URL [PORT] [uvloop|stream|TOOLS]`, `asgi PORT`, `memory`, `client URL`,
`tools COUNT`, `process [declared]` (see `main`)."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bench.limits.loops import run
from bench.mcp_load import big, body
from bench.worker import offer_async
from dragoman import http_app, serve
from dragoman.channel import Caller
from dragoman.jsonrpc.codec import AnyAnswer, text_of
from dragoman.mcp import Client, HttpOptions, Server, Tasks, TextContent
from dragoman.mcp.extensions.events import Events

CALL = {"minuend": 42, "subtrahend": 23}


def another(minuend: int, subtrahend: int) -> int:
    """What the further tools do."""
    return minuend - subtrahend


def server(tools: int = 1, *, stream: bool = False, extensions: Sequence[Any] = ()) -> Server:
    """`subtract` four ways and further tools. `stream`: calls in a session are answered by streams alone."""
    http = HttpOptions(json=not stream)
    app = Server("bench", version="1.0.0", page_size=max(100, tools), http=http, extensions=extensions)

    @app.tool
    async def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @app.tool(inline=True)
    def subtract_inline(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @app.tool
    def subtract_thread(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @app.tool
    async def subtract_waits(minuend: int, subtrahend: int) -> int:
        await asyncio.sleep(0)
        return minuend - subtrahend

    @app.tool
    async def echo(text: str) -> str:
        return text

    for number in range(tools - 1):
        app.add_tool(another, name=f"tool_{number}", inline=True)
    return app


async def serving(app: Server, url: str) -> None:
    """Until SIGTERM; on stdio until end of file."""
    await serve(app, urls=[url])


def caller(client: Client) -> Callable[[], Coroutine[Any, Any, object]]:
    """One call, checked as far as its text."""

    async def one() -> object:
        block = (await client.call_tool("subtract", CALL)).content[0]
        return block.text if isinstance(block, TextContent) else block

    return one


async def calling(target: str | Server) -> None:
    """Calls from our client, one after the other, and 32 at a time."""
    async with Client(target) as client:
        one = caller(client)

        async def together() -> object:
            return await asyncio.gather(*[one() for _ in range(32)])

        await offer_async({"single": one, "together": together})


class Bytes:
    """An exchange of bytes for bytes."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.caller = Caller()
        self.gone: Callable[[], None] | None = None
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def respond(self, answer: AnyAnswer) -> None:
        """The end."""
        self.answer.set_result(text_of(answer))

    def stream(self, message: bytes) -> bool:
        """There is nothing ahead of the answer."""
        return False


async def in_process(app: Server) -> None:
    """`tools/call` of 2026-07-28, bytes to bytes."""

    def task(raw: bytes) -> Callable[[], Coroutine[Any, Any, object]]:
        async def one() -> object:
            exchange = Bytes(raw)
            app.__servable__().exchange(exchange)
            return await exchange.answer

        return one

    calls = {"single": "subtract", "inline": "subtract_inline", "thread": "subtract_thread"}
    texts = {task: body("2026", "tools/call", tool, 1) for task, tool in calls.items()}
    await offer_async({name: task(text.encode()) for name, text in (texts | {"big": big()}).items()})


async def registering(count: int) -> None:
    """A server with so many tools, made again each time."""

    async def register() -> object:
        made = server(count)
        gc.collect()
        return f"19 {made!r}"

    await offer_async({"single": register})


def main(task: str, *words: str) -> None:
    """One of the tasks."""
    if task == "serve":
        url = words[0].replace("%", words[1] if len(words) > 1 else "")
        extra = words[2:]
        tools = next((int(word) for word in extra if word.isdigit()), 1)
        run(serving(server(tools, stream="stream" in extra), url), uvloop="uvloop" in extra)
    elif task == "asgi":
        from bench.limits.asgi import run as uvicorn

        uvicorn(http_app({"/mcp": server()}), int(words[0]))
    elif task == "memory":
        asyncio.run(calling(server()))
    elif task == "client":
        asyncio.run(calling(words[0]))
    elif task == "process":
        asyncio.run(in_process(server(extensions=[Tasks(), Events()] if "declared" in words else ())))
    elif task == "tools":
        asyncio.run(registering(int(words[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
