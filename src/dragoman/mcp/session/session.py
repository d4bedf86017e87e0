"""Sessions of the stateful era: each with its peer, the responders to its client's requests and its streams; and the
table of those that are used in this process.

For its peer a `Session` is a channel for messages outside calls, which go to the home stream. It does not know HTTP: it
answers through a `SessionReply`, and refuses with a `SessionRefusal`. Where replicas share their sessions, the table
has an `Elsewhere` (`replica`), and a session here is one replica's copy. Rules (basic/transports, "Session
Management"):

- An id has 192 random bits in visible ASCII, and is valid only for the principal that got it.
- There are at most `HttpOptions.sessions` in a process: for a new one beyond, another is ended, first those that are
  unused (nothing after `initialize`), by the fair shares of `allowance`; if none may give way, the new one is refused.
- A session ends by DELETE, after its idle time, or with the server; then its id is unknown.
- A bounded number of finished streams is kept for a returning client; beyond it the oldest are dropped.
- A request's changes of the session are stored before it is answered, so that a client never knows of a change that
  another process does not know.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Struct

from ...allowance import NoRoom, Owner, Slots, owner_of
from ...bus.contract import BusLost
from ...channel import Caller, ChannelError, Closed, Outgoing, Receiver
from ...jsonrpc.codec import AnyAnswer, FailedAnswer
from ...jsonrpc.messages import Batch, Malformed, Message, Request, Single
from ...rpc.channel_peer import ChannelPeer
from ...rpc.dispatch import forbidden_batch
from ...rpc.outbound import OutboundCall
from ...rpc.runner import Runner
from ..protocol.admission import SessionState
from ..protocol.dialect import MCP
from ..protocol.headers import session_name
from ..protocol.http_options import HttpOptions
from ..protocol.revisions import Revision
from .batches import take_batch
from .changes import ChangeHub
from .client_info import keep_client
from .home import HOME, HomeStream
from .log import KeptLogs, MemoryLog, StreamLog
from .record import Delta, SessionRecord
from .refusals import (
    AWAY,
    ENDED,
    NO_BATCHES,
    NO_SESSION,
    NO_STREAM,
    TURNED_AWAY,
    SessionRefusal,
    too_many_sessions,
    too_much,
)
from .stream import AnswerStream, Cursor, Run, SessionReply, event_id, parse_event_id, run_at_once
from .unheard import Unheard

CHANGING: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""The methods that change a session's state."""
TURNS: Final = 64
"""Legs of a home stream that are remembered: a reader that returns to an older leg gets only new messages."""
_json = msgspec.json.Encoder().encode


class Elsewhere(Protocol):
    """The store and the other processes that share the sessions. Without replicas a table has none. A Protocol, since
    `replica` imports this module."""

    def join(self, table: SessionTable) -> None:
        """Use this table for the copies in this process."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task; the server waits for it when it stops."""

    def first_id(self) -> int:
        """Return the number after which the ids of a session's questions begin."""

    async def create(self, session: Session) -> None:
        """Store a new session, so that every process can find it. Raises BusLost."""

    async def find(self, id: str, principal: str | None, caller: Caller) -> Session | None:
        """Return the copy of a session, if it belongs to this principal. Raises BusLost."""

    async def save(self, session: Session, change: Delta) -> None:
        """Store a change of a session. Raises BusLost."""

    async def erase(self, session: Session) -> None:
        """End a session for every process. Raises BusLost."""

    def erase_soon(self, session: Session) -> None:
        """End it for every process as a task; no effect while the store is away."""

    def release(self, session: Session) -> None:
        """Forget this process's copy of a session, which is not used here any more."""

    async def forward(self, session: Session, message: Single, raw: bytes) -> None:
        """Store what other processes must know before a message is accepted: answers, cancels, that the client is
        initialized. Raises BusLost."""

    def log(self, session: Session, id: bytes) -> tuple[str, StreamLog]:
        """Make a unique name of a resumable stream, and its log; `id` as in `StreamWriter`."""

    def home(self, session: Session) -> HomeStream:
        """Make the home stream of a session."""

    def drop(self, session: Session, name: str) -> None:
        """Delete a stream's log."""

    def find_log(self, session: Session, name: str) -> StreamLog | None:
        """Return the log of a stream that another process writes, or that has ended; None for a name that no stream
        has."""

    async def begin_reading(self, session: Session, cursor: Cursor) -> None:
        """Notify the writer of such a stream, which may grow, that it is read here. Raises BusLost."""

    def end_reading(self, session: Session, cursor: Cursor) -> None:
        """Note that this stream is not read here any more."""


