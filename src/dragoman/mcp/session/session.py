"""A session of the stateful era: its peer, the responders to its client's requests, its streams.

For its peer a `Session` is a channel for messages outside calls, which go to the home stream. It does not know HTTP: it
answers through an `Answering`, and refuses with a `Refused`. A `Keeper` keeps it: this process alone (`memory`), or a
store that replicas share (`replica`), each of which has a copy of the session. Rules (basic/transports, "Session
Management"):

- An id has 192 random bits in visible ASCII, and is valid only for the principal that got it.
- There are at most `HttpOptions.sessions`: for a new one beyond, another is ended, first those that are unused (nothing
  after `initialize`), by the fair shares of `allowance`; if none may give way, the new one is refused.
- A session ends by DELETE, after its idle time, or with the server; then its id is unknown.
- A bounded number of finished streams is kept for a returning client; beyond it the oldest are dropped.
"""

from __future__ import annotations

import logging
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Protocol

from ...channel import Caller, ChannelError, Closed, Ended, Outgoing, Receiver
from ...jsonrpc.errors import Refusal, RpcError
from ...jsonrpc.messages import Batch, Malformed, Message, Notification, Request, Single
from ...rpc.batch_responder import BatchResponder
from ...rpc.deadlines import GRAIN
from ...rpc.dispatch import forbidden_batch
from ...rpc.observing import Deliver, answers_only, nothing
from ...rpc.outbound import OutboundCall
from ...rpc.peering.channel_peer import ChannelPeer
from ...rpc.runner import InboundCall, Runner
from ..protocol.admission import SessionState
from ..protocol.dialect import MCP, of
from ..protocol.options import HttpOptions
from ..protocol.revisions import Revision
from .client_info import keep_client
from .home import HOME, Home
from .log import StreamLog
from .record import Delta, Record
from .record import session as restored
from .responder import CHANGING, NO_BATCHES, NO_SESSION, NO_STREAM, Answering, Refused, Responder, too_much
from .stream import Cursor, Run, Stream, event_id

logger: logging.Logger = logging.getLogger("dragoman.mcp")
_EVENT = re.compile(r"([0-9a-z.]{1,64})-([0-9]{1,15})(?:\.([0-9]{1,15}))?")
"""The id of an event: its stream, its number there, and the leg of the home stream."""


class Keeper(Protocol):
    """Keeps sessions."""

    @property
    def host(self) -> Runner: ...
    @property
    def options(self) -> HttpOptions: ...
    @property
    def draining(self) -> bool: ...
    @property
    def run(self) -> Run: ...
    @property
    def unheard(self) -> Unheard: ...
    @property
    def shares(self) -> bool:
        """Whether other processes have copies of a session."""

    def first_id(self) -> int:
        """The number after which the ids of a session's questions begin."""

    def log(self, session: Session, id: bytes, resumable: bool) -> tuple[str, StreamLog]:
        """A new, unique name of a stream, and its log; `id` as in `StreamWriter`."""

    def home(self, session: Session) -> Home:
        """The home stream of a session."""

    def over(self, session: Session, name: str, log: StreamLog) -> None:
        """A stream has ended: its log is kept for a while."""

    def drop(self, session: Session, name: str) -> None:
        """A stream's log is not needed any more."""

    async def keep(self, session: Session) -> Refused | None:
        """`initialize` was accepted: the session can be found from now on, unless it is refused. Raises BusLost."""

    async def kept(self, session: Session, name: str) -> StreamLog | None:
        """The log of a stream that is written elsewhere, or has ended; None if there is none. Raises BusLost."""

    async def reads(self, session: Session, cursor: Cursor) -> None:
        """Such a log, which may grow, is read here from now on. Raises BusLost."""

    def unread(self, session: Session, cursor: Cursor) -> None:
        """It is not read here any more."""

    async def save(self, session: Session, change: Delta) -> None:
        """Store a change of the session. Raises BusLost."""

    async def hand_on(self, session: Session, message: Single, raw: bytes) -> None:
        """Pass on messages that may concern other processes: answers, cancels. Returns when they cannot be lost any
        more. Raises BusLost."""

    def closed(self, session: Session) -> None:
        """Its peer was closed."""

    def touch(self, session: Session) -> None:
        """The session is in use."""

    def forget(self, session: Session) -> None:
        """The session is over, at least here."""

    def restore(self, session: Session) -> None:
        """Set its subscriptions."""


