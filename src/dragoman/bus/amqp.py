"""RabbitMQ: the one file that knows its library, for the wire (`transports.amqp`) and as a bus.

A `Line` is one AMQP 0-9-1 connection with one channel that comes back: when it is lost it dials again, with growing,
jittered pauses of two seconds at most, and calls `renew` before it says that it is back. The library is aiormq, the
lower half of aio-pika, whose upper half (its own way to come back, its objects for queues) is of no use here.

As a bus: one direct exchange, a topic is a routing key, every bus hears on a queue of its own that goes with its
connection. RabbitMQ keeps no values, so the bus has no store: what needs one (sessions of MCP's stateful
revisions) cannot be shared over it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiormq
from aiormq import spec

from ..transports.broker import YOUNG, asked, credentials, number
from ..transports.broker_life import Asides, Trouble, pauses
from ..transports.sockets import in_words
from ..transports.urls import Url, parse, printable
from . import BusLost, Store, Subscription
from .topics import Topics

log = logging.getLogger("dragoman.wire")

PAUSES = (0.1, 2.0)
"""The first and the longest pause between two tries to connect."""
PATIENCE = 10.0
"""Seconds for dialling, for an answer, and for leaving in good order."""
HEARTBEAT = 10
"""Seconds of silence after which a connection is given up (`?heartbeat=`)."""
EXCHANGE = "dragoman.bus"

# the library logs as an error what it raises as well, at every try
logging.getLogger("aiormq.connection").addFilter(
    lambda record: not str(record.msg).startswith("error when creating transport")
)


class Returned(ConnectionError):
    """The broker has no queue for a message that said it must have one."""


class Turned(ConnectionError):
    """The broker refused a message: the queue that it was for is full."""


class Closed(ConnectionError):
    """The line was closed here, or is away just now."""


class Silent(ConnectionError):
    """The broker is there and does not answer what it was asked."""


def _faults(fault: BaseException) -> str:
    """Why, for people."""
    if isinstance(fault, aiormq.exceptions.ConnectionNotAllowed | aiormq.exceptions.AuthenticationError):
        return printable(str(fault))
    if isinstance(fault, aiormq.exceptions.AMQPError):
        return printable(str(fault) or type(fault).__name__)
    return in_words(fault)


async def client(where: Url, *, vhost: str, tls: Any = None, heartbeat: int = HEARTBEAT) -> Any:
    """A connection of the library. Raises ConnectionError, in words."""
    user, password = credentials(where) or ("guest", "guest")
    host = f"[{where.host}]" if ":" in where.host else where.host or "localhost"
    query = urlencode({"heartbeat": heartbeat, "name": "dragoman"})
    path = "" if vhost in ("", "/") else f"/{quote(vhost, safe='')}"
    url = f"{where.scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{host}:{where.port}{path}?{query}"
    if where.scheme == "amqps" and tls is None:
        tls = ssl.create_default_context()
    try:
        async with asyncio.timeout(PATIENCE):
            return await aiormq.connect(url, context=tls)
    except (aiormq.exceptions.AMQPError, OSError, EOFError) as fault:
        raise ConnectionError(_faults(fault)) from None


class Line:
    """See the module. `renew(line)` is awaited after every connecting; what it raises counts as a failed try."""

    def __init__(self, where: Url, *, vhost: str, tls: Any = None) -> None:
        self.where = where
        self.alive = False
        self.channel: Any = None
        self.renew: Callable[[], Awaitable[None]] | None = None
        self.on_state: Callable[[bool, str], None] | None = None
        self.heartbeat = number(where, "heartbeat", HEARTBEAT)
        self._vhost = vhost
        self._tls = tls
        self._connection: Any = None
        self._keeper: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[str] | None = None
        self._leaving = Asides(where.shown)
        self._acks: list[tuple[int, str]] = []
        self._acker: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[Any]] = set()
        self._dropped: set[asyncio.Task[Any]] = set()
        self._patience = PATIENCE
        self.prefetch = 0
        self._back: float | None = None
        self._heard = False

    @property
    def young(self) -> bool:
        """Whether it came back less than `YOUNG` seconds ago."""
        return self._back is not None and asyncio.get_running_loop().time() - self._back < YOUNG

    async def begin(self) -> None:
        """Connect for the first time, and stay connected from now on. Raises ConnectionError."""
        await self._connect()
        self._keeper = asyncio.create_task(self._keep())

    # -- what is sent -----------------------------------------------------------------------------

    async def publish(
        self,
        exchange: str,
        key: str,
        body: bytes,
        *,
        name: str,
        reply_to: str = "",
        correlation: str = "",
        headers: Mapping[str, str] | None = None,
        persistent: bool = True,
        mandatory: bool = False,
    ) -> None:
        """Send, and wait until the broker has it. `name`: unique among what is under way. Raises Returned, Turned,
        and ConnectionError when the line is lost meanwhile."""
        channel = self.channel
        task = asyncio.current_task()
        if channel is None or task is None:
            raise Closed("RabbitMQ is away")
        properties = spec.Basic.Properties(
            content_type="application/json",
            delivery_mode=2 if persistent else 1,
            message_id=name,
            reply_to=reply_to or None,
            correlation_id=correlation or None,
            headers=cast("dict[str, Any]", headers) or None,
        )
        self._publishing.add(task)
        try:
            await channel.basic_publish(
                body, exchange=exchange, routing_key=key, properties=properties, mandatory=mandatory, wait=False
            )
        except aiormq.exceptions.PublishError:
            raise Returned(f"no queue {printable(key)!r}") from None
        except aiormq.exceptions.DeliveryError:
            raise Turned("the queue is full") from None
        except asyncio.CancelledError:
            if task in self._dropped:
                task.uncancel()
            if task.cancelling():
                raise
            raise Closed("RabbitMQ was lost") from None  # the library ends what waits so
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError) as fault:
            raise ConnectionError(_faults(fault)) from None
        else:
            self._heard = True
        finally:
            self._publishing.discard(task)
            self._dropped.discard(task)

    def settle(self, channel: Any, tag: int, how: str) -> None:
        """Acknowledge ("ack"), give back ("requeue") or set aside ("dead") a delivery. What came over a connection that
        is gone needs none: the broker gives it to somebody again."""
        if channel is not self.channel:
            return
        self._acks.append((tag, how))
        if self._acker is None:
            self._acker = asyncio.get_running_loop().create_task(self._acknowledge(channel))

    async def _acknowledge(self, channel: Any) -> None:
        try:
            while self._acks and channel is self.channel:
                acks, self._acks = self._acks, []
                for tag, how in acks:
                    if how == "ack":
                        await channel.basic_ack(tag, wait=False)
                    else:
                        await channel.basic_reject(tag, requeue=how == "requeue", wait=False)
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError) as fault:
            log.debug("an acknowledgement could not be sent: %s", _faults(fault))
        finally:
            if self._acker is asyncio.current_task():
                self._acker = None

    # -- what is made -----------------------------------------------------------------------------

    async def queue(self, name: str, arguments: Mapping[str, Any] | None = None, *, own: bool = False) -> str:
        """Declare a durable queue, or one of our own that goes with the connection (`name` "" gets one). Raises
        ConnectionError, in words, where one of that name is otherwise."""
        declared = await self._asked(
            self.channel.queue_declare(
                name, durable=not own, exclusive=own, auto_delete=own, arguments=dict(arguments or {})
            ),
            f"the queue {printable(name)!r}, which may have no leader",
        )
        return str(declared.queue)

    async def exchange(self, name: str, kind: str) -> None:
        """Declare a durable exchange."""
        await self._asked(
            self.channel.exchange_declare(name, exchange_type=kind, durable=True), f"the exchange {printable(name)!r}"
        )

    async def bind(self, queue: str, exchange: str, key: str = "") -> None:
        """Let a queue have what comes to an exchange."""
        await self._asked(self.channel.queue_bind(queue, exchange, routing_key=key), "a binding")

    async def unbind(self, queue: str, exchange: str, key: str) -> None:
        """No longer."""
        await self._asked(self.channel.queue_unbind(queue, exchange, routing_key=key), "a binding")

    async def consume(self, queue: str, take: Callable[[Any], None], *, free: bool = False) -> str:
        """Take what comes; `free`: it needs no acknowledgement. Returns the consumer's tag."""

        async def consumer(message: Any) -> None:
            self._heard = True
            take(message)

        about = f"the queue {printable(queue)!r}, which may have no leader"
        return str((await self._asked(self.channel.basic_consume(queue, consumer, no_ack=free), about)).consumer_tag)

    async def cancel(self, tag: str) -> None:
        """Take no more."""
        await self._asked(self.channel.basic_cancel(tag), "a consumer")

    async def limit(self, prefetch: int) -> None:
        """So many unsettled deliveries at most, of each consumer from now on."""
        self.prefetch = prefetch
        await self._asked(self.channel.basic_qos(prefetch_count=prefetch), "the prefetch")

    async def delete(self, queue: str) -> None:
        """Take a queue away."""
        await self._asked(self.channel.queue_delete(queue), f"the queue {printable(queue)!r}")

    async def _asked(self, work: Awaitable[Any], about: str) -> Any:
        try:
            async with asyncio.timeout(self._patience):
                return await work
        except TimeoutError:
            raise Silent(f"it does not answer about {about}") from None
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError) as fault:
            raise ConnectionError(_faults(fault)) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Closed("RabbitMQ was lost") from None
        except Exception as fault:
            if type(fault) is Exception:  # what the library gives to those who wait when it closes a channel
                raise Closed("RabbitMQ was lost") from None
            raise

    # -- its life ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave in good order, as far as that goes."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if (acker := self._acker) is not None:
            await asyncio.wait([acker], timeout=PATIENCE)
        self.alive = False
        self.channel = None
        if self._connection is not None:
            self._leave(self._connection)
        await self._leaving.wait(None)

    async def _connect(self) -> None:
        connection = await client(self.where, vhost=self._vhost, tls=self._tls, heartbeat=self.heartbeat)
        self._connection = connection
        self._lost = asyncio.get_running_loop().create_future()
        try:
            self.channel = channel = await self._asked(connection.channel(), "a channel")
            self._acks.clear()
            for part in (connection, channel):
                part.closing.add_done_callback(self._gone)
            heard = getattr(channel, "on_consumer_cancel_callbacks", None)
            if heard is not None:
                heard.add(self._cancelled)
            if self.renew is not None:
                await self.renew()
        except BaseException:
            self.channel = None
            self._leave(connection)
            raise
        self.alive = True

    def _gone(self, closing: Any) -> None:
        why = None if closing.cancelled() else closing.exception()
        if self._lost is not None and not self._lost.done() and not isinstance(why, asyncio.CancelledError):
            self._lost.set_result("closed" if why is None else _faults(why))

    def _cancelled(self, frame: Any) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result("the broker took a queue away")

    async def _keep(self) -> None:
        """Notice that the connection is lost, and come back."""
        while True:
            why = await self._watch()
            self.alive = False
            connection, self._connection, self.channel = self._connection, None, None
            self._leave(connection)
            self._let_go()
            self._say(False, why)
            self._patience = 2.0  # a broker that starts may leave a question unanswered for ever
            for pause in pauses(*PAUSES):
                await asyncio.sleep(pause)
                try:
                    await self._connect()
                    break
                except ConnectionError as fault:
                    if isinstance(fault, Silent):
                        self._patience = min(1.2 * self._patience, PATIENCE)
                    self._say(False, str(fault))
            self._patience = PATIENCE
            self._back = asyncio.get_running_loop().time()
            self._say(True, "")

    async def _watch(self) -> str:
        """Until the connection is lost: return why. A far end that says nothing for too long is lost too."""
        assert self._lost is not None
        while True:
            done, _ = await asyncio.wait([self._lost], timeout=self.heartbeat / 2)
            if done:
                return self._lost.result()
            asked = asyncio.ensure_future(self.channel.basic_qos(prefetch_count=self.prefetch))
            try:
                while not done:
                    self._heard = False
                    done, _ = await asyncio.wait([self._lost, asked], timeout=self.heartbeat / 2)
                    if not done and not self._heard:  # who is busy answers late, after all that was asked before
                        return f"it was silent for {self.heartbeat} s"
                fault = None if not asked.done() or asked.cancelled() else asked.exception()
                if self._lost.done():
                    return self._lost.result()
                if asked.cancelled():  # the library ends what waits so
                    return "closed"
                if fault is not None:
                    return _faults(fault)
            finally:
                asked.cancel()

    def _let_go(self) -> None:
        """End what waits on a connection that is gone: the library may leave it waiting for ever."""
        for task in self._publishing:
            if task not in self._dropped:
                self._dropped.add(task)
                task.cancel()
        self._acks.clear()
        if self._acker is not None:
            self._acker.cancel()
            self._acker = None

    def _say(self, alive: bool, why: str) -> None:
        if self.on_state is not None:
            self.on_state(alive, why)

    def _leave(self, connection: Any) -> None:
        self._leaving.begin(_farewell(connection))


