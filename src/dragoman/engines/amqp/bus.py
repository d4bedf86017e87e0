"""RabbitMQ as a bus: one direct exchange, a topic is a routing key, and every bus has a queue of its own that is
deleted with its channel. The broker does not report that bindings were deleted with the exchange, so each bus sends
itself a message from time to time. RabbitMQ stores no values, so the bus has no store: state that needs one (sessions
of MCP's stateful revisions) cannot be shared over it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from ...bus.contract import BusLost, EngineBus, Store, Subscription
from ...bus.topics import Topics
from ...net.sockets import in_words
from ...net.urls import Url, parse, read_query
from .connection import AmqpConnection, Unrouted

log: logging.Logger = logging.getLogger("dragoman.wire")

EXCHANGE = "dragoman.bus"
LOOK = 5.0
"""Seconds between two messages to itself, by which a bus knows that the exchange still has its queue."""


class AmqpBus(EngineBus):
    """A `Bus` over RabbitMQ."""

    def __init__(self, where: Url, connection: AmqpConnection) -> None:
        super().__init__(f"{where.scheme}://{where.address}{where.path.rstrip('/')}", "RabbitMQ")
        self.store: Store | None = None
        self._connection = connection
        self._queue = ""
        self._topics = Topics(self._unbind)
        self._count = 0
        self._checking: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connect. Raises BusLost."""
        self._connection.renew = self._renew
        self._connection.keeper.states.append(self.change_state)
        try:
            await self._connection.begin()
        except OSError as why:
            raise BusLost(f"{self.url}: {in_words(why)}") from None
        self.alive = True
        self._checking = asyncio.create_task(self._check_binding())

    async def publish(self, topic: str, message: bytes) -> None:
        self._check_alive()
        self._count += 1
        try:
            await self._connection.publish(EXCHANGE, topic, message, name=str(self._count), persistent=False)
        except ConnectionError as why:
            raise BusLost(f"{self.url}: {why}") from None
        self.published += 1

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        self._check_alive()
        one = self._topics.add(topic, self.counted(take))
        try:
            await self._connection.bind(self._queue, EXCHANGE, topic)  # no effect if the binding exists
        except BaseException as why:  # cancelled, too: it would be bound again with the others after an outage
            await one.close()
            if isinstance(why, ConnectionError):
                raise BusLost(f"{self.url}: {why}") from None
            raise
        return one

    async def _unbind(self, topic: str) -> None:
        if self.alive:
            try:
                await self._connection.unbind(self._queue, EXCHANGE, topic)
            except ConnectionError as why:
                log.debug("%s: %s", self.url, why)

    async def close(self) -> None:
        self.alive, self.on_state = False, None
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        await self._connection.close()

    def _check_alive(self) -> None:
        if not self.alive:
            raise BusLost(f"{self.url}: not connected")

    async def _renew(self) -> None:
        connection = self._connection
        await connection.exchange(EXCHANGE, "direct")
        self._queue = await connection.queue("", own=True)
        for topic in (self._queue, *self._topics):
            await connection.bind(self._queue, EXCHANGE, topic)
        await connection.consume(self._queue, self._take, free=True)

    async def _check_binding(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            if not self.alive:
                continue
            self._count += 1
            try:
                await self._connection.publish(
                    EXCHANGE, self._queue, b"", name=str(self._count), persistent=False, mandatory=True
                )
            except Unrouted:
                self._connection.give_up(f"the exchange {EXCHANGE} has lost this bus's queue")
            except ConnectionError as why:
                log.debug("%s: %s", self.url, why)

    def _take(self, message: Any) -> None:
        self._topics.deliver(message.delivery.routing_key, message.body)


async def open(url: str, tls: ssl.SSLContext | None = None) -> AmqpBus:
    """Open the bus at `amqp://user:password@host/vhost`. Raises BusLost, LocalError."""
    where = parse(url)
    read_query(where, "heartbeat")
    bus = AmqpBus(where, AmqpConnection(where, vhost=where.path.strip("/"), role="bus", tls=tls))
    await bus.begin()
    return bus
