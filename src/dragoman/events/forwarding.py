"""Forwards events to the topics of brokers, each as the notification `events.event` of JSON-RPC (`messages`).

Rules:

- Each topic has a position of its own among the events of each type. An event is sent when the one before it of its
  type was confirmed by the broker, and positions are written afterwards: at least once, and in order.
- Of the processes that share a store one forwards to a topic: the one that has its lease.
- What is not confirmed stays in the outbox, whose bounds are the bounds of what waits for a broker that is away. An
  event that is longer than the broker takes is skipped.
- A topic that fails is tried again by itself, after pauses; webhooks, streams and other topics do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from ..channel import Channel, ChannelError, Dial, Options
from ..jsonrpc.codec import CallMessage
from ..jsonrpc.errors import LocalError
from ..jsonrpc.limits import CLIENT
from ..net.reconnect import backoff
from ..net.scheme import SCHEMES, load, without_tls
from ..net.urls import mask_url, parse, scheme_of
from ..repeats import Repeats
from ..store.contract import StoreLost
from ..store.database import DatabaseFull
from .clock import Clock
from .messages import EVENT, message_of
from .outbox import LEASE, PAGE, Outbox

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

BROKERS: Final = frozenset({"amqp", "mqtt", "nats", "redis", "memory+broker"})
"""The schemes of URLs to which events are forwarded: what confirms each message."""
PAUSES: Final = (0.25, 30.0)
"""The first and the longest pause, in seconds, before a topic that failed is tried again."""
TOPICS: Final = 16
"""Topics of one publisher: each has a connection of its own."""
PATIENCE: Final = 2.0
"""Seconds for which a connection is closed at the end."""
_encode = msgspec.json.Encoder().encode


class ForwardMeasures(Struct):
    """Numbers for metrics, of all topics. `waiting`: events that are not confirmed, by topic that is led here."""

    forwarded: int = 0
    failed: int = 0
    skipped: int = 0
    waiting: dict[str, int] = msgspec.field(default_factory=dict)


def topics_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the URLs of topics. Raises LocalError for what is none, and for too many."""
    found = (given,) if isinstance(given, str) else tuple(given)
    for url in found:
        if without_tls(scheme_of(url)) not in BROKERS:
            raise LocalError(
                f"forward: {mask_url(url)!r:.100} is no topic of a broker: its URL begins with amqp:, mqtt:, nats: or "
                "redis:, as mqtt://127.0.0.1/events"
            )
        parse(url)
    if len(found) > TOPICS or len({parse(one).bare for one in found}) != len(found):
        raise LocalError(f"forward: {len(found)} topics, of which {TOPICS} are allowed, each once")
    return found


class Forwarder:
    """Forwards the events of an outbox to one topic. `url`: of the topic; `measures`: are counted in."""

    def __init__(self, outbox: Outbox, url: str, clock: Clock, measures: ForwardMeasures) -> None:
        self._outbox = outbox
        self._url = url
        self._topic = parse(url).bare
        self._clock = clock
        self._measures = measures
        self._owner = os.urandom(16).hex()
        self.woken: asyncio.Event = asyncio.Event()
        """Set it when something was emitted."""
        self._channel: Channel | None = None

    def __repr__(self) -> str:
        return f"<Forwarder to {self._topic}>"

    async def run(self) -> None:
        """Forward until this is cancelled."""
        working: asyncio.Task[None] | None = None
        try:
            while True:
                leads = False
                with contextlib.suppress(StoreLost, DatabaseFull):  # those who deliver report that
                    leads = await self._outbox.lead(f"forward {self._topic}", self._owner, self._clock.now())
                if leads and working is None:
                    working = asyncio.create_task(self._work())
                elif not leads and working is not None:
                    logger.warning("events: another process forwards to %s from now on", self._topic)
                    await self._stop(working)
                    working = None
                await self._clock.wait(asyncio.Event(), LEASE / 3)
        finally:
            await asyncio.shield(self._end(working))

    async def _end(self, working: asyncio.Task[None] | None) -> None:
        if working is not None:
            await self._stop(working)
        with contextlib.suppress(StoreLost, DatabaseFull):
            await self._outbox.give_up(f"forward {self._topic}", self._owner)

    async def _stop(self, working: asyncio.Task[None]) -> None:
        working.cancel()
        await asyncio.wait([working])
        self._measures.waiting.pop(self._topic, None)

    async def _work(self) -> None:
        """Forward what there is, again and again; try again after each failure."""
        pauses = backoff(*PAUSES)
        try:
            while True:
                try:
                    if self._channel is None:
                        self._channel = await self._dial()
                    self.woken.clear()
                    if await self._forward(self._channel):
                        pauses = backoff(*PAUSES)
                    else:
                        await self._clock.wait(self.woken, None)
                    continue
                except (ChannelError, OSError) as error:
                    self._measures.failed += 1
                    repeats.warning("events wait for %s, which does not take them: %s", self._topic, error)
                except (StoreLost, DatabaseFull):
                    repeats.error("events are not forwarded to %s now: their store fails", self._topic, exc_info=True)
                except Exception:
                    self._measures.failed += 1
                    logger.exception("events are not forwarded to %s for a moment", self._topic)
                await self._hang_up()
                await asyncio.sleep(next(pauses))
        finally:
            await self._hang_up()

    async def _dial(self) -> Channel:
        scheme = scheme_of(self._url)
        dial = cast("Dial", load(scheme, SCHEMES[scheme].dial))
        channel = await dial(self._url, Options(limits=CLIENT))
        channel.open(_Nobody())
        return channel

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(ChannelError, OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await channel.close()

    async def _forward(self, channel: Channel) -> bool:
        """Forward the next events of each type; return whether there were some."""
        positions = await self._outbox.forwarded(self._topic)
        heads = self._outbox.heads()
        behind = {name: head for name, head in heads.items() if head > positions.get(name, 0)}
        self._measures.waiting[self._topic] = sum(head - positions.get(name, 0) for name, head in behind.items())
        for name in behind:
            await self._forward_type(channel, name, positions.get(name, 0))
        return bool(behind)

    async def _forward_type(self, channel: Channel, name: str, position: int) -> None:
        """Forward the next events of a type, and write the position after those that were confirmed."""
        reached = gone = max(position, self._outbox.state(name).gone)
        if gone > position:
            self._measures.skipped += gone - position
            logger.warning("events %s: %s has lost %d, which are not kept any more", name, self._topic, gone - position)
        try:
            for event in self._outbox.read(name, reached, PAGE):
                try:
                    channel.send(_encode(CallMessage(EVENT, message_of(name, event))))
                except LocalError as error:
                    self._measures.skipped += 1
                    logger.error("events %s: %s is not forwarded to %s: %s", name, event.id, self._topic, error)
                else:
                    await channel.flush()
                    self._measures.forwarded += 1
                    self._measures.waiting[self._topic] -= 1
                reached = event.number
        finally:
            if reached > position:
                await asyncio.shield(self._outbox.keep_forwarded(self._topic, name, reached))


class _Nobody:
    """The receiver of a channel from which nothing is expected."""

    def received(self, message: bytes, call: Any = None) -> None:
        """Ignore it: a notification has no answer."""

    def refused(self, malformed: Any) -> None:
        """Ignore it."""

    def resumed(self) -> None:
        """Ignore it: `flush` waits."""

    def finished(self) -> None:
        """Ignore it."""

    def ended(self, why: ChannelError) -> None:
        """Ignore it: the next `send` raises."""
