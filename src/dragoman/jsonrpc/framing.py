"""Separates messages on wires that carry a stream of bytes.

Four framings implement `Framing`: bytes go in as they arrive, complete messages come out. Rules:

- Pure and incremental: any chunking of the same bytes gives the same messages, in linear time.
- Bounded: at most `limits.message_size` bytes and one chunk are held. A longer message is dropped
  as it arrives and reported once, at its end, as a `Malformed` of kind "too_large" built from its beginning and
  end (see `dropped`); the messages after it are read.
- Nothing is decoded here: a frame may contain any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from .dropped import Ends
from .errors import LocalError, Refusal, too_large
from .json_text import JsonText
from .limits import Limits
from .messages import Malformed

Found: TypeAlias = list[bytes | Malformed]
"""The messages that a piece of the stream completed, in order."""


class Framing(Protocol):
    """The incremental reader and the writer of one stream of messages."""

    held: int
    """Bytes held of an incomplete message."""
    gap: bytes
    """Bytes that may be written between two messages and mean nothing; empty where there are none."""
    begun: int
    """Changes with each message that arrives in several pieces, so that two of them can be distinguished."""

    @property
    def lost(self) -> bool:
        """True when the beginning of the next message cannot be found: `feed` returns nothing; close the wire."""

    def feed(self, data: bytes) -> Found:
        """Take the next bytes of the stream; return the messages that they complete."""

    def end(self) -> Found:
        """The stream has ended: return the incomplete message, if it may be one. Do not call `feed` after it."""

    def wrap(self, message: bytes) -> bytes:
        """One message (JSON text) framed for the stream."""


_SPACE = b" \t\r"
_LF, _CR = b"\n\r"  # numbers, as `scanner._ZERO` is
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


class Newline:
    """One message per line, ended by `\\n` or `\\r\\n`. Blank lines are ignored, and the last line needs no end. White
    space around a message is not part of it."""

    __slots__ = ("_cr", "_ends", "_held", "_limit", "_size", "begun", "held")

    lost = False
    """Never: a newline is where a message begins."""
    gap = b" "
    """White space in front of a line is not part of its message (RFC 8259, section 2)."""

    def __init__(self, limits: Limits) -> None:
        self._limit = limits.message_size
        self._held = bytearray()  # the incomplete line, unless it is already too long
        self._size = 0  # its bytes so far, dropped ones too
        self._cr = False  # it ends with \r so far, which may be half of the line's end
        self._ends = Ends()  # of a line that is too long
        self.held: int = 0
        self.begun: int = 0

    def feed(self, data: bytes) -> Found:
        lines = data.split(b"\n")
        rest = lines.pop()
        if not rest and not self._size and len(lines) == 1 and len(data) <= self._limit:
            message = lines[0].strip(_SPACE)  # nearly every chunk is one complete line
            return [message] if message else []
        found: Found = []
        if self._size and lines:
            self._hold(lines.pop(0))
            self._finish(found)
        if len(data) <= self._limit:  # then no line that is complete in this chunk is too long
            found += [message for line in lines if (message := line.strip(_SPACE))]
        else:
            for line in lines:
                self._hold(line)
                self._finish(found)
        if rest:
            self._hold(rest)
        return found

    def end(self) -> Found:
        """Return the last line, if it was not ended: it is a message too."""
        found: Found = []
        self._finish(found)
        return found

    def wrap(self, message: bytes) -> bytes:
        """Return a message as it is written: line breaks inside JSON text can only be white space, so they become
        spaces."""
        if _LF in message or _CR in message:
            message = message.translate(_ONE_LINE)
        return message + b"\n"

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit + 1:  # one more than allowed, for the \r of the line's end
            self._held += piece
        else:
            self._ends.drop(self._held, piece)
        self.held = len(self._held)
        if piece:
            self._cr = piece.endswith(b"\r")

    def _finish(self, found: Found) -> None:
        size = self._size - self._cr
        if size > self._limit:
            self._ends.drop(self._held)
            found.append(self._ends.report(too_large("message_size", self._limit, size)))
        elif message := bytes(self._held).strip(_SPACE):
            found.append(message)
        self._held.clear()
        self._size = self.held = 0
        self.begun += 1
        self._cr = False


class _Body:
    """The part of a frame with a known length. It is collected, or skipped; if skipped because of its length, its
    beginning and end are kept."""

    __slots__ = ("ends", "held", "missing", "refusal", "wanted")

    def __init__(self) -> None:
        self.held = bytearray()
        self.missing = 0
        self.wanted = True
        self.refusal: Refusal | None = None
        self.ends = Ends()

    def begin(self, length: int, *, wanted: bool, refusal: Refusal | None = None) -> None:
        self.missing = length
        self.wanted = wanted
        self.refusal = refusal

    def take(self, data: bytes, at: int, found: Found) -> int:
        """Consume bytes of `data` from `at` on; return the position of the rest."""
        end = at + self.missing
        if end > len(data):
            self.missing = end - len(data)
            if self.wanted:
                self.held += data[at:]
            elif self.refusal is not None:
                self.ends.add(data[at:])
            return len(data)
        self.missing = 0
        if self.refusal is not None:
            self.ends.add(data[at:end])
            self._report(found)
        if self.wanted:
            if self.held:
                self.held += data[at:end]
                found.append(bytes(self.held))
                self.held.clear()
            else:
                found.append(data[at:end])
        return end

    def cut(self, found: Found) -> None:
        """The stream ended inside a body."""
        if self.missing and self.wanted:
            got, whole = len(self.held), len(self.held) + self.missing
            found.append(Malformed("parse", f"The stream ended inside a message: {got} of {whole} bytes came"))
        if self.missing and self.refusal is not None:
            self._report(found)
        self.missing = 0

    def _report(self, found: Found) -> None:
        assert self.refusal is not None
        found.append(self.ends.report(self.refusal))
        self.refusal = None


NO_HEADER = (
    "JSON came where a Content-Length header was expected: the far end sends one message per line; "
    "leave framing=content-length out"
)
"""The reason for a stream that has no header blocks at all."""
_BLANK_LINE = re.compile(rb"\n\r?\n")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*\r?")
# patterns as text: they are compiled when such a line first comes
_KNOWN_LINE = rb"(?i).*(content-(?:length|type):.*)"
_CHARSET = rb"(?i);[ \t]*charset[ \t]*=[ \t]*\"?([^\";\s]*)"
_PLAIN = b"Content-Length: "
_MOST_DIGITS = 15


class ContentLength:
    """A header block, a blank line and as many bytes as `Content-Length` says: the base protocol of the Language Server
    Protocol ("Header Part").

    Names are matched without regard to case; lines end with `\\r\\n`, and a lone `\\n` is accepted; blank lines before
    a header block are ignored. A frame in a charset other than UTF-8 is reported after its header, a frame that is too
    long after its body, which is skipped. After a header without a usable length, reading continues at the next header
    block. A header block above `limits.header_size`, or a line of JSON in place of one, makes the stream `lost`.
    """

    __slots__ = ("_allowed", "_astray", "_body", "_header", "_header_size", "begun", "held", "lost")

    gap = b""
    """Empty: not every reader ignores blank lines before a header block."""

    def __init__(self, limits: Limits) -> None:
        self._allowed = limits.message_size
        self._header_size = limits.header_size
        self._header = bytearray()  # an incomplete header block
        self._body = _Body()
        self._astray = False  # the last header gave no length, so its body is before the next header
        self.lost: bool = False
        self.held: int = 0
        self.begun: int = 0

    def feed(self, data: bytes) -> Found:
        found: Found = []
        at, size = 0, len(data)
        if self._body.missing:
            at = self._body.take(data, at, found)
        while at < size and not self.lost:
            if not self._header and not self._astray and data.startswith(_PLAIN, at):
                # Nearly every frame: this one header and the whole body, in one chunk.
                start = data.find(b"\r\n\r\n", at, at + 40)
                if start > 0 and (digits := data[at + 16 : start]).isdigit() and len(digits) <= _MOST_DIGITS:
                    length = int(digits)
                    start += 4
                    if length <= self._allowed and start + length <= size:
                        at = start + length
                        found.append(data[start:at])
                        continue
            at = self._read_header(data, at, found)
        self.held = len(self._header) + len(self._body.held)
        return found

    def end(self) -> Found:
        """Return what is left at the end of the stream: a cut frame is a Malformed."""
        found: Found = []
        self._body.cut(found)
        if self._header and not self._astray:
            found.append(Malformed("parse", f"The stream ended inside a header: {_shown(self._header)}"))
        self._header.clear()
        return found

    def wrap(self, message: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(message), message)

    def _read_header(self, data: bytes, at: int, found: Found) -> int:
        """Add to the header block; when it is complete read the body too. Return the position of the rest of `data`."""
        header = self._header
        before = len(header)
        self.begun += not before
        piece = data[at : at + self._header_size + 1]
        if not before:
            stripped = piece.lstrip(b"\r\n")
            at += len(piece) - len(stripped)
            piece = stripped
        header += piece
        if not self._astray and header.startswith((b"{", b"[")) and b"\n" in header:
            self.lost = True
            header.clear()
            found.append(Malformed("parse", NO_HEADER))
            return at + len(piece)
        blank = _BLANK_LINE.search(header, max(0, before - 2), self._header_size)
        if blank is None:
            if len(header) >= self._header_size:
                self.lost = True
                header.clear()
                refusal = too_large("header_size", self._header_size, None)
                found.append(Malformed("too_large", refusal.reason, refusal=refusal))
            return at + len(piece)
        block = bytes(header[: blank.start()])
        at += blank.end() - before
        header.clear()
        length, fault = self._understand(block)
        self._astray = length is None
        if fault is not None:
            found.append(fault)
        if length is None:
            return at
        unfit = too_large("message_size", self._allowed, length) if length > self._allowed and fault is None else None
        self._body.begin(length, wanted=fault is None and unfit is None, refusal=unfit)
        return self._body.take(data, at, found)

    def _understand(self, block: bytes) -> tuple[int | None, Malformed | None]:
        """The body's length, None if unknown; and what is wrong with the header."""
        values: set[int] = set()
        faults: list[str] = []
        known_length = True
        lines = block.split(b"\n")
        if self._astray:  # among them is the body of the frame whose length was not known, up to the middle of a line
            lines = [known[1] for line in lines if (known := re.match(_KNOWN_LINE, line))]
        for line in lines:
            field = _HEADER_LINE.fullmatch(line)
            name = field[1].lower() if field else b""
            value = field[2] if field else b""
            if field is None:
                faults.append(f"no header line: {_shown(line)}")
            elif name == b"content-length":
                if value.isdigit() and len(value) <= _MOST_DIGITS:
                    values.add(int(value))
                else:
                    known_length = False
                    faults.append(f"Content-Length must be a number of bytes, not {_shown(value)}")
            elif name == b"content-type":
                charset = re.search(_CHARSET, value)
                if charset and charset[1].lower() not in (b"utf-8", b"utf8"):
                    faults.append(f"the charset must be utf-8, not {_shown(charset[1])}")
        if known_length and not values:
            faults.append("there is no Content-Length")
        if len(values) > 1:
            faults.append("Content-Length is there twice with different values: " + ", ".join(map(str, sorted(values))))
        length = values.pop() if known_length and len(values) == 1 else None
        if faults:
            return length, Malformed("parse", "Bad header: " + "; ".join(faults))
        return length, None


