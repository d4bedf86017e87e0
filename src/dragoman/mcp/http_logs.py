"""Streams that any replica can take up: logs in the store, and the replies that carry them.

An `Outbox` keeps what is said on a stream before it is sent; a `Reader` sends a log to one reply, wherever it grows.
Event ids are "stream-position". Rules:

- A message has its place in the log before it is sent. While the engine is away it goes to the reader who is here,
  without an id, and what nobody here reads waits.
- A reader who is where the log grows is handed what was kept; any other is woken and reads the store.
- What a slow reader has not been sent stays in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Raw

from ..bus import BusLost
from ..jsonrpc.codec import failure
from ..jsonrpc.errors import InternalError, LocalError, RpcError
from ..rpc.clock import Clock
from ..transports.http_head import Lines, Reply
from ..transports.sse import comment, event
from .http_answers import failed
from .http_options import HttpOptions
from .http_streams import SPARE
from .shared import Shared

logger = logging.getLogger("dragoman.mcp")

OPEN: Final = b"^"
"""The stream has begun; no message."""
MESSAGE: Final = b"+"
LAST: Final = b"."
"""Nothing comes after this; it may have no message."""
PAUSE: Final = b"|"
"""Not kept: send the reader away; the message is after how many milliseconds he comes back."""
AGAIN: Final = 0.1
"""Seconds between two tries to keep a message."""
HEADROOM: Final = 1_000
"""Messages that may be on their way into the store; beyond, what the far end can do without is dropped."""


def written(kind: bytes, id: bytes, message: bytes) -> bytes:
    """An entry of a log. `id`: JSON text of the id of the request that the stream answers."""
    return kind + id + b"\n" + message


def parts(entry: bytes) -> tuple[bytes, bytes, bytes]:
    """Its kind, id and message."""
    head, _, message = entry.partition(b"\n")
    return head[:1], head[1:], message


def failing(id: bytes, error: RpcError) -> bytes:
    """The answer of a stream whose own there is not; `id` as in `written`, "" where no answer could have one."""
    return b"" if id in (b"", b"null") else failure(Raw(id), error)


class Place(Protocol):
    """Where streams are said and read: a replica's endpoint."""

    @property
    def shared(self) -> Shared: ...
    @property
    def options(self) -> HttpOptions: ...
    @property
    def clock(self) -> Clock: ...


class Reader:
    """Sends one log to one reply. `left` is called once, when the reader has gone or all of it is sent."""

    __slots__ = ("_begun", "_left", "_pulling", "_woken", "active", "key", "name", "on_sent", "place", "reply", "sent")

    def __init__(
        self, place: Place, reply: Reply, key: str, *, name: str, sent: int, left: Callable[[Reader], None]
    ) -> None:
        """`name`: of the stream, in event ids; "": they have none."""
        self.place = place
        self.reply: Reply | None = reply
        self.key = key
        self.name = name
        self.sent = sent
        """The position of the last message that was sent."""
        self.active = True
        """Whether it is its turn to be sent what comes."""
        self.on_sent: Callable[[int], None] | None = None
        self._left = left
        self._begun = False
        self._woken = False
        self._pulling = False
        reply.gone = self._gone

    def begin(self, lines: Lines, first: bytes = b"") -> None:
        """Begin the reply."""
        reply = self.reply
        if reply is None or self._begun:
            return
        self._begun = True
        reply.resumed = self.wake
        reply.doubted = self._comment
        reply.start(200, lines)
        if first:
            reply.write(first)
        self.place.clock.set(self, self.place.options.keep_alive)

    def id(self, position: int) -> str | None:
        """An event id; None where there are none."""
        return f"{self.name}-{position}" if self.name and position else None

    def push(self, number: int, kind: bytes, message: bytes) -> None:
        """Something was said here. `number` 0: it could not be kept, or need not be."""
        if self.reply is None or (number and number <= self.sent):
            return
        if not number:
            self._send(0, kind, message)
        elif number == self.sent + 1 and self.active and not self._pulling and self.reply.writable:
            self._send(number, kind, message)
        else:
            self.wake()

    def wake(self) -> None:
        """The log has grown, or the reader takes more."""
        if self.reply is None or not self.active or not self._begun:
            return
        self._woken = True
        if not self._pulling:
            self._pulling = True
            self.place.shared.later(self._pull())

    async def _pull(self) -> None:
        try:
            while self._woken and self.reply is not None and self.active:
                self._woken = False
                for number, raw in await self.place.shared.read(self.key, self.sent):
                    if self.reply is None or not self.active or not self.reply.writable:
                        break  # whoever is resumed, or has his turn, is woken
                    if number > self.sent:
                        kind, _, message = parts(raw)
                        self._send(number, kind, message)
        except BusLost as lost:
            logger.debug("a stream waits until the store is back: %s", lost)
        finally:
            self._pulling = False

    def _send(self, number: int, kind: bytes, message: bytes) -> None:
        reply = self.reply
        assert reply is not None
        if number:
            self.sent = number
        text = event(message, id=self.id(number)) if message else b""
        if kind == LAST:
            self.release(text)
        elif text:
            reply.write(text)
        if number and self.on_sent is not None:
            self.on_sent(number)

    def pause(self, retry: int) -> None:
        """Send the reader away for so many milliseconds."""
        if self.reply is not None:
            self.release(event(b"", id=self.id(self.sent), retry=retry))

    def release(self, last: bytes = b"") -> None:
        """End the reply, with this."""
        reply, self.reply = self.reply, None
        if reply is None:
            return
        reply.gone = reply.resumed = reply.doubted = None
        self.place.clock.drop(self)
        if self._begun:
            reply.finish(last)
        else:
            reply.respond(404)
        self._left(self)

    def _gone(self) -> None:
        self.reply = None
        self.place.clock.drop(self)
        self._left(self)

    def expired(self) -> None:
        """It has been quiet for a while."""
        self._comment()
        if self.reply is not None:
            self.place.clock.set(self, self.place.options.keep_alive)

    def _comment(self) -> None:
        if self.reply is not None and self.reply.writable:
            self.reply.write(comment())