class Session:
    """One session, or one process's copy of it."""

    __slots__ = (
        "_cursors",
        "_ended",
        "_home",
        "_receiver",
        "_resting",
        "caller",
        "heard",
        "hint",
        "id",
        "keeper",
        "options",
        "peer",
        "principal",
        "record",
        "responders",
        "run",
        "streamed",
        "streams",
        "touched",
        "used",
    )

    counts = True
    """What it knows of its client is counted when it is kept, since HTTP has refusals of its own."""
    duplex = True
    writable = True  # messages without a reader wait in a bounded log

    def __init__(self, keeper: Keeper, principal: str | None, caller: Caller, id: str = "") -> None:
        """`id`: of a session of another process; "": it begins here."""
        self.keeper: Keeper = keeper
        self.options: HttpOptions = keeper.options
        self.run: Run = keeper.run
        # "SHOULD be globally unique and cryptographically secure", "MUST only contain visible ASCII characters"
        # As `secrets.token_urlsafe`, which would load hmac and random at every start
        self.id: str = id or urlsafe_b64encode(os.urandom(24)).decode()
        self.principal: str | None = principal
        self.caller: Caller = Caller(
            scheme=caller.scheme, remote=caller.remote, path=caller.path, tls=caller.tls, identity=caller.identity
        )
        self.record: Record | None = None
        """What other processes know of it; None without them, and until `initialize` was accepted."""
        self.used: float = 0.0
        """When it was last used here, on the monotonic clock."""
        self.touched: float = float("-inf")
        """When its life in the store was last extended."""
        self.hint: Callable[[bytes, int], None] | None = self._hint if keeper.shares else None
        """Takes notifications of changes that every process gets, with the change's number, instead of `send`."""
        self.heard: int = 0
        """The number of the last message that another process handed on."""
        self.responders: dict[Responder, None] = {}
        """Responders whose answers are not streams."""
        self.streams: dict[str, Stream] = {}
        """Streams that are written or read here."""
        self.streamed: int = 0
        """The number of streams it has had here."""
        self._cursors: dict[Cursor, None] = {}
        """Readers here of streams that have ended, or are written elsewhere."""
        self._resting: dict[str, None] = {}
        self._receiver: Receiver | None = None
        self._ended = False
        self._home: Home | None = None
        self.peer: ChannelPeer = ChannelPeer(keeper.host, dialect=MCP)
        self.peer.attach(self)
        self.peer.conversation.last_id = keeper.first_id()

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def home(self) -> Home:
        """The home stream."""
        if self._home is None:
            self._home = self.keeper.home(self)
        return self._home

    @property
    def revision(self) -> Revision | None:
        """The negotiated revision; None before that."""
        state: SessionState | None = self.peer.state
        return None if state is None else state.revision

    @property
    def primed(self) -> bool:
        """Whether its streams begin with an event that has an id."""
        revision = self.revision
        return revision is not None and revision.primed

    @property
    def resumable(self) -> bool:
        """Whether its streams can be resumed."""
        revision = self.revision
        return revision is not None and revision.resumable

    @property
    def busy(self) -> bool:
        """Whether it is in use here."""
        reading = self._cursors or (self._home is not None and self._home.busy)
        return bool(self.responders or self.streams or reading or self.peer.conversation.inbound)

    @property
    def readers(self) -> list[Cursor]:
        """The cursors of its streams that have a reader here."""
        home = () if self._home is None else self._home.cursors
        own = [one.cursor for one in tuple(self.streams.values()) if one.cursor is not None]
        return [one for one in (*own, *tuple(self._cursors), *home) if one.reader is not None]

    @property
    def unsaid(self) -> int:
        """Messages of its streams that are on their way into their logs."""
        home = 0 if self._home is None else self._home.unsaid
        return home + sum(one.unsaid for one in tuple(self.streams.values()))

    # -- its state

    def adopt(self, record: Record) -> None:
        """Become a copy of the session in the store."""
        self.record = record
        state = restored(record.whole)
        self.peer.state = state
        self.peer.dialect = of(state.revision)
        self.keeper.restore(self)

    def catch_up(self, entries: Sequence[tuple[int, bytes]]) -> bool:
        """Apply changes made elsewhere; False if some are missing."""
        record, state = self.record, self.peer.state
        if record is None:
            return False
        before = record.number
        if not record.take(entries):
            return False
        if record.number == before:
            return True
        whole = record.whole
        state.log_level = whole.log_level
        state.initialized = state.initialized or whole.initialized is not None
        if state.subscriptions != whole.uris.keys():
            state.subscriptions = set(whole.uris)
        self.keeper.restore(self)
        return True

    def changed(self) -> Delta | None:
        """Changes that other processes do not know yet; None without changes or other processes."""
        change = None if self.record is None else self.record.changed(self.peer.state)
        return change or None

    async def save(self, change: Delta) -> None:
        """Store a change for other processes. Raises BusLost."""
        await self.keeper.save(self, change)

    async def keep(self) -> Refused | None:
        host = self.keeper.host
        refusal = keep_client(self.peer.state, self.caller.owner, host.call_limit.budget, host.service.limits)
        return too_much(refusal) if refusal is not None else await self.keeper.keep(self)

    # -- the peer's channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """Send a message outside calls."""
        if self._ended:
            raise Closed("the session is over")
        self.say(message)

    def say(self, message: bytes) -> bool:
        """`send`, for messages inside a call that has no stream of its own."""
        if self._ended:
            return False
        if self.home.left is not None and self.peer.conversation.outbound:
            self.keeper.unheard.add(self)
        return self.home.say(message)

    def _hint(self, message: bytes, number: int) -> None:
        if not self._ended and self.record is not None:
            self.home.say(message, str(number))

    async def flush(self) -> None:
        """Returns at once: nothing to wait for."""

    async def close(self) -> None:
        """The peer was closed."""
        self.keeper.closed(self)
        self.end(Closed("the session was closed"))

    def abort(self, why: ChannelError) -> None:
        self.end(why)

    def end(self, why: ChannelError) -> None:
        """End it: its calls are dropped, readers and callers are released."""
        if self._ended:
            return
        self._ended = True
        self.keeper.forget(self)
        self.keeper.unheard.discard(self)
        if self._receiver is not None:
            self._receiver.ended(why)
        responders, self.responders = self.responders, {}
        for responder in responders:
            responder.ended()
        for stream in tuple(self.streams.values()):
            if self.keeper.draining:  # a client that returns elsewhere is told that its call is over
                stream.finish(None)
            if not (self.keeper.draining and stream.unsaid):
                self.streams.pop(stream.name, None)
                stream.release()
                stream.log.close()
        for cursor in tuple(self._cursors):
            cursor.release()
        if self._home is not None:
            self._home.release()
            self._home.close()
        state: SessionState | None = self.peer.state
        if state is not None and state.kept is not None:
            state.kept.release()

    def rest(self) -> None:
        """It is not in use any more."""
        self.keeper.touch(self)

    # -- its streams

    def stream(self, id: bytes) -> Stream:
        """A new stream, for the answer to the request with this id."""
        return self._stream(id, *self._log(id))

    def _log(self, id: bytes) -> tuple[str, StreamLog, bool, bool]:
        """The name and the log of a new stream, and whether it is resumable, and primed."""
        self.streamed += 1
        revision = self.revision
        resumable = revision is not None and revision.resumable
        name, log = self.keeper.log(self, id, resumable)
        return name, log, resumable, resumable and revision is not None and revision.primed

    def _stream(self, id: bytes, name: str, log: StreamLog, resumable: bool, primed: bool) -> Stream:
        stream = self.streams[name] = Stream(self, name, log, id=id, resumable=resumable, primed=primed)
        return stream

    def complete(self, id: bytes, reader: Answering, answer: bytes) -> None:
        """Answer the request with this id by a stream of which nothing was sent before. What is stored at once leaves
        in one piece, and with it the stream is over."""
        name, log, resumable, primed = self._log(id)
        if not log.immediate:
            stream = self._stream(id, name, log, resumable, primed)
            stream.begin(reader)
            stream.finish(answer)
            return
        shown = name if resumable else ""
        first = event_id(shown, log.append(b"")) if primed else None
        last = log.append(answer, last=True)
        if resumable and not self._ended:
            self._keep(name, log)
        else:
            log.close()
        reader.complete(answer, event_id(shown, last), first)

    def left(self, stream: Stream) -> None:
        self.rest()
        if not self._ended:
            stream.left = monotonic()
            self.keeper.unheard.add(self)

    def unheard(self) -> Iterator[tuple[float, OutboundCall | None]]:
        """Since when its streams have no reader, each with the questions on it, or None without one."""
        questions = tuple(self.peer.conversation.outbound.values())
        for stream in tuple(self.streams.values()):
            if stream.left is None:
                continue
            on_it = [
                one
                for one in questions
                if isinstance(one.reply_stream, Responder) and one.reply_stream.stream is stream
            ]
            for question in on_it or (None,):
                yield stream.left, question
        # which of several processes has a reader of the home stream is not known here
        if questions and not self.keeper.shares and self.home.left is not None:
            since = max(self.home.left, self.used)
            for question in questions:
                if not isinstance(question.reply_stream, Responder) or question.reply_stream.stream is None:
                    yield since, question

    def over(self, stream: Stream) -> None:
        self.streams.pop(stream.name, None)
        self.rest()
        if stream.resumable and not self._ended:
            self._keep(stream.name, stream.log)
        else:
            stream.log.close()

    def _keep(self, name: str, log: StreamLog) -> None:
        """Keep the log of a stream that has ended, and of those the newest."""
        self.keeper.over(self, name, log)
        self._resting[name] = None
        if len(self._resting) > self.options.streams:
            oldest = next(iter(self._resting))
            del self._resting[oldest]
            self.keeper.drop(self, oldest)

    async def listen(self, reader: Answering, event: str | None) -> None:
        """Add a reader of messages outside calls, or of the stream that broke after this event. Raises BusLost."""
        if event is None or not self.resumable:
            if not await self.home.open(reader):
                reader.refused(NO_SESSION)
            return
        found = _EVENT.fullmatch(event)
        if found is None:
            reader.refused(NO_STREAM)
        elif found[1] == HOME and found[3]:
            if not await self.home.open(reader, (int(found[2]), int(found[3]))):
                reader.refused(NO_SESSION)
        elif not await self._resume(reader, found[1], int(found[2])):
            reader.refused(NO_STREAM)

    async def _resume(self, reader: Answering, name: str, sent: int) -> bool:
        """Resume a stream after this number, wherever it is written; False when there is none."""
        stream = self.streams.get(name)
        log = await self.keeper.kept(self, name) if stream is None else stream.log
        # "MUST NOT replay messages that would have been delivered on a different stream" (basic/transports): the log
        # has this stream's alone, and is found by the session's id
        entries = () if log is None else await log.read(max(sent - 1, 0))
        stream = self.streams.get(name)
        # of a stream that goes on there may be no entry any more, where its client has had all of it
        if log is None or sent < log.lost or not (entries or (stream is not None and log.lost)) or self._ended:
            return False
        if stream is not None:
            stream.resume(reader, sent)
            return True
        cursor = Cursor(self.run, log, reader, name=name, sent=sent, left=self._read)
        self._cursors[cursor] = None
        cursor.begin()
        if entries[-1].last and entries[-1].number <= sent:
            cursor.release()  # the client had all of it
            return True
        cursor.wake()
        if not entries[-1].last:
            await self.keeper.reads(self, cursor)
        return True

    def _read(self, cursor: Cursor) -> None:
        """The reader of a stream that has ended, or is written elsewhere, has all of it or has gone."""
        self._cursors.pop(cursor, None)
        self.keeper.unread(self, cursor)
        self.rest()

    # -- its messages

    def request(self, message: Request, raw: bytes, reader: Answering, caller: Caller, *, begins: bool = False) -> None:
        """Take one request of the client. `begins`: it is the `initialize` that begins the session; if that is refused,
        the session ends."""
        responder = Responder(self, reader, message.id, begins, message.method in CHANGING)
        self.peer.take(message, responder.deliver, responder, caller, raw)
        if not responder.over:
            responder.wait(owed=not begins)

    async def take(self, message: Message, raw: bytes, reader: Answering, caller: Caller) -> None:
        """Take one message of the client that is not a request. Raises BusLost if it needs the engine and that is
        away."""
        peer = self.peer
        if isinstance(message, Batch):
            if not peer.dialect.batches:
                reader.refused(NO_BATCHES)
                return
            if (refusal := forbidden_batch(message, peer, caller, raw)) is not None:
                reader.turned_away(None, refusal)
                return
            for one in message.messages if self.keeper.shares else ():
                await self._tell(one, b"")
            self._batch(message, raw, Responder(self, reader), caller)
        else:
            if self.keeper.shares:
                await self._tell(message, raw)
            refusals: list[Refusal | None] = []  # nothing is owed: it is taken on, or not, at once
            peer.take(message, lambda _, refusal=None: refusals.append(refusal), self.say, caller, raw)
            self.rest()
            if isinstance(message, Malformed):
                reader.unfit(message)
            elif (refusal := next(filter(None, refusals), None)) is not None:
                reader.turned_away(None, refusal)
            else:
                reader.accepted()

    async def _tell(self, message: Single, raw: bytes) -> None:
        """Tell other processes what they must know before the message is accepted."""
        if isinstance(message, Request):
            return
        state = self.peer.state
        ready = isinstance(message, Notification) and message.method == "notifications/initialized"
        if ready and self.record is not None and not state.initialized:
            await self.save(Delta(initialized=True))
            state.initialized = True
            self.keeper.restore(self)
        await self.keeper.hand_on(self, message, raw)

    def _batch(self, batch: Batch, raw: bytes, responder: Responder, caller: Caller) -> None:
        """Take several messages at once: their answers are sent together, or none if none is owed."""
        peer = self.peer
        service = self.keeper.host.service
        watch = service._watch
        observed = watch is not None and not answers_only(batch)
        whole = watch.came_in(batch, peer, caller, nothing, raw) if watch is not None and observed else None
        asks = any(
            isinstance(one, Request) or (isinstance(one, Malformed) and one.answerable) for one in batch.messages
        )

        def start(message: Single, deliver: Deliver) -> None:
            if type(message) is Request and message.method == "initialize":
                # "The initialize request MUST NOT be part of a JSON-RPC batch" (basic/lifecycle)
                wrong = RpcError.of(-32600, "Invalid Request: initialize stands alone")
                answer = service._answers.failed(message, wrong)
                if watch is not None and whole is not None:
                    watch.came_in(message, peer, caller, nothing, batch=whole.seen).over(answer)
                deliver(answer)
            else:
                peer.take(message, deliver, responder, caller, batch=whole)

        def done(found: list[bytes], size: int) -> None:
            answer = service._answers.batch(found, size) if found else None
            if whole is not None:
                whole.over(answer)
            if found or asks:
                responder.deliver(answer)
            else:
                responder.accept()

        limits = service.limits
        width, allowed = limits.batch_concurrency, limits.response_size
        BatchResponder(batch.messages, start, done, service._answers.fault, width=width, allowed=allowed).step()
        if not responder.over:
            responder.wait(owed=asks)


