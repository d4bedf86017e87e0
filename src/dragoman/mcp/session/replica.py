"""Sessions that several processes share: each serves all of them, behind a balancer that knows nothing of sessions.

Used in place of `memory` where the server has a bus with a store. Rules:

- Every request of a session reads the store: what one replica did, also a DELETE, holds at all.
- A replica keeps copies of the sessions for which it got requests, as long as they are used here.
- An answer to a question, and a cancel, is stored before it is accepted, and then passed to the
  replica that asked, or to all; a replica that was cut off reads it when it is back.
- A stream is resumed where its client returns. If the replica that wrote it is dead, or could not store its end, the
  one that reads it ends it with an error.
- Without the store, operations that need it raise BusLost, at once or after `shared.PATIENCE`.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, Protocol

import msgspec

from ...allowance import owner_of
from ...bus.contract import BusLost
from ...channel import Caller, Closed, Ended
from ...jsonrpc.codec import encode, read
from ...jsonrpc.errors import InternalError, Refusal
from ...jsonrpc.messages import Batch, Failure, Malformed, Notification, Request, Result, Single
from ...rpc.runner import Runner
from ..protocol import dialect
from ..protocol.admission import SessionState
from ..protocol.options import HttpOptions
from ..protocol.uri_template import above
from . import record as records
from .changes import Event
from .home import Home
from .log import MemoryLog, StreamLog
from .record import Delta
from .responder import Refused, full
from .session import Session, Unheard
from .shared import BEAT, TABLES, BusMessage, Shared
from .slots import Slots
from .store_log import PARTS, StoreLog, parts, written
from .stream import Cursor, failing

logger: logging.Logger = logging.getLogger("dragoman.mcp")

FRESH: Final = 300.0
"""Most seconds that a session lives whose client sends nothing after `initialize`."""
GONE: Final = InternalError("The replica that ran this call is gone", {"retry_after": 0})
LOST: Final = InternalError("The answer to this call was lost: the store of this server did not take it")
"""Without `retry_after`: the call has run."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"([0-9a-f]{1,4})\.([0-9a-f]{12})\.[0-9a-f]{1,12}")
_FORWARDED = frozenset({dialect.MCP.cancel, dialect.MCP.progress})
_HOME: Final = ("home", *(f"home/{part}" for part in PARTS), "turn")
_PARTS: Final = (*_HOME, "inbox")
"""The data of a session in the store beside its record, below its key."""


class Subscribed(Protocol):
    """Tells sessions of changes."""

    def restore(self, peer: Any, session: SessionState) -> None: ...
    def leave(self, peer: Any) -> None: ...
    def written(self, event: Event) -> bytes: ...
    def concerns(self, event: Event, peer: Any) -> bool:
        """Whether an event of before is to be told to this peer's session."""


