"""Reads a long JSON text without going through its long strings more than once.

A decoder that leaves a member as `msgspec.Raw` examines each of its bytes, and the decoder of that member does so
again. Of a long text the long strings are therefore decoded first, each by itself, and a mark stands for each in the
short text that is left. What the short text decodes to has the marks where the long strings belong.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

LONG = 64 * 1024
"""Bytes of a text for which it is worth it, and of a string that is replaced."""
QUOTES = 256
"""Quotes that are examined; in a text with more of them condensing saves no time."""
_ESCAPES = 64
"""Backslashes in a row that are counted."""
_MARK = os.urandom(16).hex()
"""The beginning of every mark. It is random and known to this process alone, so no text that comes in contains it."""
_MARKED = _MARK.encode()

_text = msgspec.json.Decoder(str).decode


class Condensed:
    """A JSON text, or a member of one, without its long strings. `raw`: the whole of it as it came, not copied; `text`:
    what is left without the long strings; `strings`: these, by their marks."""

    __slots__ = ("_at", "_whole", "raw", "strings", "text")

    def __init__(self, whole: bytes, at: int, size: int, text: bytes, strings: dict[str, str]) -> None:
        self._whole = whole
        self._at = at  # where it begins in `whole`
        self.raw: Raw = Raw(memoryview(whole)[at : at + size])
        self.text: bytes = text
        self.strings: dict[str, str] = strings

    def member(self, value: Any) -> Condensed | None:
        """Return one member of the text, condensed; None if not all the long strings are in it. `value`: what the short
        text has there, as Raw; anything else gives None."""
        if type(value) is not Raw:
            return None
        found = bytes(value)
        if found.count(_MARKED) < len(self.strings):
            return None
        size = len(found) + len(self.raw) - len(self.text)
        return Condensed(self._whole, self._at + self.text.index(found), size, found, self.strings)

    def values(self, decode: Callable[[Raw], tuple[Any, ...]]) -> tuple[Any, ...] | None:
        """Return what `decode` makes of the whole text, if each long string is one of its values; otherwise None, also
        where it raises. `decode` must leave strings as they are."""
        try:
            values = decode(Raw(self.text))
        except Exception:  # the decoder of the whole text says what is wrong
            return None
        strings = self.strings
        found = [strings.get(value, value) if type(value) is str else value for value in values]
        replaced = sum(one is not value for one, value in zip(found, values, strict=True))
        return tuple(found) if replaced == len(strings) else None


def condensed(raw: bytes) -> Condensed | None:
    """`raw` without its long strings; None where it has none among its first quotes, or one is not JSON. The short text
    is JSON if `raw` is, and only then."""
    spans = _long_strings(raw)
    if not spans:
        return None
    view = memoryview(raw)
    strings: dict[str, str] = {}
    left: list[bytes] = []
    kept = 0
    try:
        for begin, end in spans:
            mark = f"{_MARK}{len(strings)}"
            strings[mark] = _text(view[begin:end])
            left += (raw[kept:begin], b'"', mark.encode(), b'"')
            kept = end
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    left.append(raw[kept:])
    return Condensed(raw, 0, len(raw), b"".join(left), strings)


def _long_strings(raw: bytes) -> list[tuple[int, int]] | None:
    """Where long strings begin and end, quotes included. Only quotes and the backslashes before them are looked at."""
    find = raw.find
    spans = []
    begin = find(b'"')
    quotes = QUOTES
    while begin >= 0 and quotes > 0:
        end = begin
        while True:
            end = find(b'"', end + 1)
            if end < 0:
                return None
            quotes -= 1
            before = raw[max(begin + 1, end - _ESCAPES) : end]
            escapes = len(before) - len(before.rstrip(b"\\"))
            if escapes == _ESCAPES or quotes < 0:
                return None
            if not escapes % 2:
                break
        if end - begin > LONG:
            spans.append((begin, end + 1))
        begin = find(b'"', end + 1)
    return spans
