"""Server-Sent Events, both directions: bytes to events, events to bytes. Pure.

The rules are those of the HTML standard, section 9.2 (event streams):

- A line ends with LF, CR or CRLF; one byte-order mark at the beginning is skipped; lines that begin with a
  colon are comments; unknown fields are ignored.
- A blank line dispatches the collected event. Without a `data` line nothing is dispatched, but an `id` counts.
- `id` lasts until the next one, and one with NUL in it is ignored; `retry` counts when it is all digits; what the
  end of the stream cuts off is dropped.

Our addition: an event has a limit of bytes. A longer one is reported as `EventTooLong` as soon as that shows, and
dropped as it arrives; the following events are read as usual. Time is linear in the input, however it is cut into
chunks.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
_FIELD = len("data: ")
_DIGITS = 15
_SEPARATOR = b"\xe2\x80"
"""Begins U+2028 and U+2029, the separators of lines and paragraphs."""
_LF, _CR = b"\n\r"  # numbers: for bytes `in` tries them as a number first, and that fails inside


class SseEvent(Struct, frozen=True, gc=False):
    """One event, as it was dispatched."""

    data: bytes
    """Its data lines, joined by LF, not decoded: the reader decides how strictly."""
    event: str = "message"
    """Its type."""
    id: str = ""
    """The last event ID of the stream at this event, "" for none."""


class EventTooLong(Struct, frozen=True, gc=False):
    """An event of more than `allowed` bytes, which was dropped."""

    allowed: int


class Parser:
    """One event stream. `feed` it bytes as they come.

    `last_id` and `retry` (milliseconds, None until set) are the latest values of the stream, whether or not an event
    was dispatched with them.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_id",
        "_limit",
        "_partial",
        "_rest",
        "_skip",
        "_start",
        "_type",
        "last_id",
        "retry",
    )

    def __init__(self, limit: int, last_id: str = "") -> None:
        self._limit = limit
        self._partial: bytes | bytearray = b""
        """The beginning of an incomplete line."""
        self._rest: bytearray | None = None
        self._data: bytes | None = None
        self._type = b""
        self._id = last_id
        self._after_cr = False
        self._skip = False
        self._start = True
        self.last_id: str = last_id
        self.retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent | EventTooLong]:
        """The events that `chunk` completes, in order."""
        found: list[SseEvent | EventTooLong] = []
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":  # of a CRLF that was cut in two
                chunk = chunk[1:]
        if not chunk:
            return found
        lines = chunk.splitlines()
        last = chunk[-1]
        if last == 10 or last == 13:
            self._after_cr = last == 13
            tail = b""
        else:
            tail = lines.pop()
        if lines and self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial = b""
        for line in lines:
            if line:
                self._line(line, found)
            else:
                self._dispatch(found)
        if tail:
            self._keep(tail, found)
        return found

    def _keep(self, tail: bytes, found: list[SseEvent | EventTooLong]) -> None:
        """Keep the beginning of an incomplete line."""
        if not self._partial:
            self._partial = tail
        else:
            if type(self._partial) is bytes:
                self._partial = bytearray(self._partial)
            self._partial += tail
        if self._size() + len(self._partial) > self._limit + _FIELD:
            self._drop(found)
            self._partial = b":"  # the rest of the line is a comment to us

    def _size(self) -> int:
        if self._rest is not None:
            return len(self._rest)
        return 0 if self._data is None else len(self._data) + 1

    def _drop(self, found: list[SseEvent | EventTooLong]) -> None:
        if not self._skip:
            self._skip = True
            self._data = self._rest = None
            found.append(EventTooLong(self._limit))

    def _line(self, line: bytes, found: list[SseEvent | EventTooLong]) -> None:
        start, self._start = self._start, False
        if self._size() + len(line) > self._limit + _FIELD:
            self._drop(found)
            return
        if start:
            line = line.removeprefix(_BOM)
            if not line:
                self._dispatch(found)
                return
        name, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._add(value, found)
        elif name == b"event":
            self._type = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value.lstrip(b"0")[:_DIGITS] or b"0")

    def _add(self, value: bytes, found: list[SseEvent | EventTooLong]) -> None:
        if self._skip:
            return
        if self._size() + len(value) > self._limit:
            self._drop(found)
        elif self._data is None:
            self._data = value
        else:
            if self._rest is None:
                self._rest = bytearray(self._data)
                self._rest += b"\n"
            self._rest += value
            self._rest += b"\n"

    def _dispatch(self, found: list[SseEvent | EventTooLong]) -> None:
        self._start = self._skip = False
        self.last_id = self._id
        data = self._data
        if data is not None:
            if self._rest is not None:
                data = bytes(memoryview(self._rest)[:-1])
            kind = self._type
            name = "message" if not kind or kind == b"message" else kind.decode("utf-8", "replace")
            found.append(SseEvent(data, name, self._id))
        self._data = self._rest = None
        self._type = b""


def event(data: bytes, id: str | None = None, event: str | None = None, retry: int | None = None) -> bytes:
    """One event in the form of the wire. `retry` in milliseconds.

    `data`: JSON text, or other text in UTF-8. Line breaks of any kind in it become LF at the reader; U+2028 and U+2029
    are escaped, as JSON may. Raises ValueError where `id` or `event` has a line
    break or a NUL in it, or `retry` is negative.
    """
    head = b""
    if id is not None:
        head = b"id: " + _one_line("id", id) + b"\n"
    if event is not None:
        head += b"event: " + _one_line("event", event) + b"\n"
    if retry is not None:
        if retry < 0:
            raise ValueError(f"retry: {retry} ms is less than nothing")
        head += b"retry: %d\n" % retry
    if _SEPARATOR in data:
        # in JSON text they occur only within strings, where an escape means the same; some readers end a line there
        data = data.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
    if _LF in data or _CR in data:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\ndata: ".join(lines)
    return b"%bdata: %b\n\n" % (head, data)


def comment() -> bytes:
    """A comment, which keeps a quiet stream from being closed."""
    return b":\n\n"


def _one_line(name: str, text: str) -> bytes:
    if "\n" in text or "\r" in text or "\0" in text:
        raise ValueError(f"{name}: {text!r} has a line break or a NUL in it")
    return text.encode()