# -- questions that may not be heard


class Unheard:
    """The sessions of one keeper with streams that have no reader, whose questions are for a client that may have gone.

    A client that loses its connection may come back for the stream on which it was asked, so its call waits. Once the
    stream can no longer be resumed (`HttpOptions.resume`) the question is not heard, and the answer of its call cannot
    be fetched: it is ended, without an error, and its slot is free at once. A server that has no slot left ends the
    oldest such call before its time rather than refuse a new one. `seconds`: for which a stream can be resumed.
    """

    def __init__(self, host: Runner, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self._sessions: dict[Session, None] = {}

    def add(self, session: Session) -> None:
        """A reader of this session has gone, or it has asked something without a reader."""
        if not self._sessions:
            self._host.clock.set(self, self._seconds)
            self._host.call_limit.spares.append(self.end_oldest)
        self._sessions[session] = None

    def discard(self, session: Session) -> None:
        """The session is over."""
        if self._sessions.pop(session, self) is None and not self._sessions:
            self._close()

    def expired(self) -> None:
        """End what has waited for too long, and look again when the next will have."""
        now = monotonic()
        first = now
        for session in tuple(self._sessions):
            waits = False
            for since, question in tuple(session.unheard()):
                if question is not None and since + self._seconds <= now + GRAIN:
                    _end(session, question)
                elif since + self._seconds > now + GRAIN:
                    waits, first = True, min(first, since)
                else:  # nothing is asked yet
                    waits = True
            if not waits:
                del self._sessions[session]
        if self._sessions:
            self._host.clock.set(self, max(first + self._seconds - now, self._seconds / 4))
        else:
            self._close()

    def end_oldest(self) -> bool:
        """End the question that has waited longest without a reader; False if there is none."""
        for session in self._sessions:
            asked = [(since, question) for since, question in session.unheard() if question is not None]
            if asked:
                _end(session, min(asked, key=lambda pair: pair[0])[1])
                return True
        return False

    def _close(self) -> None:
        self._host.clock.drop(self)
        if self.end_oldest in self._host.call_limit.spares:
            self._host.call_limit.spares.remove(self.end_oldest)


def _end(session: Session, question: OutboundCall) -> None:
    """End a question, and the calls that wait for it."""
    logger.debug("session of %s: %s cannot be answered any more", session.caller.remote, question.method)
    session.peer.conversation.forget(question.id)
    for run in tuple(_asking(session, question)):
        run.abandon()
    question.fail(Ended("the client that was asked has gone"))


def _asking(session: Session, question: OutboundCall) -> Iterator[InboundCall]:
    for run in session.peer.conversation.inbound.values():
        if run.asks and run.reply_stream == question.reply_stream:
            yield run
