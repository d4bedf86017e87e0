"""MCP Events for a server (SEP-3415): `Server("shop", extensions=[Events()])`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import re
import secrets
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ....access import identity_of
from ....channel import Caller, Identity
from ....jsonrpc.codec import CallMessage
from ....jsonrpc.errors import InternalError, InvalidParams, LocalError
from ....jsonrpc.options import CALLABLE, NONE, SECONDS, TEXT, TEXTS, TIME, check, instance, many, one_of, strict
from ....net.reconnect import backoff
from ....repeats import Repeats
from ....secret import read_secrets
from ....store.database import IN_MEMORY
from ...protocol.extension import Extension
from ...protocol.params import EmptyResult, PaginatedRequestParams
from ...protocol.times import is_time
from ...protocol.types import SUBSCRIPTION_ID
from ...server.context import Context
from ...server.extending.extension import ServerExtension, TopicGrant
from ...server.extending.home import ServerHome
from . import model
from .admission import Admission
from .catalog import EventArguments, EventDefinition, EventOptions
from .clock import Clock
from .delivery import RETRIES, Deliverer, DeliveryMeasures
from .limits import EventLimits
from .model import (
    CODES,
    EventCodes,
    ListEventsResult,
    PollEventsParams,
    PollEventsResult,
    Profile,
    StreamEventsParams,
)
from .occurrences import occurrence_of
from .outbox import KeptEvent, Outbox, path_of
from .sealing import seal
from .sender import WebhookSender
from .webhooks import Webhooks

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)
E = TypeVar("E", bound=type[Struct])

HEARTBEAT: Final = 25.0
"""Seconds between two messages of a stream at most: "at least every 30 seconds"."""
ROTATION: Final = 300.0
"""Seconds for which a secret that was replaced signs, too: as long as a signature is valid."""
POLL_AGAIN: Final = 10.0
"""Seconds after which a client may poll again."""
SCANNED: Final = 2_000
"""Events that one poll looks at, most of which may be for others."""
LISTED: Final = 100
"""Event types on a page."""
_PAUSES: Final = (0.05, 2.0)
"""Seconds between two tries to send to a stream that reads slowly: the first, and the longest."""
_ID: Final = re.compile(r"[!-~]{1,200}")
_CURSOR_ROOM: Final = "0" * 26
"""A cursor of full length."""
_encode = msgspec.json.Encoder().encode

_OPTIONS: Final = {
    "profile": one_of(*model.PROFILES),
    "store": TEXT,
    "keys": TEXT | instance(bytes, "bytes") | many(TEXT | instance(bytes, "bytes")) | NONE,
    "limits": instance(EventLimits, "an EventLimits"),
    "allow_private": TEXTS,
    "retries": many(SECONDS),
    "ttl": TIME,
    "poll_again": TIME,
    "codes": instance(EventCodes, "an EventCodes"),
    "tls": instance(ssl.SSLContext, "an ssl.SSLContext") | NONE,
    "resolve": CALLABLE | NONE,
    "clock": instance(Clock, "a Clock"),
}


class _Site:
    """One event loop on which the server is served."""

    def __init__(self, home: ServerHome) -> None:
        self.home = home
        self.loop = asyncio.get_running_loop()
        self.waiting: set[asyncio.Event] = set()
        """Set when something has changed."""
        self.over = False

    def wake(self) -> None:
        """Wake those who wait; any thread may call it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(self.wake_here)

    def wake_here(self) -> None:
        """Wake those who wait; on the loop."""
        for one in self.waiting:
            one.set()


class _Batch(Struct):
    """Events for a subscription. `number`: the position after them; `lost`: events before them are not kept."""

    events: list[KeptEvent]
    number: int
    more: bool
    lost: bool