async def _farewell(connection: Any) -> None:
    """Close a connection that may be dead."""
    try:
        async with asyncio.timeout(2):
            await connection.close()
    except Exception as fault:
        log.debug("a connection to RabbitMQ ended badly: %s", _faults(fault))


# -- the bus --------------------------------------------------------------------------------------


class AmqpBus:
    """See the module and `bus.Bus`."""

    def __init__(self, where: Url, line: Line) -> None:
        self.url = f"{where.scheme}://{where.address}{where.path.rstrip('/')}"
        self.store: Store | None = None
        self.on_state: Callable[[bool], object] | None = None
        self._line = line
        self._queue = ""
        self._trouble = Trouble(self.url)
        self._topics = Topics(self._left)
        self._count = 0

    @property
    def alive(self) -> bool:
        """Whether it is connected."""
        return self._line.alive

    async def begin(self) -> None:
        """Connect. Raises BusLost."""
        self._line.renew = self._renew
        self._line.on_state = self._state
        try:
            await self._line.begin()
        except ConnectionError as why:
            raise BusLost(f"{self.url}: {why}") from None

    async def publish(self, topic: str, message: bytes) -> None:
        """See `Bus.publish`."""
        self._there()
        self._count += 1
        try:
            await self._line.publish(EXCHANGE, topic, message, name=str(self._count), persistent=False)
        except ConnectionError as why:
            raise BusLost(f"{self.url}: {why}") from None

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        """See `Bus.subscribe`."""
        self._there()
        one = self._topics.add(topic, take)
        try:
            await self._line.bind(self._queue, EXCHANGE, topic)  # of an equal one nothing comes
        except ConnectionError as why:
            await one.close()
            raise BusLost(f"{self.url}: {why}") from None
        return one

    async def _left(self, topic: str) -> None:
        if self.alive:
            try:
                await self._line.unbind(self._queue, EXCHANGE, topic)
            except ConnectionError as why:
                log.debug("%s: %s", self.url, why)

    async def close(self) -> None:
        """See `Bus.close`."""
        self.on_state = None
        await self._line.close()

    def _there(self) -> None:
        if not self.alive:
            raise BusLost(f"{self.url}: not connected")

    async def _renew(self) -> None:
        line = self._line
        await line.exchange(EXCHANGE, "direct")
        self._queue = await line.queue("", own=True)
        for topic in self._topics:
            await line.bind(self._queue, EXCHANGE, topic)
        await line.consume(self._queue, self._take, free=True)

    def _take(self, message: Any) -> None:
        self._topics.tell(message.delivery.routing_key, message.body)

    def _state(self, alive: bool, why: str) -> None:
        changed = self._trouble.stands(alive, "RabbitMQ", why)
        if changed and self.on_state is not None:
            self.on_state(alive)


async def open(url: str) -> AmqpBus:
    """See `bus.open_bus`: `amqp://user:password@host/vhost`."""
    where = parse(url)
    asked(where, "heartbeat")
    bus = AmqpBus(where, Line(where, vhost=where.path.strip("/")))
    await bus.begin()
    return bus
