"""A server of long tools that is killed: `python -m tests.chaos.task_server FILE LEDGER`. It prints its URL. Each run
of a tool is a line of the ledger, written before anything else is done."""

from __future__ import annotations

import asyncio
import os
import sys

from dragoman import serve
from dragoman.mcp import Server
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks


def note(line: str) -> None:
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


app = Server("lab", version="1", extensions=[Tasks(f"sqlite:{sys.argv[1]}", keys=())])


@app.tool(task=TaskPolicy(keep=3600))
async def once(token: str, seconds: float) -> str:
    """Sleep; may not be run again."""
    note(f"once {token}")
    await asyncio.sleep(seconds)
    return token


@app.tool(task=TaskPolicy(keep=3600, idempotent=True))
async def again(token: str, seconds: float) -> str:
    """Sleep; may be run again."""
    note(f"again {token}")
    await asyncio.sleep(seconds)
    return token


async def main() -> None:
    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving:
        print(serving.urls[0], flush=True)
        await serving.ended()


asyncio.run(main())
