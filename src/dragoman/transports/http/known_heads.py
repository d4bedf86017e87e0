"""A cache of what was found out about the heads of requests, by their bytes. Pure.

Clients send the same head before each body, except for the body's length and for lines that change with every request
and are not used here: a `traceparent`, a date, an id. So a head is found by its bytes; or by its lines without the
`Content-Length` line and those that do not matter, each of which is checked.

An ASGI server has read the head already: there it is known by its fields that matter (`KnownFields`).

Rules:

- Nothing is cached that changes with time: the served object decides about being busy or draining.
- A line is left out only if it is complete and usual and nothing here reads it: its name has only letters of names, its
  value no control characters, and the name is not one of `MATTERS`. All other lines of a head are compared, so if one
  of two heads with the same remaining lines is acceptable, so is the other.
- What a guard decided is kept with the bytes that it was about, and only while it says that it would decide the same.
- What an endpoint keeps in `Head.memo` depends only on the lines that matter.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from msgspec import Struct

from .messages import SECRETS, Decided, Head

KNOWN_HEADS = 1024
"""Heads cached per listener; when there are more, all are dropped."""
KNOWN_HEAD_SIZE = 2048
"""Longest head that is cached."""
TOKEN_HEAD_SIZE = 6 * 1024
"""Longest head that is cached where heads have tokens: one of 40 claims with a signature of RSA has some 2 KiB."""
_LAYOUTS = 4
"""Orders of lines kept for one request line and number of lines: clients differ."""

MATTERS = (
    "host|origin|accept|content-[a-z]+|transfer-encoding|connection|keep-alive|proxy-connection|te|trailer|upgrade|expect"
    "|http2-settings|sec-websocket-[a-z]+|access-control-[a-z-]+|last-event-id|mcp-[!-9;-~]+"
)
"""The names of lines that decide something, here or at an endpoint, as a regular expression."""

_LENGTH_NAMES = (b"Content-Length", b"content-length")
_LENGTH_LINE = re.compile(rb"[Cc]ontent-[Ll]ength: ([0-9]{1,15})")
BEHIND = MATTERS + "|x-forwarded-host|forwarded"
"""`MATTERS` for requests through trusted proxies, whose forwarded host is checked."""


@lru_cache(maxsize=2)
def _indifferent(matters: str) -> re.Pattern[bytes]:
    """Matches a line that does not matter."""
    return re.compile(
        rb"(?!(?:%b)[ \t]*:)[A-Za-z0-9!#$%%&'*+.^_`|~-]+:[^\x00-\x08\x0a-\x1f\x7f]*" % matters.encode(), re.IGNORECASE
    )


_DECIDES = re.compile(
    rb"(?:%b)" % MATTERS.replace("content-[a-z]+", "content-(?!length$)[a-z]+").encode(), re.IGNORECASE
)
_NAMES = 1024
"""Field names of which it is kept whether they matter; when there are more, all are forgotten."""
_NAME_SIZE = 64
"""Longest one of them: others count as fields that matter, so a head with one is read anew each time."""

_DIGITS = 20
"""Digits of a length that are read: enough to be above every limit."""

_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")
_Kept: TypeAlias = tuple[tuple[int, ...], tuple[bytes, ...]]


class Similar(Struct, gc=False):
    """A head that differs from a cached one only in the length of its body and in lines that do not matter."""

    head: Head
    length: int
    varied: list[bytes] | None = None
    """Those lines and the length; None: only the length differs."""
    decided: Decided | None = None
    """What the guard decided about it."""
    texts: dict[str, str] | None = None
    """Its own headers as `Caller.headers` has them, if lines of it vary, after their first use."""

    def header_texts(self) -> dict[str, str]:
        """The headers of a request with this head as `Caller.headers` has them."""
        if self.varied is None:
            return self.head.header_texts(self.length)
        if self.texts is None:
            self.texts = own_texts(self.head, self.varied)
        return self.texts


class KnownHeads:
    """The cached heads of one listener."""

    __slots__ = (
        "_harmless",
        "_indifferent",
        "_largest",
        "_layouts",
        "_most",
        "_names",
        "_once",
        "_seen",
        "exact",
        "kept",
    )

    def __init__(self, header_size: int, message_size: int, tokens: bool = False, *, matters: str = MATTERS) -> None:
        """`tokens`: heads have tokens in them, which are long. `matters`: the names of lines that decide something."""
        self._indifferent = _indifferent(matters)
        self.exact: dict[bytes, Similar] = {}
        """By all their bytes, without the blank line."""
        self.kept: dict[_Kept, tuple[Head, list[bytes]]] = {}
        """By the remaining lines and the positions of the others; and the others, without the length."""
        self._layouts: dict[tuple[bytes, int], tuple[tuple[int, ...], ...]] = {}
        """The positions of the lines that do not matter, the last first; by the request line and the number of
        lines."""
        self._harmless: set[bytes] = set()
        """Lines that do not matter and came more than once."""
        self._names: set[bytes] = set()
        """The names of lines that do not matter."""
        self._seen: set[int] = set()
        self._once: set[int] = set()
        self._largest = min(TOKEN_HEAD_SIZE if tokens else KNOWN_HEAD_SIZE, header_size)
        self._most = message_size

    def similar(self, raw: bytes) -> Similar | None:
        """The cached entry for a head that differs from a cached one only in what does not matter."""
        if len(raw) > self._largest:
            return None
        lines = raw.split(b"\r\n")
        for layout in self._layouts.get((lines[0], len(lines)), ()):
            left, varied, others, lengths = lines.copy(), [], [], []
            for at in layout:
                varied.append(line := left.pop(at))
                if line in self._harmless:
                    others.append(line)
                    continue
                name, colon, value = line.partition(b":")
                if name in _LENGTH_NAMES and (length := _LENGTH_LINE.fullmatch(line)) is not None:
                    lengths.append(int(length[1]))
                elif not (colon and name in self._names and value.decode("latin-1").isprintable()) and (
                    self._indifferent.fullmatch(line) is None  # the same check for any line, but slower
                ):
                    break
                else:
                    others.append(line)
            else:
                known = self.kept.get((layout, tuple(left)))
                # two lengths would be two messages for two readers
                if known is not None and len(lengths) == 1 and 0 < lengths[0] <= self._most:
                    if known[1] != others:
                        return self._repeated(raw, Similar(known[0], lengths[0], varied))
                    _keep(self.exact, raw, found := Similar(known[0], lengths[0]))
                    return found
        return None

    def _repeated(self, raw: bytes, found: Similar) -> Similar:
        """Cache a head that came before: those of one caller are equal, if no line of them is new each time."""
        mark = hash(raw)
        if mark in self._once:
            _keep(self.exact, raw, found)
        else:
            if len(self._once) >= KNOWN_HEADS:
                self._once.clear()
            self._once.add(mark)
        return found

    def worth(self, raw: bytes) -> bool:
        """Whether a similar head has come before. Many never come again and are not worth keeping."""
        if len(raw) > self._largest:
            return False
        mark = hash(self._left(raw)[1])
        if mark in self._seen:
            return True
        if len(self._seen) >= KNOWN_HEADS:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def learn(self, raw: bytes, head: Head) -> None:
        """Cache what was found out about a head."""
        _keep(self.exact, raw, Similar(head, head.length))
        layout, left = self._left(raw)
        lines = raw.split(b"\r\n")
        rest = [lines[at] for at in layout if _LENGTH_LINE.fullmatch(lines[at]) is None]
        if len(rest) != len(layout) - 1:  # its length has another form, or there are two
            return
        _keep(self.kept, (layout, left), (head, rest))
        head.settled = texts_of(left[1:])
        if len(self._harmless) >= KNOWN_HEADS:
            self._harmless.clear()
            self._names.clear()
        indifferent = [lines[at] for at in layout if self._indifferent.fullmatch(lines[at]) is not None]
        self._harmless.update(indifferent)
        self._names.update(line.partition(b":")[0] for line in indifferent)
        if len(self._layouts) >= KNOWN_HEADS:
            self._layouts.clear()
        lines_of = left[0], len(left) + len(layout)
        others = tuple(one for one in self._layouts.get(lines_of, ()) if one != layout)
        self._layouts[lines_of] = (layout, *others[: _LAYOUTS - 1])

    def _left(self, raw: bytes) -> _Kept:
        """The positions of the lines that do not matter, the last first, and the remaining lines of a head."""
        lines = raw.split(b"\r\n")
        layout = tuple(
            at
            for at in range(len(lines) - 1, 0, -1)
            if self._indifferent.fullmatch(lines[at]) is not None or _LENGTH_LINE.fullmatch(lines[at]) is not None
        )
        for at in layout:
            del lines[at]
        return layout, tuple(lines)

    def forget(self) -> None:
        """Drop all heads: the listener is closed."""
        self.exact.clear()
        self.kept.clear()
        self._layouts.clear()
        self._harmless.clear()
        self._names.clear()


class RequestFields(Struct, gc=False):
    """The header fields of one request to an ASGI application."""

    head: Head
    """The decision, shared by all requests whose fields that matter are the same."""
    length: int = 0
    """The length of the body that they name; 0 where they name none."""
    decided: Decided | None = None
    """What the guard decided about them."""
    texts: dict[str, str] | None = None
    """All of them as `Caller.headers` has them, after their first use."""

    def header_texts(self, fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
        """The headers as `Caller.headers` has them; `fields`: of this request."""
        if self.texts is None:
            head = self.head
            self.texts = head.header_texts() if head.settled is None else with_own(head, fields)
        return self.texts


class KnownFields:
    """The heads that an ASGI application knows: by all their fields, or by those that decide something, which
    Content-Length does not."""

    __slots__ = ("_decide", "_seen", "exact", "heads")

    def __init__(self) -> None:
        self.exact: dict[Hashable, RequestFields] = {}
        """Requests that came again with equal fields."""
        self.heads: dict[Hashable, Head] = {}
        self._decide: dict[bytes, bool] = {}
        self._seen: set[int] = set()

    def find(self, target: Hashable, fields: Sequence[tuple[bytes, bytes]]) -> RequestFields | None:
        """Return what is known of requests for `target` with these fields. Raises TypeError if they cannot be
        hashed."""
        key = (target, tuple(fields))
        found = self.exact.get(key)
        if found is None:
            decide = self._decide
            head = self.heads.get((target, tuple([field for field in fields if decide.get(field[0], True)])))
            if head is not None:
                found = RequestFields(head, length_of(fields))
                self._keep(key, found)
        return found

    def _keep(self, key: tuple[Hashable, tuple[tuple[bytes, bytes], ...]], found: RequestFields) -> None:
        """Keep a request that has come before: many never come again."""
        mark = hash(key)
        if mark not in self._seen:
            if len(self._seen) >= KNOWN_HEADS:
                self._seen.clear()
            self._seen.add(mark)
        elif _size(key[1]) <= KNOWN_HEAD_SIZE:
            _keep(self.exact, key, found)

    def learn(self, target: Hashable, fields: Sequence[tuple[bytes, bytes]], head: Head) -> None:
        """Cache a head by its target and the fields that decide something; the others are those of one request."""
        kept = tuple([field for field in fields if _DECIDES.fullmatch(field[0]) is not None])
        if _size(kept) > KNOWN_HEAD_SIZE:
            return
        for name, _ in fields:
            if len(name) <= _NAME_SIZE:
                if len(self._decide) >= _NAMES:
                    self._decide.clear()
                self._decide[name] = _DECIDES.fullmatch(name) is not None
        head.headers = {name: value for name, value in head.headers.items() if _DECIDES.fullmatch(name) is not None}
        head.settled = head.header_texts()
        _keep(self.heads, (target, kept), head)


def _size(fields: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in fields)


def length_of(fields: Iterable[tuple[bytes, bytes]]) -> int:
    """The greatest length of a body that header fields of ASGI name; 0 where they name none."""
    lengths = [value for name, value in fields if name == b"content-length" and value.isdigit()]
    return max([int(value[:_DIGITS]) for value in lengths]) if lengths else 0


def own_texts(head: Head, varied: Sequence[bytes]) -> dict[str, str]:
    """The headers of a request that differs from its head in these lines, the last first, as `Caller.headers` has
    them."""
    texts = texts_of(reversed(varied), head.settled)
    if head.protection is not None:
        for name in SECRETS:
            texts.pop(name.decode(), None)
    return texts


def with_own(head: Head, fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request whose head is known by some of its fields, as `Caller.headers` has them."""
    texts = {} if head.settled is None else head.settled.copy()
    for raw, value in fields:
        if raw not in head.headers and not (raw in SECRETS and head.protection is not None):
            name, text = raw.decode("latin-1"), value.decode("latin-1").strip()
            texts[name] = f"{texts[name]}, {text}" if name in texts else text
    return texts


def _keep(kept: dict[_Key, _Found], key: _Key, found: _Found) -> None:
    if len(kept) >= KNOWN_HEADS:
        kept.clear()
    kept[key] = found


def texts_of(lines: Iterable[bytes], found: dict[str, str] | None = None) -> dict[str, str]:
    """Header lines as in `Caller.headers`, added to those already found."""
    texts = {} if found is None else found.copy()
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip()
        texts[name] = f"{texts[name]}, {value}" if name in texts else value
    return texts


def fields_of(raw: bytes) -> list[tuple[bytes, bytes]]:
    """The header fields of a head that is similar to a cached one."""
    pairs = (line.partition(b":") for line in raw.split(b"\r\n")[1:])
    return [(name.lower(), value.strip()) for name, _, value in pairs]
