"""Servers in processes of their own, and a look before and after every test at what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from dragoman import Limits, Peer, connect

from .service import Census

PATIENCE = 60.0
"""Seconds before a test that waits gives up; never reached when all is well."""
NAP = 0.005
MANY = Limits(connections=100)
"""Of a client whose calls are all in flight at once, over HTTP too."""


async def until(done: Callable[[], object], patience: float = PATIENCE) -> None:
    """Let the loop run until `done()`; for what no event tells."""
    async with asyncio.timeout(patience):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(NAP)


async def heard(reader: asyncio.StreamReader) -> bytes:
    """All that the far end says until it closes or resets, read as it comes: what is not read by then is lost."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            said += piece
    return said


# -- nothing is left behind -----------------------------------------------------------------------


def held() -> dict[str, set[str]]:
    """Everything this process holds that a test could leave behind."""
    ours = psutil.Process()
    descriptors = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:  # that of the listing itself
            continue
    return {
        "tasks": {repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()},
        "threads": {f"{one.name} {one.ident}" for one in threading.enumerate() if not one.name.startswith("asyncio_")},
        "descriptors": descriptors,
        "children": {f"{child.pid}" for child in ours.children(recursive=True)},
    }


_others: set[psutil.Process] = set()


def children() -> list[psutil.Process]:
    """The processes that this test has started and that still are; another module's broker is none of them."""
    return [one for one in psutil.Process().children() if one not in _others]


@pytest.fixture(autouse=True)
async def nothing_is_left_behind(small_heap: None) -> AsyncIterator[None]:
    """No task, thread, file descriptor or child that was not there before. What is just ending gets a moment."""
    gc.collect()
    _others.clear()
    _others.update(psutil.Process().children())
    before = held()
    yield
    left: dict[str, set[str]] = {}

    def clean() -> bool:
        nonlocal left
        gc.collect()
        left = {name: now - before[name] for name, now in held().items() if now - before[name]}
        return not left

    try:
        await until(clean, 10.0)
    except TimeoutError:
        pytest.fail(f"left behind: {left}")


# -- servers --------------------------------------------------------------------------------------


class Server:
    """A running `dragoman serve` of the faulty service."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self.urls: list[str] = []
        self.memory = psutil.Process(process.pid)
        self._errors = errors

    @property
    def url(self) -> str:
        """Its first URL."""
        return self.urls[0]

    @property
    def port(self) -> int:
        """The port of its first URL."""
        return int(self.url.split("?")[0].rstrip("/").rsplit(":", 1)[1])

    @property
    def rss(self) -> int:
        """Its resident memory in bytes."""
        return int(self.memory.memory_info().rss)

    async def census(self) -> Census:
        """What it holds on to, seen over a new channel or exchange."""
        async with connect(self.url) as peer:
            return await census_of(peer)

    async def settles_at(self, before: Census) -> None:
        """Wait until it holds no more than before."""
        async with connect(self.url) as peer:
            await as_few(peer, before)

    async def ended(self) -> int:
        """Wait for its end; its exit status."""
        await until(lambda: self.process.poll() is not None)
        assert self.process.returncode is not None
        return self.process.returncode

    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return self._errors.read_text()


async def census_of(peer: Peer) -> Census:
    """What the server holds on to once this end has arrived: a first request may be answered while the task that
    accepted its connection is about to end."""
    await peer.call("subtract", [42, 23])
    return await peer.call("census", result=Census)


async def as_few(peer: Peer, before: Census) -> None:
    """Wait until the server holds no more than before; worker threads are kept, and do not count."""
    async with asyncio.timeout(PATIENCE):
        while True:
            now = await peer.call("census", result=Census)
            if now.tasks <= before.tasks and now.descriptors <= before.descriptors and now.children <= before.children:
                return
            await asyncio.sleep(NAP)


Serve = Callable[..., Server]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serve]:
    """Starts `dragoman serve` of the faulty service: `serving("tcp://127.0.0.1:0", "--limit", "calls=10")`."""
    started: list[Server] = []

    def serve(*words: str, descriptors: int | None = None) -> Server:
        command = [sys.executable, "-m", "dragoman", "serve", "tests.faults.service:api", *words, "--json"]
        errors = tmp_path / f"stderr {len(started)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file)
        server = Server(process, errors)
        started.append(server)
        if descriptors is not None:
            server.memory.rlimit(psutil.RLIMIT_NOFILE, (descriptors, descriptors))
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the server ended with {process.wait()}: {server.errors()}")
        server.urls = msgspec.json.decode(line)["urls"]
        return server

    yield serve
    for server in started:
        process = server.process
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def child(*words: str) -> list[str]:
    """The command of a server on standard input and output."""
    return [sys.executable, "-m", "dragoman", "serve", "tests.faults.service:api", "stdio:", *words]
