"""A webhook subscription as its client keeps it: refreshed before it ends, with a position, until it is unsubscribed.

Rules:

- It is refreshed within the second half of its life, at a random moment, so that many of them do not come at once.
- Every refresh gives the last position, so that a server that has lost the subscription goes on there.
- A refresh that fails is tried again, also after the subscription has ended: it makes a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import uniform
from types import TracebackType
from typing import Any, Final

from msgspec import UNSET, UnsetType

from ....channel import ChannelError
from ....jsonrpc.errors import BadAnswer, CallTimeout, LocalError, RpcError
from ....net.reconnect import backoff
from ....repeats import Repeats
from ...protocol.times import from_iso
from .client_home import ClientHome, pause_after
from .model import (
    CODES,
    SEP_CODES,
    Delivery,
    DeliveryStatus,
    SubscribeEventsParams,
    SubscribeEventsResult,
    UnsubscribeEventsParams,
)
from .received import ReceivedEnd, ReceivedEvent, ReceivedGap
from .receiver import EventReceiver, Handle, OnEnd, OnGap, Registration, run_handler
from .signing import new_secret, read_secret

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

REFRESH: Final = (0.5, 0.8)
"""The part of its life after which a subscription is refreshed, at random between these."""
MIN_REFRESH: Final = 5.0
"""Seconds between two refreshes at least, whatever the server grants, and however its clock goes."""
MAX_REFRESH: Final = 24 * 3600.0
"""Seconds between two refreshes at most, also of a subscription without an end: a refresh tells how its deliveries
went, and revives those that the server has given up."""
PAUSES: Final = (1.0, 60.0)
"""The first and the longest pause after a refresh that failed, in seconds."""
_LOST = (ChannelError, CallTimeout, BadAnswer)


class WebhookSubscription:
    """A subscription whose events (`name`, `arguments`) the server POSTs to a URL (`url`). Made by
    `EventsClient.subscribe`; an async context manager, which unsubscribes. `kept`: those that are refreshed.

    It is refreshed as long as the client is connected; without its client it ends when its time is over, unless it has
    no end."""

    def __init__(
        self,
        home: ClientHome,
        kept: set[WebhookSubscription],
        name: str,
        arguments: Mapping[str, Any] | None,
        url: str,
        *,
        secret: str,
        receiver: EventReceiver | None,
        handle: Handle | None,
        on_gap: OnGap | None,
        on_end: OnEnd | None,
        ttl: float | UnsetType | None,
        cursor: str | None,
        max_age: float | None,
    ) -> None:
        read_secret(secret)
        self.name: str = name
        self.arguments: Mapping[str, Any] = dict(arguments) if arguments is not None else {}
        self.url: str = url
        self.id: str = ""
        """Its id, which is in the header `X-MCP-Subscription-Id` of each delivery."""
        self.cursor: str | None = cursor
        """The position up to which everything was delivered: keep it, and give it to `subscribe` to go on there."""
        self.gaps = 0
        """How often events were skipped."""
        self.refresh_before: float | None = None
        """When it ends unless it is refreshed, in Unix seconds; None: never."""
        self.status: DeliveryStatus | None = None
        """How its deliveries went until the last refresh; None: the server does not say."""
        self.error: Exception | None = None
        """Why it has ended; None: it has not, or was unsubscribed."""
        self.ended: asyncio.Event = asyncio.Event()
        """Set when it has ended."""
        self._home = home
        self._kept = kept
        self._secret = secret
        self._ttl = ttl
        self._max_age = max_age
        self._user_gap = on_gap
        self._user_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._soon = asyncio.Event()
        """Set when a refresh is due before its time."""
        self._registration: Registration | None = None
        if receiver is not None:
            self._registration = receiver.begin(
                secret,
                handle=self._handler(receiver.handle if handle is None else handle),
                on_gap=self._gap,
                on_end=self._end,
            )
            self._user_gap = receiver.on_gap if on_gap is None else on_gap
            self._user_end = receiver.on_end if on_end is None else on_end

    def __repr__(self) -> str:
        return f"<WebhookSubscription {self.name} {self.id}>"

    async def __aenter__(self) -> WebhookSubscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.unsubscribe()

    # -- for the user

    async def refresh(self, *, secret: str | None = None) -> None:
        """Refresh it now. `secret`: a new one, in place of the one before; a receiver accepts both for a while. Raises
        what the call raises, LocalError for an invalid secret and for a subscription that has ended."""
        if self.ended.is_set():
            raise LocalError(f"the subscription to {self.name} has ended: subscribe again")
        if secret is not None:
            read_secret(secret)
            if self._registration is not None:
                self._registration.replace(secret)  # before the server has it: it signs by it at once
            self._secret = secret
        try:
            await self._call()
        except BaseException:
            self._soon.set()  # it is not known which secret the server has now
            raise

    async def replace_secret(self) -> None:
        """Replace its secret by a new random one. Raises what `refresh` raises."""
        await self.refresh(secret=new_secret())

    async def unsubscribe(self) -> None:
        """End it, at the server and here. Raises what the call raises; what has ended already is no error."""
        if self.ended.is_set():
            return
        self._stop(None)
        params = UnsubscribeEventsParams(
            name=self.name, arguments=dict(self.arguments), delivery=Delivery(url=self.url)
        )
        try:
            await self._home.client.request("events/unsubscribe", params)
        except RpcError as error:
            if error.code not in (CODES.not_found, SEP_CODES.not_found):
                raise

    # -- its life

    async def begin(self) -> None:
        """Make the subscription, and refresh it from now on. Raises what the call raises."""
        try:
            await self._call()
        except BaseException:
            self._stop(None)
            raise
        self._kept.add(self)
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def leave(self) -> None:
        """Refresh it no more: its client is closed."""
        if self._task is not None:
            self._task.cancel()

    async def _call(self) -> None:
        async with self._turn:
            ttl = self._ttl
            params = SubscribeEventsParams(
                name=self.name,
                arguments=dict(self.arguments),
                delivery=Delivery(url=self.url, secret=self._secret),
                cursor=self.cursor,
                max_age_ms=UNSET if self._max_age is None else round(self._max_age * 1000),
                ttl_ms=round(ttl * 1000) if isinstance(ttl, int | float) else ttl,
            )
            found = await self._home.client.request("events/subscribe", params)
        assert isinstance(found, SubscribeEventsResult)
        self._soon.clear()
        try:
            before = None if found.refresh_before is None else from_iso(found.refresh_before)
        except ValueError as error:
            raise BadAnswer(f"events/subscribe: refreshBefore is no time: {error}") from error
        if self._registration is not None and not self.ended.is_set():
            try:
                self._registration.bind(found.id)
            except LocalError as error:
                raise BadAnswer(f"events/subscribe: {error}") from error
            self._registration.confirm()
        self.id, self.refresh_before = found.id, before
        self.status = None if isinstance(found.delivery_status, UnsetType) else found.delivery_status
        if found.truncated and found.cursor is not None:
            self.gaps += 1
        if found.cursor is not None:
            self.cursor = found.cursor

    async def _keep(self) -> None:
        """Refresh it until it ends."""
        pauses, pause = backoff(*PAUSES), self._pause()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
            gaps = self.gaps
            try:
                await self._call()
            except (*_LOST, RpcError) as error:
                if (later := pause_after(error)) is None:
                    await self._over(error)
                    return
                repeats.warning("A subscription to events could not be refreshed, and is tried again: %s", error)
                self._soon.clear()
                pause = max(next(pauses), later)
            else:
                pauses, pause = backoff(*PAUSES), self._pause()
                if self.gaps > gaps:
                    await self._tell(self._user_gap, ReceivedGap(subscription=self.id, cursor=self.cursor))

    def _pause(self) -> float:
        """Return the seconds until the next refresh."""
        left = MAX_REFRESH if self.refresh_before is None else self.refresh_before - self._home.clock()
        if isinstance(self._ttl, int | float):
            left = min(left, self._ttl)  # the server's clock may be behind
        return min(max(left * uniform(*REFRESH), MIN_REFRESH), MAX_REFRESH)

    async def _over(self, error: Exception) -> None:
        """End it because the server refuses it."""
        self._stop(error)
        await self._tell(self._user_end, ReceivedEnd(subscription=self.id, error=error))

    async def _tell(self, function: OnGap | OnEnd | None, what: Any) -> None:
        """Call a function for what a refresh has shown; what it raises is logged."""
        try:
            await run_handler(function, what)
        except Exception:
            repeats.error("A function of a subscription to events failed", exc_info=True)

    def _stop(self, error: Exception | None) -> None:
        self.error = error
        self.ended.set()
        if self._registration is not None:
            self._registration.end()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._kept.discard(self)

    # -- what its receiver gets

    def _handler(self, handle: Handle | None) -> Callable[[ReceivedEvent], Any]:
        async def take(event: ReceivedEvent) -> None:
            await run_handler(handle, event)
            if event.cursor is not None:
                self.cursor = event.cursor

        return take

    async def _gap(self, gap: ReceivedGap) -> None:
        await run_handler(self._user_gap, gap)
        self.gaps += 1
        if gap.cursor is not None:
            self.cursor = gap.cursor

    async def _end(self, end: ReceivedEnd) -> None:
        await run_handler(self._user_end, end)
        self._stop(end.error)
