"""RabbitMQ (AMQP 0-9-1): `amqp://host/calculator`, `amqp://host/vhost?queue=calculator`, `amqps:` with TLS.

Delivery guarantee: at least once. Rules:

- Requests go to a durable quorum queue named by `?queue=`, or by the path's last part; the part before it is the
  virtual host. Workers compete for them, `?prefetch=` unsettled requests each.
- With `?exchange=` requests go to that direct exchange instead of the default one, with the queue's name as the routing
  key; the workers declare it. A right to write to the default exchange is one to write to every queue of the virtual
  host. Such a caller declares its mailbox and nothing else.
- Everything is published with confirms, and requests with the mandatory flag: no queue is `Unroutable`, at once.
- Answers go to a durable queue of the caller's own, `dragoman.answers.<id>`, which RabbitMQ deletes ten minutes after
  the caller. `?reply=direct` uses RabbitMQ's direct reply-to instead: quicker, but an answer is lost when the caller's
  connection is. A worker answers to these and to queues that RabbitMQ named (`amq.gen-`), to others by `?reply_to=`.
- A request that a draining worker gives back is published anew with its count, then acknowledged: RabbitMQ counts what
  is requeued as delivered. Where it does not take the copy (a full queue), the request is requeued.
- Dead letters go to the queue `<queue>.dead`: messages that are not JSON-RPC and name no address to answer, and
  requests that were delivered `?deliveries=` times (5). Cancels and broadcasts go to the fanout exchange
  `<queue>.control`.
- `?length=` bounds the queue; above it requests are `Refused`. `?limit=` is the longest message in bytes (16 MiB, which
  is RabbitMQ 4's default). `?heartbeat=` (10 s): how long a connection may be silent.
  `?declare=no` takes the queue as it is.
- A property that is not UTF-8, or that cannot be decoded otherwise, counts as missing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...channel import Options
from ...jsonrpc.errors import LocalError
from ...net.reconnect import RECONNECT_GRACE, BackgroundTasks, backoff
from ...net.sharing import OnState, ignore_state
from ...net.urls import Url, address, choice, number, printable, read_query
from ...transports.broker.contract import (
    DELIVERED,
    BrokerMessage,
    Mailboxes,
    NotTaken,
    Outcome,
    Refused,
    Take,
    Unroutable,
    given_back,
    mailbox_parts,
    number_in,
    unsettled,
)
from ...transports.broker.ends import ends
from .connection import AmqpConnection, BrokerInternalError, ExchangeForbidden, QueueFull, Unrouted

log: logging.Logger = logging.getLogger("dragoman.wire")

LIMIT = 16 * 1024 * 1024
"""The longest message, in bytes: RabbitMQ 4's default."""
EXPIRES = 600_000
"""Milliseconds after which a mailbox without its caller is deleted."""
DIRECT = "amq.rabbitmq.reply-to"
DECLARING = 30.0
"""Seconds in which a worker whose declaration met an internal error of RabbitMQ declares again."""
SECONDS_TO_LEAVE = 2.0
"""Seconds for which a worker that closes waits until RabbitMQ has the requests that it returns."""
OURS = "dragoman."
"""The prefix of the names of mailboxes."""
MAILBOXES = (f"{DIRECT}.*", "amq.gen-*", f"{OURS}*")
"""Direct reply-to, queues that RabbitMQ named for their owner, and ours."""
_QUERY = (
    "queue",
    "exchange",
    "prefetch",
    "reply",
    "reply_to",
    "mailbox",
    "deliveries",
    "length",
    "limit",
    "heartbeat",
    "declare",
)
_SETTLED: Mapping[Outcome, str] = {"answered": "ack", "nothing_owed": "ack", "reject": "dead"}


