"""The bytes of responses, as the native server sends them. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus

from .messages import Answer, Head, Lines

_BAD_LINE = re.compile(r"[\r\n\0]")
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def compose(
    head: Head, more: Lines, answer: Answer, *, keep: bool, chunked: bool = False, length: int | None = None
) -> bytes:
    """The bytes of an answer, or of its head (`length` None: it has no known length). `more`: header fields that go
    with it. ValueError for a bad header."""
    status = answer.status
    out = _lines(status, tuple(answer.headers), (*head.extra, *more) if more else tuple(head.extra))
    if chunked:
        out += b"Transfer-Encoding: chunked\r\n"
    elif length is not None and status not in (204, 304):
        out += b"Content-Length: %d\r\n" % length
    if not keep:
        out += b"Connection: close\r\n"
    elif head.old:
        out += b"Connection: keep-alive\r\n"
    return out + b"\r\n"


@lru_cache(maxsize=256)
def _lines(status: int, headers: Lines, extra: Lines) -> bytes:
    """The status line and these fields, which come again and again."""
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}\r\n"]
    for name, value in (*headers, *extra):
        if _BAD_LINE.search(name + value):
            raise ValueError(f"the header {name!r} has more than one line")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")
