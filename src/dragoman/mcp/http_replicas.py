"""One endpoint of one replica among several: sessions that any of them serves, behind a balancer that knows nothing.

Used in place of `http_sessions` where the server has a bus with a store. Rules:

- The store is asked about a session with every request of it: what one replica did, a DELETE too, holds on all.
- A replica keeps copies of the sessions it was asked about, for as long as they are used here.
- An answer to a question goes to the replica that asked; what cancels a call, or tells of a question's progress, to
  all of them.
- A stream is taken up again where its client comes back. When the replica that wrote it is dead, whoever reads it
  ends it with an error.
- A replica that drains takes no new requests (503), so that the balancer tries another; answers it takes to the end.
- Without the store whatever needs it is 503, at once or after `shared.PATIENCE`.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from ..bus import BusLost
from ..channel import Caller, Closed, Ended, busy
from ..jsonrpc.codec import encode, read
from ..jsonrpc.errors import InternalError, Refusal
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result
from ..rpc.clock import Clock
from ..rpc.host import Host
from ..transports.http_head import HttpRequest, Reply
from . import dialect
from . import record as records
from .http_answers import NO_SESSION, NO_STREAM, refuse
from .http_heads import Facts
from .http_logs import LAST, Reader, failing, parts, written
from .http_shared import HOME, SharedSession
from .http_shared_posts import SharedPost, away
from .http_streams import SSE_LINES
from .record import Change
from .shared import Shared, Word
from .subscriptions import above

if TYPE_CHECKING:
    from .http import McpEndpoint

logger = logging.getLogger("dragoman.mcp")

FRESH: Final = 300.0
"""Seconds that a session lives whose client sends nothing after `initialize`, at most."""
GONE: Final = InternalError("The replica that ran this call is gone", {"retry_after": 0})
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EVENT = re.compile(r"(?:h|([0-9a-f]{1,4})\.([0-9a-f]{12})\.[0-9a-f]{1,12})-([0-9]{1,15})(?:\.[0-9]{1,15})?")
_FORWARDED = frozenset({dialect.MCP.cancel, dialect.MCP.progress})


class Replica:
    """See the module. It is the `Table` of its endpoint, and the `Place` of its streams."""

    def __init__(self, endpoint: McpEndpoint, shared: Shared) -> None:
        self.endpoint = endpoint
        self.server = endpoint.server
        self.shared = shared
        self.options = self.server.options
        self.copies: OrderedDict[str, SharedSession] = OrderedDict()
        """Those that are used here, in the order of their last use."""
        self.foreign: dict[str, Reader] = {}
        """Who reads here what another replica writes, by the log's key."""
        self._asked = 0
        self._streams = 0
        shared.tables.append(self)

    @property
    def host(self) -> Host:
        return self.server.host

    @property
    def clock(self) -> Clock:
        return self.server.host.clock

    def new_name(self) -> str:
        """Of a stream, unlike any other."""
        self._streams += 1
        return f"{self.shared.number:x}.{self.shared.name}.{self._streams:x}"

    def first_id(self) -> int:
        """What the ids of a copy's questions follow on."""
        return self.shared.first_id(self, self._asked)

    # -- requests

    def post(self, request: HttpRequest, message: Message, known: Facts, reply: Reply) -> None:
        """A POST of the stateful era."""
        id = message.id if type(message) is Request else UNSET
        refusal = self.server.gate.refusal() if self.server.gate.draining else None
        if refusal is not None and type(message) in (Request, Batch):
            refuse(reply, 503, dialect.MCP.error(refusal), id=id, lines=(("Retry-After", "1"),))
        elif type(message) is Request and message.method == "initialize" and known.session is None:
            self._begin(request, message, known, reply)
        else:
            self._later(self._post(request, message, known, reply), reply, id)

    def get(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        """A GET."""
        if self.server.gate.draining:
            refusal = Refusal("draining", "Draining: this server is closing")
            refuse(reply, 503, dialect.MCP.error(refusal), lines=(("Retry-After", "1"),))
        else:
            self._later(self._get(request, known, reply), reply)

    def delete(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        """A DELETE."""
        self._later(self._delete(request, known, reply), reply)

    def _later(self, work: Coroutine[Any, Any, None], reply: Reply, id: Any = UNSET) -> None:
        self.shared.later(self._answered(work, reply, id))

    async def _answered(self, work: Coroutine[Any, Any, None], reply: Reply, id: Any) -> None:
        try:
            await work
        except BusLost as lost:
            logger.warning("%s: %s", self.server.name, lost)
            away(reply, id)
        except Exception:
            logger.exception("a request of a session raised")
            refuse(reply, 500, InternalError("Internal error"), id=id)

    async def _post(self, request: HttpRequest, message: Message, known: Facts, reply: Reply) -> None:
        session = await self._session(request, known, reply)
        if session is None:
            return
        kind = type(message)
        inbox = session.peer.inbox
        if isinstance(message, Request):
            post = SharedPost(reply, known, session, message)
            inbox.take(message, post.deliver, post, request.caller)
            if not post.over:
                post.wait(owed=True)
        elif isinstance(message, Batch) and inbox.dialect.batches:
            for one in message.messages:
                if not isinstance(one, Request):
                    self._forward(session, one, b"" if isinstance(one, Malformed) else encode(one))
            self.endpoint.batch(request, message, known, reply, session, SharedPost(reply, known, session, None))
        elif kind is Batch:
            self.endpoint.unfit(message, reply, null=inbox.dialect.null_id)
        else:
            await self._tell(request, message, known, reply, session)

    async def _tell(
        self, request: HttpRequest, message: Message, known: Facts, reply: Reply, session: SharedSession
    ) -> None:
        """A message that nobody waits for the answer of."""
        ready = isinstance(message, Notification) and message.method == "notifications/initialized"
        if ready and not session.peer.state.initialized:
            await session.save(Change(initialized=True))
            session.peer.state.initialized = True
            self.server.subscriptions.restore(session.peer, session.peer.state)
        self._forward(session, message, request.body)
        session.peer.inbox.take(message, _nothing, session.say, request.caller)  # type: ignore[arg-type]
        if isinstance(message, Malformed):
            self.endpoint.unfit(message, reply, null=session.peer.inbox.dialect.null_id)
        else:
            reply.respond(202)

    def _forward(self, session: SharedSession, message: Message, raw: bytes) -> None:
        """Let the replicas have what may be theirs."""
        shared = self.shared
        if isinstance(message, Result | Failure | Malformed):
            id = message.spoils if isinstance(message, Malformed) and message.spoils is not None else message.id
            if isinstance(id, msgspec.Raw):
                id = _number(id)
            owner = shared.owner(id)
            if raw and owner is not None and owner != shared.number:
                shared.say(Word("answer", shared.name, session.id, body=raw), owner)
        elif isinstance(message, Notification) and message.method in _FORWARDED:
            shared.say(Word("answer", shared.name, session.id, body=raw))

    async def _get(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        session = await self._session(request, known, reply)
        if session is None:
            return
        revision = session.revision
        if known.event is None or revision is None or not revision.resumable:
            await session.home(reply)
        elif (found := _EVENT.fullmatch(known.event)) is None:
            refuse(reply, 400, NO_STREAM, null=revision.null_error_id)
        elif known.event.startswith(HOME):
            await session.home(reply, int(found[3]))
        else:
            name = known.event.rpartition("-")[0]
            await self._resume(session, name, int(found[3]), int(found[1], 16), found[2], reply)

    async def _resume(
        self, session: SharedSession, name: str, position: int, number: int, owner: str, reply: Reply
    ) -> None:
        """Take up a stream again, whoever writes it."""
        shared = self.shared
        key = session.key("stream", name)
        # "MUST NOT replay messages that would have been delivered on a different stream" (basic/transports): the log
        # has this stream's alone, and its key the session's id
        entries = await shared.read(key, max(position - 1, 0))
        if not entries or session.ended:
            revision = session.revision
            refuse(reply, 400, NO_STREAM, null=revision is not None and revision.null_error_id)
            return
        stream = session.streams.get(name)
        reader = Reader(self, reply, key, name=name, sent=position, left=self._reader_left)
        if stream is not None:
            reader = Reader(self, reply, key, name=name, sent=position, left=stream.left)
            reader.begin(SSE_LINES)
            stream.taken(None, reader)
            return
        before = self.foreign.get(key)
        if before is not None:
            before.release()
        self.foreign[key] = reader
        reader.begin(SSE_LINES)
        over = parts(entries[-1][1])[0] == LAST
        if over and entries[-1][0] <= position:
            reader.release()  # he had all of it
            return
        reader.wake()
        if not over:
            shared.say(Word("taken", shared.name, session.id, name, shared.number), number)
            await self._mourn(reader, entries)

    def _reader_left(self, reader: Reader) -> None:
        if self.foreign.get(reader.key) is reader:
            del self.foreign[reader.key]

    async def _mourn(self, reader: Reader, entries: list[tuple[int, bytes]] | None = None) -> None:
        """End a stream whose writer is dead."""
        shared = self.shared
        number, owner, _ = reader.name.split(".")
        if await shared.lives(int(number, 16), owner):
            return
        entries = await shared.read(reader.key)  # it may have ended in order meanwhile
        if not entries or parts(entries[-1][1])[0] == LAST:
            reader.wake()
            return
        if await shared.put_new(f"{reader.key}/mourned", b"", self.options.resume):
            _, id, _ = parts(entries[-1][1])
            await shared.append(reader.key, written(LAST, id, failing(id, GONE)), self.options.resume)
        reader.wake()

    async def _delete(self, request: HttpRequest, known: Facts, reply: Reply) -> None:
        session = await self._session(request, known, reply)
        if session is not None:
            await self.erase(session)
            session.end(Ended("the client ended the session"))
            reply.respond(204)

    async def erase(self, session: SharedSession) -> None:
        """End a session for everybody. Raises BusLost."""
        await self.shared.delete(session.key())
        for part in ("home", "had", "turn"):
            await self.shared.delete(session.key(part))
        self.shared.say(Word("end", self.shared.name, session.id))

    # -- sessions

    def _begin(self, request: HttpRequest, message: Request, known: Facts, reply: Reply) -> None:
        endpoint = self.endpoint
        if known.version is not None and not endpoint.fits(known):
            refuse(reply, 400, endpoint.unsupported(known.version), id=message.id)
            return
        if not self._room():
            error = dialect.MCP.error(busy("sessions", self.options.sessions))
            refuse(reply, 503, error, id=message.id, lines=(("Retry-After", "1"),))
            return
        # "SHOULD be globally unique and cryptographically secure", "MUST only contain visible ASCII characters"
        id = secrets.token_urlsafe(24)
        session = SharedSession(self, id, self.server.principal(request.caller), request.caller)
        post = SharedPost(reply, known, session, message, begins=True)
        session.peer.inbox.take(message, post.deliver, post, request.caller)
        if not post.over:
            post.wait(owed=False)

    async def keep(self, session: SharedSession) -> None:
        """`initialize` was accepted: from now on the session is everybody's. Raises BusLost."""
        whole = records.begun(session.peer.state)
        whole.principal = session.principal
        ttl = min(self.options.session_idle, FRESH)
        number = await self.shared.append(session.key(), records.written(whole), ttl, records.MESSAGES, records.SIZE)
        session.record = records.Record(whole, number)
        self.copies[session.id] = session
        session.used = monotonic()

    async def _session(self, request: HttpRequest, known: Facts, reply: Reply) -> SharedSession | None:
        """The session that a request belongs to; None when it was refused. Raises BusLost."""
        id = self.endpoint.named_session(known, reply)
        if id is None:
            return None
        session = None
        if _ID.fullmatch(id):
            session = await self._find(id, self.server.principal(request.caller), request.caller)
        if session is None:
            # "it MUST respond to requests containing that session ID with HTTP 404 Not Found"
            refuse(reply, 404, NO_SESSION, null=known.null)
        return session

    async def _find(self, id: str, principal: str | None, caller: Caller) -> SharedSession | None:
        """The session of this id, as the store has it, if it is this principal's."""
        shared = self.shared
        key = shared.key("session", id)
        copy = self.copies.get(id)
        after = 0 if copy is None or copy.record is None else copy.record.number - 1
        entries = await shared.read(key, after)
        copy = self.copies.get(id)
        if entries and copy is not None and (copy.record is None or not copy.take(entries)):
            if after:
                entries = await shared.read(key)
                copy = self.copies.get(id)
            found = records.record(entries)
            if copy is not None and found is not None:
                copy.adopt(found)
        elif entries and copy is None:
            if after:  # it went meanwhile
                entries = await shared.read(key)
            found = records.record(entries)
            copy = self.copies.get(id)
            if copy is None and found is not None and found.whole.principal == principal:
                copy = self._adopt(id, found, caller)
        if copy is None:
            return None
        if not entries or copy.record is None:
            copy.end(Ended("the session is over"))
            return None
        if copy.principal != principal:
            return None
        self.touch(copy)
        if copy.used - copy.touched > self.options.session_idle / 10:
            copy.touched = copy.used
            await shared.touch(key, self.options.session_idle)
        return copy

    def _adopt(self, id: str, found: records.Record, caller: Caller) -> SharedSession:
        """A copy of a session that was not used here."""
        self._room()
        copy = self.copies[id] = SharedSession(self, id, found.whole.principal, caller)
        copy.adopt(found)
        if found.whole.initialized is not None and self.shared.events > found.whole.initialized:
            self.shared.later(self._catch_up(copy))
        return copy

    async def _catch_up(self, copy: SharedSession) -> None:
        """Say what changed while no replica had the session."""
        whole = copy.record.whole if copy.record is not None else None
        if whole is None or whole.initialized is None:
            return
        try:
            events = await self.shared.past_events(whole.initialized)
        except BusLost:
            return
        for number, kind, uri in events:
            since = whole.initialized
            if kind == "updated":
                since = min((whole.uris[one] for one in above(uri) if one in whole.uris), default=number)
            if number > since:
                copy.hint(self.server.subscriptions.written(kind, uri), number)

    def _room(self) -> bool:
        """Whether there is a place for one more copy; one that rests makes it, and comes back when it is used."""
        while len(self.copies) >= self.options.sessions:
            resting = next((one for one in self.copies.values() if not one.busy), None)
            if resting is None:
                return False
            resting.end(Closed("the session is not used here"))
        return True

    def touch(self, session: SharedSession) -> None:
        """It is in use here."""
        if self.copies.get(session.id) is session:
            session.used = monotonic()
            self.copies.move_to_end(session.id)

    def forget(self, session: SharedSession) -> None:
        """It is over, here at least."""
        if self.copies.get(session.id) is session:
            del self.copies[session.id]
        self._asked = max(self._asked, session.peer.conversation.last_id - self.shared.first_id(self, 0))
        for reader in [one for key, one in self.foreign.items() if key.startswith(session.key() + "/")]:
            reader.release()

    # -- the Table

    def heard(self, word: Word) -> None:
        """A word of another replica."""
        session = self.copies.get(word.session)
        if word.kind in ("grew", "gone"):
            reader = self.foreign.get(self.shared.key("session", word.session, "stream", word.stream))
            if reader is not None:
                reader.wake() if word.kind == "grew" else reader.release()
        elif word.kind == "taken":
            stream = None if session is None else session.streams.get(word.stream)
            if stream is not None:
                stream.taken(word.number)
            else:  # it ended meanwhile
                self.shared.say(Word("grew", self.shared.name, word.session, word.stream), word.number)
        elif session is None:
            return
        elif word.kind == "end":
            session.end(Ended("the client ended the session"))
        elif word.kind == "answer":
            service = self.server.service
            message = read(word.body, service.limits, service.lenient)
            if not isinstance(message, Request | Batch):
                session.peer.inbox.take(message, _nothing, session.say, session.caller)
        elif word.kind == "changed":
            self.shared.later(self._refresh(session))
        elif word.kind == "home":
            session.home_grew()
        elif word.kind == "turn":
            session.home_taken(word.number)
        elif word.kind == "free":
            self.shared.later(_unless_away(session.home_free()))

    async def _refresh(self, session: SharedSession) -> None:
        """Take in what became of a session elsewhere."""
        await _unless_away(self._find(session.id, session.principal, session.caller))

    def back(self) -> None:
        """The engine was away: words may have been missed."""
        for session in tuple(self.copies.values()):
            session.home_grew()
            for stream in session.streams.values():
                stream.wake()
            self.shared.later(self._refresh(session))
        for reader in self.foreign.values():
            reader.wake()

    async def beat(self) -> None:
        """Keep alive what is in use, drop copies that are not, end what dead replicas left. Raises BusLost."""
        idle, now = self.options.session_idle, monotonic()
        for session in tuple(self.copies.values()):
            if session.busy and now - session.touched > idle / 4:
                session.touched = session.used = now
                for part in ((), ("home",), ("had",), ("turn",)):
                    await self.shared.touch(session.key(*part), idle)
                for stream in tuple(session.streams.values()):
                    await self.shared.touch(stream.key, idle)
            elif not session.busy and now - session.used > idle:
                session.end(Closed("the session is not used here"))
        for reader in tuple(self.foreign.values()):
            await self._mourn(reader)

    async def leave(self) -> None:
        """The replica goes."""
        for session in tuple(self.copies.values()):
            session.end(Closed("the server is closing"))
        for reader in tuple(self.foreign.values()):
            reader.release()


def _number(id: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(id)
    except msgspec.DecodeError:
        return None


def _nothing(answer: bytes | None) -> None:
    pass


async def _unless_away(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except BusLost as lost:
        logger.debug("left until the store is back: %s", lost)
