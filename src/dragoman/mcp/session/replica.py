"""Sessions that several processes share: each serves all of them, behind a balancer that does not know of sessions.

Used where the server has a bus with a store. Rules:

- Every request of a session reads the store: what one replica did, also a DELETE, is valid at all.
- A replica keeps copies of the sessions for which it got requests, as long as they are used here.
- An answer to a question, or a cancel, is stored before it is accepted, and then passed to the replica that asked, or
  to all; a replica that was cut off reads it when it is back.
- A stream is resumed at the replica to which its client returns. If the replica that wrote it is dead, or could not
  store its end, the one that reads it ends it with an error.
- Without the store, operations that need it raise BusLost, at once or after `shared.PATIENCE`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, Final

import msgspec

from ...bus.contract import BusLost
from ...channel import Caller, Closed, Ended
from ...jsonrpc.codec import encode, read
from ...jsonrpc.errors import InternalError
from ...jsonrpc.messages import Batch, Failure, Malformed, Notification, Request, Result, Single
from ...rpc.observing import nothing
from ..protocol import dialect
from ..protocol.http_options import HttpOptions
from . import record as records
from .home import HomeStream
from .log import StreamLog
from .missed import MissedChanges
from .record import Delta
from .session import Session, SessionTable
from .shared import BEAT, TABLES, BusMessage, Replica
from .store_log import HAD, StoreLog, decode_entry, encode_entry
from .stream import Cursor, encode_failure

logger: logging.Logger = logging.getLogger("dragoman.mcp")

FRESH: Final = 300.0
"""Seconds that a session lives at most if its client sends nothing after `initialize`."""
GONE: Final = InternalError("The replica that ran this call is gone", {"retry_after": 0})
LOST: Final = InternalError("The answer to this call was lost: the store of this server did not take it")
"""It has no `retry_after`, because the call has run."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"([0-9a-f]{1,4})\.([0-9a-f]{12})\.[0-9a-f]{1,12}")
_FORWARDED = frozenset({dialect.MCP.cancel, dialect.MCP.progress})
_PARTS: Final = ("home", f"home/{HAD}", "turn", "inbox")
"""The keys of a session's other data in the store, below that of its record."""


