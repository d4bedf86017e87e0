"""MCP Events for a server (SEP-3415): `Server("shop", extensions=[Events()])`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ....access import identity_of
from ....channel import Caller, Identity
from ....events.board import EventCounts
from ....events.catalog import EventArguments, EventDefinition, EventOptions, Mode
from ....events.clock import Clock
from ....events.limits import EventLimits
from ....events.outbox import KeptEvent, Outbox, path_of
from ....events.publisher import EventBatch, EventPublisher, EventSite
from ....events.slow_readers import send_when_read
from ....jsonrpc.codec import CallMessage
from ....jsonrpc.errors import CallRefused, InternalError, InvalidParams, LocalError, Refusal
from ....jsonrpc.options import CALLABLE, NONE, SECONDS, TEXT, TEXTS, TIME, check, instance, many, one_of, strict
from ....repeats import Repeats
from ....secret import read_secrets
from ....store.contract import StoreLost
from ....store.database import IN_MEMORY
from ...protocol.extension import Extension
from ...protocol.params import EmptyResult, PaginatedRequestParams
from ...protocol.types import SUBSCRIPTION_ID
from ...server.context import Context
from ...server.extending.extension import ServerExtension, TopicGrant
from ...server.extending.home import ServerHome
from . import model
from .admission import Admission
from .board import OutboxBoard
from .delivery import RETRIES, Deliverer, DeliveryMeasures
from .model import (
    CODES,
    EventCodes,
    EventType,
    ListEventsResult,
    PollEventsParams,
    PollEventsResult,
    Profile,
    StreamEventsParams,
)
from .occurrences import occurrence_of
from .sealing import seal
from .sender import WebhookSender
from .webhooks import Webhooks

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)
E = TypeVar("E", bound=type[Struct])

HEARTBEAT: Final = 25.0
"""Seconds between two messages of a stream at most: "at least every 30 seconds"."""
POLL_AGAIN: Final = 10.0
"""Seconds after which a client may poll again."""
LISTED: Final = 100
"""Event types on a page."""
_encode = msgspec.json.Encoder().encode

_OPTIONS: Final = {
    "profile": one_of(*model.PROFILES),
    "store": TEXT,
    "forward": TEXT | many(TEXT),
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


class _Site(Struct, eq=False):
    """One event loop on which the server is served."""

    site: EventSite
    home: ServerHome
    board: OutboxBoard
    """The subscriptions of webhooks, for the operator."""


class Events(ServerExtension):
    """MCP Events, for `Server(extensions=[events])`: `events.event` registers an event type, `events.emit` sends one.

    `profile`: "sep", that of SEP-3415; "chatgpt", whose clients have webhooks alone and declare nothing; "both".
    `store`: `sqlite:PATH`, which the processes of one machine may share, or `memory:`, which ends with the serving.
    `forward`: URLs of brokers' topics to which each event is published, too.
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
        forward: str | Sequence[str] = (),
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
        publisher = EventPublisher(store=store, limits=limits, forward=forward, clock=clock)
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
        self.publisher: EventPublisher = publisher
        """The event types and events; `Service(events=events.publisher)` delivers them to peers, too."""
        self.limits: EventLimits = limits
        self._keys = _sealing_keys(keys, store)
        self._retries = tuple(retries)
        self._poll_again = poll_again
        self._codes = codes
        self._sender = WebhookSender(limits, allow_private=allow_private, tls=tls, resolve=resolve)
        self._clock = clock
        self._sites: list[_Site] = []
        publisher.registered.append(self._registered)
        publisher.emitted.append(self._notify)
        self._deliveries = DeliveryMeasures()
        self._admission = Admission(publisher, profile=profile, codes=codes)
        self._webhooks = Webhooks(
            publisher,
            self._admission,
            self._sender,
            profile=profile,
            codes=codes,
            keys=self._keys,
            ttl=ttl,
        )

    # -- event types and events

    @overload
    def event(self, kind: E, /) -> E: ...
    @overload
    def event(self, name: str | None = None, /, **options: Unpack[EventOptions]) -> Callable[[E], E]: ...
    def event(self, name: Any = None, /, **options: Any) -> Any:
        """Register a `msgspec.Struct` as an event type; see `EventPublisher.event`."""
        return self.publisher.event(name, **options)

    async def emit(self, event: Struct, *, id: str | None = None, timestamp: float | None = None) -> str:
        """Send an event to all who follow its type, and return its id, once it is kept; see `EventPublisher.emit`."""
        return await self.publisher.emit(event, id=id, timestamp=timestamp)

    def emit_soon(
        self, event: Struct, *, id: str | None = None, timestamp: float | None = None
    ) -> concurrent.futures.Future[str]:
        """Send an event as `emit` does, from any thread, while the server is served; see `EventPublisher.emit_soon`."""
        return self.publisher.emit_soon(event, id=id, timestamp=timestamp)

    async def close(self) -> None:
        """Close the store; see `EventPublisher.close`."""
        await self.publisher.close()

    def _registered(self, definition: EventDefinition) -> None:
        """Notify clients that there is another event type."""
        for one in self._sites[:1]:
            one.home.notify(model.LIST_TOPIC.name, "", {})

    def _notify(self, definition: EventDefinition, event: KeptEvent) -> None:
        """Notify the subscribers of the topic."""
        for one in self._sites[:1]:
            try:
                one.home.notify(model.EVENTS_TOPIC.name, definition.name, occurrence_of(definition.name, event))
            except LocalError as error:
                repeats.warning("event %s reaches no subscribers of the topic: %s", definition.name, error)

    # -- the extension

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that answer `events/*`, as the profile has them."""
        found: dict[str, Callable[..., Any]] = {
            "events/list": self._list,
            "events/subscribe": self._webhooks.subscribe,
            "events/unsubscribe": self._webhooks.unsubscribe,
        }
        if self._profile != "chatgpt":
            found |= {"events/poll": self._poll, "events/stream": self._stream}
        return {method: _busy_while_away(handler) for method, handler in found.items()}

    def grant(self, topic: str, caller: Caller, value: Any) -> TopicGrant | None:
        """Return what a caller is granted of the topics: changes of the list, and the event types that it names, as far
        as it may follow all of their events."""
        if topic == model.LIST_TOPIC.name:
            return TopicGrant(True, frozenset({""})) if value is None or value is True else None
        names = list(self.publisher.types) if value is None else value if isinstance(value, list) else []
        identity = identity_of(caller)
        granted = [
            one for one in self.publisher.types if one in names and self._is_open(self.publisher.types[one], identity)
        ]
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
        async with self.publisher.open() as site:
            deliverer = Deliverer(
                self._box(),
                self.publisher.types.get,
                self._sender,
                self._clock,
                limits=self.limits,
                keys=self._keys,
                codes=self._codes,
                retries=self._retries,
                measures=self._deliveries,
            )
            site.waiting.add(deliverer.woken)
            board = OutboxBoard(
                home.name,
                self._box(),
                deliverer,
                sender=self._sender,
                clock=self._clock,
                keys=self._keys,
                codes=self._codes,
                wake=self.publisher.wake,
                count=self._count,
            )
            one = _Site(site, home, board)
            self._sites.append(one)
            delivering = asyncio.create_task(deliverer.run())
            try:
                yield
            finally:
                site.over = True
                site.wake_here()
                delivering.cancel()
                await asyncio.wait([delivering])
                await board.close()
                self._sites.remove(one)

    def _box(self) -> Outbox:
        return self.publisher.box()

    def measures(self) -> Mapping[str, float]:
        """Return the numbers of events, deliveries, failures and streams, for metrics."""
        numbers = self._deliveries
        return {
            **self.publisher.measures(),
            "event_deliveries_total": numbers.delivered,
            "event_delivery_failures_total": numbers.failed,
            "events_abandoned_total": numbers.abandoned,
        }

    def _count(self) -> EventCounts:
        found, numbers = self.publisher.measures(), self._deliveries
        return EventCounts(
            emitted=int(found["events_emitted_total"]),
            delivered=numbers.delivered,
            failed=numbers.failed,
            abandoned=numbers.abandoned,
            streams=int(found["event_streams"]),
        )

    def boards(self) -> Sequence[OutboxBoard]:
        """Return the subscriptions of webhooks, for the operator."""
        loop = asyncio.get_running_loop()
        found = [one.board for one in self._sites if one.site.loop is loop]
        return sorted(found, key=lambda one: not one.leads)[:1]  # they have the same

    # -- what calls need

    def _site(self) -> EventSite:
        loop = asyncio.get_running_loop()
        return next(one.site for one in self._sites if one.site.loop is loop)

    @contextlib.contextmanager
    def _slot(self, caller: Caller) -> Iterator[asyncio.Event]:
        """Count a call that lasts, and yield what is set when something has changed. Raises RpcError for too many."""
        with self._admission.limited(), self.publisher.stream(self._site(), caller.owner) as changed:
            yield changed

    def _cursor(self, definition: EventDefinition, number: int) -> str:
        return self.publisher.cursor(definition, number)

    # -- events/list, events/poll

    async def _list(self, params: PaginatedRequestParams, ctx: Context) -> ListEventsResult:
        identity = identity_of(ctx.caller)
        after = params.cursor if isinstance(params.cursor, str) else ""
        found = []
        for name in sorted(self.publisher.types):
            definition = self.publisher.types[name]
            modes = self._admission.modes(definition)
            if name > after and modes and definition.refuses(identity, None) is None:
                found.append(_listed(definition, modes))
        page = found[:LISTED]
        return ListEventsResult(events=page, next_cursor=page[-1].name if len(found) > LISTED else UNSET)

    async def _poll(self, params: PollEventsParams, ctx: Context) -> PollEventsResult:
        definition = self._admission.find(params.name, "poll")
        arguments = self._admission.arguments(definition, params.arguments, identity_of(ctx.caller))
        number, truncated = self._admission.start(params.name, params.cursor, params.max_age_ms)
        most = self.limits.poll_events
        if isinstance(params.max_events, int):
            most = min(most, params.max_events)
        batch = self.publisher.scan(definition, arguments, number, most)
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
        batch: EventBatch,
        most: int,
        changed: asyncio.Event,
        until: float,
    ) -> EventBatch:
        """Return the events that come until then."""
        site = self._site()
        while not (batch.events or batch.lost or site.over) and (left := until - self._clock.now()) > 0:
            if batch.more:
                await asyncio.sleep(0)  # the events of others are not looked through at one go
            else:
                await self._clock.wait(changed, left)
            changed.clear()
            batch = self.publisher.scan(definition, arguments, batch.number, most)
        return batch

    # -- events/stream

    async def _stream(self, params: StreamEventsParams, ctx: Context) -> EmptyResult:
        definition = self._admission.find(params.name, "push")
        arguments = self._admission.arguments(definition, params.arguments, identity_of(ctx.caller))
        number, truncated = self._admission.start(params.name, params.cursor, params.max_age_ms)
        with self._slot(ctx.caller) as changed:
            stream = _Stream(ctx, functools.partial(definition.refuses, identity_of(ctx.caller), arguments))
            if not stream.say(
                model.ACTIVE, model.ActiveParams(cursor=self._cursor(definition, number), truncated=truncated)
            ):
                raise InternalError("events/stream: this wire carries nothing ahead of an answer")
            await self._follow(definition, arguments, number, stream, changed)
        return EmptyResult(meta=stream.meta)

    async def _follow(
        self,
        definition: EventDefinition,
        arguments: EventArguments,
        number: int,
        stream: _Stream,
        changed: asyncio.Event,
    ) -> None:
        """Send the events of a stream until the server is served no more, or the caller may not follow them."""
        following = self.publisher.follow(definition, arguments, number, self._site(), changed, HEARTBEAT)
        try:
            async for batch in following:
                if batch.lost:
                    cursor = self._cursor(definition, batch.gone)
                    await stream.send(model.ACTIVE, model.ActiveParams(cursor=cursor, truncated=True))
                for event in batch.events:
                    cursor = self._cursor(definition, event.number)
                    await stream.send(model.EVENT, occurrence_of(definition.name, event, cursor))
                if not (batch.events or batch.lost):
                    cursor = self._cursor(definition, batch.number)
                    await stream.send(model.HEARTBEAT, model.HeartbeatParams(cursor=cursor))
        except _Revoked as revoked:
            error = model.ErrorObject(self._codes.forbidden, "Forbidden", revoked.why)
            await stream.send(model.TERMINATED, model.FailureParams(error=error), last=True)


def _busy_while_away(handler: Callable[[Any, Context], Awaitable[Any]]) -> Callable[..., Any]:
    """Return the handler of a method that refuses calls as busy while the store cannot be read or written."""

    @functools.wraps(handler)
    async def answer(params: Any, ctx: Context) -> Any:
        try:
            return await handler(params, ctx)
        except StoreLost as error:
            repeats.error("events cannot be read or kept now: %s", error)
            text = "Busy: events cannot be read or kept now"
            raise CallRefused(Refusal("busy", text, {"retry_after": 1})) from None

    return answer


class _Revoked(Exception):
    """The caller of a stream may not follow its events any more. `why`: the data of the error."""

    def __init__(self, why: Mapping[str, Any]) -> None:
        self.why = why


class _Stream:
    """The messages of one `events/stream`. `refuses`: returns why its caller may not have them, None: it may."""

    def __init__(self, ctx: Context, refuses: Callable[[], Mapping[str, Any] | None]) -> None:
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID: ctx.rpc.id}
        self._refuses = refuses
        self._speak = ctx.rpc.speak

    def say(self, method: str, params: Any) -> bool:
        """Send a message; False if it was not accepted."""
        return self._speak(_encode(CallMessage(method, replace(params, meta=self.meta))), method)

    async def send(self, method: str, params: Any, *, last: bool = False) -> None:
        """Send a message, as soon as the client reads so far: what comes after it waits in the outbox. Raises _Revoked
        once the caller may not have it, unless it is the last, which says so."""

        def demand() -> None:
            if not last and (why := self._refuses()) is not None:
                raise _Revoked(why)

        await send_when_read(lambda: self.say(method, params), demand)


def _sealing_keys(keys: Sequence[str | bytes] | str | bytes | None, store: str) -> list[bytes]:
    """Return the keys that seal secrets in the store. Raises LocalError where they cannot be used, and for what is no
    store."""
    if keys is None and path_of(store) == IN_MEMORY:
        return []  # nothing of it outlives the process
    found = read_secrets(keys, lasting=True)
    seal(found, b"", "")  # the package for it may be missing
    return found


def _listed(definition: EventDefinition, modes: Sequence[Mode]) -> EventType:
    """Return an event type as lists have it."""
    return EventType(
        name=definition.name,
        description=definition.description or UNSET,
        delivery=list(modes),
        input_schema=dict(definition.input_schema),
        payload_schema=dict(definition.payload_schema),
    )
