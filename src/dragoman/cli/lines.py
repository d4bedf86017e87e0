"""Lines for stderr from a loop that must not wait: the process that started us may not read them.

Rules: `put` never blocks; a thread writes. What waits is bounded (`BACKLOG`); what is beyond that is dropped, counted,
and told in a line of its own where it would have stood. At the end `flush` waits a moment for a slow reader, and no longer.
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
"""Characters that wait to be written: some hundred tracebacks, and little of a server's memory."""
PATIENCE = 1.0
"""Seconds for a slow reader at the end of the process."""


class Lines:
    """See the module's rules. `write` may block; it is called in one thread."""

    def __init__(self, write: Callable[[str], object], backlog: int = BACKLOG) -> None:
        self._write = write
        self._backlog = backlog
        self._waiting: deque[str] = deque()
        self._size = self._dropped = 0
        self._writing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, text: str) -> None:
        """Write it soon, with its line end; or count it, where too much waits already."""
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
        """Wait until all is written, or so many seconds."""
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
            with contextlib.suppress(OSError, ValueError):  # there is no stderr any more
                self._write(text)


def _to_stderr(text: str) -> None:
    """Past Python's own buffer: a thread that stands still in there would be a fatal error at the interpreter's end."""
    try:
        where = sys.stderr.fileno()
    except (OSError, ValueError):  # it was replaced by something in memory
        sys.stderr.write(text)
        return
    raw = text.encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    while raw:
        raw = raw[os.write(where, raw) :]


lines = Lines(_to_stderr)
"""This process's."""


def tell(text: str, style: str = "") -> None:
    """As `terminal.say`, and never blocking."""
    with err.capture() as shown:
        err.print(Text(clean(text), style=style), soft_wrap=True)
    lines.put(shown.get())


class Handler(logging.Handler):
    """Log records as lines that are safe to print."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines.put(clean(self.format(record)) + "\n")
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """As `logging.Handler.flush`; called at the end of the process."""
        lines.flush()
