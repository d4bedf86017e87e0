"""RabbitMQ's library, for the wire and for the bus. It is aiormq, the lower half of aio-pika; the upper half (its own
reconnecting, its objects for queues) is not needed.

An `AmqpConnection` is one channel of AMQP 0-9-1 that reconnects: when it is lost it is opened again, with growing,
jittered pauses of at most two seconds, and awaits `renew` before it reports that it is back. A wire and a bus to the
same server have a channel each on one connection (`SharedAmqpConnection`), because deliveries are settled on the
channel on which they came, and a channel's unsettled deliveries are requeued when it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast
from urllib.parse import quote, urlencode

import aiormq
from aiormq import spec
from msgspec import Struct
from pamqp import decode

from ...net.reconnect import BackgroundTasks, Keeper
from ...net.sharing import OnState, Sharing
from ...net.sockets import in_words
from ...net.urls import Url, credentials, number, printable

log: logging.Logger = logging.getLogger("dragoman.wire")

PAUSES = (0.1, 2.0)
"""The first and the longest pause between two tries to connect."""
PATIENCE = 10.0
"""Seconds to connect, to wait for a reply, and to close in order."""
HEARTBEAT = 10
"""Seconds of silence after which a connection is taken to be lost (`?heartbeat=`)."""

# at every try the library logs as an error what it also raises
logging.getLogger("aiormq.connection").addFilter(
    lambda record: not str(record.msg).startswith("error when creating transport")
)


def read_or_missing(read: Callable[[bytes], Any], size: Callable[[bytes], int]) -> Callable[[bytes], Any]:
    """Return a reader of values of that size; a value that cannot be read counts as missing."""

    def found(raw: bytes) -> Any:
        try:
            return read(raw)
        except (ValueError, OverflowError, OSError, RecursionError):
            return size(raw), None

    return found


# The broker passes on any property that a publisher wrote. For a property that it cannot decode the library ends the
# connection, and the broker delivers the message again, to the next connection of a worker: for ever.
decode.METHODS |= {
    "shortstr": read_or_missing(decode.short_str, lambda raw: 1 + raw[0]),
    "table": read_or_missing(decode.field_table, lambda raw: 4 + int.from_bytes(raw[:4], "big")),
    "timestamp": read_or_missing(decode.timestamp, lambda raw: 8),
}


class Unrouted(ConnectionError):
    """The broker has no queue for a message with the mandatory flag."""


class QueueFull(ConnectionError):
    """The broker refused a message because its queue is full."""


class ExchangeForbidden(ConnectionError):
    """The broker does not let this user write there; the text is the broker's and names the exchange."""


class ChannelClosed(ConnectionError):
    """The channel was closed here, or is lost at the moment."""


class BrokerInternalError(ConnectionError):
    """The broker closed the connection by 541, internal error, as it does to some of those that declare one new queue
    at the same moment. The request may be made again on the next connection."""


class BrokerSilent(ConnectionError):
    """The broker is connected and does not answer a request."""


def describe_fault(fault: BaseException) -> str:
    """Return the reason of a failure as text."""
    if isinstance(fault, aiormq.exceptions.AMQPError):
        text = getattr(fault, "strerror", None)  # of a code and a text, which look like the system's
        return printable(text or str(fault) or type(fault).__name__)
    return in_words(fault)


async def connect(where: Url, *, vhost: str, tls: Any = None, heartbeat: int = HEARTBEAT) -> Any:
    """Connect; return the library's connection. Raises OSError: the system's, or ConnectionError with a readable
    text."""
    user, password = credentials(where) or ("guest", "guest")
    host = f"[{where.host}]" if ":" in where.host else where.host or "localhost"
    query = urlencode({"heartbeat": heartbeat, "name": "dragoman"})
    path = "" if vhost in ("", "/") else f"/{quote(vhost, safe='')}"
    url = f"{where.scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{host}:{where.port}{path}?{query}"
    if where.tls and tls is None:
        tls = ssl.create_default_context()
    try:
        async with asyncio.timeout(PATIENCE):
            return await aiormq.connect(url, context=tls)
    except (aiormq.exceptions.AMQPError, EOFError) as fault:
        if isinstance(fault.__cause__, OSError):  # the library keeps no more of it than its text
            raise fault.__cause__ from None
        raise ConnectionError(describe_fault(fault)) from None