class Events(ServerExtension):
    """MCP Events, for `Server(extensions=[events])`: `events.event` registers an event type, `events.emit` sends one.

    `profile`: "sep", that of SEP-3415; "chatgpt", whose clients have webhooks alone and declare nothing; "both".
    `store`: `sqlite:PATH`, which the processes of one machine may share, or `memory:`, which ends with the serving.
    `keys`: secrets by which those of subscribers are sealed in the file, the first seals and all open (default: the
    environment's DRAGOMAN_SECRET; without it the file has them as they are). `limits`: the bounds. `allow_private`:
    networks beside the public ones in which receivers may be, such as "10.0.0.0/8", also by plain http. `retries`:
    seconds between the attempts to deliver an event to a webhook; after the last it is given up. `ttl`: seconds that a
    subscription lives unless its client wants otherwise. `poll_again`: seconds after which a client should poll again.
    `codes`: those of the errors. `tls`: an `ssl.SSLContext` for receivers (default: the system's). `resolve`: an async
    function of a host and a port that returns its addresses (default: the system's resolver). `clock`: see `Clock`.
    """

    @strict("Events")
    def __init__(
        self,
        *,
        profile: Profile = "sep",
        store: str = "memory:",
        keys: Sequence[str | bytes] | str | bytes | None = None,
        limits: EventLimits | None = None,
        allow_private: Collection[str] = (),
        retries: Sequence[float] = RETRIES,
        ttl: float = 3_600.0,
        poll_again: float = POLL_AGAIN,
        codes: EventCodes = CODES,
        tls: ssl.SSLContext | None = None,
        resolve: Callable[[str, int], Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        limits = EventLimits() if limits is None else limits
        clock = Clock() if clock is None else clock
        check("Events", _OPTIONS, locals())
        self._profile: Profile = profile
        self.declares: Extension = Extension(
            name=model.NAME,
            stage="beta",
            settings={"listChanged": True},
            capabilities=None if profile == "sep" else model.bare_capability,
            methods=model.WEBHOOK_ROWS if profile == "chatgpt" else model.ROWS,
            topics=model.TOPICS,
            codes=codes.all,
        )
        self.limits: EventLimits = limits
        self._store = store
        self._keys = _sealing_keys(keys, store)
        self._retries = tuple(retries)
        self._poll_again = poll_again
        self._codes = codes
        self._sender = WebhookSender(limits, allow_private=allow_private, tls=tls, resolve=resolve)
        self._clock = clock
        self._by_name: dict[str, EventDefinition] = {}
        self._by_kind: dict[type, EventDefinition] = {}
        self._outbox: Outbox | None = None
        self._sites: list[_Site] = []
        self._streams: Counter[str] = Counter()
        self._emitted = 0
        self._deliveries = DeliveryMeasures()
        self._admission = Admission(self._by_name, self._box, clock, profile=profile, limits=limits, codes=codes)
        self._webhooks = Webhooks(
            self._admission,
            self._box,
            self._sender,
            clock,
            profile=profile,
            limits=limits,
            codes=codes,
            keys=self._keys,
            ttl=ttl,
            changed=self._wake,
        )

    # -- event types

    @overload
    def event(self, kind: E, /) -> E: ...
    @overload
    def event(self, name: str | None = None, /, **options: Unpack[EventOptions]) -> Callable[[E], E]: ...
    def event(self, name: Any = None, /, **options: Any) -> Any:
        """Register a `msgspec.Struct` as an event type; the class is not changed. `@events.event`,
        `@events.event("orders.shipped", filters=["carrier"])`.

        Its name is by default that of the class, in lower case with underscores; the description is the docstring, or
        `description`; the fields are the payload. `modes`: how its events are delivered, "poll", "push" (a stream) and
        "webhook", by default all. `filters`: fields for which a subscription may name a value; it gets the events that
        have it. In their place `arguments`, a Struct of a subscription's arguments, and `match(arguments, event)`,
        which returns True where it gets the event. `scopes`: all are needed, `roles`: one is; `allow(identity,
        arguments)` is True where this caller may follow the events, and is asked again with each of them.

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
        if definition.name in self._by_name or kind in self._by_kind:
            raise LocalError(f"event {definition.name!r}: the name, or the class, is that of another event already")
        self._by_name[definition.name] = self._by_kind[kind] = definition
        for site in self._sites[:1]:
            site.home.notify(model.LIST_TOPIC.name, "", {})
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
        """Send an event as `emit` does, from any thread, while the server is served. Returns a future, whose `result()`
        a thread may wait for. Raises LocalError as `emit` does, and where the server is not served."""
        prepared = self._prepare(event, id, timestamp)
        if not self._sites:
            raise LocalError("events.emit_soon: the server is not served now; await events.emit(...) where a loop runs")
        return asyncio.run_coroutine_threadsafe(self._send(*prepared), self._sites[0].loop)

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
        if timestamp is not None and not is_time(timestamp):
            raise LocalError(
                f"event {definition.name}: timestamp is in Unix seconds, such as time.time(), and not {timestamp!r:.100}"
            )
        found = KeptEvent(0, id, self._clock.now() if timestamp is None else timestamp, data)
        size = len(_encode(occurrence_of(definition.name, found, _CURSOR_ROOM)))
        if size > self.limits.event_size:
            raise LocalError(
                f"event {definition.name}: {size} bytes, and {self.limits.event_size} may be sent: name what a client is "
                "to read, by a tool or a resource"
            )
        return definition, found

    async def _send(self, definition: EventDefinition, event: KeptEvent) -> str:
        """Keep an event, and let it be delivered; return its id."""
        if await self._box().emit(definition.name, event, self._clock.now()):
            self._emitted += 1
            self._wake()
            self._notify(definition, event)
        return event.id

    def _notify(self, definition: EventDefinition, event: KeptEvent) -> None:
        """Notify the subscribers of the topic."""
        for site in self._sites[:1]:
            try:
                site.home.notify(model.EVENTS_TOPIC.name, definition.name, occurrence_of(definition.name, event))
            except LocalError as error:
                repeats.warning("event %s reaches no subscribers of the topic: %s", definition.name, error)

    # -- the extension

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that answer `events/*`, as the profile has them."""
        webhooks: dict[str, Callable[..., Any]] = {
            "events/list": self._list,
            "events/subscribe": self._webhooks.subscribe,
            "events/unsubscribe": self._webhooks.unsubscribe,
        }
        if self._profile == "chatgpt":
            return webhooks
        return webhooks | {"events/poll": self._poll, "events/stream": self._stream}

    def grant(self, topic: str, caller: Caller, value: Any) -> TopicGrant | None:
        """Return what a caller is granted of the topics: changes of the list, and the event types that it names, as far
        as it may follow all of their events."""
        if topic == model.LIST_TOPIC.name:
            return TopicGrant(True, frozenset({""})) if value is None or value is True else None
        names = list(self._by_name) if value is None else value if isinstance(value, list) else []
        identity = identity_of(caller)
        granted = [one for one in self._by_name if one in names and self._is_open(self._by_name[one], identity)]
        return TopicGrant(granted, frozenset(granted)) if granted else None

    def _is_open(self, definition: EventDefinition, identity: Identity | None) -> bool:
        """Return whether a caller may follow all events of a type."""
        try:
            return definition.refuses(identity, definition.arguments_of({}, self.limits.arguments_size)) is None
        except InvalidParams:  # it cannot be followed without arguments
            return False

    def open(self, home: ServerHome) -> AbstractAsyncContextManager[Any]:
        """Return the context in which events are delivered, on one event loop. Raises LocalError for a second
        server."""
        if any(one.home.surroundings is not home.surroundings for one in self._sites):
            raise LocalError("an Events is that of one server: make another one for this server, with the same store=")
        return self._serve(home)

    @asynccontextmanager
    async def _serve(self, home: ServerHome) -> AsyncIterator[None]:
        """Deliver while the server is served on this loop."""
        site, outbox = _Site(home), self._box()
        deliverer = Deliverer(
            outbox,
            self._by_name.get,
            self._sender,
            self._clock,
            limits=self.limits,
            keys=self._keys,
            codes=self._codes,
            retries=self._retries,
            measures=self._deliveries,
        )
        site.waiting.add(deliverer.woken)
        self._sites.append(site)
        tasks = [asyncio.create_task(deliverer.run()), asyncio.create_task(outbox.watch(site.wake_here))]
        try:
            yield
        finally:
            site.over = True
            site.wake_here()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._sites.remove(site)
            if not self._sites:
                await self.close()

    async def close(self) -> None:
        """Close the store, of which each use opens it again. It is closed when the server is served no more; a program
        that only emits closes it itself."""
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            await outbox.close()

    def _box(self) -> Outbox:
        if self._outbox is None:
            self._outbox = Outbox(self._store, self.limits)
        return self._outbox

    def measures(self) -> Mapping[str, float]:
        """Return the numbers of events, deliveries, failures and streams, for metrics."""
        numbers = self._deliveries
        return {
            "events_emitted_total": self._emitted,
            "event_deliveries_total": numbers.delivered,
            "event_delivery_failures_total": numbers.failed,
            "events_abandoned_total": numbers.abandoned,
            "event_streams": self._streams.total(),
        }

    def _wake(self) -> None:
        """Wake those who wait; any thread may call it."""
        for site in self._sites:
            site.wake()

    # -- reading

    def _site(self) -> _Site:
        loop = asyncio.get_running_loop()
        return next(one for one in self._sites if one.loop is loop)

    def _scan(self, definition: EventDefinition, arguments: EventArguments, after: int, most: int) -> _Batch:
        """Return events after a number."""
        outbox, limits = self._box(), self.limits
        state = outbox.state(definition.name)
        batch = _Batch([], max(after, state.gone), False, after < state.gone)
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

    @contextlib.contextmanager
    def _slot(self, caller: Caller) -> Iterator[asyncio.Event]:
        """Count a call that lasts, and yield what is set when something has changed. Raises RpcError for too many."""
        site, owner, limits = self._site(), caller.owner, self.limits
        for limit, count, most in (
            ("streams_each", self._streams[owner], limits.streams_each),
            ("streams", self._streams.total(), limits.streams),
        ):
            if count >= most:
                raise self._admission.exhausted(limit, most)
        changed = asyncio.Event()
        self._streams[owner] += 1
        site.waiting.add(changed)
        try:
            yield changed
        finally:
            site.waiting.discard(changed)
            self._streams[owner] -= 1
            if not self._streams[owner]:
                del self._streams[owner]

    # -- events/list, events/poll

    async def _list(self, params: PaginatedRequestParams, ctx: Context) -> ListEventsResult:
        identity = identity_of(ctx.caller)
        after = params.cursor if isinstance(params.cursor, str) else ""
        found = []
        for name in sorted(self._by_name):
            definition = self._by_name[name]
            modes = self._admission.modes(definition)
            if name > after and modes and definition.refuses(identity, None) is None:
                found.append(replace(definition.listed, delivery=list(modes)))
        page = found[:LISTED]
        return ListEventsResult(events=page, next_cursor=page[-1].name if len(found) > LISTED else UNSET)

    async def _poll(self, params: PollEventsParams, ctx: Context) -> PollEventsResult:
        definition = self._admission.find(params.name, "poll")
        arguments = self._admission.arguments(definition, params.arguments, identity_of(ctx.caller))
        number, truncated = self._admission.start(params.name, params.cursor, params.max_age_ms)
        most = self.limits.poll_events
        if isinstance(params.max_events, int):
            most = min(most, params.max_events)
        batch = self._scan(definition, arguments, number, most)
        if not (batch.events or truncated or batch.lost) and isinstance(params.timeout_ms, int) and params.timeout_ms:
            until = self._clock.now() + min(params.timeout_ms / 1000, self.limits.poll_wait)
            with self._slot(ctx.caller) as changed:
                batch = await self._wait_for_events(definition, arguments, batch, most, changed, until)
        return PollEventsResult(
            events=[occurrence_of(params.name, one) for one in batch.events],
            cursor=self._cursor(definition, batch.number),
            truncated=truncated or batch.lost,
            has_more=batch.more,
            next_poll_ms=int(self._poll_again * 1000),
        )

    async def _wait_for_events(
        self,
        definition: EventDefinition,
        arguments: EventArguments,
        batch: _Batch,
        most: int,
        changed: asyncio.Event,
        until: float,
    ) -> _Batch:
        """Return the events that come until then."""
        site = self._site()
        while not (batch.events or batch.lost or site.over) and (left := until - self._clock.now()) > 0:
            if not batch.more:
                await self._clock.wait(changed, left)
            changed.clear()
            batch = self._scan(definition, arguments, batch.number, most)
        return batch

    # -- events/stream

    async def _stream(self, params: StreamEventsParams, ctx: Context) -> EmptyResult:
        definition = self._admission.find(params.name, "push")
        arguments = self._admission.arguments(definition, params.arguments, identity_of(ctx.caller))
        number, truncated = self._admission.start(params.name, params.cursor, params.max_age_ms)
        with self._slot(ctx.caller) as changed:
            stream = _Stream(ctx)
            if not stream.say(
                model.ACTIVE, model.ActiveParams(cursor=self._cursor(definition, number), truncated=truncated)
            ):
                raise InternalError("events/stream: this wire carries nothing ahead of an answer")
            await self._follow(definition, arguments, number, stream, changed)
        return EmptyResult(meta=stream.meta)

    def _cursor(self, definition: EventDefinition, number: int) -> str:
        return self._box().cursor(definition.name, number)

    async def _follow(
        self,
        definition: EventDefinition,
        arguments: EventArguments,
        number: int,
        stream: _Stream,
        changed: asyncio.Event,
    ) -> None:
        """Send the events of a stream until the server is served no more, or the caller may not follow them."""
        site, beat = self._site(), self._clock.now()
        while not site.over:
            changed.clear()
            batch = self._scan(definition, arguments, number, self.limits.poll_events)
            if (batch.events or batch.more) and (why := definition.refuses(stream.identity, arguments)) is not None:
                error = model.ErrorObject(self._codes.forbidden, "Forbidden", why)
                await stream.send(model.TERMINATED, model.FailureParams(error=error))
                return
            if batch.lost:
                cursor = self._cursor(definition, self._box().state(definition.name).gone)
                await stream.send(model.ACTIVE, model.ActiveParams(cursor=cursor, truncated=True))
            for event in batch.events:
                cursor = self._cursor(definition, event.number)
                await stream.send(model.EVENT, occurrence_of(definition.name, event, cursor))
            now = self._clock.now()
            number, beat = batch.number, now if batch.events else beat
            if now - beat >= HEARTBEAT:
                await stream.send(model.HEARTBEAT, model.HeartbeatParams(cursor=self._cursor(definition, number)))
                beat = now
            if not batch.more:
                await self._clock.wait(changed, max(0.0, beat + HEARTBEAT - self._clock.now()))


class _Stream:
    """The messages of one `events/stream`."""

    def __init__(self, ctx: Context) -> None:
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID: ctx.rpc.id}
        self.identity: Identity | None = identity_of(ctx.caller)
        self._speak = ctx.rpc.speak

    def say(self, method: str, params: Any) -> bool:
        """Send a message; False if it was not accepted."""
        return self._speak(_encode(CallMessage(method, replace(params, meta=self.meta))), method)

    async def send(self, method: str, params: Any) -> None:
        """Send a message, as soon as the client reads so far: what comes after it waits in the outbox."""
        for pause in backoff(*_PAUSES):
            if self.say(method, params):
                return
            await asyncio.sleep(pause)


def _sealing_keys(keys: Sequence[str | bytes] | str | bytes | None, store: str) -> list[bytes]:
    """Return the keys that seal secrets in the store. Raises LocalError where they cannot be used, and for what is no
    store."""
    if keys is None and path_of(store) == IN_MEMORY:
        return []  # nothing of it outlives the process
    found = read_secrets(keys)
    seal(found, b"", "")  # the package for it may be missing
    return found
