"""MCP Events for a client: lists event types, listens to events, and subscribes webhooks to them.

events = EventsClient()
async with Client(url, extensions=[events]):
    async for event in events.listen("orders.shipped", {"carrier": "DHL"}):
        ...
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import UNSET, UnsetType

from ....jsonrpc.errors import LocalError
from ....jsonrpc.options import CALLABLE, TIME, check
from ...client.extending import ClientExtension, ExtensionFunction
from ...client.extension_client import ExtensionClient
from ...protocol.extension import Extension
from .client_home import MIN_POLL, ClientHome
from .listening import Listening, ListenMode
from .model import DECLARED, EventType
from .receiver import EventReceiver, Handle, OnEnd, OnGap
from .signing import new_secret
from .stream_call import SILENCE
from .subscribing import WebhookSubscription

_RULES: Final = {"min_poll": TIME, "silence": TIME, "clock": CALLABLE}


class EventsClient(ClientExtension):
    """The extension Events for one client. `min_poll`: seconds between two polls at least; `silence`: seconds without a
    message after which a stream is lost; `clock`: returns Unix seconds."""

    declares: Extension = DECLARED

    def __init__(
        self, *, min_poll: float = MIN_POLL, silence: float = SILENCE, clock: Callable[[], float] = time.time
    ) -> None:
        check("EventsClient", _RULES, locals())
        self._home = ClientHome(min_poll=min_poll, silence=silence, clock=clock)
        self._subscriptions: set[WebhookSubscription] = set()
        """Those that are refreshed."""

    # -- for the user

    async def list(self) -> list[EventType]:
        """Return all event types of the server, from all pages. Raises what `Client.request` raises; MethodNotFound
        from a server without events."""
        return await self._home.types()

    def listen(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        mode: ListenMode | None = None,
        cursor: str | None = None,
        max_age: float | None = None,
    ) -> Listening:
        """Listen to the events of a type that fit the arguments, from now on.

        `mode`: "push", by a stream, or "poll"; None: the better one that the server has. `cursor`: begin after this
        position. `max_age`: seconds of the oldest event that comes from there. It goes on after a lost connection; an
        event after others that were skipped is `truncated`.

            async with events.listen("orders.shipped") as shipped:
                async for event in shipped: ...
        """
        if mode not in (None, "push", "poll"):
            raise LocalError(f"listen: mode is 'push', 'poll' or None, not {mode!r:.40}; webhooks have subscribe")
        return Listening(self._home, name, arguments, mode, cursor, max_age)

    async def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        url: str,
        receiver: EventReceiver | None = None,
        handle: Handle | None = None,
        on_gap: OnGap | None = None,
        on_end: OnEnd | None = None,
        secret: str | None = None,
        ttl: float | UnsetType | None = UNSET,
        cursor: str | None = None,
        max_age: float | None = None,
    ) -> WebhookSubscription:
        """Let the server POST the events of a type that fit the arguments to `url`, which begins with "https:".

        `receiver`: what answers there; it accepts the subscription from now on, and gives its events to `handle`
        (default: the receiver's). Without one give the `secret`, for what answers there. `on_gap`, `on_end`: called
        when events were skipped, and when the server has ended the subscription. `secret`: default a new random one.
        `ttl`: seconds that it should live without a refresh (None: for ever; left out: as long as the server likes).
        `cursor`, `max_age`: as for `listen`.

        Raises what `Client.request` raises: an RpcError with `data.reason` where the server could not verify the URL.
        """
        if receiver is None and secret is None:
            raise LocalError("subscribe: give the receiver that answers at the URL, or the secret that it has")
        if receiver is None and handle is not None:
            raise LocalError("subscribe: handle needs a receiver, which gets the events")
        for other in self._subscriptions:
            if (other.name, other.url, other.arguments) == (name, url, dict(arguments or {})):
                raise LocalError(f"subscribe: there is this subscription to {name} already; servers make one of both")
        one = WebhookSubscription(
            self._home,
            self._subscriptions,
            name,
            arguments,
            url,
            secret=new_secret() if secret is None else secret,
            receiver=receiver,
            handle=handle,
            on_gap=on_gap,
            on_end=on_end,
            ttl=ttl,
            cursor=cursor,
            max_age=max_age,
        )
        await one.begin()
        return one

    # -- for the client

    @asynccontextmanager
    async def connected(self, client: ExtensionClient) -> AsyncIterator[None]:
        """See `ClientExtension.open`."""
        self._home.enter(client)
        try:
            yield
        finally:
            for one in tuple(self._subscriptions):
                one.leave()
            self._subscriptions.clear()
            await self._home.close()

    @property
    def heard(self) -> Mapping[str, ExtensionFunction]:
        """See `ClientExtension.heard`."""
        return self._home.streams.heard
