"""Reads the frame of a long JSON text without going through its long strings once more.

A decoder that leaves a member as `msgspec.Raw` examines each of its bytes. Where the text was examined already, that
pass is saved: the long strings are replaced by a mark, the short text that is left is decoded, and from the place of
the marks follows which part of the whole text a member of the short one is. Nothing long is copied to be kept.
"""

from __future__ import annotations

import os

from msgspec import Raw

LONG = 64 * 1024
"""Bytes of a text for which it is worth it, and of a string that is replaced."""
QUOTES = 256
"""Quotes that are looked at: where there are more, nothing is won."""
_ESCAPES = 64
"""Backslashes in a row that are counted."""
_MARK = os.urandom(16).hex().encode()
"""Stands for a string; no one outside this process can know it, so no text has it by itself."""


class Condensed:
    """A sound JSON text without its long strings. `text`: what is left."""

    __slots__ = ("_marks", "_saved", "text")

    def __init__(self, text: bytes, marks: int, saved: int) -> None:
        self.text: bytes = text
        self._marks = marks
        self._saved = saved  # bytes by which it is shorter

    def place(self, part: Raw) -> slice | None:
        """Where a member of the short text is in the whole one; None if not all the long strings are in it."""
        found = bytes(part)
        if found.count(_MARK) < self._marks:
            return None
        begin = self.text.index(found)
        return slice(begin, begin + len(found) + self._saved)


def condensed(raw: bytes) -> Condensed | None:
    """`raw` without its long strings; None where it has none among its first quotes. It must be known to be JSON: only
    quotes and the backslashes before them are looked at."""
    find = raw.find
    left: list[bytes] = []
    kept = 0
    begin = find(b'"')
    quotes = QUOTES
    while begin >= 0 and quotes > 0:
        end = begin
        while True:
            end = find(b'"', end + 1)
            quotes -= 1
            before = raw[max(begin + 1, end - _ESCAPES) : end]
            escapes = len(before) - len(before.rstrip(b"\\"))
            if escapes == _ESCAPES or quotes < 0:
                return None
            if not escapes % 2:
                break
        if end - begin > LONG:
            left += (raw[kept : begin + 1], _MARK)
            kept = end
        begin = find(b'"', end + 1)
    if not left:
        return None
    marks = len(left) // 2
    left.append(raw[kept:])
    text = b"".join(left)
    return Condensed(text, marks, len(raw) - len(text))
