"""The streams of a session: what one SSE stream of it said, and who reads it.

A `Log` is bounded and addressable: messages by their positions, from 1 on. A `Stream` is a log with the
reply that carries it now, if any. Event ids are "stream-position": unique within the session, they name
the stream, and position 0 is its beginning. Rules (basic/transports, "Resumability and Redelivery"):

- What a stream said is never said on another one.
- What a slow reader has not been sent waits in the log. Over its bound notifications go first, the
  oldest before the others; the newest message always stays.
- One clock serves all streams: a comment while one is read and quiet, its end when nobody comes back.
"""

from __future__ import annotations

from typing import Final, Protocol

from ..rpc.clock import Clock
from ..transports.http_head import Lines, Reply
from ..transports.sse import comment, event
from .http_options import HttpOptions

SSE: Final = "text/event-stream"
SSE_LINES: Final[Lines] = (
    ("Content-Type", SSE),
    ("Cache-Control", "no-store"),
    # "servers SHOULD include the `X-Accel-Buffering: no` header" (2026's basic/transports/streamable-http)
    ("X-Accel-Buffering", "no"),
)

SPARE: Final = b'{"jsonrpc":"2.0","method":"notifications/'


class Log:
    """The bounded, addressable log of one stream."""

    __slots__ = ("_entries", "_messages", "_room", "_size", "dropped", "last")

    def __init__(self, messages: int, size: int) -> None:
        self._entries: list[tuple[int, bytes]] = []
        self._messages = messages
        self._room = size
        self._size = 0
        self.last = 0
        """The position of the newest message."""
        self.dropped = 0
        """Messages that went because there were too many."""

    def append(self, message: bytes) -> int:
        """Keep a message: its position."""
        self.last += 1
        entries = self._entries
        entries.append((self.last, message))
        self._size += len(message)
        while len(entries) > 1 and (len(entries) > self._messages or self._size > self._room):
            spare = (at for at, (_, one) in enumerate(entries[:-1]) if one.startswith(SPARE))
            _, gone = entries.pop(next(spare, 0))
            self._size -= len(gone)
            self.dropped += 1
        return self.last

    def since(self, position: int) -> list[tuple[int, bytes]]:
        """What was said after this position, with positions."""
        if position >= self.last:
            return []
        return [entry for entry in self._entries if entry[0] > position]


class Owner(Protocol):
    """Whose streams they are: a session."""

    @property
    def options(self) -> HttpOptions:
        """The bounds of a stream, and its times."""

    @property
    def clock(self) -> Clock:
        """The deadlines of everything here."""

    def left(self, stream: Stream) -> None:
        """Nobody reads this stream any more."""

    def rests(self, stream: Stream, resting: bool) -> None:
        """It waits for somebody to come back, or no longer."""

    def forget(self, stream: Stream) -> None:
        """It cannot be taken up again."""


class Stream:
    """One SSE stream of a session.

    `owed`: it belongs to a POST whose answer is still to come. A stream without ids cannot be taken up again.
    """

    __slots__ = ("_sent", "ids", "log", "number", "over", "owed", "owner", "reply")

    def __init__(self, owner: Owner, number: int, *, ids: bool, owed: bool) -> None:
        self.owner = owner
        self.number = number
        self.ids = ids
        self.owed = owed
        self.over = False
        """Nothing more will be said on it."""
        self.log = Log(owner.options.log_messages, owner.options.log_bytes)
        self.reply: Reply | None = None
        self._sent = 0

    def beginning(self, retry: int | None = None) -> bytes:
        """The event that primes a client: an id and no data (basic/transports, "Sending Messages to the Server")."""
        return event(b"", id=f"{self.number}-{self._sent}", retry=retry)

    def attach(self, reply: Reply, after: int = 0, *, primed: bool = False, lines: Lines = SSE_LINES) -> None:
        """Say from now on what comes after this position on `reply`. Whoever read it before is sent away."""
        if self.reply is not None:
            self._release()
        elif self.ids and not self.owed:
            self.owner.rests(self, False)
        self.reply = reply
        self._sent = after
        reply.gone = self.detach
        reply.resumed = self._pump
        reply.doubted = self._comment
        reply.start(200, lines)
        if primed:
            reply.write(self.beginning(self.owner.options.retry))
        self._pump()
        if self.reply is not None:
            self.owner.clock.set(self, self.owner.options.keep_alive)

    def append(self, message: bytes) -> None:
        """Say a message, now or when somebody reads."""
        position = self.log.append(message)
        reply = self.reply
        if reply is None:
            return
        if self._sent == position - 1 and reply.writable:
            reply.write(self.written(position, message))
            self._sent = position
        else:
            self._pump()

    def written(self, position: int, message: bytes) -> bytes:
        """A message as its event."""
        return event(message, id=f"{self.number}-{position}" if self.ids else None)

    def finish(self, message: bytes | None = None) -> None:
        """Nothing more will be said, but for this last message: the reply ends when all of it is sent."""
        self.over = True
        self.owed = False
        if message is not None:
            self.log.append(message)
        if self.reply is None:
            self._rest()
        else:
            self._pump()

    def end(self) -> None:
        """The session is over: let the reader go, and never come back."""
        self.over = True
        self.owed = False
        self._release()
        self.owner.clock.drop(self)

    def detach(self) -> None:
        """The reader has gone."""
        self.reply = None
        self._rest()
        self.owner.left(self)

    def pause(self, retry: int) -> None:
        """Send the reader away for so many milliseconds: what comes meanwhile waits in the log.

        "If the server does close the connection prior to terminating the SSE stream, it SHOULD send an SSE event
        with a standard `retry` field before closing" (basic/transports).
        """
        reply = self.reply
        if reply is None:
            return
        reply.write(self.beginning(retry))
        self._release()
        self._rest()
        self.owner.left(self)

    def expired(self) -> None:
        """It has been quiet for a while; or nobody came back in time."""
        reply = self.reply
        if reply is None:
            self.owner.forget(self)
            return
        self._comment()
        self.owner.clock.set(self, self.owner.options.keep_alive)

    def _comment(self) -> None:
        if self.reply is not None and self.reply.writable:
            self.reply.write(comment())

    def _pump(self) -> None:
        """Send what the reader has not had, as far as he takes it."""
        reply = self.reply
        if reply is None:
            return
        for position, message in self.log.since(self._sent):
            if not reply.writable:
                return
            self._sent = position
            if self.over and position == self.log.last:
                self._over(self.written(position, message))
                return
            reply.write(self.written(position, message))
        if self.over:
            self._over()

    def _over(self, last: bytes = b"") -> None:
        """All of it is sent, with this."""
        self._release(last)
        self._rest()
        self.owner.left(self)

    def _release(self, last: bytes = b"") -> None:
        """End the reply."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.gone = reply.resumed = reply.doubted = None
            reply.finish(last)

    def _rest(self) -> None:
        """Nobody reads it: it waits for him who comes back, unless its call still goes on."""
        if not self.ids:
            self.owner.clock.drop(self)
            if not self.owed:
                self.owner.forget(self)
        elif self.owed:
            self.owner.clock.drop(self)
        else:
            self.owner.clock.set(self, self.owner.options.resume)
            self.owner.rests(self, True)
