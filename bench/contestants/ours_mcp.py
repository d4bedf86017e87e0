"""dragoman as an MCP server on a wire (`listen`), on uvicorn, behind a guard, in process; and as a client."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from bench.messages import ISSUER, RESOURCE, SECRET, big, body
from bench.worker import measure_async
from dragoman import http_app, serve
from dragoman.channel import Caller
from dragoman.jsonrpc.errors import Refusal
from dragoman.mcp import Client, HttpOptions, Server, TextContent

CALL = {"minuend": 42, "subtrahend": 23}


def another(minuend: int, subtrahend: int) -> int:
    """What the further tools do."""
    return minuend - subtrahend


def server(tools: int = 1, *, stream: bool = False, **options: Any) -> Server:
    """`subtract` four ways and further tools. `stream`: calls in a session are answered by streams alone."""
    app = Server("bench", version="1.0.0", page_size=max(100, tools), http=HttpOptions(json=not stream), **options)

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


async def listen(url: str, extra: str = "1") -> None:
    """Until SIGTERM; on stdio until end of file. `extra`: how many tools, or `stream`."""
    await serve(server(int(extra)) if extra.isdigit() else server(stream=True), urls=url)


async def guarded(port: str) -> None:
    """For those with a token."""
    from dragoman.auth import Bearer

    await serve(server(auth=Bearer(ISSUER, resource=RESOURCE, secret=SECRET)), urls=f"http://127.0.0.1:{port}/mcp")


def asgi(port: str) -> None:
    from bench.contestants.bare_http import uvicorn_run

    uvicorn_run(http_app({"/mcp": server()}), port)


async def _calling(target: str | Server, together: int = 1) -> None:
    """Calls from our client, so many at a time, checked as far as their text."""
    async with Client(target) as client:

        async def one() -> object:
            block = (await client.call_tool("subtract", CALL)).content[0]
            return block.text if isinstance(block, TextContent) else block

        async def some() -> object:
            return await asyncio.gather(*[one() for _ in range(together)])

        await measure_async(one if together == 1 else some)


async def memory() -> None:
    await _calling(server())


async def client(port: str, together: str) -> None:
    await _calling(f"http://127.0.0.1:{port}/mcp", int(together))


async def tools(count: str) -> None:
    """A server with so many tools, made again each time."""

    async def register() -> object:
        made = server(int(count))
        gc.collect()
        return f"19 {made!r}"

    await measure_async(register)


class Bytes:
    """An exchange of bytes for bytes."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.caller = Caller()
        self.gone: Callable[[], None] | None = None
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """The end."""
        self.answer.set_result(answer)

    def stream(self, message: bytes) -> bool:
        """There is nothing ahead of the answer."""
        return False


async def process(tool: str) -> None:
    """`tools/call` of 2026-07-28, bytes to bytes; `echo`: with 2 MB."""
    app = server()
    raw = (big() if tool == "echo" else body("2026", "tools/call", tool, 1)).encode()

    async def one() -> object:
        exchange = Bytes(raw)
        app.__servable__().exchange(exchange)
        return await exchange.answer

    await measure_async(one)
