# mypy: ignore-errors
"""What a server has in every Python SDK, since all of them write it alike: the tools that ask nothing, resource and
prompt.

No `from __future__ import annotations`: an SDK finds its Context by what `ctx` is annotated with, and here that is an
argument.
"""

import asyncio

from mcp.types import Completion

NOTE = "note://today"
PAUSE = 0.02  # seconds: a client may lose progress that comes together with the answer


def add_tools(app, Context, ToolError) -> None:
    """Give the app of an SDK, whose Context and ToolError these are, what `probe` uses."""
    running, ended = asyncio.Event(), asyncio.Event()

    @app.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool()
    def fail() -> str:
        raise ToolError("out of stock")

    @app.tool()
    async def steps(count: int, ctx: Context) -> str:
        for n in range(count):
            await ctx.report_progress(n + 1, count)
            await ctx.info(f"step {n + 1}")
            await asyncio.sleep(PAUSE)
        return "done"

    @app.tool()
    async def wait() -> str:
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise
        return "waited"

    @app.tool()
    async def started() -> str:
        await running.wait()
        return "yes"

    @app.tool()
    async def stopped() -> str:
        try:
            async with asyncio.timeout(5):
                await ended.wait()
        except TimeoutError:
            return "0"
        return "1"

    @app.resource(NOTE)
    def note() -> str:
        return "Buy milk"

    @app.prompt()
    def greet(who: str) -> str:
        return f"Greet {who}"

    @app.completion()
    async def complete(ref, argument, context) -> Completion:
        return Completion(values=[name for name in ("Ann", "Anton", "Bob") if name.startswith(argument.value)])
