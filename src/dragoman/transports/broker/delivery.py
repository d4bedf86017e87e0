"""One delivery of a broker as an `Exchange`.

It decides nothing about the queue: it asks its `Worker`, the listener, to answer it or to put it off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from ...channel import Broken, Caller, Identity
from ...jsonrpc.errors import Refusal
from ...net.reconnect import BackgroundTasks
from .answers import BoundKey, began
from .contract import AGAIN, AHEAD, KEY, KIND, BrokerAdapter, BrokerMessage, Outcome, number_in
from .counts import DeliveryCounts

log: logging.Logger = logging.getLogger("dragoman.wire")

AHEAD_QUEUE = 1_000
"""Messages of one exchange that wait to be sent ahead of its answer; further ones are dropped."""


class Worker(Protocol):
    """The listener, as its deliveries use it."""

    scheme: str
    tls: bool
    path: str
    url: str
    adapter: BrokerAdapter
    counts: DeliveryCounts
    asides: BackgroundTasks

    def shown(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a delivery for its handler."""

    def put_off(self, delivery: Delivery, kind: str) -> None:
        """There is no slot for it now."""

    def answer(self, delivery: Delivery, answer: bytes | None) -> None:
        """The exchange has ended: answer, then settle."""

    async def deliver(self, to: str, message: BrokerMessage) -> None:
        """Send to a mailbox, until the broker has it. Raises Broken when it will never take it."""

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """The end of a delivery."""


class Delivery:
    """An `Exchange`: one broker message and its answer."""

    __slots__ = (
        "_ahead",
        "_messages",
        "_over",
        "_pump",
        "_worker",
        "began",
        "caller",
        "followers",
        "gone",
        "key",
        "message",
        "name",
        "request",
    )

    def __init__(self, worker: Worker, message: BrokerMessage, key: BoundKey, identity: Identity | None = None) -> None:
        self.request: bytes = message.body
        self.caller: Caller = Caller(
            scheme=worker.scheme,
            remote=message.mailbox or message.reply_to,
            path=worker.path,
            headers=worker.shown(message.headers),
            tls=worker.tls,
            identity=identity,
            key=message.headers.get(KEY, ""),
            redelivered=message.count + number_in(message.headers, AGAIN),
        )
        self.gone: Callable[[], None] | None = None
        self.key: BoundKey = key
        """The `bound_key` of the request; "" if it has no idempotency key."""
        self.name: BoundKey = key or f" {id(self)}"
        self.message: BrokerMessage = message
        self.began: bool = False
        """Its answer is that of a call that began, and that is new: it is kept under the key."""
        self._worker = worker
        self._messages = [message]
        self.followers: list[BrokerMessage] = []
        self._over = False
        self._ahead: deque[bytes] = deque()
        self._pump: asyncio.Task[None] | None = None

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if self._over:
            return
        if refusal is not None and refusal.kind in ("busy", "draining"):
            self._worker.put_off(self, refusal.kind)
            return
        self._over = True
        self.began = refusal is None and began(answer)
        self._worker.answer(self, answer)

    def repeat(self, answer: bytes | None) -> None:
        """Respond with a recent answer, which is kept already."""
        self._over = True
        self._worker.answer(self, answer)

    def stream(self, message: bytes) -> bool:
        return not self._over and self.tell(message)

    def tell(self, message: bytes) -> bool:
        """Send a message to the caller's mailbox, at any time, even after the answer. False: the caller has none, or
        too many messages already wait."""
        if not self.message.reply_to or len(self._ahead) >= AHEAD_QUEUE or len(message) > self._worker.adapter.limit:
            return False
        self._ahead.append(message)
        if self._pump is None or self._pump.done():
            self._pump = self._worker.asides.begin(self._send_ahead())
        return True

    async def _send_ahead(self) -> None:
        correlation = self.message.correlation
        while self._ahead:
            message = BrokerMessage(body=self._ahead.popleft(), correlation=correlation, headers={KIND: AHEAD})
            try:
                await self._worker.deliver(self.message.reply_to, message)
            except Broken as why:
                log.debug("%s: a message ahead of an answer is dropped: %s", self._worker.url, why)

    async def sent_ahead(self) -> None:
        """Wait until the messages ahead of the answer are sent."""
        while self._pump is not None and not self._pump.done():
            await asyncio.wait([self._pump])

    def anew(self) -> Delivery:
        """The same delivery as a new exchange."""
        again = Delivery(self._worker, self.message, self.key, self.caller.identity)
        again.name, again._messages, again.followers = self.name, self._messages, self.followers
        self._over = True
        return again

    def join(self, message: BrokerMessage) -> None:
        """The same request has come again while it runs here: the broker lost our connection, or the caller sent it
        again."""
        if message.correlation == self.message.correlation:
            self._messages.append(message)
        else:
            self.followers.append(message)

    def drop(self) -> None:
        """The caller does not wait any more."""
        if self._over:
            return
        self._over = True
        if self.gone is not None:
            self.gone()
        self._worker.settle(self, "nothing_owed")

    def settled(self, outcome: Outcome) -> None:
        """Settle the delivery at the broker."""
        for message in self._messages:
            self._worker.counts.settle(message, outcome)
        self._messages.clear()


class Broadcast:
    """An `Exchange` for a broadcast: no answer is owed."""

    __slots__ = ("caller", "gone", "request")

    def __init__(self, request: bytes, caller: Caller) -> None:
        self.request: bytes = request
        self.caller: Caller = caller
        self.gone: Callable[[], None] | None = None

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """The caller does not wait for it."""

    def stream(self, message: bytes) -> bool:
        """The caller would not receive it."""
        return False
