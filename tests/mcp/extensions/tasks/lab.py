"""A server with long tools, and what is sent to it as a client of each kind does."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from msgspec import Struct

from dragoman import serve
from dragoman.jsonrpc.errors import RpcError
from dragoman.jsonrpc.limits import SERVER, Limits
from dragoman.mcp import Context, Server, TaskPolicy, Tasks, ToolError
from dragoman.mcp.extensions.tasks.model import NAME
from tests.mcp.calling import Calls

DECLARED: dict[str, Any] = {"extensions": {NAME: {}}}
ELICITS: dict[str, Any] = {"elicitation": {"form": {}}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ENDED = ("completed", "failed", "cancelled")


class Report(Struct):
    rows: int
    name: str = ""


class Lab:
    """A server whose tools wait for `go`. `policy`: of all its tools."""

    def __init__(
        self,
        tasks: Tasks | None = None,
        keys: tuple[str, ...] | None = None,
        limits: Limits = SERVER,
        **policy: Any,
    ) -> None:
        self.tasks = Tasks() if tasks is None else tasks
        self.app = app = Server("lab", version="1", extensions=[self.tasks], keys=keys, limits=limits)
        self.go = asyncio.Event()
        self.began: list[str] = []
        self.stopped: list[str] = []
        self.long: dict[str, Any] = {"task": TaskPolicy(**{"poll": 0.05, **policy})}
        """The options of its tools that take long."""

        @app.tool(**self.long)
        async def train(rows: int, ctx: Context) -> Report:
            """Train a model."""
            self.began.append("train")
            await ctx.progress(1, 4, "loading")
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append("train")
                raise
            return Report(rows)

        @app.tool(**self.long)
        async def ask(ctx: Context) -> str:
            """Ask for a name."""
            answer = await ctx.elicit("How is it called?", FORM)
            return f"called {(answer.content or {})['name']}"

        @app.tool(**self.long)
        async def break_down() -> str:
            """Fail as a tool does."""
            raise ToolError("no more paper")

        @app.tool(**self.long)
        async def refuse() -> str:
            """Fail as a call does."""
            raise RpcError.of(-31000, "out of order", {"since": 2})

        @app.tool
        async def add(a: int, b: int) -> int:
            """Add numbers."""
            return a + b


async def ended(calls: Calls, id: str) -> dict[str, Any]:
    """Poll a task until it has ended."""
    async with asyncio.timeout(20):
        while True:
            state = (await calls.unchecked("tasks/get", taskId=id))["result"]
            if state["status"] in ENDED:
                return dict(state)
            await asyncio.sleep(0.01)


async def becomes(calls: Calls, id: str, status: str) -> dict[str, Any]:
    """Poll a task until it has this status."""
    async with asyncio.timeout(20):
        while True:
            state = (await calls.unchecked("tasks/get", taskId=id))["result"]
            if state["status"] == status:
                return dict(state)
            assert state["status"] not in ENDED, state
            await asyncio.sleep(0.01)


def asked_of(calls: Calls) -> list[dict[str, Any]]:
    """The questions that the server has asked by calls."""
    return [one for one in calls.told if one["method"] == "elicitation/create"]


async def main() -> None:
    """Serve a lab whose tools do not wait, on stdin and stdout."""
    lab = Lab()
    lab.go.set()
    await serve(lab.app, urls="stdio:")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