class LengthPrefix:
    """Four bytes of length, big-endian, then the message. A frame that is too long is skipped, and reported after
    it."""

    __slots__ = ("_allowed", "_body", "_prefix", "begun", "held")

    lost = False
    """Never: every prefix is a length."""
    gap = b""

    def __init__(self, limits: Limits) -> None:
        self._allowed = limits.message_size
        self._prefix = b""
        self._body = _Body()
        self.held: int = 0
        self.begun: int = 0

    def feed(self, data: bytes) -> Found:
        found: Found = []
        at, size = 0, len(data)
        if self._body.missing:
            at = self._body.take(data, at, found)
        while at < size:
            piece = data[at : at + 4 - len(self._prefix)]
            at += len(piece)
            self._prefix += piece
            if len(self._prefix) < 4:
                break
            length = int.from_bytes(self._prefix, "big")
            self._prefix = b""
            self.begun += 1
            refusal = too_large("message_size", self._allowed, length) if length > self._allowed else None
            self._body.begin(length, wanted=refusal is None, refusal=refusal)
            at = self._body.take(data, at, found)
        self.held = len(self._prefix) + len(self._body.held)
        return found

    @property
    def skipping(self) -> bool:
        """Whether a frame that is too long is arriving, for callers that close the channel without waiting for its
        end."""
        return self._body.missing > 0 and not self._body.wanted

    def end(self) -> Found:
        """Return what is left at the end of the stream: a cut frame is a Malformed."""
        found: Found = []
        self._body.cut(found)
        if self._prefix:
            found.append(Malformed("parse", f"The stream ended inside a length: {len(self._prefix)} of 4 bytes came"))
        self._prefix = b""
        return found

    def wrap(self, message: bytes) -> bytes:
        return len(message).to_bytes(4, "big") + message


FramingName: TypeAlias = Literal["newline", "content-length", "json"]
FRAMINGS: dict[str, Callable[[Limits], Framing]] = {
    "newline": Newline,
    "content-length": ContentLength,
    "json": JsonText,
}


def framing(name: FramingName, limits: Limits) -> Framing:
    """A new framing of that name, for one stream. Raises LocalError with the choices for an unknown name."""
    if name not in FRAMINGS:
        raise LocalError(f"No framing is called {name!r}: take one of {', '.join(FRAMINGS)}")
    return FRAMINGS[name](limits)


def _shown(raw: bytes | bytearray) -> str:
    """A peer's bytes for an error message of ours: escaped and shortened."""
    return repr(bytes(raw[:60])).removeprefix("b") + ("..." if len(raw) > 60 else "")
