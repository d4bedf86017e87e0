"""Let a pair meet: both ends are processes, but for our client, which runs here."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.ports import free_port

from . import ours
from .environments import CACHE, PYTHON, ROOT, program, variables
from .pairs import Pair

HERE = Path(__file__).parent / "peers"
PATIENCE = 180.0
"""Seconds for a whole meeting; each feature has its own, shorter, time."""
STARTING = 120.0
EVERYTHING = {"stdio": "stdio", "http": "streamableHttp", "sse": "sse"}


class Failed(Exception):
    """A meeting that did not come about; the text is the last output of the side that failed."""


def meet(pair: Pair) -> dict[str, Any]:
    """What came of each feature, and `revision`. Raises Missing, Failed."""
    server = serving(pair)
    if pair.wire == "stdio":
        return calling(pair, [*server, "stdio"])
    port = free_port()
    with listening([*server, *listen_words(pair, port)], port, {"PORT": str(port)}):
        path = "sse" if pair.wire == "sse" else "mcp"
        return calling(pair, [f"http://127.0.0.1:{port}/{path}"])


def serving(pair: Pair) -> list[str]:
    """The server's command, without its wire."""
    if pair.role == "client":
        return [sys.executable, "-m", "tests.interop.mcp.served"]
    if pair.peer == "everything":
        package = CACHE / "node" / "node_modules" / "@modelcontextprotocol" / "server-everything"
        return [*program(pair.peer), str(package / "dist" / "index.js")]
    return script(pair)


def script(pair: Pair) -> list[str]:
    """The command of the peer's program for its role."""
    suffix = "py" if pair.peer in PYTHON else "mjs"
    return [*program(pair.peer), str(HERE / f"{pair.peer}_{pair.role}.{suffix}")]


def listen_words(pair: Pair, port: int) -> list[str]:
    """The server's arguments where it listens."""
    if pair.peer == "everything":
        return [EVERYTHING[pair.wire]]
    return [pair.wire, str(port)]


def calling(pair: Pair, target: list[str]) -> dict[str, Any]:
    """Run the client's side."""
    if pair.role == "server":
        return asyncio.run(ours.found(pair, target))
    command = [*script(pair), pair.era, *target]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as late:
        said = late.stderr.decode(errors="replace") if isinstance(late.stderr, bytes) else ""
        raise Failed(f"{pair.id}: the client does not end; {said[-1500:]}") from late
    lines = done.stdout.strip().splitlines()
    if not lines:
        raise Failed(f"{pair.id}: {done.stderr.strip()[-1500:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@contextmanager
def listening(command: list[str], port: int, extra: dict[str, str]) -> Iterator[None]:
    """A server in a process (and its children) that listens; ended afterwards."""
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=variables() | extra,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        try:
            await_port(child, port, said)
            yield
        finally:
            end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    try:
        first = psutil.Process(child.pid)
        found = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        found = []
    for one in found:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    _, left = psutil.wait_procs(found, timeout=10)
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    child.wait()


def await_port(child: subprocess.Popen[bytes], port: int, said: Any) -> None:
    """Return once connections are accepted there."""
    deadline = time.monotonic() + STARTING
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            pass
        if child.poll() is not None or time.monotonic() > deadline:
            said.seek(0)
            raise Failed(f"{' '.join(child.args)}: {said.read().decode(errors='replace')[-1500:]}")  # type: ignore[arg-type]
        time.sleep(0.05)
