"""What the replicas of one server share: a `Bus` and a `Store`, for all wires on which it is served.

Rules:

- What must not be lost is in the store; the bus only says where to look. A replica that was cut off reads
  all of it again when it is back.
- A replica has a number, claimed in the store, that no other living replica has, and a name that is never used again.
  The number is in the ids of the questions it asks, so that the replica that gets an answer knows where it belongs.
- It reports every few seconds that it lives. A replica that was silent for `ALIVE` seconds is dead: others end what it
  left.
- Changes of lists and resources are a log of their own: each replica notifies its own subscribers at once, the others
  when they receive the change, and none twice.
- Nothing waits for the engine longer than `PATIENCE`: after that it is BusLost.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ...bus.contract import Bus, BusLost, Store, Subscription, reader
from ...jsonrpc.errors import InternalError, LocalError
from .changes import EntryId, Event, Kind

if TYPE_CHECKING:
    from ..asking.request_state import State

logger: logging.Logger = logging.getLogger("dragoman.mcp")

T = TypeVar("T")

BEAT = 3.0
"""Seconds between two reports of life."""
ALIVE = 12.0
"""Seconds of silence after which a replica is dead."""
PATIENCE = 5.0
"""Seconds that the engine may take for one operation."""
AGAIN = 1.0
"""Seconds before a change is said or looked for again that failed while the engine is there."""
EVENTS = 512
"""Changes that are kept for replicas that were cut off and sessions that move."""
KEPT = 1800.0
"""Seconds they are kept."""
MARKS = 64
"""Marks kept in one log, by which replicas agree on which one sends a message: the most changes that may be in progress
at once."""
NUMBERS = 1 << 16
"""The range of replicas' numbers."""
TABLES = 16
"""Most endpoints of one replica."""


class BusMessage(Struct, frozen=True, array_like=True):
    """A message from one replica to another, or to all."""

    kind: str
    origin: str
    """The name of the sending replica."""
    session: str = ""
    stream: str = ""
    number: int = 0
    body: bytes = b""


class Hub(Protocol):
    """The server's subscriptions: takes and passes on changes."""

    def spread(self, tell: Callable[[Any], None] | None) -> None:
        """Call this with every local `Event` from now on; None: stop."""

    def hear(self, event: Event, number: int, *, own: bool) -> None:
        """An event of all replicas."""


class _Told(Struct, frozen=True, array_like=True):
    """A change, in the log."""

    origin: str
    kind: Kind
    uri: str
    entries: tuple[EntryId, ...] = ()

    @property
    def event(self) -> Event:
        return Event(self.kind, self.uri, self.entries)


class Table(Protocol):
    """The sessions of one endpoint that are used here."""

    def heard(self, word: BusMessage) -> None:
        """A message of another replica."""

    def back(self) -> None:
        """The engine is back: messages may have been missed."""

    async def beat(self) -> None:
        """Called from time to time: extend the life of what is in use. Raises BusLost."""

    async def leave(self) -> None:
        """The replica leaves: send what is queued, release readers."""


_word = reader(msgspec.msgpack.Decoder(BusMessage).decode, "messages of replicas")
_told = reader(msgspec.msgpack.Decoder(_Told).decode, "changes of lists and resources")
_packed = msgspec.msgpack.Encoder().encode


