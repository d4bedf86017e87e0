"""`dragoman serve --workers` in processes of its own, and what they say, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import psutil
import pytest
import pytest_asyncio

from dragoman import connect
from dragoman.rpc.peer import Peer

PATIENCE = 60.0
"""Seconds after which something that does not come is a failed test."""

SERVICE = """\
import asyncio, os, sys, time
from dragoman import Service

api = Service("counted", version="1.0.0")
VERSION = 1


@api.method(inline=True)
def pid() -> int:
    return os.getpid()


@api.method(inline=True)
def version() -> int:
    return VERSION


@api.method(inline=True)
def variable(name: str) -> str | None:
    return os.environ.get(name)


@api.method(inline=True)
def leave(status: int) -> None:
    os._exit(status)


@api.method(timeout=None)
async def hold(gate: str) -> int:
    "Answers when the file `gate` is there."
    print("holding\\n", end="", flush=True)  # in one piece: several processes write
    while not os.path.exists(gate):
        await asyncio.sleep(0.01)
    return os.getpid()


@api.method(timeout=None)
async def block() -> None:
    "Blocks the loop."
    print("blocking\\n", end="", flush=True)
    time.sleep(1000)
"""


class Lines:
    """What a process writes to a pipe, kept line by line."""

    def __init__(self, pipe: IO[str]) -> None:
        self.all: list[str] = []
        self._seen = 0
        self._there = threading.Condition()
        self._over = False
        self._pipe = pipe
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._pipe:
            with self._there:
                self.all.append(line.rstrip("\n"))
                self._there.notify_all()
        with self._there:
            self._over = True
            self._there.notify_all()

    def _find(self, pattern: str) -> re.Match[str]:
        with self._there:
            while True:
                while self._seen < len(self.all):
                    self._seen += 1
                    if (match := re.search(pattern, self.all[self._seen - 1])) is not None:
                        return match
                assert not self._over, f"no {pattern!r} in {self.all}"
                assert self._there.wait(PATIENCE), f"no {pattern!r} yet in {self.all}"

    async def until(self, pattern: str) -> re.Match[str]:
        """The next line that has `pattern` in it."""
        return await asyncio.to_thread(self._find, pattern)

    def close(self) -> None:
        """Wait for the end and close the pipe."""
        self._thread.join(PATIENCE)
        self._pipe.close()


class Supervised:
    """A supervisor that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out, self.err = Lines(process.stdout), Lines(process.stderr)
        self.urls: list[str] = []
        self.pids: dict[int, int] = {}
        self._workers: list[psutil.Process] = []

    async def ready(self, count: int) -> list[int]:
        """Wait until so many more workers are ready; their process ids."""
        found = []
        for _ in range(count):
            match = await self.err.until(r"worker (\d+) \(pid (\d+)\) is ready")
            self.pids[int(match[1])] = int(match[2])
            found.append(int(match[2]))
            with contextlib.suppress(psutil.NoSuchProcess):
                self._workers.append(psutil.Process(int(match[2])))
        return found

    def signal(self, number: int) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit status."""
        return await asyncio.to_thread(self.process.wait, PATIENCE)

    def end(self) -> None:
        """Kill it; its workers see that and end, those that block and other children are killed too."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._workers += psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        for worker in self._workers:
            with contextlib.suppress(psutil.NoSuchProcess):  # nor is it another with the number of one that is gone
                worker.kill()
        self.out.close()
        self.err.close()


class Starter:
    """Starts supervisors in `folder`, where the service file `counted.py` is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "counted.py"
        self.started: list[Supervised] = []

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Supervised:
        """Start any program."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("DRAGOMAN_", "FORCE_COLOR"))}
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=plain | {"COLUMNS": "200"} | dict(env or {}),
            text=True,
        )
        supervised = Supervised(process)
        self.started.append(supervised)
        return supervised

    async def serve(
        self, *words: str, workers: int = 2, env: Mapping[str, str] | None = None, ready: bool = True
    ) -> Supervised:
        """`dragoman serve`; by default until all are ready."""
        line = ["-m", "dragoman", "serve", "counted:api", *words, "--workers", str(workers), "--json"]
        supervised = await asyncio.to_thread(self.start, line, env)
        if ready:
            supervised.urls = msgspec.json.decode((await supervised.out.until('"urls"')).string)["urls"]
            await supervised.ready(workers)
        return supervised


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    """Starts supervisors; those that still run at the end are killed."""
    starter = Starter(tmp_path)
    starter.file.write_text(SERVICE)
    yield starter
    for supervised in starter.started:
        supervised.end()


@pytest_asyncio.fixture
async def peers() -> AsyncIterator[list[Peer]]:
    """Peers to be closed."""
    opened: list[Peer] = []
    yield opened
    for peer in opened:
        await peer.close()


async def one_for_each(url: str, pids: Sequence[int], peers: list[Peer]) -> dict[int, Peer]:
    """A channel to each worker, by its process id: callers come in by chance, so they dial until all have come."""
    found: dict[int, Peer] = {}
    async with asyncio.timeout(PATIENCE):
        while len(found) < len(pids):
            peer = await connect(url)
            peers.append(peer)
            found.setdefault(await peer.call("pid", result=int), peer)
    assert set(found) == set(pids)
    return found


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    async with asyncio.timeout(PATIENCE):
        while alive(pid):  # noqa: ASYNC110  (we are not told)
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Does a process run? One that is dead and was not asked for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: it went between the opening and the reading
        return False
    return state not in "ZX"
