"""Who serves over a broker: a `Listener` that makes of every letter an `Exchange`.

Rules:

- A delivery is settled once: after the broker has confirmed its answer, or at once where none is owed. An answer that
  the broker did not confirm is sent again when it is back.
- A letter that is no JSON-RPC is answered where it says whom to answer, else rejected (dead-letter). A request that
  was delivered `deliveries` times, and whose workers all died, is answered with an error and rejected.
- A request whose deadline has passed, or whose cancel came before it, is not run. Deadlines are times of day, so the
  clocks of the machines must agree.
- What was answered lately is answered again from memory (or `Options.store`), not run again; what comes again and
  is not found there runs with `Caller.redelivered`. A second copy of what runs here joins the first.
- While there is no place for it a letter is kept and tried again; while draining it goes back to the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from ..channel import Caller, Options, Served
from ..jsonrpc.codec import decode, failure
from ..jsonrpc.errors import INTERNAL_ERROR, PLAIN, Refusal, RpcError, too_large
from ..jsonrpc.messages import NULL, Batch, Malformed, Request
from . import broker
from .broker import AGAIN, AHEAD, BROADCAST, CANCEL, DEADLINE, DELIVERIES, KEY, KIND, Letter, Outcome, Post, number
from .broker_life import Asides, Trouble, pauses
from .broker_recent import Recent, fitting
from .sockets import CannotListen, cannot_listen
from .urls import Url, printable

log = logging.getLogger("dragoman.wire")

CANCELLED = 10_000
"""Cancels that are remembered, for requests that come after them."""
AHEAD_QUEUE = 1_000
"""Messages of one exchange that wait to be sent ahead of its answer; what is beyond that is dropped."""
PAUSES = (0.02, 1.0)
"""The first and the longest pause before an answer is sent again to a broker that has not said that it is lost."""
LATER = 0.1
"""Seconds until a request for which there is no place is tried again."""


async def begin(post: Post, where: Url, served: Served, options: Options, *, name: str) -> BrokerListener:
    """Open a post and serve at it. `name`: the address as it is shown. CannotListen; then the post is closed."""
    try:
        listener = BrokerListener(post, where, served, options, name)
        await post.open()
        await listener.begin()
    except BaseException as fault:
        await post.close()
        if isinstance(fault, OSError | ValueError) and not isinstance(fault, CannotListen):
            raise cannot_listen(where, fault) from None
        raise
    return listener


class Delivery:
    """An `Exchange`: one letter and its answer."""

    __slots__ = (
        "_ahead",
        "_letters",
        "_listener",
        "_over",
        "_pump",
        "caller",
        "followers",
        "gone",
        "key",
        "letter",
        "request",
    )

    def __init__(self, listener: BrokerListener, letter: Letter, key: str) -> None:
        self.request = letter.body
        self.caller = Caller(
            scheme=listener.scheme,
            remote=letter.reply_to,
            path=listener.path,
            headers=letter.headers,
            tls=listener.tls,
            key=key,
            redelivered=letter.count + _sent_before(letter),
        )
        self.gone: Callable[[], None] | None = None
        self.key = key
        self.letter = letter
        self._listener = listener
        self._letters = [letter]
        self.followers: list[Letter] = []
        self._over = False
        self._ahead: deque[bytes] = deque()
        self._pump: asyncio.Task[None] | None = None

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """See `Exchange.respond`."""
        if self._over:
            return
        if refusal is not None and refusal.kind in ("busy", "draining"):
            self._listener.put_off(self, refusal.kind)
            return
        self._over = True
        self._listener.answer(self, answer)

    def stream(self, message: bytes) -> bool:
        """See `Exchange.stream`."""
        return not self._over and self.tell(message)

    def tell(self, message: bytes) -> bool:
        """Send a message to the caller's mailbox, at any time, after the answer too. False: it has none, or too many
        wait already."""
        if not self.letter.reply_to or len(self._ahead) >= AHEAD_QUEUE or len(message) > self._listener.post.limit:
            return False
        self._ahead.append(message)
        if self._pump is None or self._pump.done():
            self._pump = self._listener.asides.begin(self._send_ahead())
        return True

    async def _send_ahead(self) -> None:
        correlation = self.letter.correlation
        while self._ahead:
            letter = Letter(body=self._ahead.popleft(), correlation=correlation, headers={KIND: AHEAD})
            await self._listener.deliver(self.letter.reply_to, letter)

    async def sent_ahead(self) -> None:
        """Wait until what goes ahead of the answer is out."""
        while self._pump is not None and not self._pump.done():
            await asyncio.wait([self._pump])

    def join(self, letter: Letter) -> None:
        """The same request came again while it runs here: the broker has lost us meanwhile, or the caller asks anew."""
        if letter.correlation == self.letter.correlation:
            self._letters.append(letter)
        else:
            self.followers.append(letter)

    def drop(self) -> None:
        """The caller is gone."""
        if self._over:
            return
        self._over = True
        if self.gone is not None:
            self.gone()
        self._listener.settle(self, "nothing_owed")

    def settled(self, outcome: Outcome) -> None:
        """Tell the broker."""
        for letter in self._letters:
            letter.settle(outcome)
        self._letters.clear()


class _Broadcast:
    """An `Exchange` for what everyone hears: nothing is owed."""

    __slots__ = ("caller", "gone", "request")

    def __init__(self, request: bytes, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """Nobody waits for it."""

    def stream(self, message: bytes) -> bool:
        """Nobody hears it."""
        return False


class BrokerListener:
    """See the module's rules."""

    def __init__(self, post: Post, where: Url, served: Served, options: Options, name: str) -> None:
        self.post = post
        self.scheme = where.scheme
        self.tls = where.scheme[-1] == "s"
        self.path = name
        self.url = printable(f"{where.scheme}://{where.address}{where.path.rstrip('/')}")
        if "queue" in where.query:
            self.url = f"{self.url}?queue={printable(where.query['queue'])}"
        self.online = True
        self._served = served
        self._limits = options.limits
        self._loop = asyncio.get_running_loop()
        self._deliveries = number(where, "deliveries", DELIVERIES)
        default = min(options.limits.calls, options.limits.calls_per_channel)
        self._prefetch = number(where, "prefetch", default)
        self._recent = Recent(options.store)
        self._running: dict[str, Delivery] = {}
        self._cancelled: OrderedDict[str, None] = OrderedDict()
        self.asides = Asides(self.url)
        self._trouble = Trouble(self.url)
        self._closing = False
        self._idle: asyncio.Future[None] | None = None
        self._back = asyncio.Event()
        self._back.set()
        self._ended: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Take letters from now on."""
        self.post.on_state = self._state
        await self.post.hear(self._heard)
        await self.post.work(self._take, self._prefetch)

    # -- the contract -----------------------------------------------------------------------------

    async def close(self) -> None:
        """See `Listener.close`."""
        if not self._closing:
            self._closing = True
            try:
                await self.post.pause()
            except ConnectionError as why:
                log.debug("%s: %s", self.url, why)

    async def closed(self) -> None:
        """See `Listener.closed`."""
        await self.close()
        if self._ended is None:
            self._ended = self._loop.create_task(self._end())
        await asyncio.shield(self._ended)

    async def _end(self) -> None:
        until = self._loop.time() + (self._limits.write_timeout or 30.0)
        if self._running:  # what is served was drained: only answers are on their way still
            self._idle = self._loop.create_future()
            await asyncio.wait([self._idle], timeout=until - self._loop.time() if self.online else PAUSES[0])
        while self.asides and self._loop.time() < until and self.online:
            await self.asides.wait(0.5)
        await self.asides.end()
        await self.post.close()

    # -- letters in -------------------------------------------------------------------------------

    def _take(self, letter: Letter) -> None:
        if self._closing:
            letter.settle("retry")
            return
        headers = letter.headers
        key = headers.get(KEY, "")
        if key and (running := self._running.get(key)) is not None:
            running.join(letter)
            return
        if letter.correlation in self._cancelled:
            letter.settle("nothing_owed")
            return
        if (deadline := headers.get(DEADLINE)) is not None and self._late(deadline):
            log.info("%s: a request came after its deadline and is not run", self.url)
            letter.settle("nothing_owed")
            return
        delivery = Delivery(self, letter, key)
        self._running[key or f" {id(delivery)}"] = delivery
        if len(letter.body) > self._limits.message_size:
            refusal = too_large("message_size", self._limits.message_size, len(letter.body))
            delivery.respond(failure(NULL, PLAIN.error(refusal)), refusal)
        elif letter.count >= self._deliveries:
            self._give_up(delivery)
        elif key and (answer := self._recent.here(key)) is not None and self._again(delivery, answer):
            return
        elif key and self._recent.store is not None and (letter.count or AGAIN in headers or key != letter.correlation):
            self.asides.begin(self._look(delivery))
        else:
            self._served.exchange(delivery)

    def _late(self, deadline: str) -> bool:
        return deadline.isascii() and deadline.isdigit() and len(deadline) < 20 and int(deadline) < broker.now() * 1000

    def _again(self, delivery: Delivery, answer: object) -> bool:
        """Answer with what was answered before, if that can be."""
        body = fitting(answer, delivery.letter.correlation, delivery.request)  # type: ignore[arg-type]
        if body is None:
            return False
        delivery.respond(body or None)
        return True

    async def _look(self, delivery: Delivery) -> None:
        answer = await self._recent.shared(delivery.key)
        if answer is None or not self._again(delivery, answer):
            self._served.exchange(delivery)

    def _give_up(self, delivery: Delivery) -> None:
        """No worker lived to answer it: say so, and set it aside."""
        count = delivery.letter.count
        words = f"Internal error: given up after {count} deliveries, none of which was answered"
        log.error("%s: a request was delivered %d times and never answered; it is set aside", self.url, count)
        error = RpcError.of(INTERNAL_ERROR, words, {"limit": "deliveries", "allowed": self._deliveries})
        delivery._over = True
        message = decode(delivery.request)
        id = message.id if isinstance(message, Request) else NULL
        owed = delivery.letter.reply_to and isinstance(message, Request | Batch)
        self.asides.begin(self._finish(delivery, failure(id, error) if owed else None, "reject"))

    def _heard(self, letter: Letter) -> None:
        """The control address."""
        kind = letter.headers.get(KIND)
        if kind == CANCEL:
            self._cancelled[letter.correlation] = None
            if len(self._cancelled) > CANCELLED:
                self._cancelled.popitem(last=False)
            for delivery in [one for one in self._running.values() if one.letter.correlation == letter.correlation]:
                delivery.drop()
        elif kind == BROADCAST and not self._closing and len(letter.body) <= self._limits.message_size:
            caller = Caller(scheme=self.scheme, remote=letter.reply_to, path=self.path, tls=self.tls)
            self._served.exchange(_Broadcast(letter.body, caller))

    # -- answers out ------------------------------------------------------------------------------

    def put_off(self, delivery: Delivery, kind: str) -> None:
        """There is no place for it now."""
        if kind == "draining" or self._closing:
            delivery._over = True
            self.settle(delivery, "retry")
        else:
            self.asides.begin(self._try_later(delivery))

    async def _try_later(self, delivery: Delivery) -> None:
        # a requeue would come back at once, here, and count as a delivery
        await asyncio.sleep(LATER)
        deadline = delivery.letter.headers.get(DEADLINE)
        if delivery._over:
            return
        if deadline is not None and self._late(deadline):
            delivery.drop()
        elif self._closing:
            delivery._over = True
            self.settle(delivery, "retry")
        else:
            self._served.exchange(delivery)

    def answer(self, delivery: Delivery, answer: bytes | None) -> None:
        """The exchange is over: answer, then settle."""
        key, letter = delivery.key, delivery.letter
        if key:
            self._recent.keep(key, letter.correlation, answer or b"")
        if answer is not None and not letter.reply_to:
            poison = isinstance(decode(delivery.request), Malformed)
            if poison:
                log.warning("%s: a message that is no JSON-RPC, and says nobody to answer, is set aside", self.url)
            self._store(delivery, answer, "reject" if poison else "nothing_owed")
        elif answer is None:
            self._store(delivery, None, "nothing_owed")
        else:
            if len(answer) > self.post.limit:
                answer = self._too_large(delivery.request, len(answer))
            self.asides.begin(self._finish(delivery, answer, "answered"))

    def _store(self, delivery: Delivery, answer: bytes | None, outcome: Outcome) -> None:
        """Settle where nothing is sent; where workers share their answers, after it is shared."""
        if self._recent.store is None or not delivery.key:
            self.settle(delivery, outcome)
        else:
            self.asides.begin(self._finish(delivery, None, outcome))

    async def _finish(self, delivery: Delivery, answer: bytes | None, outcome: Outcome) -> None:
        letter = delivery.letter
        if self._recent.store is not None and delivery.key and outcome != "reject":
            await self._recent.share(delivery.key, letter.correlation, answer or b"")
        if delivery._pump is not None:
            await delivery.sent_ahead()
        if answer is not None:
            await self.deliver(letter.reply_to, Letter(body=answer, correlation=letter.correlation))
        self.settle(delivery, outcome)

    async def deliver(self, to: str, letter: Letter) -> None:
        """Send to a mailbox, until the broker has it."""
        waits = None
        while True:
            try:
                await self.post.answer(to, letter)
                return
            except ConnectionError as why:
                log.debug("%s: an answer must be sent again: %s", self.url, why)
            if self.online:
                waits = waits or pauses(*PAUSES)
                await asyncio.sleep(next(waits))
            else:
                await self._back.wait()

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """The end of a delivery."""
        delivery.settled(outcome)
        self._running.pop(delivery.key or f" {id(delivery)}", None)
        for letter in delivery.followers:
            self._take(letter)
        if self._idle is not None and not self._running and not self._idle.done():
            self._idle.set_result(None)

    def _too_large(self, request: bytes, size: int) -> bytes:
        message = decode(request)
        id = message.id if isinstance(message, Request) else NULL
        data = {"limit": self.post.name, "allowed": self.post.limit, "received": size}
        words = f"Too large: {self.post.name} takes {self.post.limit} bytes, the answer would have {size}"
        return failure(id, PLAIN.error(Refusal("too_large", words, data)))

    # -- its life ---------------------------------------------------------------------------------

    def _state(self, online: bool, why: str) -> None:
        self.online = online
        self._trouble.stands(online, self.post.name, why)
        if online:
            self._back.set()
        else:
            self._back.clear()


def _sent_before(letter: Letter) -> int:
    """How often its caller had sent it before."""
    text = letter.headers.get(AGAIN, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
