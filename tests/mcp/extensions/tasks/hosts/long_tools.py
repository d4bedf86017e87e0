"""Tools that take long, for hosts that know no tasks: `python -m tests.mcp.extensions.tasks.hosts.long_tools
stdio | http PORT ANSWER_WITHIN...`: a tool `work_0`, `work_1`, ... for each time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from msgspec import Struct

from dragoman import serve
from dragoman.mcp import Context, Server, TaskPolicy, Tasks
from dragoman.tasks.contract import TaskStore

STEPS = 8
"""How often a tool says how far it is."""


class Work(Struct):
    """What was worked."""

    number: int


def long_tools(
    times: Sequence[float], store: TaskStore | None = None, ended: asyncio.Future[int] | None = None
) -> Server:
    """Return a server with a tool for each `answer_within`. `ended` gets the number of one that is cancelled."""
    app = Server("long", version="1", extensions=[Tasks(store)])

    async def work(number: int, seconds: float, ctx: Context) -> Work:
        """Work for so many seconds."""
        try:
            for step in range(STEPS):
                await ctx.progress(step, STEPS, f"step {step}")
                await asyncio.sleep(seconds / STEPS)
        except asyncio.CancelledError:
            if ended is not None:
                ended.set_result(number)
            raise
        return Work(number)

    for place, time in enumerate(times):
        app.add_tool(work, name=f"work_{place}", task=TaskPolicy(answer_within=time))
    return app


async def main(wire: str, *words: str) -> None:
    """Serve until end of file or SIGTERM."""
    url, times = ("stdio:", words) if wire == "stdio" else (f"http://127.0.0.1:{words[0]}/mcp", words[1:])
    await serve(long_tools([float(one) for one in times]), urls=[url])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