class Outbox:
    """What is said on one stream, in its order, on its way into the log. `said` is called with each message and its
    number in the log (0: it is not there)."""

    __slots__ = ("_claims", "_draining", "_id", "_place", "_said", "_waiting", "dropped", "kept", "key", "stays")

    def __init__(
        self, place: Place, key: str, said: Callable[[int, bytes, bytes], bool], *, id: bytes = b"", kept: bool = True
    ) -> None:
        """`said` gives whether somebody here was sent it. `kept=False`: the stream cannot be taken up again, so nothing
        is kept."""
        self.key = key
        self.kept = kept
        self.stays = place.options.session_idle
        """Seconds that the log stays after its newest message."""
        self.dropped = 0
        self._place = place
        self._said = said
        self._id = id
        self._waiting: deque[tuple[bytes, bytes, str]] = deque()
        self._draining = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, kind: bytes, message: bytes, claim: str = "") -> bool:
        """Say something; False when it was dropped. `claim`: a key that only one replica can set, who says it."""
        if not self.kept:
            self._said(0, kind, message)
            return True
        if len(self._waiting) >= HEADROOM and message.startswith(SPARE):
            self.dropped += 1
            return False
        self._waiting.append((kind, message, claim))
        if not self._draining:
            self._draining = True
            self._place.shared.later(self._drain())
        return True

    async def _drain(self) -> None:
        try:
            while self._waiting:
                number = 0 if self._waiting[0][0] == PAUSE else await self._keep(*self._waiting[0])
                kind, message, _ = self._waiting.popleft()
                if number >= 0:
                    self._said(number, kind, message)
        finally:
            self._draining = False

    async def _keep(self, kind: bytes, message: bytes, claim: str) -> int:
        """The number of a message in the log; -1 where it is not there, and need not be said."""
        shared, options = self._place.shared, self._place.options
        ttl = options.resume if kind == LAST else self.stays
        while True:
            entry = written(kind, self._id, message)
            try:
                if claim and not await shared.put_new(claim, b"", ttl):
                    return -1
                claim = ""
                return await shared.append(self.key, entry, ttl, options.log_messages, options.log_bytes)
            except BusLost as lost:
                if self._said(0, kind, message):
                    return -1  # who reads here has it
                logger.debug("what nobody reads here waits until the store is back: %s", lost)
                if not await shared.back(options.resume):
                    return -1
                await asyncio.sleep(AGAIN)
            except LocalError as error:  # it is larger than the engine takes
                if self._said(0, kind, message):
                    return -1
                logger.error("a message of %s bytes that nobody reads here cannot be kept: %s", len(message), error)
                if kind != LAST or not message or failed(message):
                    return -1
                # whoever comes back for the answer is told what became of it
                message = failing(self._id, InternalError(f"Too large: {error}", {"limit": "bus"}))
                self._waiting[0] = kind, message, claim
