"""What is open on a traced channel: from messages that pass to the events of `trace`.

A ledger remembers the calls of one direction by id until they are answered, bounded as `trace` says; a tap is the
two ledgers of one channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..channel import ChannelError
from ..jsonrpc.codec import Leniency, decode, key
from ..jsonrpc.limits import CLIENT, MIB
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result, Single

OPEN = 4_096
"""Open calls remembered per channel and direction."""
HELD = 64 * MIB
"""Bytes of messages remembered per channel and direction."""

Direction: TypeAlias = Literal["in", "out"]

_LENIENT = Leniency(accept_v1=True, string_codes=True)
_CANCELLED = -32800
_NAMES = 5


class Event(Struct, frozen=True, kw_only=True):
    """Something happened to a message."""

    kind: Literal["started", "complete", "failed"]
    time: float
    """Unix seconds, by the clock on the wall."""
    seconds: float | None = None
    """How long the call took, by the monotonic clock; None where nothing was waited for."""
    channel: str
    """Which channel, by a name that stays: wire, far end, number, as in "tcp:127.0.0.1:54321#3"."""
    direction: Direction
    """Which way `message` went: "in" to us, "out" from us; its answer goes the other way."""
    message: bytes
    """As it passed; empty for what a framing threw away."""
    method: str | None = None
    """Of a batch: "batch(subtract, sum)"; of a response: None."""
    id: str | None = None
    """The id as JSON text; None where there is none, and for batches."""
    outcome: str | None = None
    """"answered", "error -32601", "cancelled", "notified", "ignored" (an answer that is not waited for); of what
    failed, the reason: "ended: ...", "failed: ...", or what is wrong with the text."""
    answer: bytes | None = None
    """What answered `message`, as it passed."""


Hook: TypeAlias = Callable[[Event], object]


def parse(message: bytes) -> Message:
    """The message as its bytes mean it, in whatever version."""
    return decode(message, limits=CLIENT, lenient=_LENIENT)


class Open(Struct, eq=False):
    """A message that waits for answers, and what has been answered so far. `keys`: its ids still open."""

    message: bytes
    method: str
    id: str | None
    since: float
    keys: set[Hashable]
    calls: int
    errors: list[int]


class Ledger:
    """The open calls of one direction of a channel by id, the oldest first."""

    def __init__(self, channel: str, direction: Direction, hook: Hook) -> None:
        self._channel = channel
        self._direction: Direction = direction
        self._hook = hook
        self._open: dict[Hashable, Open] = {}
        self._held = 0

    def passed(self, message: bytes, parsed: Message) -> Open | None:
        """A message of this direction, unless it answers something: what it opened, or None."""
        asked = [element for element in _elements(parsed) if isinstance(element, Request)]
        if not asked:
            self.event("failed" if isinstance(parsed, Malformed) else "complete", message, parsed, verdict(parsed))
            return None
        self.event("started", message, parsed, None)
        keys = {key(element.id) for element in asked}
        if not keys.isdisjoint(self._open):
            self.event("failed", message, parsed, "failed: its id is in flight already")
            return None
        opened = Open(message, _method(parsed) or "", _id(parsed), time.monotonic(), keys, len(asked), [])
        self._open.update(dict.fromkeys(keys, opened))
        self._held += len(message)
        while len(self._open) > OPEN or self._held > HELD:
            oldest = next(iter(self._open.values()))
            self.close(oldest, "failed", "failed: too many open calls to remember this one")
        return opened

    def answered(self, answer: bytes, parsed: Message) -> bool:
        """Take the responses in a message of the other direction; False when none was waited for."""
        known = False
        for response in _elements(parsed):
            if not isinstance(response, Result | Failure):
                continue
            opened = self._open.pop(answers := key(response.id), None)
            if opened is None:
                continue
            known = True
            opened.keys.discard(answers)
            if isinstance(response, Failure):
                opened.errors.append(response.error.code)
            if not opened.keys:
                self.close(opened, "complete", _outcome(opened.calls, opened.errors), answer)
        return known

    def close(
        self, opened: Open, kind: Literal["complete", "failed"], outcome: str, answer: bytes | None = None
    ) -> None:
        """The end of an open message; ignored when it has ended before."""
        if opened.calls == 0:
            return
        opened.calls = 0
        for each in opened.keys:
            del self._open[each]
        self._held -= len(opened.message)
        self._hook(
            Event(
                kind=kind,
                time=time.time(),
                seconds=time.monotonic() - opened.since,
                channel=self._channel,
                direction=self._direction,
                message=opened.message,
                method=opened.method,
                id=opened.id,
                outcome=outcome,
                answer=answer,
            )
        )

    def end(self, outcome: str) -> None:
        """Nothing open is answered any more."""
        while self._open:
            self.close(next(iter(self._open.values())), "failed", outcome)

    def event(
        self,
        kind: Literal["started", "complete", "failed"],
        message: bytes,
        parsed: Message,
        outcome: str | None,
        answer: bytes | None = None,
    ) -> None:
        """Report what nothing is waited for, or what starts now."""
        self._hook(
            Event(
                kind=kind,
                time=time.time(),
                channel=self._channel,
                direction=self._direction,
                message=message,
                method=_method(parsed),
                id=_id(parsed),
                outcome=outcome,
                answer=answer,
            )
        )


def _elements(parsed: Message) -> tuple[Single, ...]:
    return parsed.messages if isinstance(parsed, Batch) else (parsed,)


def _method(parsed: Message) -> str | None:
    if isinstance(parsed, Request | Notification):
        return parsed.method
    if not isinstance(parsed, Batch):
        return None
    names = [element.method for element in parsed.messages if isinstance(element, Request | Notification)]
    more = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return f"batch({', '.join(names[:_NAMES] + more)})" if names else None


def _id(parsed: Message) -> str | None:
    if isinstance(parsed, Batch | Notification):
        return None
    return bytes(parsed.id).decode() if isinstance(parsed.id, Raw) else msgspec.json.encode(parsed.id).decode()


def verdict(parsed: Message) -> str:
    """The outcome of what opens nothing: a notification, what is no message, or answers (of ours)."""
    elements = _elements(parsed)
    if isinstance(parsed, Malformed):
        return parsed.reason
    if any(isinstance(element, Notification) for element in elements):
        return "notified"
    answers = [element for element in elements if isinstance(element, Result | Failure)]
    if not answers:
        return next((element.reason for element in elements if isinstance(element, Malformed)), "ignored")
    return _outcome(len(answers), [element.error.code for element in answers if isinstance(element, Failure)])


def _outcome(calls: int, errors: list[int]) -> str:
    """How calls ended that were answered."""
    if not errors:
        return "answered"
    if calls > 1:
        return f"answered, {len(errors)} of {calls} with errors"
    return "cancelled" if errors[0] == _CANCELLED else f"error {errors[0]}"


class Tap:
    """Both directions of one channel."""

    def __init__(self, channel: str, hook: Hook) -> None:
        self.inward = Ledger(channel, "in", hook)
        self.outward = Ledger(channel, "out", hook)

    @contextmanager
    def sending(self, message: bytes) -> Iterator[Open | None]:
        """Around the sending of a message: what asks is told before it, all else behind it, and a failure in its place.
        Gives what it opened."""
        parsed = parse(message)
        asks = any(isinstance(element, Request) for element in _elements(parsed))
        opened = self.passed("out", message) if asks else None
        try:
            yield opened
        except ChannelError as why:
            if opened is not None:
                self.outward.close(opened, "failed", f"ended: {why}")
            elif not asks:
                self.outward.event("failed", message, parsed, f"ended: {why}")
            raise
        if not asks:
            self.passed("out", message)

    def passed(self, direction: Direction, message: bytes) -> Open | None:
        """A message went by."""
        mine, theirs = (self.inward, self.outward) if direction == "in" else (self.outward, self.inward)
        parsed = parse(message)
        answers = [element for element in _elements(parsed) if isinstance(element, Result | Failure)]
        if answers and theirs.answered(message, parsed) and not _asks(parsed):
            return None
        if answers and direction == "in" and not _asks(parsed):
            mine.event("complete", message, parsed, "ignored")
            return None
        return mine.passed(message, parsed)

    def end(self, outcome: str) -> None:
        """The channel is over."""
        self.inward.end(outcome)
        self.outward.end(outcome)


def _asks(parsed: Message) -> bool:
    return any(isinstance(element, Request | Notification) for element in _elements(parsed))
