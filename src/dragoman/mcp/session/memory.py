"""Sessions kept by this process alone. Nothing here waits, so coroutines run to their end at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Protocol

from ...allowance import NoRoom, Owner, Places, owner_of
from ...channel import Caller, Closed
from ...jsonrpc.messages import Single
from ...rpc.deadlines import GRAIN, DeadlineClock
from ...rpc.runner import Runner
from ..protocol.options import HttpOptions
from .home import Home
from .log import MemoryLog, StreamLog
from .record import Delta
from .responder import Refused, full
from .session import Session, Unheard
from .stream import Cursor

TURNS = 64
"""Legs of a home stream that are remembered: a reader that returns to an older one gets only new messages."""


class KeptLogs:
    """The logs of a session's finished streams, the oldest first, kept for a returning client."""

    __slots__ = ("_clock", "_seconds", "logs")

    def __init__(self, clock: DeadlineClock, seconds: float) -> None:
        """`seconds`: for which each is kept."""
        self._clock, self._seconds = clock, seconds
        self.logs: dict[str, tuple[float, StreamLog]] = {}
        """By the name of the stream, with when it ended."""

    def keep(self, name: str, log: StreamLog) -> None:
        """Keep one more. One timer serves all: each is kept for the same time, so the first is the first to go."""
        if not self.logs:
            self._clock.set(self, self._seconds)
        self.logs[name] = self._clock.now(), log
        log.rest(partial(self.drop, name))

    def drop(self, name: str) -> None:
        """Keep this one no longer, if it is kept."""
        if (found := self.logs.pop(name, None)) is not None:
            found[1].close()

    def close(self) -> None:
        """Keep none any longer."""
        self._clock.drop(self)
        for name in tuple(self.logs):
            self.drop(name)

    def expired(self) -> None:
        """The client did not return to the oldest in time."""
        now = self._clock.now() + GRAIN
        while self.logs:
            name = next(iter(self.logs))
            left = self.logs[name][0] + self._seconds - now
            if left > 0:
                self._clock.set(self, left)
                return
            self.drop(name)


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
        self._places: Places[str] = Places(options.sessions)
        self._unused: Places[str] = Places(options.sessions)
        """Sessions whose client has sent nothing after `initialize`."""
        self._rest: dict[Session, KeptLogs] = {}
        self.unheard: Unheard = Unheard(host, options.resume)

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
        owner = owner_of(session.caller)
        if len(self._found) >= self.options.sessions and not self._make_room(owner):
            return full(self.options.sessions)
        if not self._found:
            self.host.clock.set(self, self.options.session_idle)
        session.used = monotonic()
        self._found[session.id] = session
        for places in (self._places, self._unused):
            places.take(owner, session.id)
        if (kept := session.peer.state.kept) is not None:
            kept.keep(partial(session.end, Closed("the session gave way to others")))
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
        if id in self._unused:
            self._unused.free(id)
            if (kept := session.peer.state.kept) is not None:
                kept.keep(None)
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
            self._places.touch(session.id)

    def forget(self, session: Session) -> None:
        if self._found.pop(session.id, None) is None:
            return
        for places in (self._places, self._unused):
            places.free(session.id)
        self._subscribed.leave(session.peer)
        if (rest := self._rest.pop(session, None)) is not None:
            rest.close()
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

    def _make_room(self, owner: Owner) -> bool:
        """End the session that gives way for one of this owner: one whose client sent nothing after `initialize`, or
        else one that is in use."""
        for places in (self._unused, self._places):
            with suppress(NoRoom):
                self._found[places.yielding(owner)].end(Closed("the session gave way to a new one"))
                return True
        return False

    # -- streams

    def log(self, session: Session, id: bytes, resumable: bool) -> tuple[str, StreamLog]:
        return f"{session.streamed:x}", self._log(session)

    def _log(self, session: Session) -> MemoryLog:
        account = self.host.call_limit.budget.account(session.caller.owner)
        return MemoryLog(self.options.log_messages, self.options.log_bytes, account)

    def home(self, session: Session) -> Home:
        log = self._log(session)
        return Home(session, log, MemoryLog(TURNS, TURNS * 16), _nothing, _nothing)

    def over(self, session: Session, name: str, log: StreamLog) -> None:
        rest = self._rest.get(session)
        if rest is None:
            rest = self._rest[session] = KeptLogs(self.host.clock, self.options.resume)
        rest.keep(name, log)

    def drop(self, session: Session, name: str) -> None:
        if (rest := self._rest.get(session)) is not None:
            rest.drop(name)

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
