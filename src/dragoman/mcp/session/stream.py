"""Streams of a session: the messages of each, in order, and its readers.

A `StreamWriter` puts messages into a log and passes them on once they are stored; a `Cursor` sends a log to one reader,
wherever it is written; an `AnswerStream` is the writer and the reader of the answer to one request. Rules
(basic/transports, "Resumability and Redelivery"):

- A message of one stream is never sent on another one.
- A message is in the log before it is sent with its number. While the engine is away it is sent to a local reader
  without an id; without a local reader it waits.
- Messages that could not be sent to a slow reader yet stay in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import UNSET, Raw

from ...bus.contract import BusLost
from ...jsonrpc.codec import FailedAnswer, failure
from ...jsonrpc.errors import InternalError, LocalError, Refusal, RpcError
from ...jsonrpc.messages import Malformed
from ...repeats import Repeats
from .log import SPARE, StreamLog
from .refusals import SessionRefusal

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

HEADROOM: Final = 1_000
"""Messages that may be on their way into a log; beyond that, notifications are dropped."""

Kind: TypeAlias = Literal["open", "message", "last", "pause"]
"""The kind of an event of a stream. "open": its beginning, to which a reader could return. "pause": its reader shall
return after a while (the message has the milliseconds); that is not in the log."""
Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine that may wait for an engine: to its end at once if nothing waits, otherwise as a task."""


def run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that does not wait for anything to its end: for sessions in memory."""
    try:
        work.send(None)
    except StopIteration:
        return
    work.close()
    raise AssertionError("a session that is kept in memory waited for something")


def encode_failure(id: bytes, error: RpcError) -> bytes:
    """Encode the error that ends a stream instead of its answer. `id`: the JSON text of the request's id; b"" without
    one: then return b""."""
    return failure(Raw(id), error) if id else b""


class StreamReader(Protocol):
    """Sends a stream to the far end. The `id` of an event is None if a reader cannot return to it."""

    gone: Callable[[], None] | None
    """Set by the stream: called once when the far end has gone."""
    resumed: Callable[[], None] | None
    """Set by the stream: called when `writable` is True again."""

    @property
    def writable(self) -> bool:
        """False while much is unsent."""

    def begin(self, id: str | None = None) -> None:
        """Begin. `id`: that of a first event without a message, to which the far end can return."""

    def send(self, message: bytes, id: str | None) -> None:
        """Send one message."""

    def pause(self, id: str | None, retry: int) -> None:
        """End, and ask the far end to return after `retry` milliseconds."""

    def finish(self, message: bytes = b"", id: str | None = None) -> None:
        """End, with this message if there is one."""

    def complete(self, message: bytes, id: str | None, first: str | None) -> None:
        """Begin, send this message and end, in one piece. `first`: the `id` for `begin`."""

    def refuse_unknown_stream(self) -> None:
        """End before the beginning: the stream does not exist."""


class SessionReply(StreamReader, Protocol):
    """Sends the answer to one message: whole, or as a stream."""

    whole: bool
    """Whether the caller accepts an answer that is not a stream."""
    streams: bool
    """Whether the caller accepts a stream."""

    def wait(self) -> None:
        """Watch for the far end to go, because the answer is not ready."""

    def answer(self, answer: bytes | FailedAnswer, session: str = "") -> None:
        """Send the answer whole. `session`: the id of a session that begins with it."""

    def turn_away(self, answer: bytes | None, refusal: Refusal) -> None:
        """Send this answer of a message that is not accepted; None: it was a notification."""

    def accept(self) -> None:
        """Acknowledge the message, to which no answer is owed."""

    def end_unanswered(self) -> None:
        """End without an answer, because the call was cancelled."""

    def send_refusal(self, refusal: SessionRefusal, id: Any = UNSET) -> None:
        """Refuse the message; `id`: that of the request."""

    def refuse_malformed(self, message: Malformed) -> None:
        """Refuse a body that is not a message."""


def event_id(name: str, number: int, leg: int = 0) -> str | None:
    """Return the id of the event with this number of a stream; None for a stream without a name, whose events have
    none."""
    if not name:
        return None
    return f"{name}-{number}.{leg}" if leg else f"{name}-{number}"


_EVENT = re.compile(r"([0-9a-z.]{1,64})-([0-9]{1,15})(?:\.([0-9]{1,15}))?")


def parse_event_id(text: str) -> tuple[str, int, int | None]:
    """Return the stream, the number and the leg of an event's id; ("", 0, None) for another text."""
    found = _EVENT.fullmatch(text)
    return ("", 0, None) if found is None else (found[1], int(found[2]), int(found[3]) if found[3] else None)


