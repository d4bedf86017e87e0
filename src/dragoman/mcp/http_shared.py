"""A session of the stateful era that any replica may serve: what one replica keeps of it.

The session is in the store (`record`); a `SharedSession` is a copy, the channel of this replica's peer. Rules, beside
those of `http_sessions`:

- What is said inside a call goes to the POST's own stream, whose log the replica that runs it writes.
- What nobody asked for is one log, the home. Each message is in it once, whoever heard of it first. It is read by
  the GET that was opened last, on whichever replica, from behind what the one before had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ..bus import BusLost
from ..channel import Caller, ChannelError, Closed, Outgoing, Receiver
from ..rpc.peer import Peer
from ..transports.http_head import Reply
from ..transports.sse import event
from . import record as records
from .dialect import MCP, of
from .http_answers import NO_SESSION, refuse
from .http_logs import LAST, MESSAGE, OPEN, PAUSE, Outbox, Reader
from .http_streams import SSE_LINES
from .lifecycle import Session
from .record import Change, Record
from .shared import Word

if TYPE_CHECKING:
    from .http_options import HttpOptions
    from .http_replicas import Replica
    from .http_shared_posts import SharedPost
    from .revisions import Revision

HOME: Final = "h"
"""The stream of what nobody asked for, in event ids."""

_json = msgspec.json.Encoder().encode


class SharedSession:
    """One replica's copy of a session. It is the `Channel` of its peer."""

    __slots__ = (
        "_ended",
        "_home",
        "_owes_position",
        "_receiver",
        "caller",
        "homes",
        "id",
        "peer",
        "place",
        "posts",
        "principal",
        "record",
        "streams",
        "touched",
        "turn",
        "used",
    )

    duplex = True
    writable = True  # what has no reader waits in a log

    def __init__(self, place: Replica, id: str, principal: str | None, caller: Caller) -> None:
        self.place = place
        self.id = id
        self.principal = principal
        self.caller = Caller(scheme=caller.scheme, remote=caller.remote, path=caller.path, tls=caller.tls)
        self.record: Record | None = None
        """None until `initialize` was accepted."""
        self.used = self.touched = 0.0
        """When it was last used here, and kept alive in the store, on the monotonic clock."""
        self.posts: dict[SharedPost, None] = {}
        """Those that wait for their answers without a stream."""
        self.streams: dict[str, SharedStream] = {}
        """Those that are written here, and not over."""
        self.homes: list[Reader] = []
        """GETs that are open here, the newest last."""
        self.turn = 0
        """The number of the last GET that was opened here, or elsewhere since."""
        self._home = Outbox(place, self.key("home"), self._said_home)
        self._owes_position = 0
        self._receiver: Receiver | None = None
        self._ended = False
        self.peer = Peer(place.host, dialect=MCP)
        self.peer.attach(self)
        self.peer.conversation.last_id = place.first_id()

    def key(self, *parts: str) -> str:
        """A key in the store, of this session alone."""
        return self.place.shared.key("session", self.id, *parts)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def options(self) -> HttpOptions:
        return self.place.options

    @property
    def revision(self) -> Revision | None:
        """What was agreed on; None before."""
        state: Session | None = self.peer.state
        return None if state is None else state.revision

    @property
    def busy(self) -> bool:
        """Something goes on here."""
        return bool(self.posts or self.streams or self.homes or self._home or self.peer.conversation.owed)

    # -- its state

    def adopt(self, record: Record) -> None:
        """Become the copy of what the store has."""
        self.record = record
        session = records.session(record.whole)
        self.peer.state = session
        self.peer.dialect = self.peer.inbox.dialect = of(session.revision)
        self.place.server.subscriptions.restore(self.peer, session)

    def take(self, entries: list[tuple[int, bytes]]) -> bool:
        """Take in what became of it elsewhere; False where that is not the whole of it."""
        record, session = self.record, self.peer.state
        if record is None:
            return False
        before = record.number
        if not record.take(entries):
            return False
        if record.number == before:
            return True
        whole = record.whole
        session.log_level = whole.log_level
        session.initialized = session.initialized or whole.initialized is not None
        if session.subscriptions != whole.uris.keys():
            session.subscriptions = set(whole.uris)
        self.place.server.subscriptions.restore(self.peer, session)
        return True

    async def save(self, change: Change) -> None:
        """Let every replica know of a change. Raises BusLost."""
        if self.record is None or not change:
            return
        shared, record = self.place.shared, self.record
        change.heard = shared.events
        record.change(change)
        try:
            number = await shared.append(
                self.key(), records.written(change), self.options.session_idle, records.MESSAGES, records.SIZE
            )
            if number == record.number + 1:
                record.number = number
            if number % records.ANEW == 0:
                await self._whole()
        except BusLost:
            self.record = None  # nobody knows whether it is there: it is read again
            raise
        shared.say(Word("changed", shared.name, self.id))

    async def _whole(self) -> None:
        """Add a new beginning, before the old one falls off the end."""
        shared = self.place.shared
        found = records.record(await shared.read(self.key()))
        if found is not None:
            found.whole.upto = found.number
            idle = self.options.session_idle
            await shared.append(self.key(), records.written(found.whole), idle, records.MESSAGES, records.SIZE)

    # -- the peer's channel

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """What nobody asked for."""
        if self._ended:
            raise Closed("the session is over")
        self._home.put(MESSAGE, message)

    def say(self, message: bytes) -> bool:
        """`send`, for what is said inside a call that has no stream of its own."""
        return not self._ended and self._home.put(MESSAGE, message)

    def hint(self, message: bytes, number: int) -> None:
        """A change that all replicas hear of, and one of them says."""
        if not self._ended and self.record is not None:
            self._home.put(MESSAGE, message, claim=self.key("told", str(number)))

    async def flush(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """The peer was closed: with the replica, which leaves the session to the others; else the session ends."""
        if not self.place.server.gate.draining and self.record is not None:
            self.place.shared.later(self.place.erase(self))
        self.end(Closed("the session was closed"))

    def abort(self, why: ChannelError) -> None:
        self.end(why)

    def end(self, why: ChannelError) -> None:
        """Forget the copy: its calls are dropped, whoever waits or reads here is let go."""
        if self._ended:
            return
        self._ended = True
        self.place.forget(self)
        self.place.server.subscriptions.leave(self.peer)
        if self._receiver is not None:
            self._receiver.ended(why)
        posts, self.posts = self.posts, {}
        for post in posts:
            post.ended()
        leaving = self.place.server.gate.draining
        for stream in tuple(self.streams.values()):
            stream.end(after_all=leaving)
        for reader in tuple(self.homes):
            reader.release()

    def rest(self) -> None:
        """It was in use until now."""
        self.place.touch(self)

    # -- its streams

    def stream(self, id: object) -> SharedStream:
        """A new stream, for the answer to the request with this id."""
        revision = self.revision
        stream = SharedStream(self, self.place.new_name(), id, kept=revision is not None and revision.resumable)
        self.streams[stream.name] = stream
        return stream

    async def home(self, reply: Reply, after: int | None = None) -> None:
        """A GET for what nobody asked for, or one that broke, from behind this position on. Raises BusLost."""
        shared, revision = self.place.shared, self.revision
        turn = await shared.append(self.key("turn"), shared.name.encode(), self.options.session_idle, messages=1)
        fresh = after is None
        if after is None:
            after = await self._position()
        if self._ended:
            refuse(reply, 404, NO_SESSION)
            return
        resumable = revision is not None and revision.resumable
        reader = Reader(
            self.place, reply, self.key("home"), name=HOME if resumable else "", sent=after, left=self._home_left
        )
        reader.on_sent = self._home_sent
        for other in self.homes:
            other.active = False
        self.homes.append(reader)
        if turn > self.turn:
            self.turn = turn
        else:
            reader.active = False  # another was opened meanwhile
        shared.say(Word("turn", shared.name, self.id, number=turn))
        primed = fresh and revision is not None and revision.primed
        # no id is given twice, though a GET that begins anew may go on where another ended
        first = event(b"", id=f"{HOME}-{after}.{turn}", retry=self.options.retry) if primed else b""
        reader.begin(SSE_LINES, first)
        reader.wake()

    async def _position(self) -> int:
        """What the GETs before have been sent."""
        return int(await self.place.shared.get(self.key("had")) or 0)

    def _said_home(self, number: int, kind: bytes, message: bytes) -> bool:
        shared = self.place.shared
        if number:
            shared.say(Word("home", shared.name, self.id, number=number))
        reader = self.homes[-1] if self.homes else None
        if reader is None or not reader.active:
            return False
        reader.push(number, kind, message)
        return reader.reply is not None

    def _home_sent(self, number: int) -> None:
        """Remember it for the GETs to come."""
        idle = not self._owes_position
        self._owes_position = max(number, self._owes_position)
        if idle:
            self.place.shared.later(self._save_position())

    async def _save_position(self) -> None:
        try:
            while True:
                number = self._owes_position
                await self.place.shared.put(self.key("had"), str(number).encode(), self.options.session_idle)
                if number == self._owes_position:
                    return
        except BusLost:
            return  # what was sent may be sent again
        finally:
            self._owes_position = 0

    def _home_left(self, reader: Reader) -> None:
        """A GET is over: an older one has its turn again."""
        self.homes.remove(reader)
        self.place.touch(self)
        if not reader.active or self._ended:
            return
        if self.homes:
            last = self.homes[-1]
            last.sent = max(last.sent, reader.sent)
            last.active = True
            last.wake()
        else:
            self.place.shared.say(Word("free", self.place.shared.name, self.id))

    def home_grew(self) -> None:
        """Somebody said something."""
        if self.homes:
            self.homes[-1].wake()

    def home_taken(self, turn: int) -> None:
        """A GET was opened elsewhere."""
        if turn > self.turn:
            self.turn = turn
            for reader in self.homes:
                reader.active = False

    async def home_free(self) -> None:
        """The GET that had its turn is over, elsewhere."""
        if not self.homes:
            return
        shared = self.place.shared
        turn = await shared.append(self.key("turn"), shared.name.encode(), self.options.session_idle, messages=1)
        had = await self._position()
        if not self.homes or turn <= self.turn:
            return
        self.turn = turn
        reader = self.homes[-1]
        reader.sent = max(reader.sent, had)
        reader.active = True
        shared.say(Word("turn", shared.name, self.id, number=turn))
        reader.wake()


class SharedStream:
    """The stream of a POST, at the replica that runs its call."""

    __slots__ = ("_outbox", "_session", "key", "name", "over", "reader", "reader_at")

    def __init__(self, session: SharedSession, name: str, id: object, *, kept: bool) -> None:
        self.name = name
        self.key = session.key("stream", name)
        self.over = False
        self.reader: Reader | None = None
        """Who reads it here."""
        self.reader_at: int | None = None
        """The number of the replica where it is read."""
        self._session = session
        self._outbox = Outbox(session.place, self.key, self._said, id=_json(id), kept=kept)

    def begin(self, reply: Reply) -> None:
        """Be answered on this reply."""
        session = self._session
        revision = session.revision
        kept = self._outbox.kept
        self.reader = Reader(session.place, reply, self.key, name=self.name if kept else "", sent=0, left=self.left)
        if kept and revision is not None and revision.primed:
            self._outbox.put(OPEN, b"")  # what the priming event names must be there
        else:
            self.reader.begin(SSE_LINES)

    def put(self, message: bytes) -> bool:
        """Say something ahead of the answer."""
        return not self.over and self._outbox.put(MESSAGE, message)

    def finish(self, answer: bytes | None) -> None:
        """The answer, and the end."""
        if not self.over:
            self.over = True
            self._outbox.put(LAST, answer or b"")

    def pause(self, retry: int) -> None:
        """Send the reader away for so many milliseconds, after what was said until now."""
        self._outbox.put(PAUSE, str(retry).encode())

    def taken(self, number: int | None, reader: Reader | None = None) -> None:
        """It is taken up again: at the replica with this number, or (None) by this reader here."""
        if self.reader is not None:
            self.reader.release()
        shared = self._session.place.shared
        if self.reader_at is not None and self.reader_at != number:
            shared.say(Word("gone", shared.name, self._session.id, self.name), self.reader_at)
        self.reader, self.reader_at = reader, number
        self.wake()

    def wake(self) -> None:
        """Let whoever reads it look."""
        shared = self._session.place.shared
        if self.reader is not None:
            self.reader.wake()
        elif self.reader_at is not None:
            shared.say(Word("grew", shared.name, self._session.id, self.name), self.reader_at)

    def end(self, *, after_all: bool) -> None:
        """The session is over here. `after_all`: what was said is kept for those who come back elsewhere."""
        if self.over or not after_all:
            if not (after_all and len(self._outbox)):
                self._forget()
        else:  # its call goes with the replica
            self.finish(None)

    def _said(self, number: int, kind: bytes, message: bytes) -> bool:
        reader = self.reader
        if kind == OPEN and reader is not None:
            reader.sent = number
            first = event(b"", id=reader.id(number), retry=self._session.options.retry) if number else b""
            reader.begin(SSE_LINES, first)
        elif kind == PAUSE and reader is not None:
            reader.pause(int(message))
        elif reader is not None:
            reader.push(number, kind, message)
        elif number and self.reader_at is not None:
            self.wake()
        if kind == LAST and (number or reader is not None):
            self._session.streams.pop(self.name, None)
        return reader is not None

    def left(self, reader: Reader) -> None:
        """Who read it here has gone."""
        if self.reader is reader:
            self.reader = None
        self._session.place.touch(self._session)

    def _forget(self) -> None:
        self._session.streams.pop(self.name, None)
        if self.reader is not None:
            self.reader.release()
