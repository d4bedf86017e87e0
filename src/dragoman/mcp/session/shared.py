"""The bus and the store that the replicas of one server share, for all wires on which it is served.

Rules:

- Everything that must not be lost is in the store; messages over the bus only say what to read there. A replica that
  was cut off reads it when it is back.
- A replica has a number, claimed in the store, that no other living replica has, and a name that is never used again.
  The number is in the ids of its questions, so that the replica that gets an answer knows where it belongs.
- It reports every few seconds that it is alive. A replica that was silent for `ALIVE` seconds counts as dead: others
  end its streams.
- Changes of lists and resources, and notifications of topics, have one log of their own: the replica where one begins
  notifies its subscribers at once, the others when they receive it, and no subscriber is notified twice.
- Nothing waits for the engine longer than `PATIENCE` seconds: after that it raises BusLost.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ...bus.contract import Bus, BusLost, Store, Subscription, reader
from ...jsonrpc.errors import InternalError, LocalError
from .changes import ChangeEvent, ChangeHub, ChangeKind, EntryId, HubEvent, TopicEvent

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
"""Seconds before changes are sent or read again, after that failed although the engine is connected."""
EVENTS = 4096
"""Changes and topics' notifications that are kept for replicas that were cut off and sessions that move to another
replica."""
EVENTS_SIZE = 4 * 1024 * 1024
"""Bytes of these at most, and of the topics' notifications that a replica keeps while the engine is away: later ones
would remove the earlier from the log anyway."""
KEPT = 1800.0
"""Seconds for which these changes are kept."""
NUMBERS = 1 << 16
"""The range of replicas' numbers."""
TABLES = 16
"""Endpoints of one replica at most."""


class BusMessage(Struct, frozen=True, array_like=True):
    """A message from one replica to another, or to all."""

    kind: str
    origin: str
    """The name of the sending replica."""
    session: str = ""
    stream: str = ""
    number: int = 0
    body: bytes = b""


class LoggedChange(Struct, frozen=True, array_like=True):
    """A change, or a topic's notification, as it is in the log. Those of older servers lack the last members."""

    origin: str
    kind: ChangeKind | Literal["topic"]
    uri: str
    """Of a topic's notification, the key."""
    entries: tuple[EntryId, ...] = ()
    topic: str = ""
    params: bytes = b""
    serial: int = 0
    """Its number among those of its replica; 0 for one of an older server."""

    @classmethod
    def of(cls, event: HubEvent, origin: str, serial: int) -> LoggedChange:
        if isinstance(event, TopicEvent):
            return cls(origin, "topic", event.key, (), event.topic, event.params, serial)
        return cls(origin, event.kind, event.uri, event.entries, serial=serial)

    @property
    def event(self) -> HubEvent:
        if self.kind == "topic":
            return TopicEvent(self.topic, self.uri, self.params)
        return ChangeEvent(self.kind, self.uri, self.entries)


class SharedTable(Protocol):
    """The sessions of one endpoint that are used here. A Protocol, because `replica` imports this module."""

    def receive(self, notice: BusMessage) -> None:
        """Act on a message of another replica."""

    def back(self) -> None:
        """Read again after the engine was away: messages may have been missed."""

    async def beat(self) -> None:
        """Extend the life of what is in use; called every `BEAT` seconds. Raises BusLost."""

    async def leave(self) -> None:
        """End the copies of sessions and release readers, because the replica leaves."""


_read_notice = reader(msgspec.msgpack.Decoder(BusMessage).decode, "messages of replicas")
_read_change = reader(msgspec.msgpack.Decoder(LoggedChange).decode, "changes of lists and resources")
_packed = msgspec.msgpack.Encoder().encode


