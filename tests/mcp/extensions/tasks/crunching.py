"""Long tools in child processes."""

from __future__ import annotations

import os

from dragoman import Service
from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks

app = Server("crunch", version="1", extensions=[Tasks("memory:")])
api = Service("crunch")
POLICY = TaskPolicy(poll=0.05)


@app.tool(process=True, task=POLICY)
def spin(ctx: Context) -> None:
    """Report the number of the process, and never return."""
    ctx.progress(os.getpid())
    while True:
        sum(range(1000))


@app.tool(process=True, task=POLICY)
def ask(ctx: Context) -> str:
    """Ask for a name, in a child."""
    answer = ctx.elicit("How?", {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    return f"{(answer.content or {})['name']} in {os.getpid()}"


@api.method(process=True)
def where() -> int:
    """Return the number of the process."""
    return os.getpid()
