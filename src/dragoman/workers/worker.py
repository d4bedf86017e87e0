"""A worker's own side of its employment: what the supervisor handed down, and the line to it.

The supervisor (`workers`) starts a program that calls `serve`, and says in the environment's DRAGOMAN_WORKER which
sockets are its own and where the line to the supervisor is. Rules:

- The first `serve` of the process takes the employment, out of the environment too: its children have none.
- It says `ready` and its drain time in seconds once it listens; told `drain` it closes as it would by itself.
- When the line ends, the supervisor is dead and the worker drains; what is not over by then ends hard, even where a
  handler blocks the loop: the line is read by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable

import msgspec
from msgspec import Struct, field

VARIABLE = "DRAGOMAN_WORKER"
READY = b"ready"
DRAIN = b"drain\n"
GRACE = 3.0
"""Seconds beyond the drain time for a process to end, before it is ended."""


class WorkerSpec(Struct, frozen=True):
    """What the supervisor hands down. `line`: the descriptor of a socket; `sockets`: see `Options.sockets`;
    `announce`: this worker says what is served and where; `supervisor`: the supervisor's process id; `crowd`: the
    descriptor of the memory in which workers see what each carries, see `net.accept`."""

    number: int
    line: int
    supervisor: int
    crowd: int
    announce: bool = False
    sockets: dict[str, list[int]] = field(default_factory=dict)


def employed() -> WorkerSpec | None:
    """The employment of this process, if it is a worker and it was not taken before."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return None
    job = msgspec.json.decode(text, type=WorkerSpec)
    for number in (job.line, job.crowd, *(one for several in job.sockets.values() for one in several)):
        with contextlib.suppress(OSError):  # told by what uses it
            os.set_inheritable(number, False)
    return job


class ControlPipe:
    """The line to the supervisor. `drain` is called on the loop when it says so, and when it is dead."""

    def __init__(self, job: WorkerSpec, drain: Callable[[], object], seconds: float) -> None:
        self._socket = socket.socket(fileno=job.line)
        self._drain = drain
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        threading.Thread(target=self._read, name="dragoman-line", daemon=True).start()

    def ready(self) -> None:
        """We listen."""
        with contextlib.suppress(OSError):  # it is dead; the thread sees that too
            self._socket.sendall(b"%b %g\n" % (READY, self._seconds))

    def close(self) -> None:
        """There is nothing more to be told."""
        self._over.set()

    def _read(self) -> None:
        said = self._next()
        with contextlib.suppress(RuntimeError):  # the loop is closed: so is everything
            self._loop.call_soon_threadsafe(self._drain)
        while said:  # told to drain; the supervisor may die still
            said = self._next()
        if not self._over.wait(self._seconds + GRACE):
            os._exit(1)  # orphaned, and still not done

    def _next(self) -> bytes:
        """What it says next, nothing but `DRAIN`; empty when it is dead."""
        try:
            return self._socket.recv(64)
        except OSError:
            return b""
