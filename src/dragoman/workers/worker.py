"""The worker's side: the sockets and options that the supervisor passes to it, and the control pipe between them.

The supervisor (`supervisor`) starts a program that calls `serve`. The environment variable DRAGOMAN_WORKER says which
file descriptors are the worker's sockets and its control pipe. Rules:

- The first `serve` of the process takes the variable out of the environment, so child processes are not workers.
- The worker sends `ready` and its drain time in seconds once it listens; at `drain` it closes as it would by itself. At
  `report` it sends its report, and one more when it has ended. A `query` with a number gets an `answer` with the same
  number; both hold a JSON-RPC message. Each message is one line.
- When the pipe ends, the supervisor is dead and the worker drains. A thread reads the pipe, so that a worker that has
  not drained in time is ended even if a handler blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Struct, field

from ..jsonrpc.errors import LocalError
from ..system.processes import WORKERS

VARIABLE = "DRAGOMAN_WORKER"
"""The environment variable with the `WorkerSpec`, as JSON."""
MOST = 1_024
"""Workers of one supervisor: each holds sockets, pipes and a process; a greater number is a typing error."""
READY = b"ready"
DRAIN = b"drain\n"
REPORT = b"report"
REPORT_REQUEST = REPORT + b"\n"
QUERY = b"query"
ANSWER = b"answer"
LAST_WORDS = 1.0
"""Seconds that the last report of a worker may take to be sent."""
GRACE = 3.0
"""Seconds after the drain time until the process is ended."""


class WorkerSpec(Struct, frozen=True):
    """What the supervisor passes to a worker. `pipe`: the descriptor of the control pipe; `sockets`: as
    `Options.sockets`; `announce`: whether this worker prints what is served and where; `supervisor`: the supervisor's
    process id; `load_board`: the descriptor of the shared memory with each worker's number of channels, see
    `net.accept`; `group`: the name of all workers of that supervisor, which others do not have."""

    number: int
    pipe: int
    supervisor: int
    load_board: int
    announce: bool = False
    group: str = ""
    sockets: dict[str, list[int]] = field(default_factory=dict)


def check_count(workers: int) -> None:
    """Raise LocalError for a number of workers that cannot serve."""
    if not WORKERS:
        raise LocalError(
            "there are no workers on Windows, where processes cannot share listening sockets: "
            "serve in one process, or start several behind a proxy"
        )
    if not 1 <= workers <= MOST:
        raise LocalError(f"{workers} workers cannot serve: at least 1, at most {MOST}")


def take_worker_spec() -> WorkerSpec | None:
    """Return the specification of this process, if it is a worker and no `serve` has taken it before."""
    text = os.environ.pop(VARIABLE, "")
    if not text:
        return None
    spec = msgspec.json.decode(text, type=WorkerSpec)
    for number in (spec.pipe, spec.load_board, *(one for several in spec.sockets.values() for one in several)):
        with contextlib.suppress(OSError):  # reported where it is used
            os.set_inheritable(number, False)
    return spec


class ControlPipe:
    """The pipe to the supervisor. `drain` is called on the loop when the supervisor requests it, and when it is dead.
    `report`: makes the report for the supervisor, on the loop, as one line without its end. `answer`: answers JSON-RPC
    messages of the supervisor, on the loop and by one line, too; without it they get an empty answer."""

    def __init__(
        self,
        spec: WorkerSpec,
        drain: Callable[[], object],
        seconds: float,
        report: Callable[[], bytes] | None = None,
        answer: Callable[[bytes], Awaitable[bytes | None]] | None = None,
    ) -> None:
        self._socket = socket.socket(fileno=spec.pipe)
        self._drain = drain
        self._report = report
        self._answer = answer
        self._answering: set[asyncio.Task[None]] = set()
        self._sending = threading.Lock()
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        threading.Thread(target=self._read, name="dragoman-pipe", daemon=True).start()

    def ready(self) -> None:
        """Report that the worker listens."""
        self._send(b"%b %g\n" % (READY, self._seconds))

    def close(self) -> None:
        """Close the pipe: the worker has ended."""
        for task in tuple(self._answering):
            task.cancel()
        if self._report is not None:
            self._send_report().join(LAST_WORDS)
        self._over.set()

    def _send(self, line: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):  # the supervisor is dead; the reading thread sees that too
            self._socket.sendall(line)

    def _send_report(self) -> threading.Thread:
        """Make the report, and send it from a thread: the supervisor may be slow."""
        made = b"" if self._report is None else self._report()
        return self._send_in_thread(b"%b %b\n" % (REPORT, made))

    def _begin_answer(self, query: bytes) -> None:
        task = self._loop.create_task(self._send_answer(query))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _send_answer(self, query: bytes) -> None:
        number, _, message = query.partition(b" ")
        made = None if self._answer is None else await self._answer(message)
        self._send_in_thread(b"%b %b %b\n" % (ANSWER, number, made or b""))

    def _send_in_thread(self, line: bytes) -> threading.Thread:
        thread = threading.Thread(target=self._send, args=(line,), daemon=True)
        thread.start()
        return thread

    def _read(self) -> None:
        rest, draining = b"", False
        while data := self._next():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                word, _, query = line.partition(b" ")
                if word == REPORT:
                    self._on_loop(self._send_report)
                elif word == QUERY:
                    self._on_loop(partial(self._begin_answer, query))
                elif not draining:  # DRAIN; the pipe is read on, because the supervisor may still die
                    draining = True
                    self._on_loop(self._drain)
        if not draining:
            self._on_loop(self._drain)
        if not self._over.wait(self._seconds + GRACE):
            os._exit(1)  # the supervisor is dead and the worker has not drained in time

    def _on_loop(self, work: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the worker has ended
            self._loop.call_soon_threadsafe(work)

    def _next(self) -> bytes:
        """Return what the supervisor sends next, `REPORT_REQUEST`, `DRAIN` or a query; empty when it is dead."""
        try:
            return self._socket.recv(1024)
        except OSError:
            return b""
