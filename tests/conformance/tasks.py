"""Tools whose calls become tasks: what the suite's scenarios of the extension `io.modelcontextprotocol/tasks` call."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Context, Elicit, Server, ToolError
from dragoman.mcp.extensions.tasks import TaskPolicy

from .questions import Name

WORK: Final = 1.0
"""Seconds of a job."""
OPTIONAL: Final[dict[str, Any]] = {"task": TaskPolicy(poll=0.1)}
REQUIRED: Final[dict[str, Any]] = {"task": TaskPolicy(poll=0.1, required=True)}
ASKS_FIRST: Final[dict[str, Any]] = {"task": TaskPolicy(poll=0.1, required=True, begin_after=0.3)}
"""A call that asks within this time becomes a task only after the answer."""


class Sure(Struct):
    """A form with one switch."""

    confirm: bool


class Broken(RpcError):
    """Ends a job as a call ends that fails."""

    code = -31001
    message = "The job broke the protocol"


def tasks(app: Server) -> None:
    """Register them; the server has the extension `Tasks`."""

    @app.tool(inline=True)
    def greet(name: str) -> str:
        """Greets at once, and is never a task."""
        return f"Hello, {name}!"

    @app.tool(**OPTIONAL)
    async def slow_compute(seconds: float, label: str = "") -> str:
        """Waits so many seconds."""
        await asyncio.sleep(seconds)
        return f"{label or 'computed'}: waited {seconds:g} s"

    @app.tool(**REQUIRED)
    async def failing_job() -> str:
        """Fails as a tool does, after a while."""
        await asyncio.sleep(WORK)
        raise ToolError("This job intentionally fails")

    @app.tool(**OPTIONAL)
    async def protocol_error_job() -> str:
        """Fails as a call does, after a while."""
        await asyncio.sleep(WORK)
        raise Broken

    @app.tool(**OPTIONAL)
    async def confirm_delete(filename: str, ctx: Context) -> str:
        """Asks whether a file may be deleted."""
        answer = await ctx.elicit(f"Delete {filename}?", Sure)
        sure = answer.content is not None and answer.content.confirm
        return f"{filename} is deleted" if sure else f"{filename} is kept"

    @app.tool(**OPTIONAL)
    async def multi_input(ctx: Context) -> str:
        """Asks two questions at once."""
        name, sure = await ctx.ask(
            Elicit("What is your name?", Name, key="name"), Elicit("Are you sure?", Sure, key="confirm")
        )
        return f"{name.content and name.content.name}: {sure.content and sure.content.confirm}"

    @app.tool(**ASKS_FIRST)
    async def test_tool_with_task(ctx: Context) -> str:
        """Asks for a name, and goes on as a task after that."""
        (answer,) = await ctx.ask(Elicit("What is your name?", Name, key="user_name"))
        await asyncio.sleep(WORK)
        return f"Hello, {answer.content.name if answer.content else answer.action}!"
