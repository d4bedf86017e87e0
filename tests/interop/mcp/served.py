"""Our server for third parties' clients: `python -m tests.interop.mcp.served stdio | http PORT | sse PORT`."""

from __future__ import annotations

import asyncio
import sys

from msgspec import Struct

from dragoman import serve
from dragoman.mcp import Context, CreateMessageResult, HttpOptions, Server, TextContent, ToolError

from .peers.probe import NOTE

PAUSE = 0.02
"""Seconds between steps: a client may lose progress that comes together with the answer (TypeScript's does)."""
STOPPING = 5.0
"""Seconds for a cancelled handler to stop."""


class Name(Struct):
    """What is asked for."""

    name: str


def said(answer: CreateMessageResult) -> str:
    """A sampled message's text."""
    return answer.content.text if isinstance(answer.content, TextContent) else ""


def server() -> Server:
    """The tools, the resource and the prompt that `probe` uses."""
    app = Server("dragoman", version="1.0.0", http=HttpOptions(sse_2024=True))
    working(app)
    asking(app)

    @app.resource(NOTE)
    def note() -> str:
        return "Buy milk"

    @app.prompt
    def greet(who: str) -> str:
        return f"Greet {who}"

    @app.completion("greet", "who")
    def names(value: str) -> list[str]:
        return [name for name in ("Ann", "Anton", "Bob") if name.startswith(value)]

    return app


def working(app: Server) -> None:
    """Tools that work."""
    running, ended = asyncio.Event(), asyncio.Event()

    @app.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    def fail() -> str:
        raise ToolError("out of stock")

    @app.tool
    async def steps(count: int, ctx: Context) -> str:
        for n in range(count):
            await ctx.progress(n + 1, count)
            await ctx.info(f"step {n + 1}")
            await asyncio.sleep(PAUSE)
        return "done"

    @app.tool(timeout=None)
    async def wait() -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "waited"

    @app.tool
    async def started() -> str:
        await running.wait()
        return "yes"

    @app.tool
    async def stopped() -> str:
        try:
            async with asyncio.timeout(STOPPING):
                await ended.wait()
        except TimeoutError:
            return "0"
        return "1"

    @app.tool
    async def touch(ctx: Context) -> str:
        ctx.notify_resource_updated(NOTE)
        return "touched"


def asking(app: Server) -> None:
    """Tools that ask."""

    @app.tool
    async def ask_name(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", Name)
        return f"Hello, {answer.content.name if answer.content else answer.action}!"

    @app.tool
    async def ask_model(ctx: Context) -> str:
        return f"Model: {said(await ctx.sample('6 x 7?', max_tokens=10))}"

    @app.tool
    async def ask_roots(ctx: Context) -> str:
        return "Roots: " + ", ".join(root.uri for root in await ctx.roots())


async def main(wire: str, port: str = "") -> None:
    """Serve until end of file or SIGTERM."""
    await serve(server(), urls=["stdio:" if wire == "stdio" else f"http://127.0.0.1:{port}/mcp"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
