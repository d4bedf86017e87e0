"""A worker in a process of its own, for tests that kill it: `python -m tests.engines.worker URL`. Says "ready" when it
serves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from dragoman import Context, Service, serve

ROOT = Path(__file__).parents[2]


class Done(Struct):
    """The worker that did it, and how often it was delivered before."""

    pid: int
    redelivered: int


def service() -> Service:
    api = Service("worker")

    @api.method
    async def work(seconds: float, ctx: Context) -> Done:
        await asyncio.sleep(seconds)
        return Done(os.getpid(), ctx.redelivered)

    @api.method
    async def hold() -> None:
        print("held", flush=True)
        await asyncio.Event().wait()

    @api.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return api


class Worker:
    """Such a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def held(self, count: int) -> None:
        """Until it is at so many calls of `hold`."""
        assert self.process.stdout is not None
        for _ in range(count):
            assert (await self.process.stdout.readline()).rstrip() == b"held"

    async def kill(self) -> None:
        """`kill -9`."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[Worker]:
    """A worker that serves, for the length of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engines.worker", url, stdout=subprocess.PIPE, cwd=ROOT
    )
    one = Worker(process)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert (await process.stdout.readline()).rstrip() == b"ready"
        yield one
    finally:
        await one.kill()


async def main(url: str) -> None:
    async with serve(service(), urls=[url]) as serving:
        print("ready", flush=True)
        await serving.ended()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
