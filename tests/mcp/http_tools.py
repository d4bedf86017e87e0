"""The server of the HTTP tests: tools that answer immediately, wait, send progress, ask, and close their stream."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server


class City(Struct):
    city: str


class Stage:
    """What a test and its tools know of each other."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.runs = 0
        self.slow = 0


def tools(**options: Any) -> tuple[Server, Stage]:
    """The server, and what its tools wait for and say."""
    server = Server("tester", version="1.0.0", **options)
    stage = Stage()

    @server.tool
    async def add(a: int, b: int) -> int:
        stage.runs += 1
        return a + b

    @server.tool(inline=True)
    def at_once() -> str:
        return "now"

    @server.tool
    async def slow() -> str:
        stage.slow += 1
        stage.started.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return "done"

    @server.tool
    async def talk(ctx: Context, times: int = 3) -> str:
        for step in range(times):
            await ctx.progress(step + 1, times)
        return "said"

    @server.tool
    async def talk_and_wait(ctx: Context) -> str:
        await ctx.progress(1)
        stage.started.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        await ctx.progress(2)
        return "said"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which city?", City)
        assert answer.content is not None
        return str(answer.content.city)

    @server.tool
    async def poll(ctx: Context) -> str:
        closed = await ctx.close_stream()
        stage.started.set()
        await stage.go.wait()
        return f"closed: {closed}"

    async def marked(arguments: dict[str, Any]) -> str:
        return str(arguments.get("region"))

    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        },
    }
    server.add_tool(marked, name="marked", input_schema=schema)
    return server, stage
