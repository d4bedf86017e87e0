"""What the replicas of one server share: its place on a `Bus` and in a `Store`, for whatever it is served on.

Rules:

- The store has what must not be lost, the bus only says where to look. A replica that was cut off looks again at
  all of it when it is back.
- A replica has a number among those that live, claimed in the store, and a name that no other ever had. The number is
  in the ids of the questions it asks, so that the replica that gets an answer knows where it belongs.
- It says every few seconds that it lives. One that does not for `ALIVE` seconds is dead: others end what it left.
- Changes of lists and resources are a log of their own: each replica tells its own listeners at once, the others
  when they hear of it, and none twice.
- Nothing waits for the engine longer than `PATIENCE`: what takes longer is BusLost.
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

from ...bus.contract import Bus, BusLost, Store, Subscription
from ...jsonrpc.errors import InternalError, LocalError

if TYPE_CHECKING:
    from ..asking.request_state import State

logger = logging.getLogger("dragoman.mcp")

T = TypeVar("T")

BEAT = 3.0
"""Seconds between two signs of life."""
ALIVE = 12.0
"""Seconds without one after which a replica is dead."""
PATIENCE = 5.0
"""Seconds that the engine may take for one thing."""
EVENTS = 512
"""Changes that are kept for replicas that were cut off and sessions that move."""
KEPT = 1800.0
"""Seconds they are kept."""
MARKS = 64
"""Marks that one log keeps for replicas to agree on who says something: as many changes may be on their way at once."""
NUMBERS = 1 << 16
"""Replicas can have so many numbers."""
TABLES = 16
"""Endpoints that one replica can have."""


class BusMessage(Struct, frozen=True, array_like=True):
    """What one replica says to another, or to all."""

    kind: str
    origin: str
    """The name of the replica that says it."""
    session: str = ""
    stream: str = ""
    number: int = 0
    body: bytes = b""


class Event(Protocol):
    """A change of a list, or of a resource."""

    @property
    def kind(self) -> str: ...
    @property
    def uri(self) -> str: ...


class Hub(Protocol):
    """Who is told of changes here, and tells of them: the server's subscriptions."""

    def spread(self, tell: Callable[[Any], None] | None) -> None:
        """Call this with every `Event` here from now on; None: no longer."""

    def hear(self, kind: str, uri: str, number: int, *, own: bool) -> None:
        """An event that all of them heard of."""


class _Told(Struct, frozen=True, array_like=True):
    """A change, in the log."""

    origin: str
    kind: str
    uri: str


class Table(Protocol):
    """What one endpoint keeps of the sessions that are used here."""

    def heard(self, word: BusMessage) -> None:
        """A word of another replica."""

    def back(self) -> None:
        """The engine was away and is there again: words may have been missed."""

    async def beat(self) -> None:
        """Now and then: let live what is in use. Raises BusLost."""

    async def leave(self) -> None:
        """The replica goes: send what is unsent, let readers go."""


_word = msgspec.msgpack.Decoder(BusMessage).decode
_told = msgspec.msgpack.Decoder(_Told).decode
_packed = msgspec.msgpack.Encoder().encode


