"""A server whose tools go on as tasks, and who calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman.channel import Caller, Identity
from dragoman.mcp import Context, Server, ToolError
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks
from dragoman.mcp.extensions.tasks.model import NAME
from dragoman.mcp.protocol.revisions import R2026_07
from tests.mcp.calling import Calls, calling

TASK = TaskPolicy(poll=0.05)


class Release(Struct):
    audience: Annotated[Literal["team", "company", "everyone"], Meta(description="Who may read them.")] = "team"
    notify: Annotated[bool, Meta(description="Send a mail to all readers.")] = False


class Reports:
    """The server. `go`: lets `render` end; `said`: what `publish` was answered."""

    def __init__(self, tasks: Tasks | None = None) -> None:
        self.app = app = Server("reports", version="1", extensions=[Tasks() if tasks is None else tasks])
        self.go = asyncio.Event()
        self.said: list[str] = []
        self.stopped = asyncio.Event()

        @app.tool(task=TASK)
        async def render(pages: int, ctx: Context, words: str = "page 3: figures by region") -> dict[str, Any]:
            "Render the pages of a report."
            await ctx.progress(3, pages, words)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return {"pages": pages, "words": words}

        @app.tool(task=TASK)
        async def publish(title: str, ctx: Context) -> str:
            "Publish a report; asks for whom."
            answer = await ctx.elicit(title, Release)
            content = answer.content
            self.said.append(f"{answer.action} {'' if content is None else content.audience}".strip())
            return f"published for {self.said[-1]}"

        @app.tool(task=TASK)
        async def export(words: str) -> str:
            "Export a report, to what is not there."
            raise ToolError(words)


@asynccontextmanager
async def client(reports: Reports, who: str = "") -> AsyncIterator[Calls]:
    """A client that takes tasks. `who`: the subject of its identity; "": it has none."""
    caller = Caller(identity=Identity(subject=who)) if who else None
    async with calling(reports.app, R2026_07, caller, extensions={NAME: {}}, elicitation={"form": {}}) as calls:
        yield calls


async def begin(calls: Calls, tool: str, **arguments: Any) -> str:
    """Begin a task; its id."""
    made = (await calls.unchecked("tools/call", name=tool, arguments=arguments))["result"]
    return str(made["taskId"])


async def becomes(calls: Calls, id: str, status: str) -> dict[str, Any]:
    """Poll a task until it has this status."""
    async with asyncio.timeout(20):
        while True:
            state = (await calls.unchecked("tasks/get", taskId=id))["result"]
            if state["status"] == status:
                return dict(state)
            await asyncio.sleep(0.01)