class Session:
    """One session, or one process's copy of it."""

    __slots__ = (
        "_cursors",
        "_home",
        "_name",
        "_receiver",
        "_resting",
        "caller",
        "hint",
        "id",
        "options",
        "peer",
        "principal",
        "received",
        "record",
        "responders",
        "run",
        "streamed",
        "streams",
        "table",
        "touched",
        "used",
        "why",
    )

    counts = True
    """It counts by itself what it keeps of its client, since HTTP refuses in a form of its own."""
    duplex = True
    writable = True  # messages without a reader wait in a bounded log

    def __init__(self, table: SessionTable, principal: str | None, caller: Caller, id: str = "") -> None:
        """`id`: of a session of another process; "": it begins here."""
        self.table: SessionTable = table
        self.options: HttpOptions = table.options
        self.run: Run = table.run
        # "SHOULD be globally unique and cryptographically secure", "MUST only contain visible ASCII characters"
        # As `secrets.token_urlsafe`, which would load hmac and random at every start
        self.id: str = id or urlsafe_b64encode(os.urandom(24)).decode()
        self.principal: str | None = principal
        self.caller: Caller = Caller(
            scheme=caller.scheme, remote=caller.remote, path=caller.path, tls=caller.tls, identity=caller.identity
        )
        self.record: SessionRecord | None = None
        """The session as it is in the store; None without other processes, and until `initialize` was accepted."""
        self.used: float = 0.0
        """When it was last used here, on the monotonic clock."""
        self.touched: float = float("-inf")
        """When its life in the store was last extended."""
        self.hint: Callable[[bytes, int], None] | None = None if table.elsewhere is None else self._hint
        """Called with the notification of a change that every process gets, and the change's number, instead of
        `send`; None without other processes."""
        self.received: int = 0
        """The number of the last message that another process forwarded."""
        self.responders: dict[Responder, None] = {}
        """Responders whose answers are not streams."""
        self.streams: dict[str, AnswerStream] = {}
        """Streams that are written or read here."""
        self.streamed: int = 0
        """The number of streams it has had here."""
        self._cursors: dict[Cursor, None] = {}
        """Readers here of streams that have ended, or are written elsewhere."""
        self._resting: dict[str, None] = {}
        self._receiver: Receiver | None = None
        self.why: ChannelError | None = None
        """How it ended: `Ended` if its client did it; None while it goes on."""
        self._home: HomeStream | None = None
        self._name = ""
        self.peer: ChannelPeer = ChannelPeer(table.host, dialect=MCP)
        self.peer.attach(self)
        if table.elsewhere is not None:
            self.peer._conversation.last_id = table.elsewhere.first_id()

    @property
    def ended(self) -> bool:
        return self.why is not None

    @property
    def session_name(self) -> str:
        """The name of the session for observers, the same in every process; its id is a secret."""
        self._name = self._name or session_name(self.id)
        return self._name

    @property
    def home(self) -> HomeStream:
        """The home stream."""
        if self._home is None:
            self._home = self.table.home(self)
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
        return bool(self.responders or self.streams or reading or self.peer._conversation.inbound)

    @property
    def readers(self) -> list[Cursor]:
        """The cursors of its streams that have a reader here."""
        home = () if self._home is None else self._home.cursors
        own = [one.cursor for one in tuple(self.streams.values()) if one.cursor is not None]
        return [one for one in (*own, *tuple(self._cursors), *home) if one.reader is not None]

    @property
    def unstored(self) -> int:
        """Messages of its streams that are on their way into their logs."""
        waiting = sum(one.unstored for one in self.streams.values())
        return waiting if self._home is None else waiting + self._home.unstored

    def changed(self) -> Delta | None:
        """Return the changes that are not in the store yet; None without changes or other processes."""
        change = None if self.record is None else self.record.changed(self.peer.state)
        return change or None

    async def keep(self) -> SessionRefusal | None:
        """Add the session to the table, so that later requests find it; return a refusal if it cannot be added. Raises
        BusLost."""
        host = self.table.host
        refusal = keep_client(self.peer.state, self.caller.owner, host.call_limit.budget, host.service.limits)
        return too_much(refusal) if refusal is not None else await self.table.add(self)

    # -- the peer's channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """Send a message outside calls."""
        if self.why is not None:
            raise Closed("the session is over")
        self.say(message)

    def say(self, message: bytes) -> bool:
        """Send a message inside a call that has no stream of its own; False when it was dropped."""
        if self.why is not None:
            return False
        if self.home.left is not None and self.peer._conversation.outbound:
            self.table.unheard.add(self.peer, self.unheard)
        return self.home.say(message)

    def _hint(self, message: bytes, number: int) -> None:
        if self._home is not None and self.why is None and self.record is not None:
            self._home.say_change(message, number)

    async def flush(self) -> None:
        """Return at once: nothing to wait for."""

    async def close(self) -> None:
        """The peer was closed."""
        table = self.table
        # a replica that drains ends only its copies: the sessions go on at the others
        if table.elsewhere is not None and not table.draining and self.record is not None:
            table.elsewhere.erase_soon(self)
        self.end(Closed("the session was closed"))

    def abort(self, why: ChannelError) -> None:
        self.end(why)

    def end(self, why: ChannelError) -> None:
        """End it: its calls are dropped, readers and callers are released."""
        if self.why is not None:
            return
        self.why = why
        self.table.remove(self)
        self.table.unheard.discard(self.peer)
        if self._receiver is not None:
            self._receiver.ended(why)
        responders, self.responders = self.responders, {}
        for responder in responders:
            responder.ended()
        for stream in tuple(self.streams.values()):
            if self.table.draining:  # a client that returns elsewhere learns that its call is over
                stream.finish(None)
            if not (self.table.draining and stream.unstored):
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
        """Begin its idle time: it is not in use any more."""
        self.table.touch(self)

    # -- its streams

    def stream(self, id: bytes) -> AnswerStream:
        """Make a stream, for the answer to the request with this id."""
        return self._stream(id, *self._log(id))

    def _log(self, id: bytes) -> tuple[str, StreamLog, bool, bool]:
        """Make the log of a new stream; returns its name, the log, and whether it is resumable, and primed."""
        self.streamed += 1
        revision = self.revision
        resumable = revision is not None and revision.resumable
        return *self.table.log(self, id, resumable), resumable, revision is not None and resumable and revision.primed

    def _stream(self, id: bytes, name: str, log: StreamLog, resumable: bool, primed: bool) -> AnswerStream:
        stream = self.streams[name] = AnswerStream(
            self.run,
            name,
            log,
            id=id,
            resumable=resumable,
            primed=primed,
            on_unread=self._unread,
            on_over=self._over,
        )
        return stream

    def complete(self, id: bytes, reader: SessionReply, answer: bytes) -> None:
        """Answer the request with this id by a stream of which nothing was sent before. What is stored at once is
        sent in one piece, and with it the stream is over."""
        name, log, resumable, primed = self._log(id)
        if not log.immediate:
            stream = self._stream(id, name, log, resumable, primed)
            stream.begin(reader)
            stream.finish(answer)
            return
        shown = name if resumable else ""
        first = event_id(shown, log.append(b"")) if primed else None
        last = log.append(answer, last=True)
        if resumable and self.why is None:
            self._keep(name, log)
        else:
            log.close()
        reader.complete(answer, event_id(shown, last), first)

    def _unread(self, stream: AnswerStream) -> None:
        self.rest()
        if self.why is None:
            stream.left = monotonic()
            self.table.unheard.add(self.peer, self.unheard)

    def unheard(self) -> Iterator[tuple[float, OutboundCall | None]]:
        """Yield since when each of its streams has no reader, with each question on it, or with None."""
        questions = tuple(self.peer._conversation.outbound.values())
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
        if questions and self.table.elsewhere is None and self.home.left is not None:
            since = max(self.home.left, self.used)
            for question in questions:
                if not isinstance(question.reply_stream, Responder) or question.reply_stream.stream is None:
                    yield since, question

    def _over(self, stream: AnswerStream) -> None:
        self.streams.pop(stream.name, None)
        self.rest()
        if stream.resumable and self.why is None:
            self._keep(stream.name, stream.log)
        else:
            stream.log.close()

    def _keep(self, name: str, log: StreamLog) -> None:
        """Keep the log of a stream that has ended, and of those the newest."""
        self.table.keep_log(self, name, log)
        self._resting[name] = None
        if len(self._resting) > self.options.streams:
            oldest = next(iter(self._resting))
            del self._resting[oldest]
            self.table.drop_log(self, oldest)

    async def listen(self, reader: SessionReply, event: str | None) -> None:
        """Add a reader of messages outside calls, or of the stream that broke after this event. Raises BusLost."""
        if event is None or not self.resumable:
            if not await self._open_home(reader):
                reader.send_refusal(NO_SESSION)
            return
        name, number, leg = parse_event_id(event)
        if name == HOME and leg is not None:
            if not await self._open_home(reader, (number, leg)):
                reader.send_refusal(NO_SESSION)
        elif not (name and await self._resume(reader, name, number)):
            reader.send_refusal(NO_STREAM)

    async def _open_home(self, reader: SessionReply, back: tuple[int, int] | None = None) -> bool:
        return self.why is None and await self.home.open(reader, back, resumable=self.resumable, primed=self.primed)

    async def _resume(self, reader: SessionReply, name: str, sent: int) -> bool:
        """Resume a stream after this number, wherever it is written; False when there is none."""
        stream = self.streams.get(name)
        log = self.table.find_log(self, name) if stream is None else stream.log
        # "MUST NOT replay messages that would have been delivered on a different stream" (basic/transports): the log
        # has this stream's alone, and is found by the session's id
        entries = () if log is None else await log.read(max(sent - 1, 0))
        stream = self.streams.get(name)
        # of a stream that goes on there may be no entry any more, where its client has had all of it
        if log is None or sent < log.lost or not (entries or (stream is not None and log.lost)) or self.why is not None:
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
        if not entries[-1].last and self.table.elsewhere is not None:
            await self.table.elsewhere.begin_reading(self, cursor)
        return True

    def _read(self, cursor: Cursor) -> None:
        """Remove the reader of a stream that has ended, or is written elsewhere: it has got all, or has gone."""
        self._cursors.pop(cursor, None)
        if self.table.elsewhere is not None:
            self.table.elsewhere.end_reading(self, cursor)
        self.rest()

    # -- its messages

    def request(
        self, message: Request, raw: bytes, reader: SessionReply, caller: Caller, *, begins: bool = False
    ) -> None:
        """Serve one request of the client. `begins`: it is the `initialize` that begins the session; if that is
        refused, the session ends."""
        responder = Responder(self, reader, message.id, begins, message.method in CHANGING)
        self.peer.take(message, responder.deliver, responder, caller, raw)
        if not responder.over:
            responder.wait(owed=not begins)

    async def take(self, message: Message, raw: bytes, reader: SessionReply, caller: Caller) -> None:
        """Serve one message of the client that is not a request. Raises BusLost if it needs the engine and that is
        away."""
        peer, elsewhere = self.peer, self.table.elsewhere
        if isinstance(message, Batch):
            if not peer._dialect.batches:
                reader.send_refusal(NO_BATCHES)
                return
            if (refusal := forbidden_batch(message, peer, caller, raw)) is not None:
                reader.turn_away(None, refusal)
                return
            if elsewhere is not None:
                for one in message.messages:
                    await elsewhere.forward(self, one, b"")
            responder = Responder(self, reader)
            owed = take_batch(message, raw, peer, caller, responder, responder.deliver, responder.accept)
            if not responder.over:
                responder.wait(owed=owed)
        else:
            if elsewhere is not None:
                await elsewhere.forward(self, message, raw)
            answers: list[AnyAnswer] = []  # nothing is owed: it is taken on, or not, at once
            peer.take(message, answers.append, self.say, caller, raw)
            refusals = [one.refusal for one in answers if type(one) is FailedAnswer and one.refusal is not None]
            self.rest()
            if isinstance(message, Malformed):
                reader.refuse_malformed(message)
            elif refusals:
                reader.turn_away(None, refusals[0])
            else:
                reader.accept()


