"""Finds out what kind of message was dropped because of its length: a request or a response, and its id.

A framing drops such a message as it arrives and keeps `EDGE` bytes of its beginning and end. Peers write the short
members first or last, so these nearly always show the method, or the result, and the id. Rules:

- A request is answered under its id. A message with a method and without an id at either end is a notification, which
  is never answered.
- A response is never answered; it fails the call that it belongs to.
- An array that begins with a response, or ends with one, is the answer to a batch, all of whose calls fail.
- Any other message is answered with the id null.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from .errors import Refusal
from .messages import NULL, Malformed

EDGE = 1_024
"""How many bytes of each end of a dropped message are kept."""

_STRING = rb'"(?:[^"\\]|\\.)*"'
_SCALAR = rb"(" + _STRING + rb"|-?[0-9][-+.eE0-9]*|null)"
# patterns as text: they are compiled when a message is first dropped
_MEMBER = rb"(?s)\s*(" + _STRING + rb")\s*:\s*(?:" + _SCALAR + rb"\s*([,}]))?"
_LAST_ID = rb'(?s),\s*"id"\s*:\s*' + _SCALAR + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\]?\s*\Z'
_value = msgspec.json.Decoder().decode


def overlong(message: bytes, refusal: Refusal) -> Malformed:
    """The `Malformed` for a complete message above a limit."""
    return dropped(message[:EDGE], message[-EDGE:], refusal)


def dropped(head: bytes, tail: bytes, refusal: Refusal) -> Malformed:
    """The `Malformed` for a message of which only both ends were kept."""
    text = head.lstrip(b" \t\r\n")
    batch = text[:1] == b"["
    members = _first_members(text[1:].lstrip(b" \t\r\n") if batch else text)
    id = members.get("id")
    if id is None and (last := re.search(_LAST_ID, tail)) is not None:
        id = last[1]
    known: Any = NULL if id is None else _id(id)
    if "method" in members and not batch:
        if id is None:
            return Malformed("too_large", refusal.reason, UNSET, answerable=False, refusal=refusal)
        return Malformed("too_large", refusal.reason, known, refusal=refusal)
    if "method" not in members and ("result" in members or "error" in members):
        return Malformed("too_large", refusal.reason, known, answerable=False, refusal=refusal, batch=batch)
    return Malformed("too_large", refusal.reason, refusal=refusal)


def _first_members(text: bytes) -> dict[str, bytes]:
    """The members at the beginning of an object, up to the first whose value is not a scalar or not complete."""
    members: dict[str, bytes] = {}
    at, match = 1, re.compile(_MEMBER).match
    while text[:1] == b"{" and (member := match(text, at)) is not None:
        try:
            name = _value(member[1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        if member[2] is not None or name != "id":
            members[name] = member[2] or b""
        if member[3] != b",":
            break
        at = member.end()
    return members


def _id(text: bytes) -> Any:
    """An id as the codec returns it: int and str as they are, others raw. Null if it cannot be read."""
    try:
        value = _value(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NULL
    return value if isinstance(value, str) or (isinstance(value, int) and text.isdigit()) else Raw(text)


class Ends:
    """Keeps both ends of a message that is dropped as it arrives."""

    __slots__ = ("_head", "_tail")

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""

    def add(self, piece: bytes) -> None:
        if len(self._head) < EDGE:
            self._head += piece[: EDGE - len(self._head)]
        self._tail = (self._tail + piece[-EDGE:])[-EDGE:]

    def drop(self, held: bytearray, piece: bytes = b"") -> None:
        """The message has become too long: what was held of it, which is emptied, and `piece` after it are dropped."""
        if held:
            self.add(bytes(held))
            held.clear()
        self.add(piece)

    def report(self, refusal: Refusal) -> Malformed:
        """The `Malformed` for the dropped message; starts again."""
        head, tail = self._head, self._tail
        self._head = self._tail = b""
        return dropped(head, tail, refusal)