class Cursor:
    """Sends one log to one reader. `left` is called once, when the reader has gone or everything was sent."""

    __slots__ = (
        "_begun",
        "_left",
        "_pulling",
        "_run",
        "_woken",
        "active",
        "leg",
        "log",
        "name",
        "on_sent",
        "passed",
        "reader",
        "sent",
    )

    def __init__(
        self, run: Run, log: StreamLog, reader: StreamReader, *, name: str, sent: int, left: Callable[[Cursor], None]
    ) -> None:
        """`name`: that of the stream in event ids; "": events have no ids. `sent`: the number of the last message that
        the reader already has."""
        self.log: StreamLog = log
        self.reader: StreamReader | None = reader
        self.name: str = name
        self.leg: int = 0
        """For a stream with several readers in turn: the number of the leg; otherwise 0."""
        self.sent: int = sent
        """The number of the last message that was sent."""
        self.passed: range | None = None
        """Numbers of messages that other readers got."""
        self.active: bool = True
        """Whether this reader is the current one."""
        self.on_sent: Callable[[int], None] | None = None
        self._run = run
        self._left = left
        self._begun = False
        self._woken = False
        self._pulling = False
        reader.gone = self._gone

    @property
    def behind(self) -> int:
        """Messages that this process knows to be in the log and has not sent to the reader."""
        return max(0, self.log.last - self.sent)

    def begin(self, *, primed: bool = False) -> None:
        """Begin the answer. `primed`: with an event that has an id."""
        reader = self.reader
        if reader is None or self._begun:
            return
        self._begun = True
        reader.resumed = self.wake
        reader.begin(self.id(self.sent) if primed else None)

    def id(self, number: int) -> str | None:
        """Return the id of the event with this number, 0 for the beginning; None where there are none."""
        return event_id(self.name, number, self.leg)

    def push(self, number: int, message: bytes, last: bool) -> None:
        """Send a message of this process's writer, or read it from the log later. `number` 0: it is not in the log."""
        reader = self.reader
        if reader is None or (number and number <= self.sent):
            return
        if not number or (number == self.sent + 1 and self.active and not self._pulling and reader.writable):
            self._send(reader, number, message, last)
        else:
            self.wake()

    def wake(self) -> None:
        """Send the rest of the log: it has grown, or the reader can take more."""
        if self.reader is None or not self.active or not self._begun:
            return
        self._woken = True
        if not self._pulling:
            self._pulling = True
            self._run(self._pull())

    async def _pull(self) -> None:
        try:
            while self._woken and self.reader is not None and self.active:
                self._woken = False
                if self.sent < self.log.lost and self.name:
                    self.release()  # a part was dropped: the far end must not take the rest for the whole
                    return
                for entry in await self.log.read(self.sent):
                    reader = self.reader
                    if reader is None or not self.active or not reader.writable:
                        break  # it is woken when the reader resumes or becomes the current one
                    if entry.number > self.sent:
                        self._send(reader, entry.number, entry.message, entry.last)
        except BusLost as lost:
            logger.debug("a stream waits until the store is back: %s", lost)
        finally:
            self._pulling = False

    def _send(self, reader: StreamReader, number: int, message: bytes, last: bool) -> None:
        if number:
            self.sent = number
            if self.passed is not None and number in self.passed:
                return
        id = self.id(number) if number else None
        if last:
            self._end()
            reader.finish(message, id)
            self._left(self)
        elif message:
            reader.send(message, id)
        if number and self.on_sent is not None:
            self.on_sent(number)

    def pause(self, retry: int) -> None:
        """End the reader's response, and ask it to return after `retry` milliseconds.

        "If the server does close the connection prior to terminating the SSE stream, it SHOULD send an SSE event with a
        standard `retry` field before closing" (basic/transports)
        """
        reader = self.reader
        if reader is not None:
            self._end()
            reader.pause(self.id(self.sent), retry)
            self._left(self)

    def release(self) -> None:
        """End the reader's response."""
        reader = self.reader
        if reader is not None:
            self._end()
            reader.finish() if self._begun else reader.refuse_unknown_stream()
            self._left(self)

    def _end(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.gone = reader.resumed = None

    def _gone(self) -> None:
        self.reader = None
        self._left(self)


PassOn: TypeAlias = Callable[[int, Kind, bytes], bool]
"""Called with each message, in order, and its number in the log (0: it is not there); returns whether a reader here has
got it."""


def _drop(number: int, kind: Kind, message: bytes) -> bool:
    return False


class StreamWriter:
    """Puts the messages of one stream into its log, in order, and passes them on."""

    __slots__ = ("_flowing", "_id", "_over", "_pass_on", "_run", "_unstored", "dropped", "log")

    def __init__(
        self, run: Run, log: StreamLog, pass_on: PassOn, *, id: bytes = b"", over: Callable[[], None] | None = None
    ) -> None:
        """`pass_on`: called with each message. `id`: the JSON text of the id of the request that the stream answers,
        b"" for none. `over`: called after the last message."""
        self.log: StreamLog = log
        self.dropped: int = 0
        """Messages dropped because too many were on their way into the log."""
        self._run = run
        self._pass_on = pass_on
        self._over = over
        self._id = id
        self._unstored: list[tuple[int, Kind, bytes]] = []  # an empty deque would take 0.6 KiB
        self._flowing = False

    def __len__(self) -> int:
        return len(self._unstored)

    def put(self, kind: Kind, message: bytes = b"") -> bool:
        """Send a message; False when it was dropped."""
        if len(self._unstored) >= HEADROOM and message.startswith(SPARE):
            self.dropped += 1
            return False
        position = 0 if kind == "pause" else self.log.append(message, last=kind == "last")
        if position and self.log.immediate and not self._unstored:
            if kind == "last":
                self._end(position, message)
            else:
                self._pass_on(position, kind, message)
            return True
        self._unstored.append((position, kind, message))
        if not self._flowing:
            self._flowing = True
            self._run(self._flow())
        return True

    async def _flow(self) -> None:
        try:
            while self._unstored:
                position, kind, message = self._unstored[0]
                number = await self._stored(position, kind, message) if position else 0
                _, kind, message = self._unstored.pop(0)
                if kind == "last":
                    self._end(number, message)
                elif number >= 0:
                    self._pass_on(number, kind, message)
        finally:
            self._flowing = False

    def forget(self) -> None:
        """Forget the stream, which refers to this writer: there are no more messages."""
        self._over, self._pass_on = None, _drop

    def _end(self, number: int, message: bytes) -> None:
        """The last message has its number: pass it on."""
        over, pass_on = self._over, self._pass_on
        self.forget()
        if over is not None:
            over()
        if number >= 0:
            pass_on(number, "last", message)

    async def _stored(self, position: int, kind: Kind, message: bytes) -> int:
        """Wait until a message is in the log, and return its number; -1 if it is not there and must not be passed
        on."""
        while True:
            try:
                return await self.log.stored(position)
            except BusLost as lost:
                if self._pass_on(0, kind, message):
                    break  # the reader that is here has it
                logger.debug("a message without a reader here waits until the store is back: %s", lost)
                if not await self.log.reachable():
                    break
            except LocalError as error:  # it is larger than the engine takes
                if self._pass_on(0, kind, message):
                    break
                repeats.error("a message of %s bytes that has no reader here cannot be kept: %s", len(message), error)
                instead = encode_failure(self._id, InternalError(f"Too large: {error}", {"limit": "bus"}))
                if kind != "last" or not instead or len(message) <= len(instead):
                    break
                # a client that returns for the answer gets an error
                self.log.withdraw(position)
                message = instead
                position = self.log.append(message, last=True)
                self._unstored[0] = position, kind, message
        self.log.withdraw(position)
        return -1


class AnswerStream:
    """The answer to one request as a stream, and its reader here."""

    __slots__ = (
        "_on_over",
        "_on_unread",
        "_primed",
        "_run",
        "_writer",
        "_written",
        "cursor",
        "finished",
        "left",
        "log",
        "name",
        "resumable",
    )

    def __init__(
        self,
        run: Run,
        name: str,
        log: StreamLog,
        *,
        id: bytes,
        resumable: bool,
        primed: bool,
        on_unread: Callable[[AnswerStream], None],
        on_over: Callable[[AnswerStream], None],
    ) -> None:
        """`primed`: whether it begins with an event that has an id. `on_unread`: called when its reader has gone.
        `on_over`: called when all of it is in the log, or was sent, and it has no reader here."""
        self.name: str = name
        self.log: StreamLog = log
        self.resumable: bool = resumable
        self._primed = primed
        self.finished: bool = False
        """Whether its answer was sent, the last message."""
        self.cursor: Cursor | None = None
        self.left: float | None = None
        """When its last reader left, or was known to read at another process; None while it has one here."""
        self._run = run
        self._on_unread = on_unread
        self._on_over = on_over
        self._written = False
        self._writer = StreamWriter(run, log, self._pass_on, id=id, over=self._over)

    @property
    def unstored(self) -> int:
        """The number of messages that are not in the log yet."""
        return len(self._writer)

    def begin(self, reader: StreamReader) -> None:
        """Send the stream to this reader, from its beginning."""
        self.cursor = self._cursor(reader, 0)
        if self._primed:
            self._writer.put("open")  # the entry that the priming event names must exist
        else:
            self.cursor.begin()

    def resume(self, reader: StreamReader, sent: int) -> None:
        """Send the stream to this reader from after this number; the former reader is released."""
        self.release()
        self.cursor = self._cursor(reader, sent)
        self.log.read_here()
        self.cursor.begin()
        self.cursor.wake()

    def _cursor(self, reader: StreamReader, sent: int) -> Cursor:
        self.left = None
        name = self.name if self.resumable else ""
        return Cursor(self._run, self.log, reader, name=name, sent=sent, left=self._left)

    def release(self) -> None:
        """Release the reader."""
        if self.cursor is not None:
            self.cursor.release()

    def wake(self) -> None:
        """Wake the reader's cursor."""
        if self.cursor is not None:
            self.cursor.wake()

    def say(self, message: bytes) -> bool:
        """Send a message ahead of the answer."""
        return not self.finished and self._writer.put("message", message)

    def finish(self, answer: bytes | None) -> None:
        """Send the answer, which ends the stream; None: end it without one."""
        if not self.finished:
            self.finished = True
            self._writer.put("last", answer or b"")

    def pause(self, retry: int) -> None:
        """End the reader's response after the messages so far, and ask it to return after `retry` milliseconds."""
        self._writer.put("pause", str(retry).encode())

    def _pass_on(self, number: int, kind: Kind, message: bytes) -> bool:
        cursor = self.cursor
        if cursor is None:
            pass
        elif kind == "open":
            cursor.sent = number
            cursor.begin(primed=number > 0)
        elif kind == "pause":
            cursor.pause(int(message))
        else:
            cursor.push(number, message, kind == "last")
        return cursor is not None

    def _over(self) -> None:
        self._written = True
        if self.cursor is None:
            self._on_over(self)

    def _left(self, cursor: Cursor) -> None:
        if self.cursor is cursor:
            self.cursor = None
            self._on_over(self) if self._written else self._on_unread(self)
