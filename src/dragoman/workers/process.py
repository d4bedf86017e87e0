"""One worker as the supervisor sees it: its process, and the control pipe to it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket

from ..system.processes import describe_status
from ..system.signals import KILL
from .worker import ANSWER, DRAIN, QUERY, READY, REPORT, REPORT_REQUEST

DRAIN_TIME = 30.0
"""Seconds for the drain of a worker that has not reported its own drain time."""
CHUNK = 256 * 1024
"""Bytes of a report that are read at once."""
UNSENT = 1024 * 1024
"""Bytes that a worker has not read yet; above them it gets no more requests. A process that is stopped reads
nothing."""
REPORT_SIZE = 64 * 1024 * 1024
"""Bytes that a worker's report may have; more than the metrics of a thousand services."""


class WorkerProcess:
    """One process. `ready`: whether it listened in time; `over`: its exit status."""

    def __init__(self, number: int, generation: int, process: asyncio.subprocess.Process, pipe: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.number: int = number
        self.generation: int = generation
        self.process = process
        self.pid: int = process.pid
        self.since: float = loop.time()
        self.ready: asyncio.Future[bool] = loop.create_future()
        self.over: asyncio.Task[int] = loop.create_task(process.wait())
        self.seconds: float = DRAIN_TIME
        self.report: bytes = b""
        """The last report that it sent; empty if none."""
        self.draining: bool = False
        self._report_due: asyncio.Future[None] | None = None
        self._queries: dict[int, asyncio.Future[bytes]] = {}
        self._last_query = 0
        self._partial = b""
        self._pipe = pipe
        self._unsent = bytearray()
        loop.add_reader(pipe, self._receive)
        self.over.add_done_callback(self._ended)

    def _receive(self) -> None:
        try:
            data = self._pipe.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
            self._end_report_request()
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > REPORT_SIZE:
            self._partial = b""
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == READY and not self.ready.done():
                self.seconds = float(rest)
                self.since = asyncio.get_running_loop().time()
                self.ready.set_result(True)
            elif word == REPORT:
                self.report = rest
                self._end_report_request()
            elif word == ANSWER:
                number, _, answer = rest.partition(b" ")
                self._settle(int(number), answer)

    def request_report(self) -> asyncio.Future[None]:
        """Request a report. The future is done when `report` is new, or when none will come."""
        if self._report_due is None or self._report_due.done():
            self._report_due = asyncio.get_running_loop().create_future()
            if not self._send(REPORT_REQUEST):
                self._end_report_request()
        return self._report_due

    def query(self, message: bytes) -> asyncio.Future[bytes]:
        """Send a JSON-RPC message of one line. The future has its answer, empty if none will come."""
        self._last_query = number = self._last_query + 1
        answer = self._queries[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda over: self._queries.pop(number, None))
        if not self._send(b"%b %d %b\n" % (QUERY, number, message)):
            self._settle(number, b"")
        return answer

    def _send(self, line: bytes) -> bool:
        """Send a line whole, as soon as the worker reads. False if it has ended, or has much to read already."""
        if self.over.done() or len(self._unsent) > UNSENT:
            return False
        self._unsent += line
        return self._flush()

    def _flush(self) -> bool:
        loop, lost = asyncio.get_running_loop(), False
        try:
            del self._unsent[: self._pipe.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended
            self._unsent.clear()
            lost = True
        if self._unsent:
            loop.add_writer(self._pipe, self._flush)
        else:
            loop.remove_writer(self._pipe)
        return not lost

    def _settle(self, number: int, answer: bytes) -> None:
        waiting = self._queries.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _end_report_request(self) -> None:
        if self._report_due is not None and not self._report_due.done():
            self._report_due.set_result(None)

    def _ended(self, over: asyncio.Task[int]) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        asyncio.get_running_loop().remove_writer(self._pipe)
        self._read_rest()
        self._pipe.close()
        self._end_report_request()
        for number in list(self._queries):
            self._settle(number, b"")
        if not self.ready.done():
            self.ready.set_result(False)

    def _read_rest(self) -> None:
        """Read what it has sent before its end: its last report."""
        before = None
        while before != (before := (len(self._partial), self.report)):
            self._receive()

    def drain(self) -> None:
        """Have the worker drain. One that does not listen yet gets SIGTERM instead."""
        if self.over.done():
            return
        self.draining = True
        if not self.ready.done():
            self._signal(signal.SIGTERM)
            return
        self._unsent += DRAIN  # after all that it has not read
        self._flush()

    def kill(self) -> None:
        """Kill it."""
        self._signal(KILL)

    def _signal(self, number: int) -> None:
        if not self.over.done():
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def how(self) -> str:
        """Return how it ended, for the log."""
        return describe_status(self.over.result())
