"""Publishes events: knows their types, keeps each that is emitted, and wakes those who deliver them.

Rules:

- An event is written once; those who deliver it read it from the outbox, each from a position of its own, so a slow one
  costs the others nothing and no memory.
- It is open while it is served, on each event loop: then those who wait are woken by what this process emits at once,
  and by what another process writes into the same file within `outbox.LOOK` seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct

from ..jsonrpc.codec import CallMessage
from ..jsonrpc.errors import LocalError
from ..jsonrpc.options import TEXT, check, instance, many, strict
from ..net.urls import parse
from .catalog import EventArguments, EventDefinition, EventOptions
from .clock import Clock
from .forwarding import Forwarder, ForwardMeasures, topics_of
from .limits import EventLimits
from .messages import EVENT, message_of
from .outbox import KeptEvent, Outbox, path_of

E = TypeVar("E", bound=type[Struct])

SCANNED: Final = 2_000
"""Events that one scan looks at, most of which may be for others."""
_ID: Final = re.compile(r"[!-~]{1,200}")
_LONGEST: Final = "0" * 32
"""A cursor, or the id of a subscription, of full length."""
_encode = msgspec.json.Encoder().encode

RULES: Final = {
    "store": TEXT,
    "forward": TEXT | many(TEXT),
    "limits": instance(EventLimits, "an EventLimits"),
    "clock": instance(Clock, "a Clock"),
}
"""The rules of the options of an EventPublisher."""


class TooManyStreams(Exception):
    """Streams are above a limit: `limit` names it, `most` is its value."""

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(f"{limit}: {most} are allowed")
        self.limit: str = limit
        self.most: int = most


class EventSite:
    """One event loop on which events are delivered, for one of those who deliver them."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.waiting: set[asyncio.Event] = set()
        """Set when something has changed."""
        self.over: bool = False
        """Whether nothing more is delivered here."""

    def wake(self) -> None:
        """Wake those who wait; any thread may call it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(self.wake_here)

    def wake_here(self) -> None:
        """Wake those who wait; on the loop."""
        for one in self.waiting:
            one.set()


class EventBatch(Struct):
    """Events for a subscription. `number`: the position after them; `lost`: events before them are not kept; `gone`:
    the number of the last of those."""

    events: list[KeptEvent]
    number: int
    more: bool
    lost: bool
    gone: int


class EventPublisher:
    """The event types of an application, and what was emitted: `events.event` registers a type, `events.emit` sends an
    event to all who follow its type. `Service(events=...)` delivers them to peers, and MCP's `Events`, which has one as
    `publisher`, to clients of MCP.

    `store`: `sqlite:PATH`, which the processes of one machine may share, or `memory:`, which ends with the serving.
    `limits`: the bounds. `forward`: URLs of brokers' topics to which each event is published, too (see `forwarding`).
    `clock`: see `Clock`.
    """

    @strict("EventPublisher")
    def __init__(
        self,
        *,
        store: str = "memory:",
        limits: EventLimits | None = None,
        forward: str | Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        limits = EventLimits() if limits is None else limits
        clock = Clock() if clock is None else clock
        check("EventPublisher", RULES, locals())
        path_of(store)  # raises LocalError for what is no store
        self.store: str = store
        """Where events are kept."""
        self._topics = topics_of(forward)
        self._forwards = ForwardMeasures()
        self.limits: EventLimits = limits
        """The bounds."""
        self.clock: Clock = clock
        """Its clock."""
        self.types: dict[str, EventDefinition] = {}
        """The event types by name."""
        self.streams: Counter[str] = Counter()
        """The streams, and polls that wait, by owner."""
        self.registered: list[Callable[[EventDefinition], object]] = []
        """Called with each event type that is registered."""
        self.emitted: list[Callable[[EventDefinition, KeptEvent], object]] = []
        """Called with each event that this process has emitted, once it is kept."""
        self.sites: list[EventSite] = []
        """Where events are delivered now."""
        self._by_kind: dict[type, EventDefinition] = {}
        self._outbox: Outbox | None = None
        self._count = 0

    def __repr__(self) -> str:
        return f"<EventPublisher of {len(self.types)} event types in {self.store}>"

    # -- event types

    @overload
    def event(self, kind: E, /) -> E: ...
    @overload
    def event(self, name: str | None = None, /, **options: Unpack[EventOptions]) -> Callable[[E], E]: ...
    def event(self, name: Any = None, /, **options: Any) -> Any:
        """Register a `msgspec.Struct` as an event type; the class is not changed. `@events.event`,
        `@events.event("orders.shipped", filters=["carrier"])`.

        Its name is by default that of the class, in lower case with underscores; the description is the docstring, or
        `description`; the fields are the payload. `modes`: how its events are delivered to clients of MCP, "poll",
        "push" (a stream, and also to peers of a service) and "webhook", by default all. `filters`: fields for which a
        subscription may name a value; it gets the events that have it. In their place `arguments`, a Struct of a
        subscription's arguments, and `match(arguments, event)`, which returns True where it gets the event. `scopes`:
        all are needed, `roles`: one is; `allow(identity, arguments)` is True where this caller may follow the events,
        and is asked again with each of them.

        Raises LocalError for a name that is taken, and for what is no event type.
        """
        if isinstance(name, type):
            return self._register(name, {})
        return lambda kind: self._register(kind, options if name is None else {"name": name, **options})

    def _register(self, kind: Any, options: Mapping[str, Any]) -> Any:
        try:
            definition = EventDefinition(kind, **options)
        except TypeError as error:
            raise LocalError(f"events.event: {error}") from None
        if definition.name in self.types or kind in self._by_kind:
            raise LocalError(f"event {definition.name!r}: the name, or the class, is that of another event already")
        self.types[definition.name] = self._by_kind[kind] = definition
        for function in self.registered:
            function(definition)
        return kind

    # -- emitting

    async def emit(self, event: Struct, *, id: str | None = None, timestamp: float | None = None) -> str:
        """Send an event to all who follow its type, and return its id, once it is kept: after a crash it is delivered
        all the same, if the store is a file.

        `id`: that of its source, if it has one: a second event of the type with it is not sent. `timestamp`: when it
        happened, in Unix seconds; default: now. Raises LocalError for an event of no type here, for one that is too
        large, and for a timestamp that is no such number; StoreLost, DatabaseFull.
        """
        return await self._send(*self._prepare(event, id, timestamp))

    def emit_soon(
        self, event: Struct, *, id: str | None = None, timestamp: float | None = None
    ) -> concurrent.futures.Future[str]:
        """Send an event as `emit` does, from any thread, while it is served. Returns a future, whose `result()` a
        thread may wait for. Raises LocalError as `emit` does, and where it is not served."""
        prepared = self._prepare(event, id, timestamp)
        if not self.sites:
            raise LocalError("events.emit_soon: the server is not served now; await events.emit(...) where a loop runs")
        return asyncio.run_coroutine_threadsafe(self._send(*prepared), self.sites[0].loop)

    def _prepare(self, event: Struct, id: str | None, timestamp: float | None) -> tuple[EventDefinition, KeptEvent]:
        """Return the type of an event, and the event as it is kept, without its number. Raises LocalError."""
        definition = self._by_kind.get(type(event))
        if definition is None:
            raise LocalError(f"events.emit: {event!r:.100} is of no event type: register its class by @events.event")
        data = definition.encode(event)
        id = f"evt_{secrets.token_hex(16)}" if id is None else id
        if not isinstance(id, str) or _ID.fullmatch(id) is None:
            raise LocalError(
                f"event {definition.name}: an id has 1 to 200 visible ASCII characters, and not {id!r:.100}"
            )
        if timestamp is not None and not _is_time(timestamp):
            raise LocalError(
                f"event {definition.name}: timestamp is in Unix seconds, such as time.time(), and not {timestamp!r:.100}"
            )
        found = KeptEvent(0, id, self.clock.now() if timestamp is None else timestamp, data)
        size = len(_encode(CallMessage(EVENT, message_of(definition.name, found, _LONGEST, _LONGEST))))
        if size > self.limits.event_size:  # of its forms that is the longest
            raise LocalError(
                f"event {definition.name}: {size} bytes, and {self.limits.event_size} may be sent: name what a client is "
                "to read, by a method, a tool or a resource"
            )
        return definition, found

    async def _send(self, definition: EventDefinition, event: KeptEvent) -> str:
        """Keep an event, and let it be delivered; return its id."""
        if await self.box().emit(definition.name, event, self.clock.now()):
            self._count += 1
            self.wake()
            for function in self.emitted:
                function(definition, event)
        return event.id

    # -- its life

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EventSite]:
        """Let events be delivered on this event loop; yields what is woken by them. Its store is closed with the last
        one. Raises StoreLost and DatabaseFull."""
        site = EventSite()
        outbox = self.box()
        for url in self._topics:
            await outbox.forwarded(parse(url).bare)  # what is emitted from now on is for it
        self.sites.append(site)
        tasks = [asyncio.create_task(outbox.watch(site.wake_here))]
        for url in self._topics:
            forwarder = Forwarder(outbox, url, self.clock, self._forwards)
            site.waiting.add(forwarder.woken)
            tasks.append(asyncio.create_task(forwarder.run()))
        try:
            yield site
        finally:
            site.over = True
            site.wake_here()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self.sites.remove(site)
            if not self.sites:
                await self.close()

    async def close(self) -> None:
        """Close the store, of which each use opens it again. It is closed when it is served no more; a program that
        only emits closes it itself."""
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            await outbox.close()

    def box(self) -> Outbox:
        """Return its outbox, open."""
        if self._outbox is None:
            self._outbox = Outbox(self.store, self.limits)
        return self._outbox

    def wake(self) -> None:
        """Wake those who wait; any thread may call it."""
        for site in self.sites:
            site.wake()

    def measures(self) -> Mapping[str, float]:
        """Return the numbers of events and streams, for metrics."""
        found: dict[str, float] = {"events_emitted_total": self._count, "event_streams": self.streams.total()}
        if self._topics:
            numbers = self._forwards
            found["event_forwards_total"] = numbers.forwarded
            found["event_forward_failures_total"] = numbers.failed
            found["event_forwards_skipped_total"] = numbers.skipped
            found["event_forwards_waiting"] = sum(numbers.waiting.values())
        return found

    # -- reading

    def start(self, name: str, cursor: str | None, max_age: float | None = None) -> tuple[int, bool]:
        """Return the number after which a subscription's events begin, and whether it has lost some. `cursor`: the
        position that its subscriber has; None: now. `max_age`: seconds after which events are not sent any more."""
        outbox = self.box()
        state = outbox.state(name)
        if cursor is None:
            return state.head, False
        number = outbox.number_of(name, cursor)
        if number is None or number > state.head:
            return state.head, True
        start = max(number, state.gone)
        if max_age is not None:
            start = max(start, outbox.number_at(name, self.clock.now() - max_age))
        return start, start > number

    def cursor(self, definition: EventDefinition, number: int) -> str:
        """Return the cursor of who has all events of a type up to this one."""
        return self.box().cursor(definition.name, number)

    def scan(self, definition: EventDefinition, arguments: EventArguments, after: int, most: int) -> EventBatch:
        """Return at most so many events after a number."""
        outbox, limits = self.box(), self.limits
        state = outbox.state(definition.name)
        batch = EventBatch([], max(after, state.gone), False, after < state.gone, state.gone)
        size = scanned = 0
        while batch.number < state.head:
            page = outbox.read(definition.name, batch.number)
            if not page:
                break
            for event in page:
                if scanned >= SCANNED or len(batch.events) >= most or size > limits.poll_size:
                    batch.more = True
                    return batch
                scanned += 1
                if definition.matches(arguments, event.data):
                    if batch.events and size + len(event.data) > limits.poll_size:
                        batch.more = True
                        return batch
                    batch.events.append(event)
                    size += len(event.data)
                batch.number = event.number
        return batch

    async def follow(
        self,
        definition: EventDefinition,
        arguments: EventArguments,
        number: int,
        site: EventSite,
        changed: asyncio.Event,
        heartbeat: float,
    ) -> AsyncIterator[EventBatch]:
        """Iterate over the events after a number, in batches, until nothing more is delivered at the site. A batch
        without events comes where some were lost, and if there was none for `heartbeat` seconds. `changed`: that of
        `stream`."""
        beat = self.clock.now()
        while not site.over:
            changed.clear()
            batch = self.scan(definition, arguments, number, self.limits.poll_events)
            number = batch.number
            if batch.events or batch.lost or self.clock.now() - beat >= heartbeat:
                yield batch
                beat = self.clock.now()
            if batch.more:
                await asyncio.sleep(0)  # whoever is far behind does not hold up the loop
            else:
                await self.clock.wait(changed, max(0.0, beat + heartbeat - self.clock.now()))

    @contextlib.contextmanager
    def stream(self, site: EventSite, owner: str) -> Iterator[asyncio.Event]:
        """Count a stream of this owner, and yield what is set when something has changed. Raises TooManyStreams."""
        limits, streams = self.limits, self.streams
        for limit, count, most in (
            ("streams_each", streams[owner], limits.streams_each),
            ("streams", streams.total(), limits.streams),
        ):
            if count >= most:
                raise TooManyStreams(limit, most)
        changed = asyncio.Event()
        streams[owner] += 1
        site.waiting.add(changed)
        try:
            yield changed
        finally:
            site.waiting.discard(changed)
            streams[owner] -= 1
            if not streams[owner]:
                del streams[owner]


def _is_time(value: object) -> bool:
    """Return whether a value is a number of Unix seconds that has a date."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return False
    return True