class AmqpAdapter:
    """A `BrokerAdapter` over RabbitMQ."""

    name = "RabbitMQ"

    def __init__(self, where: Url, options: Options) -> None:
        query = read_query(where, *_QUERY)
        queue, vhost = address(where)
        self.queue: str = queue
        if self.queue.startswith(OURS):
            raise LocalError(f"{where.shown}: {OURS}... is the name of a mailbox; call the queue otherwise")
        self._exchange = query.get("exchange", "")
        if "exchange" in query and not re.fullmatch(r"(?!amq\.|dragoman\.)[^\s\x00-\x1f]{1,200}", self._exchange):
            raise LocalError(f"{where.shown}: {printable(self._exchange)!r} cannot name an exchange for requests")
        self._mailboxes = Mailboxes(where, *MAILBOXES)
        self.limit: int = number(where, "limit", LIMIT)
        self.direct: bool = choice(where, "reply", "queue", "direct") == "direct"
        self.durable: bool = not self.direct
        self.on_state: OnState = ignore_state
        self._declare = choice(where, "declare", "yes", "no") == "yes"
        self._length = number(where, "length", 0)
        for name in ("prefetch", "deliveries"):  # which the listener uses
            number(where, name, 1)
        self._bounded = "length" in query
        self._where = where
        self._connection = AmqpConnection(where, vhost=vhost, role="wire", tls=options.client_tls)
        self._connection.renew = self._renew
        self._connection.keeper.states.append(lambda alive, why: self.on_state(alive, why))
        self._returning = BackgroundTasks(where.shown)
        self._work: tuple[Take, int] | None = None
        self._worker = ""
        self._take_control: Take | None = None
        self._names = mailbox_parts(where)
        self._mailbox = ""
        self._mail: Take | None = None
        self._reader = ""
        self._closed = False

    async def open(self) -> None:
        await self._connection.begin()

    # -- the contract -----------------------------------------------------------------------------

    async def work(self, take: Take, prefetch: int) -> None:
        connected = self._connection.next_connected
        try:
            await self._begin_work(take, prefetch)
        except BrokerInternalError as why:  # another worker declares the same new queue
            self._work = (take, prefetch)  # so that the next connection declares it again
            try:
                async with asyncio.timeout(DECLARING):
                    await connected.wait()
            except TimeoutError:
                self._work = None
                raise why from None
        self._work = (take, prefetch)

    async def pause(self) -> None:
        self._work = None
        if self._connection.alive and self._worker:
            tag, self._worker = self._worker, ""
            await self._connection.cancel(tag)

    async def receive_control(self, take: Take) -> None:
        await self._begin_control(take)
        self._take_control = take

    async def mailbox(self, take: Take) -> str:
        self._mailbox = DIRECT if self.direct else ".".join((f"{OURS}answers", *self._names))
        await self._begin_mailbox(take)
        self._mail = take
        return self._mailbox

    async def request(self, message: BrokerMessage, ttl: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + RECONNECT_GRACE
        for pause in backoff(0.1, 0.5):
            why: Unroutable | Refused
            try:
                await self._request(message, message.correlation)
                return
            except ExchangeForbidden as denied:
                raise Refused(f"RabbitMQ at {self._where.shown} does not take the message: {denied}") from None
            except Unrouted:
                why = Unroutable(f"no worker serves {printable(self.queue)!r} at {self._where.shown}: no such queue")
                again = self._connection.keeper.young
            except QueueFull:
                # it also refuses while a queue has no leader
                full = "is full" if self._bounded else "is full, or has no leader"
                why = Refused(f"RabbitMQ did not take the message: {printable(self.queue)!r} {full}")
                again = self._connection.keeper.young or not self._bounded
            if not again or loop.time() > until:
                raise why from None
            await asyncio.sleep(pause)

    async def _request(self, message: BrokerMessage, name: str) -> None:
        if not self._connection.alive:
            raise NotTaken("RabbitMQ is away")
        await self._connection.publish(
            self._exchange,
            self.queue,
            message.body,
            name=name,
            reply_to=message.reply_to,
            correlation=message.correlation,
            headers=message.headers,
            mandatory=True,
        )

    async def send_control(self, message: BrokerMessage) -> None:
        exchange = f"{self.queue}.control"
        if not self._connection.alive:
            raise NotTaken("RabbitMQ is away")
        try:
            await self._connection.publish(
                exchange,
                "",
                message.body,
                name=message.correlation,
                reply_to="" if self.direct else message.reply_to,
                correlation=message.correlation,
                headers=message.headers,
                persistent=False,
            )
        except (ExchangeForbidden, Unrouted) as why:  # no worker has declared it
            raise Refused(f"RabbitMQ at {self._where.shown} does not take the message: {why}") from None

    def answerable(self, message: BrokerMessage) -> bool:
        return self._mailboxes.hold(message.reply_to)

    async def answer(self, to: str, message: BrokerMessage) -> None:
        try:
            await self._connection.publish(
                "",
                to,
                message.body,
                name=message.correlation,
                correlation=message.correlation,
                headers=message.headers,
                persistent=not to.startswith(DIRECT),
            )
        except ExchangeForbidden as why:
            raise Refused(f"RabbitMQ at {self._where.shown} does not take it: {why}") from None
        except (QueueFull, ValueError) as why:
            log.debug("%s: an answer was not taken: %s", self._where.shown, why)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._returning.end(SECONDS_TO_LEAVE)
            if self._mailbox and not self.direct and self._connection.alive:
                try:
                    await self._connection.cancel(self._reader)
                    await self._connection.delete(self._mailbox)
                except ConnectionError as why:
                    log.debug("%s: %s", self._where.shown, why)
            await self._connection.close()

    # -- consuming --------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Declare and consume everything again, on a new connection."""
        if self._take_control is not None:
            await self._begin_control(self._take_control)
        if self._mail is not None:
            await self._begin_mailbox(self._mail)
        if self._work is not None:
            await self._begin_work(*self._work)

    async def _begin_work(self, take: Take, prefetch: int) -> None:
        connection = self._connection
        if self._declare:
            dead = f"{self.queue}.dead"
            arguments: dict[str, Any] = {
                "x-queue-type": "quorum",
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead,
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",  # required by that strategy
            }
            if self._bounded:
                arguments["x-max-length"] = self._length
            await connection.queue(dead, {"x-queue-type": "quorum"})
            await connection.queue(self.queue, arguments)
            if self._exchange:
                await connection.exchange(self._exchange, "direct")
                await connection.bind(self.queue, self._exchange, self.queue)
        await connection.limit(prefetch)
        self._worker = await connection.consume(self.queue, self._make_settler(take))

    async def _begin_control(self, take: Take) -> None:
        connection = self._connection
        exchange = f"{self.queue}.control"
        await connection.exchange(exchange, "fanout")
        queue = await connection.queue("", own=True)
        await connection.bind(queue, exchange)
        await connection.consume(queue, lambda message: take(_read(message)), free=True)

    async def _begin_mailbox(self, take: Take) -> None:
        connection = self._connection
        if not self._exchange:
            # now, not when many calls end at once and each sends a cancel
            await connection.exchange(f"{self.queue}.control", "fanout")
        if self.direct:
            await connection.consume(DIRECT, lambda message: take(_read(message)), free=True)
            return
        await connection.queue(self._mailbox, {"x-expires": EXPIRES})
        self._reader = await connection.consume(self._mailbox, self._make_settler(take))

    def _make_settler(self, take: Take) -> Callable[[Any], None]:
        channel = self._connection.channel
        return lambda message: take(_read(message, partial(self._settle, channel, message)))

    def _settle(self, channel: Any, message: Any, outcome: Outcome) -> None:
        if outcome == "retry":
            self._returning.begin(self._give_back(channel, message))
        else:
            self._connection.settle(channel, message.delivery.delivery_tag, _SETTLED[outcome])

    async def _give_back(self, channel: Any, message: Any) -> None:
        """Publish a copy with its count, and acknowledge the request once RabbitMQ has the copy."""
        if channel is not self._connection.channel:  # RabbitMQ has requeued it already
            return
        how = "ack"
        try:
            await self._request(given_back(_read(message)), uuid.uuid4().hex)
        except (Unrouted, QueueFull, ConnectionError, ValueError) as why:
            log.debug("%s: a request is requeued, and counted: %s", self._where.shown, why)
            how = "requeue"
        self._connection.settle(channel, message.delivery.delivery_tag, how)


def _read(message: Any, settle: Callable[[Outcome], None] = unsettled) -> BrokerMessage:
    properties = message.header.properties
    count = 0
    headers: dict[str, str] = {}
    if found := properties.headers:
        headers = {name: value for name, value in found.items() if type(value) is str}
        delivered = found.get("x-delivery-count", 0)
        count = delivered if type(delivered) is int else 0
    if not count and message.delivery.redelivered:  # other types of queues do not count
        count = 1
    return BrokerMessage(
        body=message.body,
        reply_to=properties.reply_to or "",
        correlation=properties.correlation_id or "",
        headers=headers,
        count=count + number_in(headers, DELIVERED),
        settle=settle,
    )


dial, listen = ends(lambda where, options, serving: AmqpAdapter(where, options), lambda adapter: adapter.queue)
