"""A framing for JSON objects and arrays without separators between them; `framing` has the rules."""

from __future__ import annotations

import re

from .dropped import Ends
from .errors import too_large
from .limits import Limits
from .messages import Malformed

_NEXT = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([{}\[\]"])?', re.DOTALL)
"""The next bracket of a value, or the quote of an incomplete string; complete strings are skipped."""
_IN_STRING = re.compile(rb'["\\]')
_NOT_SPACE = re.compile(rb"[^ \t\r\n]")
_STRAY_END = re.compile(rb"[{\[\n]")


class JsonText:
    """JSON objects and arrays in a row, with white space or nothing between them (OVSDB: RFC 7047, 4.1).

    A value ends when as many brackets are closed as were opened, of either kind; the text between them need not be
    JSON. Text that does not begin with a bracket is returned as a message too, up to the next bracket or the end of its
    line. A value that is too long is reported at its end. Every byte is examined once.
    """

    __slots__ = ("_allowed", "_depth", "_ends", "_escaped", "_held", "_size", "_stray", "_string", "begun", "held")

    lost = False
    """Never: a value begins where the last one has ended."""
    gap = b" "
    """White space between two values."""

    def __init__(self, limits: Limits) -> None:
        self._allowed = limits.message_size
        self._depth = 0  # brackets that are open
        self._string = False  # inside a string
        self._escaped = False  # right behind a backslash in it
        self._stray = False  # inside text that does not begin with a bracket
        self._held = bytearray()
        self._size = 0  # bytes of the current value, dropped ones too
        self._ends = Ends()  # of a value that is too long
        self.held: int = 0
        self.begun: int = 0

    def feed(self, data: bytes) -> list[bytes | Malformed]:
        found: list[bytes | Malformed] = []
        at = start = 0  # where the current value begins in `data`
        size = len(data)
        while at < size:
            if self._depth:
                at = self._inside(data, at)
                if not self._depth:
                    self._finish(data, start, at, found)
                    start = at
            elif self._stray:
                end = _STRAY_END.search(data, at)
                at = size if end is None else end.start()
                if end is not None:
                    self._finish(data, start, at, found)
                    start = at
            elif (begin := _NOT_SPACE.search(data, at)) is None:
                start = at = size
            else:
                start = at = begin.start()
                if data[at] in b"{[":
                    self._depth = 1
                    at += 1
                else:
                    self._stray = True
        if start < size:
            self._hold(data[start:])
        return found

    def end(self) -> list[bytes | Malformed]:
        """Return what is left at the end of the stream: a cut value is a Malformed."""
        found: list[bytes | Malformed] = []
        if self._stray:
            self._finish(b"", 0, 0, found)
        elif self._depth:
            found.append(Malformed("parse", f"The stream ended inside a value: {self._size} bytes of it came"))
        self._depth = self._size = self.held = 0
        self._stray = self._string = self._escaped = False
        self._held.clear()
        return found

    def wrap(self, message: bytes) -> bytes:
        """Return the message unchanged: JSON values need nothing between them."""
        return message

    def _inside(self, data: bytes, at: int) -> int:
        """Continue a value to its next bracket; return the position after it."""
        if self._escaped:
            self._escaped = False
            return at + 1
        if self._string:
            mark = _IN_STRING.search(data, at)
            if mark is None:
                return len(data)
            self._string = data[mark.start()] == 0x5C
            self._escaped = self._string
            return mark.end()
        mark = _NEXT.match(data, at)
        assert mark is not None  # it also matches an empty text
        kind = mark[1]
        if kind == b'"':
            self._string = True
        elif kind is not None:
            self._depth += 1 if kind in b"{[" else -1
        return mark.end()

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._allowed:
            self._held += piece
        else:
            self._ends.drop(self._held, piece)
        self.held = len(self._held)

    def _finish(self, data: bytes, start: int, end: int, found: list[bytes | Malformed]) -> None:
        size = self._size + end - start
        if size > self._allowed:
            self._ends.drop(self._held, data[start:end])
            found.append(self._ends.report(too_large("message_size", self._allowed, size)))
        else:
            message = bytes(self._held) + data[start:end] if self._size else data[start:end]
            found.append(message.rstrip() if self._stray else message)
        self._stray = False
        if self._size:
            self._held.clear()
            self._size = self.held = 0
            self.begun += 1
