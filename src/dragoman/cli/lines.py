"""Writes lines to stderr without blocking the loop: the parent process may not read them.

Rules: `put` never blocks; a thread writes. The queue is bounded (`BACKLOG`); lines beyond it are dropped and counted,
and a line in their place gives the number. At the end `flush` waits a short time for a slow reader.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from rich.text import Text

from .terminal import clean, err

BACKLOG = 256 * 1024
"""Characters that the queue holds: some hundred tracebacks, and little of a server's memory."""
PATIENCE = 1.0
"""Seconds to wait for a slow reader at the end of the process."""


class Lines:
    """A queue of lines and the thread that writes them. `write` may block; it is called in that thread only."""

    def __init__(self, write: Callable[[str], object], backlog: int = BACKLOG) -> None:
        self._write = write
        self._backlog = backlog
        self._waiting: deque[str] = deque()
        self._size = self._dropped = 0
        self._writing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, text: str) -> None:
        """Queue a line, with its line end; drop and count it if the queue is full."""
        with self._changed:
            if self._size + len(text) > self._backlog:
                self._dropped += 1
                return
            self._add(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dragoman-stderr", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, patience: float = PATIENCE) -> None:
        """Wait until all lines are written, or `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._writing or self._dropped), patience)

    def _add(self, text: str) -> None:
        if self._dropped:
            words = "1 line was" if self._dropped == 1 else f"{self._dropped} lines were"
            self._dropped = 0
            self._add(f"dragoman: {words} dropped here: stderr was not read\n")
        self._waiting.append(text)
        self._size += len(text)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                if not self._waiting and self._dropped:
                    self._add("")
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                text = self._waiting.popleft()
                self._size -= len(text)
                self._writing = True
            with contextlib.suppress(OSError, ValueError):  # stderr is closed
                self._write(text)


def _to_stderr(text: str) -> None:
    """Bypass Python's buffer: a thread blocked inside it would be a fatal error when the interpreter ends."""
    try:
        where = sys.stderr.fileno()
    except (OSError, ValueError):  # sys.stderr was replaced by an object in memory
        sys.stderr.write(text)
        return
    raw = text.encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    while raw:
        raw = raw[os.write(where, raw) :]


lines = Lines(_to_stderr)
"""The queue of this process."""


def tell(text: str, style: str = "") -> None:
    """As `terminal.say`, but it never blocks."""
    with err.capture() as shown:
        err.print(Text(clean(text), style=style), soft_wrap=True)
    lines.put(shown.get())


class Handler(logging.Handler):
    """Writes log records as lines that are safe to print."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines.put(clean(self.format(record)) + "\n")
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """As `logging.Handler.flush`; called at the end of the process."""
        lines.flush()
