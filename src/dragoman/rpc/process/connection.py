"""A child process's end of the pipe to its parent.

Rules:

- A thread reads what the parent sends, so that answers arrive while the function works, and the end of the parent is
  noticed: then the child kills itself, with all processes of its own. Code that never lets go of the interpreter's lock
  keeps it from that until it does.
- Records of the log go to the parent, whose handlers and levels decide about them.
"""

from __future__ import annotations

import concurrent.futures
import logging
import os
import queue
import sys
import threading
import time
from itertools import count
from typing import Any, BinaryIO, Final

from ...jsonrpc.errors import LocalError
from ...system.processes import die
from .frames import (
    AnswerFrame,
    BegunFrame,
    CallFrame,
    ForgetFrame,
    Frame,
    FrameReader,
    LogFrame,
    OutcomeFrame,
    SetupFrame,
    UseFrame,
    check_size,
    pack,
    pack_value,
    unpack_error,
    unpack_value,
)

_CHUNK: Final = 256 * 1024
_GRACE: Final = 5.0
"""Seconds for an idle child to end by itself once its parent has closed the pipe."""
_LONGEST: Final = 16_000
"""Characters of each text in a record of the log."""


class ParentConnection:
    """The child's end of the pipe."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, concurrent.futures.Future[Any]] = {}
        self._process = os.getpid()
        self._busy = False
        self._limit = 0
        self.calls: queue.SimpleQueue[CallFrame | None] = queue.SimpleQueue()
        """The calls to run; None: the parent wants no more."""
        self.awaits: bool = False
        """Whether the function that runs is an `async def`."""

    # -- what the parent sends

    def read(self) -> None:
        """Read frames until the parent closes the pipe; the main function of a thread."""
        frames = FrameReader()  # the parent bounds what it sends
        while data := self._incoming.read(_CHUNK):
            for frame in frames.feed(data):
                self._receive(frame)
        if self._busy:
            die()
        self.calls.put(None)
        time.sleep(_GRACE)
        die()

    def _receive(self, frame: Frame) -> None:
        if isinstance(frame, SetupFrame):
            self._limit = frame.message_size
            sys.argv[:] = frame.arguments
            logging.getLogger().setLevel(frame.level)
        elif isinstance(frame, CallFrame):
            self._busy = True
            self.send(BegunFrame())
            self.calls.put(frame)
        elif isinstance(frame, AnswerFrame):
            waiting = self._waiting.pop(frame.number, None)
            if waiting is None or not waiting.set_running_or_notify_cancel():
                return
            if frame.failed:
                waiting.set_exception(unpack_error(frame.value))
                return
            try:
                waiting.set_result(unpack_value(frame.value, "an answer of the context"))
            except LocalError as error:
                waiting.set_exception(error)

    # -- what it sends

    def send(self, frame: Frame) -> None:
        """Send a frame, from any thread. Raises LocalError in a process that was forked from this one, and has the same
        pipe."""
        if os.getpid() != self._process:
            raise LocalError("a process that was forked from a child process has no context and no log of its server")
        text = pack(frame)
        with self._lock:
            try:
                self._outgoing.write(text)
                self._outgoing.flush()
            except OSError:  # the parent has ended
                die()

    def ask(self, context: int, path: str, given: tuple[Any, Any] | None) -> concurrent.futures.Future[Any]:
        """Use a member of a context: read it, or call it with `given`, its arguments and named arguments. Raises
        LocalError for arguments that cannot be sent."""
        text = None if given is None else pack_value(given, f"an argument of ctx.{path}")
        if text is not None:
            check_size(text, self._limit, f"ctx.{path}: its arguments")
        number = next(self._numbers)
        waiting = self._waiting[number] = concurrent.futures.Future[Any]()
        self.send(UseFrame(number, context, path, text))
        waiting.add_done_callback(lambda done: self._forget(number) if done.cancelled() else None)
        return waiting

    def _forget(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self.send(ForgetFrame(number))

    def pack_result(self, value: Any, what: str) -> bytes:
        """Return the pickle of a result. Raises LocalError for one that cannot be sent."""
        text = pack_value(value, what)
        check_size(text, self._limit, what)
        return text

    def finish(self, outcome: OutcomeFrame) -> None:
        """Send how a call ended."""
        self._busy = False
        self.send(outcome)


class ToParent(logging.Handler):
    """Sends records to the parent."""

    def __init__(self, connection: ParentConnection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        try:
            plain = str | int | float | bool | None
            found = vars(record) | {"msg": self.format(record), "args": None, "exc_text": None}
            self._connection.send(
                LogFrame(
                    {
                        name: value[:_LONGEST] if isinstance(value, str) else value
                        for name, value in found.items()
                        if isinstance(value, plain)
                    }
                )
            )
        except LocalError:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)