class Replica:
    """One replica of a server, on a bus. `open` makes it."""

    def __init__(self, bus: Bus, server: str, hub: ChangeHub) -> None:
        self.bus = bus
        self.store: Store | None = bus.store
        self.number: int = 0
        self.name: str = secrets.token_hex(6)
        self.tables: list[SharedTable] = []
        self.events: int = 0
        """The number of the last known change."""
        self.restarts: int = 0
        """How often the log of changes was replaced by a new one, whose numbers begin at 1 again."""
        self._hub = hub
        self._prefix = f"mcp-{_slug(server)}"
        self._subscriptions: list[Subscription] = []
        self._beating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._first: LoggedChange | None = None
        """The change with the number 1, by which a new log is recognised."""
        self._serials = count(1)
        self._unsent: dict[HubEvent, int] = {}
        """The events that are not in the log yet, with their serials."""
        self._unsent_size = 0
        """The bytes of the topics' notifications among them."""
        self._tried = (0, 0)
        """The serial of the last event that was to be stored, and the number of the last known one then."""
        self._sending = False
        self._catching_up = False
        self._missed = False
        self._signed = time.monotonic()
        self._back = asyncio.Event()
        self._state_before = bus.on_state

    @classmethod
    async def open(cls, bus: Bus, server: str, hub: ChangeHub) -> Replica:
        """Join the replicas of this server. Raises BusLost."""
        shared = cls(bus, server, hub)
        if shared.store is not None:
            await shared._claim()
            known = await shared.read(shared.key("events"))
            shared.events = known[-1][0] if known else 0
            shared._first = _read_change(known[0][1]) if known and known[0][0] == 1 else None
            shared._subscriptions.append(await bus.subscribe(shared.topic(shared.number), shared._receive))
        shared._subscriptions.append(await bus.subscribe(shared.topic(None), shared._receive))
        bus.on_state = shared._state
        if bus.alive:
            shared._back.set()
        hub.spread(shared._spread)
        shared._beating = asyncio.get_running_loop().create_task(shared._beat())
        return shared

    async def leave(self) -> None:
        """Leave the other replicas: end what is here, and give up the number."""
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
            for subscription in self._subscriptions:
                await self._within_patience(subscription.close())
            if self.store is not None:
                await self.delete(self.key("replica", str(self.number)))

    async def _claim(self) -> None:
        """Claim a number that no living replica has. Raises BusLost, and LocalError where there are too many."""
        for _ in range(100):
            self.number = secrets.randbelow(NUMBERS)
            if await self.put_new(self.key("replica", str(self.number)), self.name.encode(), ALIVE):
                return
        raise LocalError(f"{self.bus.url}: there are too many replicas of this server")

    # -- names

    def key(self, *parts: str) -> str:
        """Return a key in the store."""
        return "/".join((self._prefix, *parts))

    def topic(self, number: int | None) -> str:
        """Return the topic of messages for the replica with this number; None: for all."""
        return f"{self._prefix}-{'all' if number is None else number}"

    def first_id(self, table: SharedTable, used: int) -> int:
        """Return the number after which the ids of this replica's questions begin; `used`: how many there were
        before."""
        return (self.number * TABLES + self.tables.index(table) << 32) + used

    def owner(self, id: Any) -> int | None:
        """Return the number of the replica whose question has this id; None: the id is of no replica."""
        if not isinstance(id, int | float) or id < 0 or id >= NUMBERS * TABLES << 32:
            return None
        return int(id) // (TABLES << 32)

    # -- messages

    async def send(self, notice: BusMessage, to: int | None = None) -> None:
        """Send a message to one replica, or to all others. Raises BusLost."""
        if to == self.number:  # a stream may be read at one endpoint and written at another
            self._pass_on(notice)
        else:
            await self._within_patience(self.bus.publish(self.topic(to), _packed(notice)))

    def send_soon(self, notice: BusMessage, to: int | None = None) -> None:
        """Send a message without waiting. While the engine is away nothing is sent, and a replica that is `back` reads
        again."""
        self.later(self._send_if(notice, to))

    async def _send_if(self, notice: BusMessage, to: int | None) -> None:
        with suppress(BusLost):
            await self.send(notice, to)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run this in the background; `leave` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a replica's work failed", exc_info=error)

    def _receive(self, message: bytes) -> None:
        notice = _read_notice(message)
        if notice is None or notice.origin == self.name:
            return
        if notice.kind == "event":
            if (change := _read_change(notice.body)) is not None:
                self._take_change(notice.number, change)
        else:
            self._pass_on(notice)

    def _pass_on(self, notice: BusMessage) -> None:
        for table in tuple(self.tables):
            table.receive(notice)

    # -- the engine's connection

    def _state(self, alive: bool) -> None:
        if self._state_before is not None:
            self._state_before(alive)
        if not alive:
            self._back.clear()
            return
        self._back.set()
        if self.store is not None:
            self._catch_up_soon()
            self.later(self._sign())
        self._send_events()
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
        """Return whether the replica of this number and name lives."""
        return await self.get(self.key("replica", str(number))) == name.encode()

    # -- the store, where there is one

    @property
    def _required_store(self) -> Store:
        if self.store is None:
            raise BusLost(f"{self.bus.url} keeps nothing")
        return self.store

    async def _within_patience(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE):
                return await work
        except TimeoutError:
            raise BusLost(f"{self.bus.url}: no answer within {PATIENCE} s") from None

    async def get(self, key: str) -> bytes | None:
        return await self._within_patience(self._required_store.get(key))

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await self._within_patience(self._required_store.put(key, value, ttl=ttl))

    async def put_new(self, key: str, value: bytes, ttl: float) -> bool:
        return await self._within_patience(self._required_store.put_new(key, value, ttl=ttl))

    async def delete(self, key: str) -> bool:
        return await self._within_patience(self._required_store.delete(key))

    async def touch(self, key: str, ttl: float) -> bool:
        return await self._within_patience(self._required_store.touch(key, ttl))

    async def append(self, log: str, message: bytes, ttl: float, messages: int = 1_000, size: int = 1_048_576) -> int:
        return await self._within_patience(
            self._required_store.append(log, message, ttl=ttl, messages=messages, size=size)
        )

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        return await self._within_patience(self._required_store.read(log, after))

    # -- changes of lists and resources, notifications of topics

    def _spread(self, event: HubEvent) -> None:
        """Pass on a local event."""
        self._unsent.setdefault(event, next(self._serials))
        if isinstance(event, TopicEvent):
            self._unsent_size += event.size
            while self._unsent_size > EVENTS_SIZE:
                self._discard_unsent(next(one for one in self._unsent if isinstance(one, TopicEvent)))
                self._hub.dropped += 1
        self._send_events()

    def _discard_unsent(self, event: HubEvent) -> None:
        if self._unsent.pop(event, None) is not None and isinstance(event, TopicEvent):
            self._unsent_size -= event.size

    def _send_events(self) -> None:
        if self._unsent and not self._sending and self.bus.alive:
            self._sending = True
            self.later(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._unsent and self.bus.alive:  # when it comes back, they are sent then
                try:
                    await self._send_next()
                except BusLost as lost:
                    logger.debug("changes wait: %s", lost)
                    await asyncio.sleep(AGAIN)
        finally:
            self._sending = False

    async def _send_next(self) -> None:
        event, serial = next(iter(self._unsent.items()))
        change = LoggedChange.of(event, self.name, serial)
        body = _packed(change)
        number = 0 if self.store is None else await self._store_change(serial, body)
        self._discard_unsent(event)
        if number:
            self._take_change(number, change)
        await self.send(BusMessage("event", self.name, number=number, body=body))

    async def _store_change(self, serial: int, body: bytes) -> int:
        """Add a change to the log, once, and return its number. Raises BusLost: then it may be in the log or not."""
        key = self.key("events")
        if self._tried[0] == serial:
            for number, raw in await self.read(key, self._tried[1]):
                if raw == body:
                    return number
        self._tried = serial, self.events
        return await self.append(key, body, KEPT, EVENTS, EVENTS_SIZE)

    def _take_change(self, number: int, change: LoggedChange) -> None:
        """Pass on a change, of this or another replica, unless earlier ones are missing."""
        if self.store is None:
            self._notify_hub(change, 0)
        elif number == self.events + 1 and not self._catching_up:
            self.events = number
            self._notify_hub(change, number)
        elif number > self.events:
            self._catch_up_soon()
        elif number == 1 and not (change.serial and change == self._first):  # the log is a new one
            self._restart_events()
            self._catch_up_soon()

    def _restart_events(self) -> None:
        self.events = 0
        self.restarts += 1

    def _catch_up_soon(self) -> None:
        self._missed = True
        if not self._catching_up:
            self._catching_up = True
            self.later(self._catch_up())

    async def _catch_up(self) -> None:
        """Read changes from the log that were not received."""
        try:
            while self._missed:
                try:
                    self._missed = False
                    await self._read_events()
                except BusLost:
                    if not self.bus.alive:
                        return  # it is read when the engine is back
                    self._missed = True
                    await asyncio.sleep(AGAIN)
        finally:
            self._catching_up = False

    async def _read_events(self) -> None:
        known = await self.read(self.key("events"), max(0, self.events - 1))
        if self.events and not known:  # the log is a new one, with lower numbers
            self._restart_events()
            known = await self.read(self.key("events"))
        for number, raw in known:
            if number > self.events:
                self.events = number
                if (change := _read_change(raw)) is not None:
                    self._notify_hub(change, number)

    def _notify_hub(self, change: LoggedChange, number: int) -> None:
        if number == 1:
            self._first = change
        self._hub.take(change.event, number, own=change.origin == self.name)

    async def past_events(self, after: int) -> list[tuple[int, HubEvent]]:
        """Read the events whose number is greater than this, as far as they are kept, with their numbers."""
        read = [(number, _read_change(raw)) for number, raw in await self.read(self.key("events"), after)]
        return [(number, change.event) for number, change in read if change is not None]

    # -- states for a single use

    async def use(self, state: State, now: float) -> bool:
        """Mark a sealed state as used, for every replica; return False if it was used before. `now`: Unix time. Raises
        InternalError while the engine is away."""
        try:
            return await self.put_new(self.key("nonce", state.nonce), b"", max(state.expires - now, 1.0))
        except BusLost:
            raise InternalError("The store that remembers which states were used is away", {"retry_after": 1}) from None


def _slug(name: str) -> str:
    """Return a part of a key for a name: readable, and different for each name."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_]+', '-', name)[:40].strip('-')}-{digest}"
