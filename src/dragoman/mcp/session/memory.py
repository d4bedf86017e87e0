"""Sessions kept by this process alone. Nothing here waits, so coroutines run to their end at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Protocol

from ...channel import Caller, Closed
from ...jsonrpc.messages import Single
from ...rpc.deadlines import GRAIN, Clock
from ...rpc.runner import Runner
from ..protocol.options import HttpOptions
from .home import Home
from .log import MemoryLog, StreamLog
from .record import Delta
from .responder import Refused, full
from .session import Session
from .stream import Cursor

TURNS = 64
"""Legs of a home stream that are remembered: a reader that returns to an older one gets only new messages."""


class KeptLogs:
    """The logs of a session's finished streams, the oldest first, kept for a returning client."""

    __slots__ = ("_clock", "_seconds", "logs")

    def __init__(self, clock: Clock, seconds: float) -> None:
        """`seconds`: for which each is kept."""
        self._clock, self._seconds = clock, seconds
        self.logs: dict[str, tuple[float, StreamLog]] = {}
        """By the name of the stream, with when it ended."""

    def keep(self, name: str, log: StreamLog) -> None:
        """Keep one more. One timer serves all: each is kept for the same time, so the first is the first to go."""
        if not self.logs:
            self._clock.set(self, self._seconds)
        self.logs[name] = self._clock.now(), log

    def expired(self) -> None:
        """The client did not return to the oldest in time."""
        now = self._clock.now() + GRAIN
        while self.logs:
            name = next(iter(self.logs))
            left = self.logs[name][0] + self._seconds - now
            if left > 0:
                self._clock.set(self, left)
                return
            del self.logs[name]


class Subscribed(Protocol):
    """Tells sessions of changes."""

    def leave(self, peer: Any) -> None: ...


class MemorySessions:
    """All sessions of one server, in the order of their last use. The `Keeper` of its sessions."""

    shares = False

    def __init__(self, host: Runner, options: HttpOptions, subscribed: Subscribed) -> None:
        self.host = host
        self.options = options
        self._subscribed = subscribed
        self._found: OrderedDict[str, Session] = OrderedDict()
        self._unused: dict[str, Session] = {}
        """Sessions whose client has sent nothing after `initialize`."""
        self._rest: dict[Session, KeptLogs] = {}

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end: nothing in it waits."""
        try:
            work.send(None)
        except StopIteration:
            return
        work.close()
        raise AssertionError("a session that is kept in memory waited for something")

    @property
    def draining(self) -> bool:
        """False: no other process can answer."""
        return False

    def first_id(self) -> int:
        return 0

    # -- sessions

    async def keep(self, session: Session) -> Refused | None:
        if len(self._found) >= self.options.sessions and not self._make_room():
            return full(self.options.sessions)
        if not self._found:
            self.host.clock.set(self, self.options.session_idle)
        session.used = monotonic()
        self._found[session.id] = self._unused[session.id] = session
        return None

    async def find(self, id: str, principal: str | None, caller: Caller) -> Session | None:
        """As `here`."""
        return self.here(id, principal)

    def here(self, id: str, principal: str | None) -> Session | None:
        """The session of this id, if it belongs to this principal. It counts as used from the end of its current
        request."""
        session = self._found.get(id)
        if session is None or session.principal != principal:
            return None
        self._unused.pop(id, None)
        return session

    async def erase(self, session: Session) -> None:
        """No effect: nothing outlives the session."""

    async def save(self, session: Session, change: Delta) -> None:
        """No effect: there is no other process."""

    async def hand_on(self, session: Session, message: Single, raw: bytes) -> None:
        """No effect: there is no other process."""

    def restore(self, session: Session) -> None:
        """No effect: there is no other process."""

    def closed(self, session: Session) -> None:
        """Its peer was closed, so it ends."""

    def touch(self, session: Session) -> None:
        if session.id in self._found:
            session.used = monotonic()
            self._found.move_to_end(session.id)

    def forget(self, session: Session) -> None:
        if self._found.pop(session.id, None) is None:
            return
        self._unused.pop(session.id, None)
        self._subscribed.leave(session.peer)
        if (rest := self._rest.pop(session, None)) is not None:
            self.host.clock.drop(rest)
        if not self._found:
            self.host.clock.drop(self)

    def expired(self) -> None:
        """End sessions that were idle for too long."""
        idle, now = self.options.session_idle, monotonic()
        while self._found:
            session = next(iter(self._found.values()))
            left = session.used + idle - now
            if left > 0:
                self.host.clock.set(self, left)
                return
            if session.busy:
                self.touch(session)
            else:
                session.end(Closed("the session was idle for too long"))

    def _make_room(self) -> bool:
        """End the oldest session whose client sent nothing after `initialize`."""
        session = next(iter(self._unused.values()), None)
        if session is None:
            return False
        session.end(Closed("the session gave way to a new one"))
        return True

    # -- streams

    def log(self, session: Session, id: bytes, resumable: bool) -> tuple[str, StreamLog]:
        return f"{session.streamed:x}", MemoryLog(self.options.log_messages, self.options.log_bytes)

    def home(self, session: Session) -> Home:
        log = MemoryLog(self.options.log_messages, self.options.log_bytes)
        return Home(session, log, MemoryLog(TURNS, TURNS * 16), _nothing, _nothing)

    def over(self, session: Session, name: str, log: StreamLog) -> None:
        rest = self._rest.get(session)
        if rest is None:
            rest = self._rest[session] = KeptLogs(self.host.clock, self.options.resume)
        rest.keep(name, log)

    def drop(self, session: Session, name: str) -> None:
        if (rest := self._rest.get(session)) is not None:
            rest.logs.pop(name, None)

    async def kept(self, session: Session, name: str) -> StreamLog | None:
        rest = self._rest.get(session)
        found = None if rest is None else rest.logs.get(name)
        return None if found is None else found[1]

    async def reads(self, session: Session, cursor: Cursor) -> None:
        """No effect: no other process writes it."""

    def unread(self, session: Session, cursor: Cursor) -> None:
        """No effect: there is no other process."""


def _nothing(*args: object) -> None:
    pass