class Shared:
    """One replica of a server, on a bus. `open` makes it."""

    def __init__(self, bus: Bus, server: str, hub: Hub) -> None:
        self.bus = bus
        self.store: Store | None = bus.store
        self.number = 0
        self.name = secrets.token_hex(6)
        self.tables: list[Table] = []
        self.events = 0
        """The number of the last change that was heard of."""
        self._hub = hub
        self._prefix = f"mcp-{_slug(server)}"
        self._ears: list[Subscription] = []
        self._beating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unsaid: dict[Event, None] = {}
        self._saying = False
        self._looking = False
        self._missed = False
        self._back = asyncio.Event()
        self._state_before = bus.on_state

    @classmethod
    async def open(cls, bus: Bus, server: str, hub: Hub) -> Shared:
        """Join those that serve this server. Raises BusLost."""
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
        """Go, in good order."""
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
        """A number that no living replica has."""
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
        """Where words for the replica with this number go; None: for all."""
        return f"{self._prefix}-{'all' if number is None else number}"

    def first_id(self, table: Table, used: int) -> int:
        """What the ids of questions that are asked here follow on; `used`: how many were used up before."""
        return (self.number * TABLES + self.tables.index(table) << 32) + used

    def owner(self, id: Any) -> int | None:
        """The number of the replica that asked the question with this id; None: no replica gives such an id."""
        if not isinstance(id, int | float) or id < 0 or id >= NUMBERS * TABLES << 32:
            return None
        return int(id) // (TABLES << 32)

    # -- words

    async def tell(self, word: BusMessage, to: int | None = None) -> None:
        """Say a word to one replica, or to all others. Raises BusLost."""
        await self._soon(self.bus.publish(self.topic(to), _packed(word)))

    def say(self, word: BusMessage, to: int | None = None) -> None:
        """`tell` without waiting: with the engine away it is not said, and a replica that is `back` looks again."""
        self.later(self._tell_if(word, to))

    async def _tell_if(self, word: BusMessage, to: int | None) -> None:
        with suppress(BusLost):
            await self.tell(word, to)

    def later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run this beside everything; `leave` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a replica's work failed", exc_info=error)

    def _heard(self, message: bytes) -> None:
        word = _word(message)
        if word.origin == self.name:
            return
        if word.kind == "event":
            self._hear(word.number, _told(word.body))
            return
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
        """Wait until the engine is there, so long at most; whether it is."""
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
        """Whether this mark is written into a log for the first time: of all replicas that ask, one is told so.

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
        """A change here."""
        self._unsaid[event] = None
        self._say_events()

    def _say_events(self) -> None:
        if self._unsaid and not self._saying and self.bus.alive:
            self._saying = True
            self.later(self._say_all())

    async def _say_all(self) -> None:
        try:
            while self._unsaid:
                event = next(iter(self._unsaid))
                told = _Told(self.name, event.kind, event.uri)
                number = 0
                if self.store is not None:
                    number = await self.append(self.key("events"), _packed(told), KEPT, EVENTS)
                self._unsaid.pop(event, None)
                if number:
                    self._hear(number, told)
                await self.tell(BusMessage("event", self.name, number=number, body=_packed(told)))
        except BusLost as lost:
            logger.debug("changes wait until the bus is back: %s", lost)
        finally:
            self._saying = False

    def _hear(self, number: int, told: _Told) -> None:
        """A change, here or elsewhere."""
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
        """Hear of what the log has that was not heard yet."""
        try:
            while self._missed:
                self._missed = False
                for number, raw in await self.read(self.key("events"), self.events):
                    if number > self.events:
                        self.events = number
                        self._tell_hub(_told(raw), number)
        except BusLost:
            pass  # it is looked at when the engine is back
        finally:
            self._looking = False

    def _tell_hub(self, told: _Told, number: int) -> None:
        self._hub.hear(told.kind, told.uri, number, own=told.origin == self.name)

    async def past_events(self, after: int) -> list[tuple[int, str, str]]:
        """The changes whose number is greater than this, as far as they are kept: number, kind, URI."""
        found = []
        for number, raw in await self.read(self.key("events"), after):
            told = _told(raw)
            found.append((number, told.kind, told.uri))
        return found

    # -- states that are good for one use

    async def use(self, state: State, now: float) -> bool:
        """Use a sealed state up, for every replica; False: it was used before. InternalError: the engine is away."""
        try:
            return await self.put_new(self.key("nonce", state.nonce), b"", max(state.expires - now, 1.0))
        except BusLost:
            raise InternalError("The store that remembers which states were used is away", {"retry_after": 1}) from None


def _slug(name: str) -> str:
    """A name as part of a key: readable, and no two alike."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40].strip('-')}-{digest}"