class SharedAmqpConnection:
    """One connection, opened again by the first of its channels that needs it."""

    alive = True
    """True: it connects on demand."""

    def __init__(self, where: Url, vhost: str, tls: Any, heartbeat: int) -> None:
        self.states: list[OnState] = []  # its channels report their own state
        self._dial = partial(connect, where, vhost=vhost, tls=tls, heartbeat=heartbeat)
        self._dialling = asyncio.Lock()
        self._current: Any = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        await self.get()

    def lost(self) -> ConnectionError:
        return ChannelClosed("RabbitMQ is away")

    async def get(self) -> Any:
        """Return the library's connection, which is opened if there is none. Raises OSError."""
        async with self._dialling:
            if self._current is None or self._current.is_closed:
                self._current = await self._dial()
            return self._current

    async def drop(self, connection: Any) -> None:
        """Give up a lost connection: the next `get` opens another."""
        if self._current is connection:
            self._current = None
        await close_quietly(connection)

    async def close(self) -> None:
        """Close the connection."""
        if self._current is not None:
            await self.drop(self._current)


_SHARED: Sharing[SharedAmqpConnection] = Sharing()


class ChannelLoss(Struct, frozen=True):
    """Why a channel has ended, and whether its connection still works."""

    why: str
    usable: bool = False


