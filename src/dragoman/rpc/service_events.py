"""The events of a service: peers subscribe to the event types of a publisher (docs/events.md).

Rules:

- A subscription is a call that lasts (`Method.stream`): it ends with its channel, when it is cancelled, and when the
  server drains; it does not count among the calls in flight.
- It is a position among the events of its type. An event is read from the outbox when the one before it was taken by
  the channel, so a slow reader holds no memory, and is told when it has lost some.
- Whether the caller may follow the type is asked each time that a message is sent; if not, the call fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from ..access import identity_of
from ..channel import Caller
from ..events.catalog import EventArguments, EventDefinition
from ..events.messages import EVENT, EventMessage, message_of
from ..events.outbox import KeptEvent
from ..events.publisher import EventPublisher, EventSite, TooManyStreams
from ..events.slow_readers import send_when_read
from ..jsonrpc.codec import CallMessage
from ..jsonrpc.errors import CallRefused, InvalidParams, InvalidRequest, LocalError, Refusal
from .binding.binding import bind
from .context import Context
from .event_messages import ACTIVE, HEARTBEAT, LIST, SUBSCRIBE, ActiveMessage, ListedEvent, Seconds, SubscriptionId
from .method import Method

_encode = msgspec.json.Encoder().encode


class ServiceEvents:
    """The events of one service."""

    def __init__(self, publisher: EventPublisher) -> None:
        self.publisher: EventPublisher = publisher
        """The event types and events."""
        self._sites: dict[asyncio.AbstractEventLoop, EventSite] = {}
        subscribe = Method(SUBSCRIBE, bind(self._subscribe, context_type=Context), "async", timeout=None, stream=True)
        self.methods: tuple[Method, ...] = (subscribe, Method(LIST, bind(self._list, context_type=Context), "async"))
        """`events.subscribe` and `events.list`."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Deliver events while the service is served on this loop."""
        loop = asyncio.get_running_loop()
        async with self.publisher.open() as site:
            self._sites[loop] = site
            try:
                yield
            finally:
                del self._sites[loop]

    async def _list(self, context: Context[Any]) -> list[ListedEvent]:
        """Return the event types that this caller may subscribe to."""
        return [
            ListedEvent(
                name=one.name,
                description=one.description,
                arguments=dict(one.input_schema),
                data=dict(one.payload_schema),
            )
            for one in self.publisher.types.values()
            if "push" in one.modes and one.refuses(identity_of(context.caller), None) is None
        ]

    async def _subscribe(
        self,
        name: str,
        subscription: SubscriptionId,
        context: Context[Any],
        arguments: dict[str, Any] | None = None,
        cursor: str | None = None,
        max_age: Seconds | None = None,
    ) -> None:
        """Send the events of a type as notifications `events.event`, until this call is cancelled or the connection
        ends.

        Args:
            name: The event type.
            arguments: The values by which its events are chosen.
            cursor: The position after which they begin, from a notification before; by default now.
            max_age: Seconds; older events are not sent.
        """
        publisher, caller = self.publisher, context.caller
        if context.peer is None:  # nothing would tell that the caller has gone
            raise InvalidRequest(
                f"Invalid Request: {SUBSCRIBE} needs a connection in both directions, such as TCP or WebSocket"
            )
        definition = publisher.types.get(name)
        if definition is None or "push" not in definition.modes or not _shown(definition, caller):
            raise InvalidParams(f"Invalid params: there is no event type {name!r:.100}: see {LIST}")
        chosen = definition.arguments_of(arguments, publisher.limits.arguments_size)
        _demand(definition, caller, chosen)
        number, truncated = publisher.start(name, cursor, max_age)
        site = self._sites[asyncio.get_running_loop()]
        try:
            with publisher.stream(site, caller.owner) as changed:
                stream = _Stream(context, definition, chosen, subscription, lambda at: publisher.cursor(definition, at))
                await stream.send(ACTIVE, stream.active(number, truncated))
                await self._follow(definition, chosen, number, stream, site, changed)
        except TooManyStreams as error:
            data = {"limit": error.limit, "allowed": error.most, "retry_after": 1}
            raise CallRefused(Refusal("busy", f"Busy: {error.most} subscriptions are allowed", data)) from None

    async def _follow(
        self,
        definition: EventDefinition,
        arguments: EventArguments,
        number: int,
        stream: _Stream,
        site: EventSite,
        changed: asyncio.Event,
    ) -> None:
        """Send events until the service is served no more. Raises CallRefused once the caller may not follow them."""
        async for batch in self.publisher.follow(definition, arguments, number, site, changed, HEARTBEAT):
            if batch.lost:
                await stream.send(ACTIVE, stream.active(batch.gone, True))
            for event in batch.events:
                await stream.send(EVENT, stream.event(event))
            if not (batch.events or batch.lost):
                await stream.send(ACTIVE, stream.active(batch.number, False))


class _Stream:
    """The notifications of one subscription. `cursor`: returns that of a number."""

    def __init__(
        self,
        context: Context[Any],
        definition: EventDefinition,
        arguments: EventArguments,
        id: str,
        cursor: Callable[[int], str],
    ) -> None:
        self._context = context
        self._definition = definition
        self._arguments = arguments
        self._id = id
        self._cursor = cursor

    def active(self, number: int, truncated: bool) -> ActiveMessage:
        """Return the notification that it lives."""
        return ActiveMessage(subscription=self._id, cursor=self._cursor(number), truncated=truncated)

    def event(self, event: KeptEvent) -> EventMessage:
        """Return the notification of an event."""
        return message_of(self._definition.name, event, self._cursor(event.number), self._id)

    def say(self, method: str, params: Struct) -> bool:
        """Send a notification; False if it was not taken."""
        return self._context.speak(_encode(CallMessage(method, params)), method)

    async def send(self, method: str, params: Struct) -> None:
        """Send a notification as soon as the peer reads so far: what comes after it waits in the outbox. Raises
        CallRefused once the caller may not follow the events."""
        await send_when_read(
            lambda: self.say(method, params),
            lambda: _demand(self._definition, self._context.caller, self._arguments),
        )


def _shown(definition: EventDefinition, caller: Caller) -> bool:
    return definition.access is None or definition.access.shown(caller)


def _demand(definition: EventDefinition, caller: Caller, arguments: EventArguments) -> None:
    """Raise CallRefused, "forbidden", unless this caller may follow these events."""
    refusal = definition.refusal(caller, arguments)
    if refusal is not None:
        raise CallRefused(refusal)


def add_events(service: Any, publisher: Any) -> None:
    """Let peers of a service subscribe to the events of a publisher. Raises LocalError for what is none."""
    if not isinstance(publisher, EventPublisher):
        raise LocalError(
            f"{service.name}: events is an EventPublisher (the `publisher` of an Events of MCP), not {publisher!r:.100}"
        )
    events = ServiceEvents(publisher)
    service._events = events
    service._put(*events.methods)
    service._make_lifespan().add_last("events", events.open)
