"""A service of long methods, as a process of its own: `python -m tests.rpc.tasks.program FILE LOG [BUS]`.

It prints its URL, and ends at the end of its standard input. Each run of a method adds a line to LOG.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from dragoman import Context, Service, TaskPolicy, serve
from dragoman.jsonrpc.limits import SERVER

api = Service("lab", tasks=sys.argv[1], limits=SERVER.but(drain_timeout=0.3))
GO = Path(sys.argv[2] + ".go")


def note(line: str) -> None:
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{line} {os.getpid()}\n")


async def go() -> None:
    while not GO.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)


@api.method(task=True)
async def once() -> str:
    """Wait, and never be run twice."""
    note("once")
    await go()
    return "ran once"


@api.method(task=TaskPolicy(idempotent=True))
async def again(context: Context) -> str:
    """Wait, from the top after a loss."""
    note("again")
    await context.progress("waiting")
    await go()
    return f"ran for {None if context.identity is None else context.identity.subject}"


@api.method(task=TaskPolicy(idempotent=True))
async def kill() -> None:
    """Wait, and end the process, each time that it is run."""
    note("kill")
    await go()
    os._exit(9)  # at once: nothing is ended in order


async def main() -> None:
    async with serve(api, urls="tcp://127.0.0.1:0", bus=sys.argv[3] if len(sys.argv) > 3 else None) as serving:
        print(serving.urls[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
