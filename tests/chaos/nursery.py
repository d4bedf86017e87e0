"""The holder of workers: makes them, kills them, and knows which are alive."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from .worker import Order

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Nursery:
    """Workers, by process id, the oldest first."""

    def __init__(self, process: asyncio.subprocess.Process, ledger: Path) -> None:
        self.ledger = ledger
        self.living: list[int] = []
        self.ready: set[int] = set()
        self._process = process
        self._born: asyncio.Queue[int] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            what, pid = line.split()
            if what == b"born":
                self._born.put_nowait(int(pid))
            else:
                async with self._changed:
                    self.ready.add(int(pid))
                    self._changed.notify_all()

    async def start(self, url: str, *, skew: float = 0.0) -> int:
        """A new worker, which may not serve yet."""
        assert self._process.stdin is not None
        order = Order(url=url, ledger=str(self.ledger), skew=skew)
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(PATIENCE):
            pid = await self._born.get()
        self.living.append(pid)
        return pid

    async def serving(self, *pids: int) -> None:
        """Wait until these serve; all that live, when none is named."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.ready.issuperset(pids or self.living))

    def kill(self, pid: int) -> None:
        """`kill -9`."""
        self.living.remove(pid)
        os.kill(pid, signal.SIGKILL)

    async def loss(self) -> int:
        """Wait until one of them dies by itself; which it was."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for pid in self.living:
                    try:
                        os.kill(pid, 0)
                    except ProcessLookupError:
                        self.living.remove(pid)
                        return pid
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Kill them all."""
        self._process.kill()
        await self._process.wait()
        await self._reader


@asynccontextmanager
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    """A nursery without workers; its ledger is in `folder`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    one = Nursery(process, folder / "ledger")
    try:
        yield one
    finally:
        await one.end()