class ReplicaSessions:
    """The copies of one endpoint. The `Keeper` of its sessions, and a `Table` of `Shared`."""

    shares = True

    def __init__(self, host: Runner, options: HttpOptions, shared: Shared, subscribed: Subscribed) -> None:
        self.host = host
        self.options = options
        self.shared = shared
        self.run: Callable[[Coroutine[Any, Any, Any]], None] = shared.later
        self.copies: OrderedDict[str, Session] = OrderedDict()
        """The copies in use here, in the order of their last use."""
        self.foreign: dict[tuple[str, str], Cursor] = {}
        """Readers here of streams that another replica writes, by the session's id and the stream's name."""
        self.unheard: Unheard = Unheard(host, options.resume)
        self.slots: Slots = Slots(shared, options.sessions)
        self._subscribed = subscribed
        self._asked = 0
        self._streams = 0
        shared.tables.append(self)

    @property
    def draining(self) -> bool:
        """Whether this server drains, so that other replicas take over."""
        return self.host.call_limit.draining

    def first_id(self) -> int:
        return self.shared.first_id(self, self._asked)

    def _key(self, id: str, *names: str) -> str:
        """A key in the store, for one session."""
        return self.shared.key("session", id, *names)

    # -- the record of a session

    async def keep(self, session: Session) -> Refused | None:
        fresh = min(self.options.session_idle, FRESH)
        slot = await self.slots.take(session.id, owner_of(session.caller), fresh, self._evict)
        if slot is None:
            return full(self.options.sessions)
        whole = records.begun(session.peer.state)
        whole.principal, whole.slot = session.principal, slot
        number = await self._append(session.id, whole, fresh)
        session.record = records.Record(whole, number)
        self.copies[session.id] = session
        session.used = monotonic()
        return None

    async def _append(self, id: str, entry: records.Entry, ttl: float) -> int:
        return await self.shared.append(self._key(id), records.written(entry), ttl, records.MESSAGES, records.SIZE)

    async def save(self, session: Session, change: Delta) -> None:
        record, shared = session.record, self.shared
        if record is None or not change:
            return
        change.heard = shared.events
        record.change(change)
        idle = self.options.session_idle
        try:
            number = await self._append(session.id, change, idle)
            if number == record.number + 1:
                record.number = number
            if number % records.ANEW == 0:  # a new snapshot, before the old one is removed
                found = records.record(await shared.read(self._key(session.id)))
                if found is not None:
                    found.whole.upto = found.number
                    await self._append(session.id, found.whole, idle)
        except BusLost:
            session.record = None  # it may have been stored or not: read it again
            raise
        shared.say(BusMessage("changed", shared.name, session.id))

    async def erase(self, session: Session) -> None:
        """End a session for every replica. Raises BusLost."""
        await self._erase(session.id, -1 if session.record is None else session.record.whole.slot)

    async def _evict(self, id: str, slot: int) -> None:
        await self._erase(id, slot)
        if (copy := self.copies.get(id)) is not None:
            copy.end(Ended("the session gave way to a new one"))

    async def _erase(self, id: str, slot: int) -> None:
        shared = self.shared
        await shared.delete(self._key(id))
        for part in _PARTS:
            await shared.delete(self._key(id, part))
        await self.slots.free(slot, id)
        shared.say(BusMessage("end", shared.name, id))

    def here(self, id: str, principal: str | None) -> Session | None:
        """None: another process may have changed or ended what is here, so the store is asked."""
        return None

    async def find(self, id: str, principal: str | None, caller: Caller) -> Session | None:
        """The session of this id in the store, if it belongs to this principal. Raises BusLost."""
        if not _ID.fullmatch(id):
            return None
        shared, key = self.shared, self._key(id)
        copy = self.copies.get(id)
        after = 0 if copy is None or copy.record is None else copy.record.number - 1
        entries = await shared.read(key, after)
        copy = self.copies.get(id)
        if entries and copy is not None and (copy.record is None or not copy.catch_up(entries)):
            if after:
                entries = await shared.read(key)
                copy = self.copies.get(id)
            found = records.record(entries)
            if copy is not None and found is not None:
                copy.adopt(found)
        elif entries and copy is None:
            if after:  # it was deleted meanwhile
                entries = await shared.read(key)
            found = records.record(entries)
            if found is not None and found.whole.principal == principal:
                copy = await self._adopt(id, found, caller)
        if copy is None:
            return None
        if not entries or copy.record is None:
            copy.end(Ended("the session is over"))
            return None
        if copy.principal != principal:
            return None
        self.touch(copy)
        if copy.used - copy.touched > self.options.session_idle / 10:
            await self._live(copy)
        return copy

    async def _live(self, copy: Session) -> None:
        """Extend the life of a session in the store."""
        idle = self.options.session_idle
        copy.touched = copy.used
        await self.shared.touch(self._key(copy.id), idle)
        if copy.record is not None:
            await self.slots.use(copy.record.whole.slot, copy.id, idle)

    async def _adopt(self, id: str, found: records.Record, caller: Caller) -> Session:
        """Make a copy of a session that was not used here."""
        handed = await self.shared.read(self._key(id, "inbox"))
        if (copy := self.copies.get(id)) is not None:
            return copy
        copy = self.copies[id] = Session(self, found.whole.principal, caller, id)
        copy.heard = handed[-1][0] if handed else 0
        copy.adopt(found)
        if found.whole.initialized is not None and self.shared.events > found.whole.initialized:
            self.run(self._catch_up(copy))
        return copy

    async def _catch_up(self, copy: Session) -> None:
        """Tell the session of changes that came while no replica used it."""
        whole = copy.record.whole if copy.record is not None else None
        if whole is None or whole.initialized is None or copy.hint is None:
            return
        try:
            events = await self.shared.past_events(whole.initialized)
        except BusLost:
            return
        for number, event in events:
            since = whole.initialized
            if event.kind == "updated":
                since = min((whole.uris[one] for one in above(event.uri) if one in whole.uris), default=number)
            if number > since and self._subscribed.concerns(event, copy.peer):
                copy.hint(self._subscribed.written(event), number)

    def restore(self, session: Session) -> None:
        self._subscribed.restore(session.peer, session.peer.state)

    def closed(self, session: Session) -> None:
        """If the replica drains, its copies go and the sessions stay with the others; otherwise the session ends."""
        if not self.draining and session.record is not None:
            self.run(_unless_away(self.erase(session)))

    def touch(self, session: Session) -> None:
        if self.copies.get(session.id) is session:
            session.used = monotonic()
            self.copies.move_to_end(session.id)

    def forget(self, session: Session) -> None:
        if self.copies.get(session.id) is session:
            del self.copies[session.id]
        self._subscribed.leave(session.peer)
        self._asked = max(self._asked, session.peer.conversation.last_id - self.shared.first_id(self, 0))

    # -- what is another replica's

    async def hand_on(self, session: Session, message: Single, raw: bytes) -> None:
        shared = self.shared
        to: int | None = None
        if isinstance(message, Result | Failure | Malformed):
            id = message.spoils if isinstance(message, Malformed) and message.spoils is not None else message.id
            to = shared.owner(_number(id) if isinstance(id, msgspec.Raw) else id)
            if to is None or to == shared.number:
                return
        elif not (isinstance(message, Notification) and message.method in _FORWARDED):
            return
        if not raw and not isinstance(message, Malformed):
            raw = encode(message)
        if raw:
            options = self.options
            number = await shared.append(
                self._key(session.id, "inbox"),
                b"%b\n%b" % (shared.name.encode(), raw),
                options.session_idle,
                options.log_messages,
                options.log_bytes,
            )
            await shared.tell(BusMessage("answer", shared.name, session.id, number=number, body=raw), to)

    def _handed(self, session: Session, raw: bytes) -> None:
        service = self.host.service
        message = read(raw, service.limits, service._lenient)
        if not isinstance(message, Request | Batch):
            session.peer.take(message, _nothing, session.say, session.caller, raw)

    async def _read_handed(self, session: Session) -> None:
        """Read what was handed on and not received over the bus. Raises BusLost."""
        for number, entry in await self.shared.read(self._key(session.id, "inbox"), session.heard):
            if number > session.heard:
                session.heard = number
                origin, _, raw = entry.partition(b"\n")
                if origin != self.shared.name.encode():
                    self._handed(session, raw)

    # -- streams

    def log(self, session: Session, id: bytes, resumable: bool) -> tuple[str, StreamLog]:
        self._streams += 1
        shared = self.shared
        number = self._streams * TABLES + shared.tables.index(self)
        name = f"{shared.number:x}.{shared.name}.{number:x}"
        if not resumable:  # no other replica will ever be asked for it
            account = self.host.call_limit.budget.account(session.caller.owner)
            return name, MemoryLog(self.options.log_messages, self.options.log_bytes, account)

        def grew(log: StoreLog) -> None:
            if log.reader_at is not None:
                shared.say(BusMessage("grew", shared.name, session.id, name), log.reader_at)

        def release(log: StoreLog, at: int) -> None:
            shared.say(BusMessage("gone", shared.name, session.id, name), at)

        key = self._key(session.id, "stream", name)
        return name, StoreLog(shared, key, self.options, id=id, grew=grew, release=release)

    def home(self, session: Session) -> Home:
        shared = self.shared

        def grew(log: StoreLog) -> None:
            shared.say(BusMessage("home", shared.name, session.id))

        log = StoreLog(shared, self._key(session.id, "home"), self.options, grew=grew)
        turns = StoreLog(shared, self._key(session.id, "turn"), self.options)
        return Home(
            session,
            log,
            turns,
            lambda leg: shared.say(BusMessage("turn", shared.name, session.id, number=leg)),
            lambda: shared.say(BusMessage("free", shared.name, session.id)),
        )

    def over(self, session: Session, name: str, log: StreamLog) -> None:
        """Keep a finished log in the store for its time."""

    def drop(self, session: Session, name: str) -> None:
        self.run(_unless_away(self.shared.delete(self._key(session.id, "stream", name))))

    async def kept(self, session: Session, name: str) -> StreamLog | None:
        if _NAME.fullmatch(name) is None:
            return None
        return StoreLog(self.shared, self._key(session.id, "stream", name), self.options)

    async def reads(self, session: Session, cursor: Cursor) -> None:
        before = self.foreign.get((session.id, cursor.name))
        if before is not None:
            before.release()
        if cursor.reader is None:
            return
        self.foreign[session.id, cursor.name] = cursor
        await _unless_away(self._ask("taken", session.id, cursor))  # the stream has begun; `beat` asks again

    def unread(self, session: Session, cursor: Cursor) -> None:
        if self.foreign.get((session.id, cursor.name)) is cursor:
            del self.foreign[session.id, cursor.name]

    async def _ask(self, kind: str, id: str, cursor: Cursor) -> None:
        """Tell the writer of a stream that it is read here, or end the stream if the writer is dead."""
        shared = self.shared
        number, name = _writer(cursor.name)
        shared.say(BusMessage(kind, shared.name, id, cursor.name, shared.number), number)
        if not await shared.lives(number, name):
            await self._end(id, cursor, GONE)

    async def _end(self, id: str, cursor: Cursor, why: InternalError) -> None:
        """End a stream that has no writer any more."""
        shared, key = self.shared, self._key(id, "stream", cursor.name)
        entries = await shared.read(key)
        if not entries:  # its time is over, or it was dropped
            cursor.release()
            return
        _, last, asked = parts(entries[-1][1])  # it may have ended in order meanwhile
        if not last and await shared.put_new(f"{key}/mourned", b"", self.options.resume):
            await shared.append(key, written(failing(asked, why), True, asked), self.options.resume)
        cursor.wake()

    # -- the Table

    def heard(self, word: BusMessage) -> None:
        """A message of another replica."""
        session = self.copies.get(word.session)
        if word.kind in ("grew", "gone", "over"):
            self._from_writer(word)
        elif word.kind in ("taken", "asked"):
            self._from_reader(session, word)
        elif session is None:
            return
        elif word.kind == "end":
            session.end(Ended("the client ended the session"))
        elif word.kind == "answer":
            if word.number == session.heard + 1:
                session.heard = word.number
                self._handed(session, word.body)
            elif word.number > session.heard:
                self.run(_unless_away(self._read_handed(session)))
        elif word.kind == "changed":
            self.run(self._refresh(session))
        elif word.kind == "home":
            session.home.look()
        elif word.kind == "turn":
            session.home.taken(word.number)
        elif word.kind == "free":
            session.home.free()

    def _from_writer(self, word: BusMessage) -> None:
        """About a stream that may be read here."""
        cursor = self.foreign.get((word.session, word.stream))
        if cursor is None:
            return
        if word.kind == "grew":
            cursor.wake()
        elif word.kind == "gone":
            cursor.release()
        else:
            self.run(_unless_away(self._end(word.session, cursor, LOST)))

    def _from_reader(self, session: Session | None, word: BusMessage) -> None:
        """A stream is read elsewhere: "taken", from now on; "asked", still."""
        shared = self.shared
        if _NAME.fullmatch(word.stream) is None:
            return
        _, owner, number = word.stream.split(".")
        if owner != shared.name or int(number, 16) % TABLES != shared.tables.index(self):
            return  # it was not begun here
        stream = None if session is None else session.streams.get(word.stream)
        if stream is not None and word.kind == "taken" and isinstance(stream.log, StoreLog):
            stream.release()
            stream.log.read_at(word.number)
        if stream is not None and stream.cursor is None:
            stream.left = monotonic() + 3 * BEAT  # it is read there, and we are told so at each of its beats
        # While this replica drains, sessions go before their streams have ended
        over = stream is None and not self.draining
        if over or word.kind == "taken":  # it may have grown meanwhile
            kind = "over" if over else "grew"
            shared.say(BusMessage(kind, shared.name, word.session, word.stream), word.number)

    async def _refresh(self, session: Session) -> None:
        """Apply changes of a session that were made elsewhere."""
        await _unless_away(self.find(session.id, session.principal, session.caller))

    def back(self) -> None:
        """The engine was away: messages may have been missed."""
        for session in tuple(self.copies.values()):
            session.home.look()
            for stream in session.streams.values():
                stream.wake()
                if isinstance(stream.log, StoreLog) and stream.log.reader_at is not None:
                    word = BusMessage("grew", self.shared.name, session.id, stream.name)
                    self.shared.say(word, stream.log.reader_at)
            self.run(self._refresh(session))
            self.run(_unless_away(self._read_handed(session)))
        for cursor in self.foreign.values():
            cursor.wake()

    async def beat(self) -> None:
        """Keep alive what is in use, drop unused copies, end streams of dead replicas. Raises BusLost."""
        idle, now = self.options.session_idle, monotonic()
        for session in tuple(self.copies.values()):
            if session.busy and now - session.touched > idle / 4:
                session.used = now
                await self._live(session)
                for part in _PARTS:
                    await self.shared.touch(self._key(session.id, part), idle)
                for name in tuple(session.streams):
                    await self.shared.touch(self._key(session.id, "stream", name), idle)
            elif not session.busy and now - session.used > idle:
                session.end(Closed("the session is not used here"))
            if session.peer.conversation.outbound:  # the message about the answer may have been lost
                await self._read_handed(session)
        for (id, _), cursor in tuple(self.foreign.items()):
            cursor.wake()  # the message that it is read here, or that it has grown or is over, may have been lost
            await self._ask("asked", id, cursor)

    async def leave(self) -> None:
        """The replica leaves."""
        for session in tuple(self.copies.values()):
            session.end(Closed("the server is closing"))


def _writer(name: str) -> tuple[int, str]:
    """The number and the name of the replica that writes a stream of this name."""
    number, owner, _ = name.split(".")
    return int(number, 16), owner


def _number(id: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(id)
    except msgspec.DecodeError:
        return None


def _nothing(answer: bytes | None, refusal: Refusal | None = None, /) -> None:
    pass


async def _unless_away(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except BusLost as lost:
        logger.debug("left until the store is back: %s", lost)