class AmqpConnection:
    """One channel that reconnects. `renew` is awaited after every connecting; if it raises, the try has failed."""

    def __init__(self, where: Url, *, vhost: str, role: str, tls: Any = None) -> None:
        self.where = where
        self.keeper: Keeper = Keeper(self._connect, self._watch, PAUSES, in_words=in_words)
        self.channel: Any = None
        self.renew: Callable[[], Awaitable[None]] | None = None
        self.heartbeat: int = number(where, "heartbeat", HEARTBEAT)
        key = (where.scheme, where.address, credentials(where), vhost, tls, self.heartbeat)
        self._share = _SHARED.share(key, role, lambda: SharedAmqpConnection(where, vhost, tls, self.heartbeat))
        self._connection: Any = None
        self._lost: asyncio.Future[ChannelLoss] | None = None
        self._closings = BackgroundTasks(where.shown)
        self._acks: list[tuple[int, str]] = []
        self._acker: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[Any]] = set()
        self._dropped: set[asyncio.Task[Any]] = set()
        self._patience = PATIENCE
        self.prefetch: int = 0
        self._active = False
        self.next_connected: asyncio.Event = asyncio.Event()
        """Set when it connects the next time; then another event takes its place."""

    @property
    def alive(self) -> bool:
        """Whether it is connected."""
        return self.keeper.alive

    async def begin(self) -> None:
        """Connect for the first time, and stay connected from now on. Raises OSError."""
        await self._share.open()
        await self.keeper.open()

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
        """Publish, and wait until the broker has the message. `name`: unique among unconfirmed messages. Raises
        Unrouted, QueueFull, ExchangeForbidden, and ConnectionError when the connection is lost meanwhile."""
        channel = self.channel
        task = asyncio.current_task()
        if channel is None or task is None:
            raise ChannelClosed("RabbitMQ is away")
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
            raise Unrouted(f"no queue {printable(key)!r}") from None
        except aiormq.exceptions.DeliveryError:
            raise QueueFull("the queue is full") from None
        except asyncio.CancelledError:
            if task in self._dropped:
                task.uncancel()
            if task.cancelling():
                raise
            raise ChannelClosed("RabbitMQ was lost") from None  # the library cancels waiting tasks then
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError) as fault:
            raise describe_publish_fault(fault, exchange) from None
        else:
            self._active = True
        finally:
            self._publishing.discard(task)
            self._dropped.discard(task)

    def settle(self, channel: Any, tag: int, how: str) -> None:
        """Acknowledge ("ack"), requeue ("requeue") or dead-letter ("dead") a delivery. A delivery of a connection that
        is lost needs none: the broker delivers it again."""
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
            log.debug("an acknowledgement could not be sent: %s", describe_fault(fault))
        finally:
            if self._acker is asyncio.current_task():
                self._acker = None

    # -- what is made -----------------------------------------------------------------------------

    async def queue(self, name: str, arguments: Mapping[str, Any] | None = None, *, own: bool = False) -> str:
        """Declare a durable queue, or one of our own that is deleted with the connection (`name` "": the broker names
        it). Raises ConnectionError if a queue of that name has other arguments."""
        declared = await self._request(
            self.channel.queue_declare(
                name, durable=not own, exclusive=own, auto_delete=own, arguments=dict(arguments or {})
            ),
            f"the queue {printable(name)!r}, which may have no leader",
        )
        return str(declared.queue)

    async def exchange(self, name: str, kind: str) -> None:
        """Declare a durable exchange."""
        await self._request(
            self.channel.exchange_declare(name, exchange_type=kind, durable=True), f"the exchange {printable(name)!r}"
        )

    async def bind(self, queue: str, exchange: str, key: str = "") -> None:
        """Bind a queue to an exchange."""
        await self._request(self.channel.queue_bind(queue, exchange, routing_key=key), "a binding")

    async def unbind(self, queue: str, exchange: str, key: str) -> None:
        """Remove a binding."""
        await self._request(self.channel.queue_unbind(queue, exchange, routing_key=key), "a binding")

    async def consume(self, queue: str, take: Callable[[Any], None], *, free: bool = False) -> str:
        """Consume a queue; `free`: deliveries need no acknowledgement. Returns the consumer's tag."""

        async def consumer(message: Any) -> None:
            self._active = True
            take(message)

        about = f"the queue {printable(queue)!r}, which may have no leader"
        return str((await self._request(self.channel.basic_consume(queue, consumer, no_ack=free), about)).consumer_tag)

    async def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        await self._request(self.channel.basic_cancel(tag), "a consumer")

    async def limit(self, prefetch: int) -> None:
        """Set the most unsettled deliveries of each consumer from now on."""
        self.prefetch = prefetch
        await self._request(self.channel.basic_qos(prefetch_count=prefetch), "the prefetch")

    async def delete(self, queue: str) -> None:
        """Delete a queue."""
        await self._request(self.channel.queue_delete(queue), f"the queue {printable(queue)!r}")

    async def _request(self, work: Awaitable[Any], about: str) -> Any:
        try:
            async with asyncio.timeout(self._patience):
                return await work
        except TimeoutError:
            raise BrokerSilent(f"it does not answer about {about}") from None
        except aiormq.exceptions.ConnectionInternalError as fault:
            raise BrokerInternalError(describe_fault(fault)) from None
        except (aiormq.exceptions.AMQPError, OSError, RuntimeError) as fault:
            raise ConnectionError(describe_fault(fault)) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ChannelClosed("RabbitMQ was lost") from None
        except Exception as fault:
            if type(fault) is Exception:  # the library's exception for tasks that wait when it closes a channel
                raise ChannelClosed("RabbitMQ was lost") from None
            raise

    # -- its life ---------------------------------------------------------------------------------

    def give_up(self, why: str) -> None:
        """Give up this channel, which has lost something that `renew` makes; another is opened on the same
        connection."""
        if self._lost is not None:
            resolve_loss(self._lost, ChannelLoss(why, usable=True))

    async def close(self) -> None:
        """Close in order, as far as possible."""
        await self.keeper.close()
        if (acker := self._acker) is not None:
            await asyncio.wait([acker], timeout=PATIENCE)
        channel, self.channel = self.channel, None
        if self._connection is not None:
            self._release(self._connection, channel)
        await self._closings.wait(None)
        await self._share.close()

    async def _connect(self) -> str:
        self._connection = connection = await self._share.connection.get()
        self._lost = lost = asyncio.get_running_loop().create_future()
        channel = None
        try:
            self.channel = channel = await self._request(connection.channel(), "a channel")
            self._acks.clear()
            for one in (connection, channel):
                one.closing.add_done_callback(partial(self._on_closing, lost, connection))
            callbacks = getattr(channel, "on_consumer_cancel_callbacks", None)
            if callbacks is not None:
                callbacks.add(
                    lambda frame: resolve_loss(lost, ChannelLoss("the broker took a queue away", usable=True))
                )
            if self.renew is not None:
                await self.renew()
        except BaseException as fault:
            self.channel = None
            self._release(connection, None if isinstance(fault, BrokerSilent) else channel)
            if isinstance(fault, BrokerSilent):
                self._patience = min(1.2 * self._patience, PATIENCE)
            raise
        self._patience = PATIENCE
        connected, self.next_connected = self.next_connected, asyncio.Event()
        connected.set()
        return ""

    def _on_closing(self, lost: asyncio.Future[ChannelLoss], connection: Any, closing: Any) -> None:
        why = None if closing.cancelled() else closing.exception()
        words = "closed" if why is None or isinstance(why, asyncio.CancelledError) else describe_fault(why)
        resolve_loss(lost, ChannelLoss(words, usable=not connection.is_closed))

    async def _watch(self) -> str:
        """Wait until the connection is lost; return why, after all that waited on it has failed."""
        loss = await self._wait_for_loss()
        connection, self._connection = self._connection, None
        channel, self.channel = self.channel, None
        self._release(connection, channel if loss.usable else None)
        self._fail_waiting()
        self._patience = 2.0  # a broker that starts may never answer a request
        return loss.why

    async def _wait_for_loss(self) -> ChannelLoss:
        """Wait until the connection is lost. A far end that is silent for too long is lost too."""
        assert self._lost is not None
        while True:
            done, _ = await asyncio.wait([self._lost], timeout=self.heartbeat / 2)
            if done:
                return self._lost.result()
            probe = asyncio.ensure_future(self.channel.basic_qos(prefetch_count=self.prefetch))
            try:
                while not done:
                    self._active = False
                    done, _ = await asyncio.wait([self._lost, probe], timeout=self.heartbeat / 2)
                    if not done and not self._active:  # a busy broker answers late, after all earlier requests
                        return ChannelLoss(f"it was silent for {self.heartbeat} s")
                if self._lost.done():
                    return self._lost.result()
                if probe.cancelled():  # the library cancels waiting tasks then
                    return ChannelLoss("closed", usable=not self._connection.is_closed)
                if (fault := probe.exception()) is not None:
                    return ChannelLoss(describe_fault(fault), usable=not self._connection.is_closed)
            finally:
                probe.cancel()

    def _fail_waiting(self) -> None:
        """End the tasks that wait on a lost connection: the library may leave them waiting for ever."""
        for task in self._publishing:
            if task not in self._dropped:
                self._dropped.add(task)
                task.cancel()
        self._acks.clear()
        if self._acker is not None:
            self._acker.cancel()
            self._acker = None

    def _release(self, connection: Any, channel: Any) -> None:
        self._closings.begin(self._close_channel(connection, channel))

    async def _close_channel(self, connection: Any, channel: Any) -> None:
        """Close the channel; also the connection if that fails or there is no channel."""
        if channel is None or not await close_quietly(channel):
            await self._share.connection.drop(connection)


def describe_publish_fault(fault: BaseException, exchange: str) -> ConnectionError:
    """Return the error of a message that was not published. The broker closes the channel because of a message to an
    exchange that it does not have, or to which we may not write. That fails all messages on their way, so its text
    shows whether this exchange was meant."""
    words = describe_fault(fault)
    if f"exchange '{exchange or 'amq.default'}'" in words:
        if isinstance(fault, aiormq.exceptions.ChannelNotFoundEntity):
            return Unrouted(words)
        if isinstance(fault, aiormq.exceptions.ChannelAccessRefused):
            return ExchangeForbidden(words)
    return ConnectionError(words)


def resolve_loss(lost: asyncio.Future[ChannelLoss], loss: ChannelLoss) -> None:
    """Report a loss, unless one was reported before."""
    if not lost.done():
        lost.set_result(loss)


async def close_quietly(connection: Any) -> bool:
    """Close a connection or a channel that may be dead; returns whether that succeeded."""
    try:
        async with asyncio.timeout(2):
            await connection.close()
    except Exception as fault:
        log.debug("a connection to RabbitMQ ended badly: %s", describe_fault(fault))
        return False
    return True