class Responder(Struct, eq=False):
    """The answer to one request, or to several at once. Calling it with a message sends that ahead of the answer.

    The answer is sent whole, or, from the first message ahead of it on, as a stream of the session, which outlives its
    connection.
    """

    session: Session
    reader: SessionReply
    id: Any = UNSET
    """The id of the request; UNSET: there are several."""
    begins: bool = False
    """Whether it is the `initialize` of the session."""
    saves: bool = True
    """Whether it may change the session."""
    stream: AnswerStream | None = None
    over: bool = False

    def __call__(self, message: bytes) -> bool:
        if self.over:
            return False
        if self.stream is None and not self._open():
            return self.session.say(message)
        assert self.stream is not None
        return self.stream.say(message)

    def _open(self) -> bool:
        """Turn the answer into a stream; False if the caller accepts none."""
        if not self.reader.streams or self.begins:
            return False
        self.stream = self.session.stream(self._id_text())
        self.stream.begin(self.reader)
        self.session.responders.pop(self, None)  # the stream replaces it
        return True

    def disconnect(self, retry: float | None = None) -> bool:
        """Close the connection and not the stream, so that the client polls for the rest, `retry` seconds later.

        False if the revision does not have that ("server-initiated close", basic/transports).
        """
        session = self.session
        if self.over or not session.primed or (self.stream is None and not self._open()):
            return False
        assert self.stream is not None
        self.stream.pause(session.options.retry if retry is None else int(retry * 1000))
        return True

    def wait(self, *, owed: bool) -> None:
        """Wait for the answer, also if the client disconnects: "Disconnection SHOULD NOT be interpreted as the client
        cancelling its request"."""
        if self.stream is not None:  # an eager handler has sent a message, and the stream has its reader
            return
        self.reader.wait()
        session = self.session
        session.responders[self] = None
        if owed and not (session.options.json and self.reader.whole):
            self._open()

    def deliver(self, answer: AnyAnswer, /) -> None:
        """Send the answer; None when nothing is owed, or the call was cancelled."""
        if self.over:
            return
        self.over = True
        session = self.session
        if session.responders:
            session.responders.pop(self, None)
        if self.begins:
            if answer is None or type(answer) is FailedAnswer:
                if not self._turned_away(answer):
                    self._answer(answer)
                session.end(Closed("initialize was refused"))
            else:
                session.run(self._keep(answer))
            return
        if self.stream is None:  # otherwise the session is in use until the stream ends
            session.rest()
        if type(answer) is FailedAnswer and self._turned_away(answer):
            return
        if self.saves and (change := session.changed()) is not None:
            session.run(self._save(change, answer))
        else:
            self._answer(answer)

    def _turned_away(self, answer: FailedAnswer | None) -> bool:
        """Send a refusal for which the wire has a form of its own, where nothing was sent yet; False for others."""
        refusal = None if answer is None else answer.refusal
        if answer is None or refusal is None or refusal.kind not in TURNED_AWAY or self.stream is not None:
            return False
        self.reader.turn_away(answer.text, refusal)
        return True

    async def _keep(self, answer: bytes) -> None:
        """Answer `initialize`, once every process can find the session."""
        try:
            refusal = await self.session.keep()
        except BusLost:
            refusal = AWAY
        if refusal is None:
            self.reader.answer(answer, self.session.id)
        else:
            self.session.end(Closed("the session could not be kept"))
            self.reader.send_refusal(refusal, self.id)

    async def _save(self, change: Delta, answer: AnyAnswer) -> None:
        """Answer a request that changed the session, once every process can know the change."""
        try:
            assert self.session.table.elsewhere is not None
            await self.session.table.elsewhere.save(self.session, change)
        except BusLost:
            if self.stream is None:
                self.reader.send_refusal(AWAY, self.id)
                return
        self._answer(answer)

    def _answer(self, answer: AnyAnswer) -> None:
        stream, reader = self.stream, self.reader
        failed = type(answer) is FailedAnswer
        text = answer.text if type(answer) is FailedAnswer else answer
        if stream is not None:
            stream.finish(text)
        elif answer is None:
            reader.end_unanswered()
        elif not reader.streams or self.begins or (reader.whole and (failed or self.session.options.json)):
            reader.answer(answer)
        else:
            self.session.complete(self._id_text(), reader, text or b"")

    def _id_text(self) -> bytes:
        """Return the JSON text of the request's id; b"" without one."""
        return b"" if self.id is UNSET else _json(self.id)

    def accept(self) -> None:
        """Acknowledge the messages: no answer is owed after all."""
        self.over = True
        self.session.rest()
        self.reader.accept()

    def ended(self) -> None:
        """Refuse the request, because the session ended before its answer."""
        self.over = True
        self.reader.send_refusal(ENDED, self.id)


