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
from hmac import compare_digest
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ....access import identity_of
from ....buckets import Buckets
from ....channel import Caller, Identity
from ....jsonrpc.codec import CallMessage
from ....jsonrpc.errors import InternalError, InvalidParams, LocalError, RpcError
from ....jsonrpc.options import CALLABLE, NONE, SECONDS, TEXT, TEXTS, TIME, check, instance, many, one_of, strict
from ....kept_identity import keep_identity
from ....net.reconnect import backoff
from ....net.urls import Url
from ....repeats import Repeats
from ....secret import read_secrets
from ....store.database import IN_MEMORY, DatabaseFull
from ...protocol.extension import Extension
from ...protocol.params import EmptyResult, PaginatedRequestParams
from ...protocol.times import is_time, to_iso
from ...protocol.types import SUBSCRIPTION_ID
from ...server.context import Context
from ...server.extending.extension import ServerExtension, TopicGrant
from ...server.extending.home import ServerHome
from . import model
from .catalog import EventArguments, EventDefinition, EventOptions
from .clock import Clock
from .delivery import RETRIES, Deliverer, DeliveryMeasures, occurrence, status_of
from .limits import EventLimits
from .model import (
    CODES,
    EventCodes,
    EventOccurrence,
    ListEventsResult,
    Mode,
    PollEventsParams,
    PollEventsResult,
    Profile,
    StreamEventsParams,
    SubscribeEventsParams,
    SubscribeEventsResult,
    UnsubscribeEventsParams,
)
from .outbox import KeptEvent, Outbox, SubscriptionRecord, TooManySubscriptions, path_of
from .sealing import Unreadable, seal, unseal
from .sender import WebhookSender
from .signing import read_secret, sign_headers

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
        self._ttl = ttl
        self._poll_again = poll_again
        self._codes = codes
        self._sender = WebhookSender(limits, allow_private=allow_private, tls=tls, resolve=resolve)
        self._clock = clock
        self._by_name: dict[str, EventDefinition] = {}
        self._by_kind: dict[type, EventDefinition] = {}
        self._outbox: Outbox | None = None
        self._sites: list[_Site] = []
        self._streams: Counter[str] = Counter()
        self._verifying: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._challenges = Buckets(limits.verifications / 60, limits.verifications, 10_000)
        """By host."""
        self._challengers = Buckets(limits.verifications_each / 60, limits.verifications_each, 10_000)
        """By account."""
        self._emitted = 0
        self._deliveries = DeliveryMeasures()

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
        definition, data, id = self._prepare(event, id, timestamp)
        now = self._clock.now()
        stamp = now if timestamp is None else timestamp
        if await self._box().emit(definition.name, id, stamp, data, now):
            self._emitted += 1
            for site in self._sites:
                site.wake()
            self._notify(definition, id, stamp, data)
        return id

    def emit_soon(
        self, event: Struct, *, id: str | None = None, timestamp: float | None = None
    ) -> concurrent.futures.Future[str]:
        """Send an event as `emit` does, from any thread, while the server is served. Returns a future, whose `result()`
        a thread may wait for. Raises LocalError as `emit` does, and where the server is not served."""
        _, _, id = self._prepare(event, id, timestamp)
        if not self._sites:
            raise LocalError("events.emit_soon: the server is not served now; await events.emit(...) where a loop runs")
        loop = self._sites[0].loop
        return asyncio.run_coroutine_threadsafe(self.emit(event, id=id, timestamp=timestamp), loop)

    def _prepare(self, event: Struct, id: str | None, timestamp: float | None) -> tuple[EventDefinition, bytes, str]:
        """Return the type, the payload and the id of an event. Raises LocalError."""
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
        size = len(occurrence(definition.name, KeptEvent(0, id, 0.0, data), _CURSOR_ROOM))
        if size > self.limits.event_size:
            raise LocalError(
                f"event {definition.name}: {size} bytes, and {self.limits.event_size} may be sent: name what a client is "
                "to read, by a tool or a resource"
            )
        return definition, data, id

    def _notify(self, definition: EventDefinition, id: str, timestamp: float, data: bytes) -> None:
        """Notify the subscribers of the topic."""
        for site in self._sites[:1]:
            params = EventOccurrence(
                event_id=id, name=definition.name, timestamp=to_iso(timestamp), data=Raw(data), cursor=UNSET
            )
            try:
                site.home.notify(model.EVENTS_TOPIC.name, definition.name, params)
            except LocalError as error:
                repeats.warning("event %s reaches no subscribers of the topic: %s", definition.name, error)

    # -- the extension

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that answer `events/*`, as the profile has them."""
        webhooks: dict[str, Callable[..., Any]] = {
            "events/list": self._list,
            "events/subscribe": self._subscribe,
            "events/unsubscribe": self._unsubscribe,
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

    # -- what methods have in common

    def _definition(self, name: str, mode: Mode) -> EventDefinition:
        """Return an event type. Raises RpcError if there is none, or it is not delivered so."""
        definition = self._by_name.get(name)
        if definition is None:
            raise self._error(self._codes.not_found, f"NotFound: there is no event type {name!r:.100}", kind="event")
        if mode not in self._modes(definition):
            raise self._unsupported(mode)
        return definition

    def _modes(self, definition: EventDefinition) -> list[Mode]:
        return [one for one in definition.modes if self._profile != "chatgpt" or one == "webhook"]

    def _error(self, code: int, message: str, **data: Any) -> RpcError:
        return RpcError.of(code, message, data)

    def _unsupported(self, mode: str) -> RpcError:
        text = f"Unsupported: these events are not delivered by {mode!r:.40}"
        return self._error(self._codes.unsupported, text, feature="deliveryMode", value=mode[:40])

    def _check_access(self, definition: EventDefinition, identity: Identity | None, arguments: EventArguments) -> None:
        """Raise RpcError if this caller may not follow these events."""
        if (why := definition.refuses(identity, arguments)) is not None:
            raise self._error(
                self._codes.forbidden,
                f"Forbidden: this caller may not follow {definition.name} with these arguments",
                **why,
            )

    def _site(self) -> _Site:
        loop = asyncio.get_running_loop()
        return next(one for one in self._sites if one.loop is loop)

    def _start(self, name: str, cursor: model.Cursor, max_age: model.Milliseconds) -> tuple[int, bool]:
        """Return the number after which a client's events begin, and whether it has lost some."""
        outbox, state = self._box(), self._box().state(name)
        if cursor is None or isinstance(cursor, UnsetType):
            return state.head, False
        number = outbox.number_of(name, cursor)
        if number is None or number > state.head:
            return state.head, True
        start = max(number, state.gone)
        if max_age is not None and not isinstance(max_age, UnsetType):
            start = max(start, outbox.number_at(name, self._clock.now() - max_age / 1000))
        return start, start > number

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
                raise self._exhausted(limit, most)
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

    def _exhausted(self, limit: str, most: int) -> RpcError:
        text = f"ResourceExhausted: {limit}: {most} are allowed"
        return self._error(self._codes.exhausted, text, limit=limit, max=most)

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Raise RpcError for what the outbox has no room for."""
        try:
            yield
        except TooManySubscriptions as error:
            raise self._exhausted(error.limit, error.most) from None
        except DatabaseFull:
            repeats.error("events: the store is full: limit file_size allows no more", exc_info=True)
            raise self._exhausted("file_size", self.limits.file_size) from None

    # -- events/list, events/poll

    async def _list(self, params: PaginatedRequestParams, ctx: Context) -> ListEventsResult:
        identity = identity_of(ctx.caller)
        after = params.cursor if isinstance(params.cursor, str) else ""
        found = []
        for name in sorted(self._by_name):
            definition = self._by_name[name]
            modes = self._modes(definition)
            if name > after and modes and definition.refuses(identity, None) is None:
                found.append(replace(definition.listed, delivery=list(modes)))
        page = found[:LISTED]
        return ListEventsResult(events=page, next_cursor=page[-1].name if len(found) > LISTED else UNSET)

    async def _poll(self, params: PollEventsParams, ctx: Context) -> PollEventsResult:
        definition = self._definition(params.name, "poll")
        arguments = definition.arguments_of(params.arguments, self.limits.arguments_size)
        self._check_access(definition, identity_of(ctx.caller), arguments)
        number, truncated = self._start(params.name, params.cursor, params.max_age_ms)
        most = self.limits.poll_events
        if isinstance(params.max_events, int):
            most = min(most, params.max_events)
        batch = self._scan(definition, arguments, number, most)
        if not (batch.events or truncated or batch.lost) and isinstance(params.timeout_ms, int) and params.timeout_ms:
            until = self._clock.now() + min(params.timeout_ms / 1000, self.limits.poll_wait)
            with self._slot(ctx.caller) as changed:
                batch = await self._wait_for_events(definition, arguments, batch, most, changed, until)
        return PollEventsResult(
            events=[
                EventOccurrence(event_id=one.id, name=params.name, timestamp=to_iso(one.timestamp), data=Raw(one.data))
                for one in batch.events
            ],
            cursor=self._box().cursor(params.name, batch.number),
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
        definition = self._definition(params.name, "push")
        arguments = definition.arguments_of(params.arguments, self.limits.arguments_size)
        self._check_access(definition, identity_of(ctx.caller), arguments)
        number, truncated = self._start(params.name, params.cursor, params.max_age_ms)
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
                params = EventOccurrence(
                    event_id=event.id,
                    name=definition.name,
                    timestamp=to_iso(event.timestamp),
                    data=Raw(event.data),
                    cursor=self._cursor(definition, event.number),
                )
                await stream.send(model.EVENT, params)
            now = self._clock.now()
            number, beat = batch.number, now if batch.events else beat
            if now - beat >= HEARTBEAT:
                await stream.send(model.HEARTBEAT, model.HeartbeatParams(cursor=self._cursor(definition, number)))
                beat = now
            if not batch.more:
                await self._clock.wait(changed, max(0.0, beat + HEARTBEAT - self._clock.now()))

    # -- events/subscribe, events/unsubscribe

    async def _subscribe(self, params: SubscribeEventsParams, ctx: Context) -> SubscribeEventsResult:
        if params.delivery.mode != "webhook":
            raise self._unsupported(params.delivery.mode)
        definition = self._definition(params.name, "webhook")
        identity = self._subscriber(ctx.caller)
        arguments = definition.arguments_of(params.arguments, self.limits.arguments_size)
        self._check_access(definition, identity, arguments)
        secret = params.delivery.secret
        try:
            url = self._sender.read_url(params.delivery.url)
            read_secret(secret)  # type: ignore[arg-type]  # what is no text is no secret
        except LocalError as error:
            raise InvalidParams(f"Invalid params: {error}") from None
        assert isinstance(secret, str)
        principal = identity.principal
        id = model.subscription_id(principal, params.delivery.url, params.name, Raw(arguments.text))
        await self._admit(id, identity, params.delivery.url, url, secret)
        start = self._start(params.name, params.cursor, params.max_age_ms)
        record, before = await self._keep(params, ctx, definition, arguments, identity, url, id, start[0])
        for site in self._sites:
            site.wake()
        state = self._box().state(params.name)
        return SubscribeEventsResult(
            id=id,
            refresh_before=to_iso(record.expires),
            cursor=self._cursor(definition, record.position),
            truncated=start[1] if before is None else record.position < state.gone,
            delivery_status=UNSET if before is None else status_of(before),
        )

    def _subscriber(self, caller: Caller) -> Identity:
        """Return who subscribes. "Servers MUST reject calls without an authorized principal with `Forbidden`"."""
        identity = identity_of(caller)
        if identity is None:
            text = "Forbidden: a webhook belongs to a caller, and this one is anonymous: the server needs auth="
            raise self._error(self._codes.forbidden, text, error="access_denied")
        return identity

    async def _admit(self, id: str, identity: Identity, url_text: str, url: Url, secret: str) -> None:
        """Let a subscription be made or refreshed: there is room for it, and its receiver has proved itself."""
        outbox, now = self._box(), self._clock.now()
        if outbox.subscription(id) is None:
            with self._limited():
                outbox.check_room(identity.account, now)
        if outbox.is_verified(identity.principal, url_text, now):
            return
        key = identity.principal, url_text
        verifying = self._verifying.get(key)
        if verifying is None:
            if self._challengers.take(identity.account, now):
                raise self._exhausted("verifications_each", self.limits.verifications_each)
            if self._challenges.take(url.host.lower(), now):
                raise self._exhausted("verifications", self.limits.verifications)
            verifying = asyncio.create_task(self._verify(id, key, url, secret))
            self._verifying[key] = verifying
            verifying.add_done_callback(lambda _: self._verifying.pop(key, None))
        await asyncio.shield(verifying)

    async def _verify(self, id: str, key: tuple[str, str], url: Url, secret: str) -> None:
        """Ask a receiver for a challenge that is used once. Raises RpcError if it does not return it."""
        challenge = secrets.token_urlsafe(32)
        body = _encode(model.Verification(challenge))
        headers = sign_headers(secret, f"msg_verification_{secrets.token_hex(12)}", int(self._clock.now()), body)
        connection = self._sender.connect(url)
        try:
            outcome = await connection.post(body, headers | {model.SUBSCRIPTION_HEADER: id}, wants_body=True)
        finally:
            await connection.close()
        reason = outcome.reason
        if reason is None and not _repeats(outcome.body, challenge):
            reason = "challenge_failed"
        if reason is not None:
            text = f"CallbackEndpointError: the receiver of the webhook did not prove itself ({reason})"
            raise self._error(self._codes.callback, text, reason=reason)
        with self._limited():
            await self._box().keep_verified(*key, self._clock.now())

    async def _keep(
        self,
        params: SubscribeEventsParams,
        ctx: Context,
        definition: EventDefinition,
        arguments: EventArguments,
        identity: Identity,
        url: Url,
        id: str,
        start: int,
    ) -> tuple[SubscriptionRecord, SubscriptionRecord | None]:
        """Make or refresh a subscription; return it, and what it was before."""
        now, before = self._clock.now(), None
        secret = str(params.delivery.secret)
        access = definition.access
        allowing = access is not None and access.allow is not None  # only that looks at claims
        fresh = SubscriptionRecord(
            id=id,
            account=identity.account,
            principal=identity.principal,
            name=params.name,
            arguments=arguments.text,
            url=params.delivery.url,
            origin=f"{url.scheme}://{url.address.lower()}",
            declared=self._profile == "sep" or (self._profile == "both" and ctx.capabilities.declares(model.NAME)),
            secret=seal(self._keys, secret.encode(), id),
            identity=seal(self._keys, bytes(keep_identity(identity if allowing else replace(identity, claims={}))), id),
            expires=now + self._life(params.ttl_ms),
            position=start,
        )

        def edit(found: SubscriptionRecord | None) -> SubscriptionRecord:
            nonlocal before
            before = found if found is not None and found.expires > now else None
            return fresh if before is None else self._refreshed(before, fresh, secret, now)

        with self._limited():
            record = await self._box().put(id, identity.account, edit, now)
        assert record is not None
        return record, before

    def _refreshed(
        self, found: SubscriptionRecord, fresh: SubscriptionRecord, secret: str, now: float
    ) -> SubscriptionRecord:
        """Return a subscription that its client has refreshed."""
        try:
            same = compare_digest(unseal(self._keys, found.secret, found.id), secret.encode())
            old, until = (found.old_secret, found.old_until) if same else (found.secret, now + ROTATION)
        except Unreadable:
            old, until = b"", 0.0
        resumed = not found.active
        return replace(
            fresh,
            old_secret=old,
            old_until=until,
            position=found.position,
            attempts=0 if resumed else found.attempts,
            due=0.0 if resumed else found.due,
            delivered=found.delivered,
            failed=found.failed,
            error=found.error,
        )

    def _life(self, ttl: model.Milliseconds) -> float:
        """Return the seconds that a subscription lives: as long as its client wants, within the bounds."""
        wanted = self._ttl if isinstance(ttl, UnsetType) else self.limits.ttl_most if ttl is None else ttl / 1000
        return min(max(wanted, self.limits.ttl_least), self.limits.ttl_most)

    async def _unsubscribe(self, params: UnsubscribeEventsParams, ctx: Context) -> EmptyResult:
        identity = self._subscriber(ctx.caller)
        definition = self._by_name.get(params.name)
        if definition is None:
            raise self._error(self._codes.not_found, f"NotFound: no event type {params.name!r:.100}", kind="event")
        arguments = definition.arguments_of(params.arguments, self.limits.arguments_size)
        id = model.subscription_id(identity.principal, params.delivery.url, params.name, Raw(arguments.text))
        if not await self._box().remove(id) and (self._profile == "sep" or ctx.capabilities.declares(model.NAME)):
            raise self._error(self._codes.not_found, "NotFound: there is no such subscription", kind="subscription")
        return EmptyResult()


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


def _repeats(body: bytes, challenge: str) -> bool:
    """Return whether the answer of a receiver repeats the challenge."""
    try:
        answer = msgspec.json.decode(body, type=model.VerificationAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return compare_digest(answer.challenge.encode("utf-8", "surrogatepass"), challenge.encode())
