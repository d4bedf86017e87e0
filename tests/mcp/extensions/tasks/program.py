"""A server of long tools, as a process of its own: `python -m tests.mcp.extensions.tasks.program FILE LOG [BUS]`.

It prints its URL, and ends with its input. Each run of a tool adds a line to LOG.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from dragoman import serve
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks


def note(line: str) -> None:
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{line} {os.getpid()}\n")


LIMITS = msgspec.structs.replace(SERVER, drain_timeout=2)
app = Server("lab", version="1", limits=LIMITS, extensions=[Tasks(f"sqlite:{sys.argv[1]}", keys=())])


@app.tool(task=TaskPolicy(poll=0.05, answer_within=0.2))
async def once(seconds: float, ctx: Context) -> str:
    """Sleep, and never be run twice."""
    note("once")
    await asyncio.sleep(seconds)
    return "slept once"


@app.tool(task=TaskPolicy(poll=0.05, answer_within=0.2, idempotent=True))
async def again(seconds: float, ctx: Context) -> str:
    """Sleep, from the top after a loss."""
    note("again")
    await ctx.progress(1, 2, "sleeping")
    await asyncio.sleep(seconds)
    return "slept again"


@app.tool(task=TaskPolicy(poll=0.05, answer_within=0.2))
async def name(ctx: Context) -> str:
    """Ask for a name."""
    note("name")
    answer = await ctx.elicit("How?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"called {(answer.content or {})['name']}"


async def main() -> None:
    bus = sys.argv[3] if len(sys.argv) > 3 else None
    async with serve(app, urls="http://127.0.0.1:0/mcp", bus=bus) as serving:
        print(serving.urls[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