class SessionTable:
    """The sessions of one endpoint in this process, the least used first. `elsewhere`: where replicas share them."""

    def __init__(self, host: Runner, options: HttpOptions, hub: ChangeHub, elsewhere: Elsewhere | None = None) -> None:
        self.host = host
        self.options = options
        self.hub = hub
        self.elsewhere = elsewhere
        self.run: Run = run_at_once if elsewhere is None else elsewhere.run
        self.sessions: OrderedDict[str, Session] = OrderedDict()
        self.unheard: Unheard = Unheard(host, options.resume)
        self._slots: Slots[str] = Slots(options.sessions)
        self._unused: Slots[str] = Slots(options.sessions)
        """Sessions whose client has sent nothing after `initialize`."""
        self._kept: dict[Session, KeptLogs] = {}
        if elsewhere is not None:
            elsewhere.join(self)

    @property
    def draining(self) -> bool:
        """Whether this server drains, so that other replicas take over."""
        return self.elsewhere is not None and self.host.call_limit.draining

    async def add(self, session: Session) -> SessionRefusal | None:
        """Add a new session, so that later requests find it; return a refusal where there is no room. Raises
        BusLost."""
        if not self.hold(session):
            return too_many_sessions(self.options.sessions)
        self._unused.take(owner_of(session.caller), session.id)
        if self.elsewhere is not None:
            await self.elsewhere.create(session)
        if (kept := session.peer.state.kept) is not None:
            kept.keep(partial(self._give_way, session, "the session gave way to others"))
        return None

    def hold(self, session: Session) -> bool:
        """Add a session to those of this process, for which another may have to end; False where there is no room."""
        owner = owner_of(session.caller)
        if len(self.sessions) >= self.options.sessions and not self._make_room(owner):
            return False
        if not self.sessions:
            self.host.clock.set(self, self.options.session_idle)
        session.used = monotonic()
        self.sessions[session.id] = session
        self._slots.take(owner, session.id)
        return True

    def _make_room(self, owner: Owner) -> bool:
        """End the session that gives way for one of this owner: one whose client sent nothing after `initialize`, or
        else one that is in use."""
        for slots in (self._unused, self._slots):
            with suppress(NoRoom):
                self._give_way(self.sessions[slots.yielding(owner)], "the session gave way to a new one")
                return True
        return False

    def _give_way(self, session: Session, why: str) -> None:
        if self.elsewhere is not None and session.record is not None:
            self.elsewhere.erase_soon(session)
        session.end(Closed(why))

    def here(self, id: str, principal: str | None) -> Session | None:
        """Return a session if it belongs to this principal and only this process knows it: another one may have changed
        or ended it, so `find` reads the store. It counts as used from the end of its current request."""
        session = self.sessions.get(id) if self.elsewhere is None else None
        if session is None or session.principal != principal:
            return None
        self.mark_used(session)
        return session

    async def find(self, id: str, principal: str | None, caller: Caller) -> Session | None:
        """Return the session of this id, if it belongs to this principal. Raises BusLost."""
        if self.elsewhere is None:
            return self.here(id, principal)
        return await self.elsewhere.find(id, principal, caller)

    def mark_used(self, session: Session) -> None:
        """Note that a session's client has sent something after `initialize`."""
        if session.id in self._unused:
            self._unused.free(session.id)
            if (kept := session.peer.state.kept) is not None:
                kept.keep(None)

    async def erase(self, session: Session) -> None:
        """End a session for every process. Raises BusLost."""
        if self.elsewhere is not None:
            await self.elsewhere.erase(session)

    def touch(self, session: Session) -> None:
        """Begin a session's idle time anew, because it is in use."""
        if self.sessions.get(session.id) is session:
            session.used = monotonic()
            self.sessions.move_to_end(session.id)
            self._slots.touch(session.id)

    def remove(self, session: Session) -> None:
        """Remove a session that is over, at least here."""
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
            for slots in (self._slots, self._unused):
                slots.free(session.id)
            if not self.sessions:
                self.host.clock.drop(self)
        self.hub.leave(session.peer)
        if self.elsewhere is not None:
            self.elsewhere.release(session)
        if (kept := self._kept.pop(session, None)) is not None:
            kept.close()

    def expired(self) -> None:
        """End sessions that were idle here for too long; the clock calls it."""
        idle, now = self.options.session_idle, monotonic()
        while self.sessions:
            session = next(iter(self.sessions.values()))
            left = session.used + idle - now
            if left > 0:
                self.host.clock.set(self, left)
                return
            if session.busy:
                self.touch(session)
            else:
                session.end(Closed("the session was idle for too long"))

    # -- streams

    def log(self, session: Session, id: bytes, resumable: bool) -> tuple[str, StreamLog]:
        """Make a unique name of a stream, and its log. `id` as in `StreamWriter`."""
        if self.elsewhere is not None and resumable:  # no other process ever looks for one that is not
            return self.elsewhere.log(session, id)
        return f"{session.streamed:x}", self._memory_log(session)

    def _memory_log(self, session: Session) -> MemoryLog:
        account = self.host.call_limit.budget.account(session.caller.owner)
        return MemoryLog(self.options.log_messages, self.options.log_bytes, account)

    def home(self, session: Session) -> HomeStream:
        """Make the home stream of a session."""
        if self.elsewhere is not None:
            return self.elsewhere.home(session)
        return HomeStream(self.run, self._memory_log(session), MemoryLog(TURNS, TURNS * 16), session.rest)

    def keep_log(self, session: Session, name: str, log: StreamLog) -> None:
        """Keep the log of a stream that has ended for a while. A store does that by itself."""
        if self.elsewhere is None:
            kept = self._kept.get(session)
            if kept is None:
                kept = self._kept[session] = KeptLogs(self.host.clock, self.options.resume)
            kept.keep(name, log)

    def drop_log(self, session: Session, name: str) -> None:
        """Drop the log of a finished stream."""
        if self.elsewhere is not None:
            self.elsewhere.drop(session, name)
        elif (kept := self._kept.get(session)) is not None:
            kept.drop(name)

    def find_log(self, session: Session, name: str) -> StreamLog | None:
        """Return the log of a stream that is written elsewhere, or has ended; None if there is none."""
        if self.elsewhere is not None:
            return self.elsewhere.find_log(session, name)
        kept = self._kept.get(session)
        found = None if kept is None else kept.logs.get(name)
        return None if found is None else found[1]
