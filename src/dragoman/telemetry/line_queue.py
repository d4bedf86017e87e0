"""Writes lines without blocking the loop: their reader may be slow, or may not read at all.

Rules: `put` never blocks; a thread writes. The queue is bounded (`BACKLOG`); lines beyond it are dropped and counted,
and a line instead of them says how many. At the end `flush` waits a short time for a slow reader.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable

BACKLOG = 256 * 1024
"""Characters that the queue holds: some hundred tracebacks, and little of a server's memory."""
PATIENCE = 1.0
"""Seconds to wait for a slow reader at the end of the process."""


def _dropped(count: int) -> str:
    """Return the line that says how many were dropped."""
    words = "1 line was" if count == 1 else f"{count} lines were"
    return f"dragoman: {words} dropped here: stderr was not read\n"


class LineQueue:
    """A queue of lines and the thread that writes them. `write` may block; it is called in that thread only.
    `dropped`: returns the line that says how many were dropped."""

    def __init__(
        self, write: Callable[[str], object], backlog: int = BACKLOG, dropped: Callable[[int], str] = _dropped
    ) -> None:
        self._write = write
        self._backlog = backlog
        self.dropped = dropped
        self._waiting: deque[str] = deque()
        self._size = self._lost = 0
        self._writing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, text: str) -> None:
        """Queue a line, with its line end; drop and count it if the queue is full."""
        with self._changed:
            if self._size + len(text) > self._backlog:
                self._lost += 1
                return
            self._add(text)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dragoman-stderr", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, patience: float = PATIENCE) -> None:
        """Wait until all lines are written, or `patience` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._writing or self._lost), patience)

    def _add(self, text: str) -> None:
        if self._lost:
            line = self.dropped(self._lost)
            self._lost = 0
            self._add(line)
        self._waiting.append(text)
        self._size += len(text)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                if not self._waiting and self._lost:
                    self._add("")
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                text = self._waiting.popleft()
                self._size -= len(text)
                self._writing = True
            with contextlib.suppress(OSError, ValueError):  # stderr is closed
                self._write(text)


def to_stderr(text: str) -> None:
    """Write to stderr, past Python's buffer: a thread that is blocked inside that is a fatal error when the interpreter
    ends."""
    try:
        where = sys.stderr.fileno()
    except (OSError, ValueError):  # sys.stderr was replaced by an object in memory
        sys.stderr.write(text)
        return
    raw = text.encode(sys.stderr.encoding or "utf-8", "backslashreplace")
    while raw:
        raw = raw[os.write(where, raw) :]