class ReplicaSessions:
    """An `Elsewhere`: the store and the other replicas, for one endpoint. Also a `SharedTable` of `Replica`."""

    def __init__(self, shared: Replica) -> None:
        self.shared = shared
        self.run: Callable[[Coroutine[Any, Any, Any]], None] = shared.later
        self.table: SessionTable
        self._options: HttpOptions
        self.foreign: dict[tuple[str, str], Cursor] = {}
        """Readers here of streams that another replica writes, by the session's id and the stream's name."""
        self._questions = 0
        """The highest number of a question of sessions that are not used here any more."""
        self._streams = 0

    def join(self, table: SessionTable) -> None:
        self.table = table
        self._options = table.options
        self.shared.tables.append(self)

    def first_id(self) -> int:
        return self.shared.first_id(self, self._questions)

    def _key(self, id: str, *names: str) -> str:
        """Return a key in the store, for one session."""
        return self.shared.key("session", id, *names)

    # -- the record of a session

    async def create(self, session: Session) -> None:
        whole = records.first_snapshot(session.peer.state)
        whole.principal = session.principal
        number = await self._append(session.id, whole, min(self._options.session_idle, FRESH))
        session.record = records.SessionRecord(whole, number)

    async def _append(self, id: str, entry: records.RecordEntry, ttl: float) -> int:
        return await self.shared.append(self._key(id), records.encode_entry(entry), ttl, records.MESSAGES, records.SIZE)

    async def save(self, session: Session, change: Delta) -> None:
        record, shared = session.record, self.shared
        if record is None or not change:
            return
        change.known = shared.events
        record.change(change)
        idle = self._options.session_idle
        try:
            number = await self._append(session.id, change, idle)
            if number == record.number + 1:
                record.number = number
            if number % records.ANEW == 0:  # a new snapshot, before the old one is removed
                found = records.read_record(await shared.read(self._key(session.id)))
                if found is not None:
                    found.whole.upto = found.number
                    await self._append(session.id, found.whole, idle)
        except BusLost:
            session.record = None  # it may have been stored or not: read it again
            raise
        shared.send_soon(BusMessage("changed", shared.name, session.id))

    async def erase(self, session: Session) -> None:
        shared = self.shared
        await shared.delete(self._key(session.id))
        for part in _PARTS:
            await shared.delete(self._key(session.id, part))
        shared.send_soon(BusMessage("end", shared.name, session.id))

    def erase_soon(self, session: Session) -> None:
        self.run(_unless_away(self.erase(session)))

    async def find(self, id: str, principal: str | None, caller: Caller) -> Session | None:
        if not _ID.fullmatch(id):
            return None
        shared, key, copies = self.shared, self._key(id), self.table.sessions
        copy = copies.get(id)
        after = 0 if copy is None or copy.record is None else copy.record.number - 1
        entries = await shared.read(key, after)
        copy = copies.get(id)
        if entries and copy is not None and (copy.record is None or not self._catch_up(copy, entries)):
            if after:
                entries = await shared.read(key)
                copy = copies.get(id)
            found = records.read_record(entries)
            if copy is not None and found is not None:
                self._set_state(copy, found)
        elif entries and copy is None:
            if after:  # it was deleted meanwhile
                entries = await shared.read(key)
            found = records.read_record(entries)
            if found is not None and found.whole.principal == principal:
                copy = await self._adopt(id, found, caller)
        if copy is None:
            return None
        if not entries or copy.record is None:
            copy.end(Ended("the session is over"))
            return None
        if copy.principal != principal:
            return None
        self.table.mark_used(copy)
        self.table.touch(copy)
        if copy.used - copy.touched > self._options.session_idle / 10:
            await self._extend_life(copy)
        return copy

    async def _extend_life(self, copy: Session) -> None:
        """Extend the life of a session in the store."""
        copy.touched = copy.used
        await self.shared.touch(self._key(copy.id), self._options.session_idle)
        self.shared.send_soon(BusMessage("used", self.shared.name, copy.id))

    async def _adopt(self, id: str, found: records.SessionRecord, caller: Caller) -> Session | None:
        """Make a copy of a session that was not used here; None where there is no room for it. Raises BusLost."""
        forwarded = await self.shared.read(self._key(id, "inbox"))
        if (copy := self.table.sessions.get(id)) is not None:
            return copy
        copy = Session(self.table, found.whole.principal, caller, id)
        if not self.table.hold(copy):
            copy.end(Closed("there is no room for the session"))
            return None
        copy.received = forwarded[-1][0] if forwarded else 0
        self._set_state(copy, found)
        return copy

    def _set_state(self, copy: Session, record: records.SessionRecord) -> None:
        """Give a copy the state of the session in the store."""
        copy.record = record
        state = copy.peer.state = records.session_state(record.whole)
        copy.peer._dialect = dialect.of(state.revision)
        self._restore(copy)

    def _catch_up(self, copy: Session, entries: Sequence[tuple[int, bytes]]) -> bool:
        """Apply changes made elsewhere to a copy; False if some are missing."""
        record, state = copy.record, copy.peer.state
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
        self._restore(copy)
        return True

    def _restore(self, session: Session) -> None:
        self.table.hub.restore(session.peer, session.peer.state)

    def release(self, session: Session) -> None:
        used = session.peer._conversation.last_id - self.shared.first_id(self, 0)
        self._questions = max(self._questions, used)

    # -- messages for another replica

    async def forward(self, session: Session, message: Single, raw: bytes) -> None:
        if isinstance(message, Request):
            return
        shared, state = self.shared, session.peer.state
        ready = isinstance(message, Notification) and message.method == "notifications/initialized"
        if ready and session.record is not None and not state.initialized:
            await self.save(session, Delta(initialized=True))
            state.initialized = True
            self._restore(session)
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
            options = self._options
            number = await shared.append(
                self._key(session.id, "inbox"),
                b"%b\n%b" % (shared.name.encode(), raw),
                options.session_idle,
                options.log_messages,
                options.log_bytes,
            )
            await shared.send(BusMessage("answer", shared.name, session.id, number=number, body=raw), to)

    def _take_forwarded(self, session: Session, raw: bytes) -> None:
        service = self.table.host.service
        message = read(raw, service.limits, service._lenient)
        if not isinstance(message, Request | Batch):
            session.peer.take(message, nothing, session.say, session.caller, raw)

    async def _read_forwarded(self, session: Session) -> None:
        """Read messages that were forwarded, but did not arrive over the bus. Raises BusLost."""
        for number, entry in await self.shared.read(self._key(session.id, "inbox"), session.received):
            if number > session.received:
                session.received = number
                origin, _, raw = entry.partition(b"\n")
                if origin != self.shared.name.encode():
                    self._take_forwarded(session, raw)

    # -- streams

    def log(self, session: Session, id: bytes) -> tuple[str, StreamLog]:
        self._streams += 1
        shared = self.shared
        number = self._streams * TABLES + shared.tables.index(self)
        name = f"{shared.number:x}.{shared.name}.{number:x}"

        def grew(log: StoreLog) -> None:
            if log.reader_at is not None:
                shared.send_soon(BusMessage("grew", shared.name, session.id, name), log.reader_at)

        def release(log: StoreLog, at: int) -> None:
            shared.send_soon(BusMessage("gone", shared.name, session.id, name), at)

        key = self._key(session.id, "stream", name)
        return name, StoreLog(shared, key, self._options, id=id, grew=grew, release=release)

    def home(self, session: Session) -> HomeStream:
        shared = self.shared

        def grew(log: StoreLog) -> None:
            if not session.home.has_turn:  # another replica may have the reader
                shared.send_soon(BusMessage("home", shared.name, session.id))

        return HomeStream(
            self.run,
            StoreLog(shared, self._key(session.id, "home"), self._options, grew=grew),
            StoreLog(shared, self._key(session.id, "turn"), self._options),
            session.rest,
            lambda leg: shared.send_soon(BusMessage("turn", shared.name, session.id, number=leg)),
            lambda: shared.send_soon(BusMessage("free", shared.name, session.id)),
            MissedChanges(shared, self.table.hub, session.peer, lambda: session.record),
        )

    def drop(self, session: Session, name: str) -> None:
        self.run(_unless_away(self.shared.delete(self._key(session.id, "stream", name))))

    def find_log(self, session: Session, name: str) -> StreamLog | None:
        if _NAME.fullmatch(name) is None:
            return None
        return StoreLog(self.shared, self._key(session.id, "stream", name), self._options)

    async def begin_reading(self, session: Session, cursor: Cursor) -> None:
        before = self.foreign.get((session.id, cursor.name))
        if before is not None:
            before.release()
        if cursor.reader is None:
            return
        self.foreign[session.id, cursor.name] = cursor
        await _unless_away(
            self._notify_writer("taken", session.id, cursor)
        )  # the stream has begun; `beat` notifies again

    def end_reading(self, session: Session, cursor: Cursor) -> None:
        if self.foreign.get((session.id, cursor.name)) is cursor:
            del self.foreign[session.id, cursor.name]

    async def _notify_writer(self, kind: str, id: str, cursor: Cursor) -> None:
        """Notify the writer of a stream that it is read here, or end the stream if the writer is dead."""
        shared = self.shared
        number, name = _writer(cursor.name)
        shared.send_soon(BusMessage(kind, shared.name, id, cursor.name, shared.number), number)
        if not await shared.lives(number, name):
            await self._end(id, cursor, GONE)

    async def _end(self, id: str, cursor: Cursor, why: InternalError) -> None:
        """End a stream that has no writer any more."""
        shared, key = self.shared, self._key(id, "stream", cursor.name)
        entries = await shared.read(key)
        if not entries:  # its time is over, or it was dropped
            cursor.release()
            return
        _, last, id_text = decode_entry(entries[-1][1])  # it may have ended regularly meanwhile
        if not last and await shared.put_new(f"{key}/mourned", b"", self._options.resume):
            await shared.append(key, encode_entry(encode_failure(id_text, why), True, id_text), self._options.resume)
        cursor.wake()

    # -- the SharedTable

    def receive(self, notice: BusMessage) -> None:
        """Act on a message of another replica."""
        session = self.table.sessions.get(notice.session)
        if notice.kind in ("grew", "gone", "over"):
            self._from_writer(notice)
        elif notice.kind in ("taken", "reading"):
            self._from_reader(session, notice)
        elif session is None:
            return
        elif notice.kind == "end":
            session.end(Ended("the client ended the session"))
        elif notice.kind == "used":
            self.table.mark_used(session)
            if not session.busy and monotonic() - session.used > self._options.session_idle / 10:
                session.end(Closed("the session is used elsewhere"))
        elif notice.kind == "answer":
            if notice.number == session.received + 1:
                session.received = notice.number
                self._take_forwarded(session, notice.body)
            elif notice.number > session.received:
                self.run(_unless_away(self._read_forwarded(session)))
        elif notice.kind == "changed":
            self.run(self._refresh(session))
        elif notice.kind == "home":
            session.home.wake()
        elif notice.kind == "turn":
            if session.home.lose_turn(notice.number):
                self.shared.send_soon(BusMessage("home", self.shared.name, session.id))
        elif notice.kind == "free":
            session.home.free()

    def _from_writer(self, notice: BusMessage) -> None:
        """Act on a message of the writer of a stream that may be read here."""
        cursor = self.foreign.get((notice.session, notice.stream))
        if cursor is None:
            return
        if notice.kind == "grew":
            cursor.wake()
        elif notice.kind == "gone":
            cursor.release()
        else:
            self.run(_unless_away(self._end(notice.session, cursor, LOST)))

    def _from_reader(self, session: Session | None, notice: BusMessage) -> None:
        """Act on a message of a stream's reader: "taken": it is read there from now on; "reading": it still is."""
        shared = self.shared
        if _NAME.fullmatch(notice.stream) is None:
            return
        _, owner, number = notice.stream.split(".")
        if owner != shared.name or int(number, 16) % TABLES != shared.tables.index(self):
            return  # it was not begun here
        stream = None if session is None else session.streams.get(notice.stream)
        if stream is not None and notice.kind == "taken" and isinstance(stream.log, StoreLog):
            stream.release()
            stream.log.read_at(notice.number)
        if stream is not None and stream.cursor is None:
            stream.left = monotonic() + 3 * BEAT  # it is read there, and each of its beats reports so
        # while this replica drains, sessions end before their streams have ended
        over = stream is None and not self.table.draining
        if over or notice.kind == "taken":  # it may have grown meanwhile
            kind = "over" if over else "grew"
            shared.send_soon(BusMessage(kind, shared.name, notice.session, notice.stream), notice.number)

    async def _refresh(self, session: Session) -> None:
        """Apply changes of a session that were made elsewhere."""
        await _unless_away(self.find(session.id, session.principal, session.caller))

    def back(self) -> None:
        """Read again after the engine was away: messages may have been missed."""
        for session in tuple(self.table.sessions.values()):
            session.home.wake()
            for stream in session.streams.values():
                stream.wake()
                if isinstance(stream.log, StoreLog) and stream.log.reader_at is not None:
                    notice = BusMessage("grew", self.shared.name, session.id, stream.name)
                    self.shared.send_soon(notice, stream.log.reader_at)
            self.run(self._refresh(session))
            self.run(_unless_away(self._read_forwarded(session)))
        for cursor in self.foreign.values():
            cursor.wake()

    async def beat(self) -> None:
        """Keep alive what is in use, end streams of dead replicas. Raises BusLost."""
        idle, now = self._options.session_idle, monotonic()
        for session in tuple(self.table.sessions.values()):
            if session.busy and now - session.touched > idle / 4:
                self.table.touch(session)
                await self._extend_life(session)
                for part in _PARTS:
                    await self.shared.touch(self._key(session.id, part), idle)
                for name in tuple(session.streams):
                    await self.shared.touch(self._key(session.id, "stream", name), idle)
            if session.peer._conversation.outbound:  # the message about the answer may have been lost
                await self._read_forwarded(session)
        for (id, _), cursor in tuple(self.foreign.items()):
            cursor.wake()  # messages to and from its writer may have been lost
            await self._notify_writer("reading", id, cursor)

    async def leave(self) -> None:
        """End the copies of sessions, because the replica leaves."""
        for session in tuple(self.table.sessions.values()):
            session.end(Closed("the server is closing"))


def _writer(name: str) -> tuple[int, str]:
    """Return the number and the name of the replica that writes a stream of this name."""
    number, owner, _ = name.split(".")
    return int(number, 16), owner


def _number(id: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(id)
    except msgspec.DecodeError:
        return None


async def _unless_away(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except BusLost as lost:
        logger.debug("left until the store is back: %s", lost)
