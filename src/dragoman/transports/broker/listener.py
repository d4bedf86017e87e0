"""The serving end of a broker's wire: a `Listener` that makes every broker message an `Exchange`.

Rules:

- A delivery is settled once: after the broker has confirmed its answer, or at once if none is owed. An answer that
  the broker did not confirm is sent again when it is back.
- Every delivery is settled. A message that is not JSON-RPC is answered if it has a reply address, otherwise rejected
  (dead-letter). A request that was delivered `deliveries` times to workers that died is answered
  with an error and rejected. A request whose reply address is not a mailbox (`contract.Mailboxes`), or whose
  correlation id is longer than `limits.id_length`, is not run but counted (`refused`) and rejected.
- A guard sees the headers of every request, before anything of it is decoded or answered from recent answers, and
  of every broadcast. A denied request is answered if that is possible, and counted (`refused`). A cancel is not
  checked: it names a call by a correlation id that only its caller knows.
- A request whose deadline has passed, or whose cancel came before it, is not run. Deadlines are times of day, so the
  clocks of the machines must agree.
- The answer of a call that began is kept; a refusal is not, nor an error that says what is wrong with the request.
- A request with a recent answer (here or in `Options.store`) gets that answer and is not run again; a redelivered
  request without one runs with `Caller.redelivered`. A second copy of a request that runs here joins the first.
- A request for which there is no slot is kept, and offered again as a new exchange when another exchange has ended, or
  after a pause; while draining it goes back to the other workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from ...access import Protection
from ...channel import Admitted, Broken, Caller, Guard, Handshake, Identity, Options, Servable, exchanged
from ...jsonrpc.codec import AnyAnswer, FailedAnswer, decode, failed_answer, failure
from ...jsonrpc.errors import INTERNAL_ERROR, PLAIN, Refusal, RpcError, too_large
from ...jsonrpc.messages import NULL, Batch, Malformed, Request
from ...net.guarding import decide, denial_error
from ...net.reconnect import BackgroundTasks, OutageLog, backoff
from ...net.sockets import CannotListen, cannot_listen
from ...net.urls import Url, number, printable
from ...observer import Rejection, RejectionKind
from ...repeats import Repeats
from . import contract
from .answers import AnswerCache, BoundKey, answer_to, bound_key, has_begun
from .contract import (
    AGAIN,
    AHEAD,
    BROADCAST,
    CANCEL,
    DEADLINE,
    DELIVERIES,
    KEY,
    KIND,
    BrokerAdapter,
    BrokerMessage,
    Outcome,
    number_in,
)

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

PAUSES = (0.02, 1.0)
"""The first and the longest pause before an answer is sent again to a broker whose loss was not reported."""
_SECRETS = frozenset({"authorization", "dpop"})
OFFERS = (0.1, 1.0)
"""The first and the longest pause before requests for which there was no slot are offered again even if no exchange of
this listener has ended: other wires share the slots."""
AHEAD_QUEUE = 1_000
"""Messages of one exchange that wait to be sent ahead of its answer; further ones are dropped."""
_METRICS: Final[dict[Outcome, str]] = {
    "answered": "deliveries_answered_total",
    "nothing_owed": "deliveries_unanswered_total",
    "retry": "deliveries_requeued_total",
    "reject": "deliveries_rejected_total",
}
"""The metrics that count how deliveries were settled."""


async def begin(adapter: BrokerAdapter, where: Url, served: Servable, options: Options, *, name: str) -> BrokerListener:
    """Open an adapter and serve at it. `name`: the address as it is shown. Raises CannotListen; then the adapter is
    closed."""
    try:
        listener = BrokerListener(adapter, where, served, options, name)
        await adapter.open()
        await listener.begin()
    except BaseException as fault:
        await adapter.close()
        if isinstance(fault, OSError | ValueError) and not isinstance(fault, CannotListen):
            raise cannot_listen(where, fault) from None
        raise
    return listener


class Delivery:
    """The `Exchange` of one broker message and its answer."""

    __slots__ = (
        "_ahead",
        "_over",
        "_pump",
        "_worker",
        "began",
        "caller",
        "followers",
        "gone",
        "key",
        "message",
        "messages",
        "name",
        "request",
    )

    def __init__(
        self, worker: BrokerListener, message: BrokerMessage, key: BoundKey, identity: Identity | None = None
    ) -> None:
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
        self.messages = [message]
        self.followers: list[BrokerMessage] = []
        self._over = False
        self._ahead: deque[bytes] = deque()
        self._pump: asyncio.Task[None] | None = None

    def respond(self, answer: AnyAnswer) -> None:
        if self._over:
            return
        if type(answer) is FailedAnswer:
            refusal = answer.refusal
            if refusal is not None and refusal.kind in ("busy", "draining"):
                self._worker.put_off(self, refusal.kind)
                return
            self.began = has_begun(answer)
            answer = answer.text
        else:
            self.began = True
        self._over = True
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
            self._pump = self._worker.background.begin(self._send_ahead())
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
        """Return the delivery as a new exchange, instead of this one."""
        again = Delivery(self._worker, self.message, self.key, self.caller.identity)
        again.name, again.messages, again.followers = self.name, self.messages, self.followers
        self._over = True
        return again

    def join(self, message: BrokerMessage) -> None:
        """Add a copy of the request that came while it runs here: the broker lost our connection, or the caller sent
        it again."""
        if message.correlation == self.message.correlation:
            self.messages.append(message)
        else:
            self.followers.append(message)

    def drop(self) -> None:
        """End the exchange: its caller does not wait any more."""
        if self._over:
            return
        self._over = True
        if self.gone is not None:
            self.gone()
        self._worker.settle(self, "nothing_owed")


class Broadcast:
    """The `Exchange` of a broadcast: no answer is owed."""

    __slots__ = ("caller", "gone", "request")

    def __init__(self, request: bytes, caller: Caller) -> None:
        self.request: bytes = request
        self.caller: Caller = caller
        self.gone: Callable[[], None] | None = None

    def respond(self, answer: AnyAnswer) -> None:
        """Do nothing: the caller does not wait for an answer."""

    def stream(self, message: bytes) -> bool:
        """Return False: the caller would not receive it."""
        return False


class BrokerListener:
    """The serving end of a broker's wire."""

    def __init__(self, adapter: BrokerAdapter, where: Url, served: Servable, options: Options, name: str) -> None:
        self.adapter = adapter
        self.scheme: str = where.scheme
        self.tls: bool = where.tls
        self.path = name
        self.url: str = where.bare
        if "queue" in where.query:
            self.url = f"{self.url}?queue={printable(where.query['queue'])}"
        self.online: bool = True
        self._served = served
        self._guard = options.guard
        self._hides = isinstance(options.guard, Protection)
        self._rejected = options.rejected
        self._limits = options.limits
        self._loop = asyncio.get_running_loop()
        self._deliveries = number(where, "deliveries", DELIVERIES)
        default = min(options.limits.calls, options.limits.calls_per_channel)
        self._prefetch = number(where, "prefetch", default)
        self._came_in = self._came_again = self._outages = 0
        self._settled: dict[Outcome, int] = dict.fromkeys(_METRICS, 0)
        self.refused: int = 0
        """Requests that were rejected unread because of their reply address or their correlation id."""
        self._rejecting = OutageLog(self.url)
        self._undecided = 0
        """Broadcasts about which the guard has not decided: no broker holds them back, as it does requests."""
        self._recent = AnswerCache(options.limits, options.store)
        self._forgetting: asyncio.Task[None] | None = None
        self._running: dict[BoundKey, Delivery] = {}
        self._waiting: deque[Delivery] = deque()  # those of them for which there was no slot
        self._offering: asyncio.TimerHandle | None = None
        self._offers = backoff(*OFFERS)
        self._cancelled: OrderedDict[str, None] = OrderedDict()
        self.background: BackgroundTasks = BackgroundTasks(self.url)
        self._trouble = OutageLog(self.url)
        self._closing = False
        self._idle: asyncio.Future[None] | None = None
        self._back = asyncio.Event()
        self._back.set()
        self._ended: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Take broker messages from now on."""
        self.adapter.on_state = self._state
        await self.adapter.receive_control(self._take_control)
        await self.adapter.work(self._receive, self._prefetch)

    def measures(self) -> Mapping[str, float]:
        """Return the numbers for metrics: deliveries, how they were settled, those at work, and the connection."""
        settled: dict[str, float] = {name: self._settled[outcome] for outcome, name in _METRICS.items()}
        return settled | {
            "deliveries_total": self._came_in,
            "redeliveries_total": self._came_again,
            "broker_outages_total": self._outages,
            "deliveries_refused_total": self.refused,
            "deliveries_unsettled": len(self._running),
            "deliveries_waiting": len(self._waiting),
            "broker_connected": self.online,
        }

    # -- the contract -----------------------------------------------------------------------------

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._offer()
            try:
                await self.adapter.pause()
            except ConnectionError as why:
                log.debug("%s: %s", self.url, why)

    async def closed(self) -> None:
        await self.close()
        if self._ended is None:
            self._ended = self._loop.create_task(self._end())
        await asyncio.shield(self._ended)

    async def _end(self) -> None:
        until = self._loop.time() + (self._limits.write_timeout or 30.0)
        if self._running:  # the served object has drained: only answers are still being sent
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=until - self._loop.time() if self.online else PAUSES[0])
        while self.background and self._loop.time() < until and self.online:
            await self.background.wait(0.5)
        await self.background.end()
        self._recent.close()
        await self.adapter.close()

    # -- messages in ------------------------------------------------------------------------------

    def _receive(self, message: BrokerMessage) -> None:
        self._came_in += 1
        self._came_again += bool(message.count or number_in(message.headers, AGAIN))
        self._take(message)

    def _take(self, message: BrokerMessage) -> None:
        try:
            if self._closing:
                self.settle_message(message, "retry")
            elif (wrong := self._wrong(message)) is not None:
                self._refuse(message, "malformed", wrong)
                self.settle_message(message, "reject")
            elif self._guard is None:
                self._accept(message, None)
            else:
                self.background.begin(self._admit(message, self._guard))
        except Exception:
            repeats.error("%s: a request could not be taken; it is set aside", self.url, exc_info=True)
            self.settle_message(message, "reject")

    def _refuse(self, message: BrokerMessage, kind: RejectionKind, words: str) -> None:
        self.refused += 1
        self._report_rejection(message, kind, words)
        self._rejecting.report(f"{self.refused} requests rejected unread; the last one {words}")

    def _report_rejection(self, message: BrokerMessage, kind: RejectionKind, words: str) -> None:
        """Report to the observers that a delivery is turned away."""
        if self._rejected is not None:
            caller = Caller(
                scheme=self.scheme, remote=message.mailbox or message.reply_to, path=self.path, tls=self.tls
            )
            size = len(message.body)
            self._rejected(Rejection(kind=kind, reason=words, place=self.url, caller=caller, size=size))

    async def _admit(self, message: BrokerMessage, guard: Guard) -> None:
        """Take or refuse a delivery as the guard decides."""
        try:
            verdict = await decide(guard, self._handshake(message), self._limits.guard_timeout, self.url)
            if self._closing:
                self.settle_message(message, "retry")
            elif isinstance(verdict, Admitted):
                self._accept(message, verdict.identity)
            else:
                self._refuse(message, "denied", f"was denied: {printable(verdict.reason)}")
                if message.reply_to:
                    answer = BrokerMessage(body=denial_error(verdict), correlation=message.correlation)
                    await self.deliver(message.reply_to, answer)
                self.settle_message(message, "answered" if message.reply_to else "nothing_owed")
        except Exception:
            repeats.error("%s: a request could not be judged; it is set aside", self.url, exc_info=True)
            self.settle_message(message, "reject")

    def _handshake(self, message: BrokerMessage) -> Handshake:
        fields = [
            (name.lower().encode(errors="backslashreplace"), text.encode(errors="backslashreplace"))
            for name, text in message.headers.items()
        ]
        return Handshake(scheme=self.scheme, url=self.url, headers=fields, remote=message.mailbox or message.reply_to)

    def shown(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a delivery for `Caller.headers`: without a token that is for the guard."""
        if not self._hides:
            return headers
        return {name: value for name, value in headers.items() if name.lower() not in _SECRETS}

    def _accept(self, message: BrokerMessage, identity: Identity | None) -> None:
        headers = message.headers
        key = bound_key(message) if KEY in headers else ""
        if key and (running := self._running.get(key)) is not None:
            running.join(message)
            return
        if message.correlation in self._cancelled:
            self.settle_message(message, "nothing_owed")
            return
        if (deadline := headers.get(DEADLINE)) is not None and self._late(deadline):
            repeats.log(logging.INFO, "%s: a request came after its deadline and is not run", self.url)
            self.settle_message(message, "nothing_owed")
            return
        delivery = Delivery(self, message, key, identity)
        self._running[delivery.name] = delivery
        if len(message.body) > self._limits.message_size:
            refusal = too_large("message_size", self._limits.message_size, len(message.body))
            self._report_rejection(message, "too_large", refusal.reason)
            delivery.respond(failed_answer(NULL, PLAIN.error(refusal), refusal=refusal))
        elif message.count >= self._deliveries:
            self._give_up(delivery)
        elif key and (answer := self._recent.here(key)) is not None and self._answer_again(delivery, answer):
            return
        elif key and self._recent.store is not None and self._perhaps_answered(message):
            self._run_in_background(delivery, self._answer_from_store(delivery))
        else:
            exchanged(self._served, delivery)

    def _wrong(self, message: BrokerMessage) -> str | None:
        """Why a request is rejected unread, or None."""
        if message.reply_to and not self.adapter.answerable(message):
            return f"wants its answer at {printable(message.reply_to)!r}, which is not a mailbox (see ?reply_to=)"
        if len(message.correlation) > self._limits.id_length:
            return (
                f"has a correlation of {len(message.correlation)} characters, id_length allows {self._limits.id_length}"
            )
        return None

    def _perhaps_answered(self, message: BrokerMessage) -> bool:
        """Return whether another worker may have answered this request."""
        headers = message.headers
        return bool(message.count) or AGAIN in headers or headers[KEY] != message.correlation

    def _late(self, deadline: str) -> bool:
        return (
            deadline.isascii() and deadline.isdigit() and len(deadline) < 20 and int(deadline) < contract.now() * 1000
        )

    def _answer_again(self, delivery: Delivery, answer: object) -> bool:
        """Answer with a recent answer; False if it does not answer this request."""
        body = answer_to(answer, delivery.message.correlation, delivery.request)  # type: ignore[arg-type]
        if body is None:
            return False
        delivery.repeat(body or None)
        return True

    async def _answer_from_store(self, delivery: Delivery) -> None:
        answer = await self._recent.shared(delivery.key)
        if answer is None or not self._answer_again(delivery, answer):
            exchanged(self._served, delivery)

    def _give_up(self, delivery: Delivery) -> None:
        """Answer with an error and dead-letter the request: every worker that took it died before it answered."""
        count = delivery.message.count
        words = f"Internal error: given up after {count} deliveries, none of which was answered"
        repeats.error("%s: a request was delivered %d times and never answered; it is set aside", self.url, count)
        self._report_rejection(delivery.message, "failed", words)
        error = RpcError.of(INTERNAL_ERROR, words, {"limit": "deliveries", "allowed": self._deliveries})
        delivery._over = True
        message = decode(delivery.request)
        id = message.id if isinstance(message, Request) else NULL
        owed = delivery.message.reply_to and isinstance(message, Request | Batch)
        self._run_in_background(delivery, self._finish(delivery, failure(id, error) if owed else None, "reject"))

    def _take_control(self, message: BrokerMessage) -> None:
        """Take a message that has come to the control address."""
        kind, correlation = message.headers.get(KIND), message.correlation
        if kind == CANCEL and correlation and len(correlation) <= self._limits.id_length:
            self._cancelled[correlation] = None
            if len(self._cancelled) > self._limits.cancels_kept:
                self._cancelled.popitem(last=False)
            for delivery in [one for one in self._running.values() if one.message.correlation == correlation]:
                delivery.drop()
        elif kind == BROADCAST and not self._closing and len(message.body) <= self._limits.message_size:
            if self._guard is None:
                self._broadcast(message, None)
            elif self._undecided >= self._limits.calls:
                self._refuse(message, "busy", "was a broadcast while the guard decides about too many others")
            else:
                self._undecided += 1
                self.background.begin(self._admit_broadcast(message, self._guard))

    async def _admit_broadcast(self, message: BrokerMessage, guard: Guard) -> None:
        try:
            verdict = await decide(guard, self._handshake(message), self._limits.guard_timeout, self.url)
        finally:
            self._undecided -= 1
        if isinstance(verdict, Admitted):
            self._broadcast(message, verdict.identity)
        else:
            self._refuse(message, "denied", f"was denied: {printable(verdict.reason)}")

    def _broadcast(self, message: BrokerMessage, identity: Identity | None) -> None:
        caller = Caller(
            scheme=self.scheme,
            remote=message.reply_to,
            path=self.path,
            headers=self.shown(message.headers),
            tls=self.tls,
            identity=identity,
        )
        exchanged(self._served, Broadcast(message.body, caller))

    # -- answers out ------------------------------------------------------------------------------

    def put_off(self, delivery: Delivery, kind: str) -> None:
        """Keep a delivery for which there is no slot now. (A requeued one would come back at once, and be counted.)"""
        if kind == "draining" or self._closing:
            delivery._over = True
            self.settle(delivery, "retry")
            return
        self._running[delivery.name] = again = delivery.anew()
        self._waiting.append(again)
        if self._offering is None:
            self._offering = self._loop.call_later(next(self._offers), self._offer)

    def _offer(self) -> None:
        """Offer the waiting requests again, until there is no slot for one."""
        if self._offering is not None:
            self._offering.cancel()
            self._offering = None
        waiting, self._waiting = self._waiting, deque()
        while waiting and not self._waiting:
            delivery = waiting.popleft()
            deadline = delivery.message.headers.get(DEADLINE)
            if delivery._over:
                continue
            if deadline is not None and self._late(deadline):
                delivery.drop()
            elif self._closing:
                delivery._over = True
                self.settle(delivery, "retry")
            else:
                exchanged(self._served, delivery)
                if not self._waiting:
                    self._offers = backoff(*OFFERS)
        self._waiting.extend(waiting)
        if self._waiting and self._offering is None:
            self._offering = self._loop.call_later(next(self._offers), self._offer)

    def answer(self, delivery: Delivery, answer: bytes | None) -> None:
        """Send the answer of an exchange, then settle its delivery."""
        key, message = delivery.key, delivery.message
        if key and delivery.began:
            self._recent.keep(key, message.correlation, answer or b"")
        if answer is not None and not message.reply_to:
            poison = isinstance(decode(delivery.request), Malformed)
            if poison:
                repeats.warning(
                    "%s: a message that is not JSON-RPC, and names no address to answer, is set aside", self.url
                )
            self._store(delivery, answer, "reject" if poison else "nothing_owed")
        elif answer is None:
            self._store(delivery, None, "nothing_owed")
        else:
            if len(answer) > self.adapter.limit:
                answer = self._too_large(delivery.request, len(answer))
            self._run_in_background(delivery, self._finish(delivery, answer, "answered"))

    def _store(self, delivery: Delivery, answer: bytes | None, outcome: Outcome) -> None:
        """Settle a delivery without an answer; if workers share their answers, after it is shared."""
        if self._recent.store is None or not (delivery.key and delivery.began):
            self.settle(delivery, outcome)
        else:
            self._run_in_background(delivery, self._finish(delivery, None, outcome))

    def _run_in_background(self, delivery: Delivery, work: Coroutine[Any, Any, None]) -> None:
        self.background.begin(self._run_and_settle(delivery, work))

    async def _run_and_settle(self, delivery: Delivery, work: Coroutine[Any, Any, None]) -> None:
        """Settle the delivery even if `work` fails."""
        try:
            await work
        except Exception:
            repeats.error("%s: a request could not be dealt with; it is set aside", self.url, exc_info=True)
            self.settle(delivery, "reject")

    async def _finish(self, delivery: Delivery, answer: bytes | None, outcome: Outcome) -> None:
        message = delivery.message
        if self._recent.store is not None and delivery.key and delivery.began and outcome != "reject":
            await self._share(delivery.key, message.correlation, answer or b"")
        if delivery._pump is not None:
            await delivery.sent_ahead()
        if answer is not None:
            try:
                await self.deliver(message.reply_to, BrokerMessage(body=answer, correlation=message.correlation))
            except Broken as why:  # another try would be refused as well
                repeats.error("%s: an answer cannot be sent, the request is set aside: %s", self.url, why)
                outcome = "reject"
        self.settle(delivery, outcome)

    async def _share(self, key: BoundKey, correlation: str, answer: bytes) -> None:
        """Share an answer. What is dropped for it is deleted in the background, by one task at a time."""
        await self._recent.share(key, correlation, answer)
        if self._recent.crowded and (self._forgetting is None or self._forgetting.done()):
            self._forgetting = self.background.begin(self._recent.forget())

    async def deliver(self, to: str, message: BrokerMessage) -> None:
        """Send to a mailbox, until the broker has it. Raises Broken when it will never take it."""
        waits = None
        while True:
            try:
                await self.adapter.answer(to, message)
                return
            except Broken:
                raise
            except ConnectionError as why:
                log.debug("%s: an answer must be sent again: %s", self.url, why)
            if self.online:
                waits = waits or backoff(*PAUSES)
                await asyncio.sleep(next(waits))
            else:
                await self._back.wait()

    def settle_message(self, message: BrokerMessage, outcome: Outcome) -> None:
        """Settle one message at the broker, and count it."""
        self._settled[outcome] += 1
        message.settle(outcome)

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """End a delivery: settle all its messages, and take what waited for it."""
        for message in delivery.messages:
            self.settle_message(message, outcome)
        delivery.messages.clear()
        self._running.pop(delivery.name, None)
        for message in delivery.followers:
            self._take(message)
        if self._waiting:
            self._loop.call_soon(self._offer)
        if self._idle is not None and not self._running and not self._idle.done():
            self._idle.set_result(None)

    def _too_large(self, request: bytes, size: int) -> bytes:
        message = decode(request)
        id = message.id if isinstance(message, Request) else NULL
        data = {"limit": self.adapter.name, "allowed": self.adapter.limit, "received": size}
        words = f"Too large: {self.adapter.name} takes {self.adapter.limit} bytes, the answer would have {size}"
        return failure(id, PLAIN.error(Refusal("too_large", words, data)))

    # -- its life ---------------------------------------------------------------------------------

    def _state(self, online: bool, why: str) -> None:
        self._outages += self.online and not online
        self.online = online
        self._trouble.log_state(online, self.adapter.name, why)
        if online:
            self._back.set()
        else:
            self._back.clear()
