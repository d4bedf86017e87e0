"""The worker's side: the sockets and options that the supervisor passes to it, and the control pipe between them.

The supervisor (`supervisor`) starts a program that calls `serve`. The environment variable DRAGOMAN_WORKER says which
file descriptors are the worker's sockets and its control pipe. Rules:

- The first `serve` of the process takes the variable out of the environment, so child processes are not workers.
- The worker sends `ready` and its drain time in seconds once it listens; told to `drain` it closes as it would by
  itself.
- When the pipe ends, the supervisor is dead and the worker drains. A thread reads the pipe, so that a worker that has
  not drained in time is ended even if a handler blocks the loop.
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
"""Seconds after the drain time until the process is ended."""


class WorkerSpec(Struct, frozen=True):
    """What the supervisor passes to a worker. `line`: the descriptor of the control pipe; `sockets`: as
    `Options.sockets`; `announce`: whether this worker prints what is served and where; `supervisor`: the supervisor's
    process id; `load_board`: the descriptor of the shared memory with each worker's number of channels, see
    `net.accept`."""

    number: int
    line: int
    supervisor: int
    load_board: int
    announce: bool = False
    sockets: dict[str, list[int]] = field(default_factory=dict)


def employed() -> WorkerSpec | None:
    """The specification of this process, if it is a worker and no `serve` has taken it before."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return None
    job = msgspec.json.decode(text, type=WorkerSpec)
    for number in (job.line, job.load_board, *(one for several in job.sockets.values() for one in several)):
        with contextlib.suppress(OSError):  # reported where it is used
            os.set_inheritable(number, False)
    return job


class ControlPipe:
    """The pipe to the supervisor. `drain` is called on the loop when the supervisor says so, and when it is dead."""

    def __init__(self, job: WorkerSpec, drain: Callable[[], object], seconds: float) -> None:
        self._socket = socket.socket(fileno=job.line)
        self._drain = drain
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        threading.Thread(target=self._read, name="dragoman-line", daemon=True).start()

    def ready(self) -> None:
        """Report that the worker listens."""
        with contextlib.suppress(OSError):  # the supervisor is dead; the thread sees that too
            self._socket.sendall(b"%b %g\n" % (READY, self._seconds))

    def close(self) -> None:
        """Close the pipe: the worker has ended."""
        self._over.set()

    def _read(self) -> None:
        said = self._next()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the worker has ended
            self._loop.call_soon_threadsafe(self._drain)
        while said:  # told to drain; the supervisor may still die
            said = self._next()
        if not self._over.wait(self._seconds + GRACE):
            os._exit(1)  # the supervisor is dead and the worker has not drained in time

    def _next(self) -> bytes:
        """The next message of the supervisor, always `DRAIN`; empty when it is dead."""
        try:
            return self._socket.recv(64)
        except OSError:
            return b""
