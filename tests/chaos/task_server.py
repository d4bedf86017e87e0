"""A server of long tools that is killed: `python -m tests.chaos.task_server STORE LEDGER LEASE`. STORE is
`sqlite:PATH`, or the URL of a bus. It prints its URL. Each run of a tool is a line of the ledger, `begin TOKEN`, which
is written before anything else is done, and each that came to its end one more, `end TOKEN`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman import serve
from dragoman.bus import Bus, open_bus
from dragoman.mcp import Server
from dragoman.mcp.extensions.tasks import TaskPolicy, Tasks
from dragoman.tasks import TaskStore, open_tasks

from .servers import end_with_parent

KEPT = 7 * 86_400.0
"""Seconds for which tasks are kept: a run may be stopped for days."""


@asynccontextmanager
async def opened(url: str, lease: float) -> AsyncIterator[tuple[TaskStore, Bus | None]]:
    """The store of tasks at a URL, and the bus that has it, if it is a bus."""
    bus = None if url.startswith("sqlite:") else await open_bus(url)
    store = open_tasks(url if bus is None else "bus", bus=bus, life=lease)
    try:
        yield store, bus
    finally:
        await store.close()
        if bus is not None:
            await bus.close()


def make(store: TaskStore, ledger: str) -> Server:
    """A server with two tools that sleep."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def run(token: str, seconds: float) -> str:
        os.write(file, f"begin {token}\n".encode())
        await asyncio.sleep(seconds)
        os.write(file, f"end {token}\n".encode())
        return token

    app = Server("lab", version="1", keys="the-secret-of-the-chaos-and-of-nobody-else", extensions=[Tasks(store)])

    @app.tool(task=TaskPolicy(keep=KEPT))
    async def once(token: str, seconds: float) -> str:
        """Sleep; may not be run again."""
        return await run(token, seconds)

    @app.tool(task=TaskPolicy(keep=KEPT, idempotent=True))
    async def again(token: str, seconds: float) -> str:
        """Sleep; may be run again."""
        return await run(token, seconds)

    return app


async def main(url: str, ledger: str, lease: str) -> None:
    async with (
        opened(url, float(lease)) as (store, bus),
        serve(make(store, ledger), urls="http://127.0.0.1:0/mcp", bus=bus) as serving,
    ):
        print(serving.urls[0], flush=True)
        await serving.ended()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main(*sys.argv[1:]))