class Shared:
    """One replica of a server, on a bus. `open` makes it."""

    def __init__(self, bus: Bus, server: str, hub: Hub) -> None:
        self.bus = bus
        self.store: Store | None = bus.store
        self.number: int = 0
        self.name: str = secrets.token_hex(6)
        self.tables: list[Table] = []
        self.events: int = 0
        """The number of the last known change."""
        self._hub = hub
        self._prefix = f"mcp-{_slug(server)}"
        self._ears: list[Subscription] = []
        self._beating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unsaid: dict[Event, None] = {}
        self._saying = False
        self._looking = False
        self._missed = False
        self._signed = time.monotonic()
        self._back = asyncio.Event()
        self._state_before = bus.on_state

    @classmethod
    async def open(cls, bus: Bus, server: str, hub: Hub) -> Shared:
        """Join the replicas of this server. Raises BusLost."""
        shared = cls(bus, server, hub)
        if shared.store is not None:
            await shared._claim()
            known = await shared.read(shared.key("events"))
            shared.events = known[-1][0] if known else 0
            shared._ears.append(await bus.subscribe(shared.topic(shared.number), shared._heard))
        shared._ears.append(await bus.subscribe(shared.topic(None), shared._heard))
        bus.on_state = shared._state
        if bus.alive:
            shared._back.set()
        hub.spread(shared._spread)
        shared._beating = asyncio.get_running_loop().create_task(shared._beat())
        return shared

    async def leave(self) -> None:
        """Leave in order."""
        self._hub.spread(None)
        for table in tuple(self.tables):
            await table.leave()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=PATIENCE)
        for task in tuple(self._tasks):
            task.cancel()
        self.bus.on_state = self._state_before
        with suppress(BusLost):
            for ear in self._ears:
                await self._soon(ear.close())
            if self.store is not None:
                await self.delete(self.key("replica", str(self.number)))

    async def _claim(self) -> None:
        """Claim a number that no living replica has."""
        for _ in range(100):
            self.number = secrets.randbelow(NUMBERS)
            if await self.put_new(self.key("replica", str(self.number)), self.name.encode(), ALIVE):
                return
        raise LocalError(f"{self.bus.url}: there are too many replicas of this server")

    # -- names

    def key(self, *parts: str) -> str:
        """A key in the store."""
        return "/".join((self._prefix, *parts))

    def topic(self, number: int | None) -> str:
        """The topic of messages for the replica with this number; None: for all."""
        return f"{self._prefix}-{'all' if number is None else number}"

    def first_id(self, table: Table, used: int) -> int:
        """The number after which the ids of questions asked here begin; `used`: how many were used before."""
        return (self.number * TABLES + self.tables.index(table) << 32) + used

    def owner(self, id: Any) -> int | None:
        """The number of the replica that asked the question with this id; None: the id is of no replica."""
        if not isinstance(id, int | float) or id < 0 or id >= NUMBERS * TABLES << 32:
            return None
        return int(id) // (TABLES << 32)

    # -- words

    async def tell(self, word: BusMessage, to: int | None = None) -> None:
        """Send a message to one replica, or to all others. Raises BusLost."""
        if to == self.number:  # a stream may be read at one endpoint and written at another
            self._pass_on(word)
        else:
            await self._soon(self.bus.publish(self.topic(to), _packed(word)))

    def say(self, word: BusMessage, to: int | None = None) -> None:
        """`tell` without waiting: while the engine is away nothing is sent, and a replica that is `back` reads
        again."""
        self.later(self._tell_if(word, to))

    async def _tell_if(self, word: BusMessage, to: int | None) -> None:
        with suppress(BusLost):
            await self.tell(word, to)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run this in the background; `leave` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a replica's work failed", exc_info=error)

    def _heard(self, message: bytes) -> None:
        word = _word(message)
        if word is None or word.origin == self.name:
            return
        if word.kind == "event":
            if (told := _told(word.body)) is not None:
                self._hear(word.number, told)
        else:
            self._pass_on(word)

    def _pass_on(self, word: BusMessage) -> None:
        for table in tuple(self.tables):
            table.heard(word)

    # -- the engine comes and goes

    def _state(self, alive: bool) -> None:
        if self._state_before is not None:
            self._state_before(alive)
        if not alive:
            self._back.clear()
            return
        self._back.set()
        if self.store is not None:
            self._look()
            self.later(self._sign())
        self._say_events()
        for table in tuple(self.tables):
            table.back()

    async def back(self, seconds: float) -> bool:
        """Wait until the engine is back, at most this long; returns whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._back.wait()
                return True
        return False

    async def _beat(self) -> None:
        touched = time.monotonic()
        while True:
            await asyncio.sleep(BEAT)
            if self.store is None:
                continue
            try:
                await self._sign()
                if time.monotonic() - touched > KEPT / 4:
                    touched = time.monotonic()
                    await self.touch(self.key("events"), KEPT)
            except BusLost:
                continue
            for table in tuple(self.tables):
                try:
                    await table.beat()
                except BusLost:
                    break
                except Exception:
                    logger.exception("a replica's beat failed")

    async def _sign(self) -> None:
        key = self.key("replica", str(self.number))
        with suppress(BusLost):
            if not await self.touch(key, ALIVE):
                await self.put(key, self.name.encode(), ALIVE)
                if time.monotonic() - self._signed < ALIVE - BEAT:
                    logger.warning("%s: the store has lost what it had; sessions begin anew", self.bus.url)
            self._signed = time.monotonic()

    async def lives(self, number: int, name: str) -> bool:
        """Whether the replica of this number and name lives."""
        return await self.get(self.key("replica", str(number))) == name.encode()

    # -- the store, where there is one

    @property
    def _kept(self) -> Store:
        if self.store is None:
            raise BusLost(f"{self.bus.url} keeps nothing")
        return self.store

    async def _soon(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE):
                return await work
        except TimeoutError:
            raise BusLost(f"{self.bus.url}: no answer within {PATIENCE} s") from None

    async def get(self, key: str) -> bytes | None:
        return await self._soon(self._kept.get(key))

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await self._soon(self._kept.put(key, value, ttl=ttl))

    async def put_new(self, key: str, value: bytes, ttl: float) -> bool:
        return await self._soon(self._kept.put_new(key, value, ttl=ttl))

    async def first(self, log: str, mark: str, ttl: float) -> bool:
        """Whether this mark is written into a log for the first time: of all replicas that ask, one gets True.

        The log keeps the last `MARKS` alone, so that what they agree on takes one key of the store.
        """
        number = await self.append(log, mark.encode(), ttl, MARKS)
        marks = await self.read(log, max(number - MARKS, 0))
        return next((at for at, one in marks if one == mark.encode()), number) == number

    async def delete(self, key: str) -> bool:
        return await self._soon(self._kept.delete(key))

    async def touch(self, key: str, ttl: float) -> bool:
        return await self._soon(self._kept.touch(key, ttl))

    async def append(self, log: str, message: bytes, ttl: float, messages: int = 1_000, size: int = 1_048_576) -> int:
        return await self._soon(self._kept.append(log, message, ttl=ttl, messages=messages, size=size))

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        return await self._soon(self._kept.read(log, after))

    # -- changes of lists and resources

    def _spread(self, event: Event) -> None:
        """Pass on a local change."""
        self._unsaid[event] = None
        self._say_events()

    def _say_events(self) -> None:
        if self._unsaid and not self._saying and self.bus.alive:
            self._saying = True
            self.later(self._say_all())

    async def _say_all(self) -> None:
        try:
            while self._unsaid and self.bus.alive:  # when it comes back, they are said then
                try:
                    await self._say_next()
                except BusLost as lost:
                    logger.debug("changes wait: %s", lost)
                    await asyncio.sleep(AGAIN)
        finally:
            self._saying = False

    async def _say_next(self) -> None:
        event = next(iter(self._unsaid))
        told = _Told(self.name, event.kind, event.uri, event.entries)
        number = 0
        if self.store is not None:
            number = await self.append(self.key("events"), _packed(told), KEPT, EVENTS)
        self._unsaid.pop(event, None)
        if number:
            self._hear(number, told)
        await self.tell(BusMessage("event", self.name, number=number, body=_packed(told)))

    def _hear(self, number: int, told: _Told) -> None:
        """A change, local or of another replica."""
        if self.store is None:
            self._tell_hub(told, 0)
        elif number == self.events + 1 and not self._looking:
            self.events = number
            self._tell_hub(told, number)
        elif number > self.events:
            self._look()
        elif number == 1:  # the log is a new one
            self.events = 0
            self._look()

    def _look(self) -> None:
        self._missed = True
        if not self._looking:
            self._looking = True
            self.later(self._look_again())

    async def _look_again(self) -> None:
        """Read changes from the log that were not received."""
        try:
            while self._missed:
                try:
                    self._missed = False
                    await self._read_events()
                except BusLost:
                    if not self.bus.alive:
                        return  # it is looked at when the engine is back
                    self._missed = True
                    await asyncio.sleep(AGAIN)
        finally:
            self._looking = False

    async def _read_events(self) -> None:
        known = await self.read(self.key("events"), max(0, self.events - 1))
        if self.events and not known:  # the log is a new one, which has not come as far
            self.events = 0
            known = await self.read(self.key("events"))
        for number, raw in known:
            if number > self.events:
                self.events = number
                if (told := _told(raw)) is not None:
                    self._tell_hub(told, number)

    def _tell_hub(self, told: _Told, number: int) -> None:
        self._hub.hear(told.event, number, own=told.origin == self.name)

    async def past_events(self, after: int) -> list[tuple[int, Event]]:
        """The changes whose number is greater than this, as far as they are kept, with their numbers."""
        read = [(number, _told(raw)) for number, raw in await self.read(self.key("events"), after)]
        return [(number, told.event) for number, told in read if told is not None]

    # -- states that are good for one use

    async def use(self, state: State, now: float) -> bool:
        """Mark a sealed state as used, for every replica; False: it was used before. Raises InternalError while the
        engine is away."""
        try:
            return await self.put_new(self.key("nonce", state.nonce), b"", max(state.expires - now, 1.0))
        except BusLost:
            raise InternalError("The store that remembers which states were used is away", {"retry_after": 1}) from None


def _slug(name: str) -> str:
    """A name as part of a key: readable and unique."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40].strip('-')}-{digest}"
