"""Runs calls that take time: one loop, its threads, its deadlines and limits, for exchanges and peers alike.

`answer` and `exchange` take single messages; peers bring theirs through the dispatcher of the same table.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ..channel import Caller, CallLimit, Exchange
from ..jsonrpc.codec import Wire, failure, read
from ..jsonrpc.errors import Dialect, Refusal
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Batch, Failure, Malformed, Message, Notification, Request, Result
from .call import InboundCall
from .deadlines import Clock
from .dispatch import HERE, MethodTable, Origin
from .method import Method
from .observing import Deliver, Place, numbers
from .thread_pool import ThreadPool

_ASKING = (Request, Notification, Batch)


class ConcurrencyLimit:
    """The slots of one method with a concurrency of its own, kept while one of them is taken."""

    __slots__ = ("_all", "_method", "free", "queue")

    def __init__(self, method: Method, all: dict[Method, ConcurrencyLimit]) -> None:
        self._method = method
        self._all = all
        self.free: int = method.concurrency or 1
        self.queue: deque[asyncio.Future[None]] = deque()

    def take(self) -> None:
        self.free -= 1
        self._all[self._method] = self

    def leave(self) -> None:
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
        if self.free == self._method.concurrency:
            self._all.pop(self._method, None)


class Table(MethodTable, Protocol):
    """What a runner runs: a service."""

    name: str

    def answer_inline(self, raw: bytes) -> bytes | Wire | None:
        """The answer to a message that is answered in place; of all others nothing has run, and `read` takes what was
        decoded of them."""

    def oversized(self, raw: bytes, place: Place) -> bytes:
        """The answer to a message that is too large to be read."""


class Runner:
    """Runs the calls of one table: one call limit, one pool of threads, one clock for all its wires."""

    def __init__(self, table: Table) -> None:
        self.service = table
        self.call_limit: CallLimit = CallLimit(table.limits)
        self.loop: asyncio.AbstractEventLoop
        """The loop on which it runs now; see `bind`."""
        self.clock: Clock
        self._bound: asyncio.AbstractEventLoop | None = None
        self.runs: set[InboundCall] = set()
        self.peers: set[Any] = set()
        """The `Peer`s whose calls it runs; it closes them when it drains."""
        self._pool: ThreadPool | None = None
        self._places: dict[Method, ConcurrencyLimit] = {}

    def bind(self) -> None:
        """Run on the running loop from now on; a test client may run one app on several loops, one by one."""
        loop = asyncio.get_running_loop()
        if loop is not self._bound:
            self._bound = self.loop = loop
            self.clock = Clock(loop)
            self._pool = None

    @property
    def pool(self) -> ThreadPool:
        """The worker threads, `limits.threads` of them at most."""
        if self._pool is None:
            self._pool = ThreadPool(self.loop, self.service.limits.threads, f"dragoman-{self.service.name}")
        return self._pool

    def places(self, method: Method) -> ConcurrencyLimit:
        """The slots of a method that has a concurrency of its own."""
        return self._places.get(method) or ConcurrencyLimit(method, self._places)

    def measures(self) -> dict[str, float]:
        """For metrics: channels, and calls that wait for a slot or for a thread."""
        peers = tuple(self.peers)
        waiting = sum(len(peer.conversation.waiting) for peer in peers)
        waiting += sum(len(one.queue) for one in tuple(self._places.values()))
        waiting += 0 if self._pool is None else self._pool.waiting
        return {"channels": len(peers), "calls_waiting": waiting}

    # -- exchanges

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange: in place where the method is quick, else from a task. Raises nothing: a fault of ours is
        the answer."""
        service = self.service
        wire = None
        try:
            if service.quick and not self.call_limit.draining:
                found = service.answer_inline(x.request)
                if isinstance(found, bytes):
                    x.respond(found)
                    return
                wire = found
            self.take(x, read(x.request, service.limits, service.lenient, wire))
        except Exception as error:
            self._faulty(x, error)

    def take(self, x: Exchange, message: Message) -> None:
        """Answer one exchange whose message is already decoded. Raises nothing, as `exchange`."""
        try:
            origin = ExchangeOrigin(x.caller, None, x.stream, True, runner=self, x=x)
            refusal = self.call_limit.refusal()
            if refusal is None or type(message) not in _ASKING:
                self.service.dispatcher.dispatch(message, origin, origin, x.respond, x.request)
            else:
                self._refuse(origin, message, refusal)
        except Exception as error:
            self._faulty(x, error)

    def _faulty(self, x: Exchange, error: Exception) -> None:
        if self.service.watch is not None:
            self.service.watch.faulty(x.caller.path, x.caller, x.request, error)
        self.service.answers.faulty(x.request, error, x.respond)

    def _refuse(self, origin: ExchangeOrigin, message: Message, refusal: Refusal) -> None:
        error, x = self.service.answers.dialect.error(refusal), origin.x
        if isinstance(message, Request):
            answer: bytes | None = failure(message.id, error, message.version)
        else:
            answer = None if isinstance(message, Notification) else failure(NULL, error)
        if self.service.watch is not None:
            self.service.watch.refused(message, origin, x.caller, answer, refusal, x.request)
        x.respond(answer, refusal)

    async def answer(self, raw: bytes, caller: Caller = HERE.caller) -> bytes | None:
        """One message and its answer."""
        self.bind()
        x = _Plain(raw, self.loop.create_future(), caller)
        if len(raw) > self.service.limits.message_size:
            return self.service.oversized(raw, ExchangeOrigin(x.caller, None, x.stream, True, runner=self, x=x))
        self.exchange(x)
        try:
            return await x.future
        except asyncio.CancelledError:
            if x.gone is not None:
                x.gone()
            raise

    def release(self) -> None:
        """Release timers and threads; for a runner whose only peer is closed."""
        if self._bound is not None:
            self.clock.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, wait for those in flight, cancel the rest, close every channel."""
        self.bind()
        self.call_limit.draining = True
        for peer in tuple(self.peers):
            peer.drain()
        if self.call_limit.in_flight:
            idle = self.loop.create_future()
            self.call_limit.idle = lambda: None if idle.done() else idle.set_result(None)
            await asyncio.wait([idle], timeout=timeout)
            self.call_limit.idle = None
        refusal = Refusal("draining", "Draining: the server closed before the call was done")
        for peer in tuple(self.peers):
            peer.turn_away(refusal)
        for run in tuple(self.runs):
            run.end(refusal)
        if self.peers:
            await asyncio.wait([asyncio.ensure_future(peer.close(0)) for peer in tuple(self.peers)])
        self.release()


class ExchangeOrigin(Origin, kw_only=True, eq=False):
    """The origin of one exchange's messages, and its acceptor. Whether the runner drains was looked at when it came."""

    runner: Runner
    x: Exchange
    given: int = 0
    """Its number, once it is asked for: only observers do."""
    calls: list[InboundCall] | None = None
    """The calls of its batch; None for a single message."""

    @property
    def number(self) -> int:
        """Its number for observers."""
        self.given = self.given or next(numbers)
        return self.given

    @property
    def dialect(self) -> Dialect:
        return self.runner.service.answers.dialect

    @property
    def limits(self) -> Limits:
        return self.runner.service.limits

    def heard(self, message: Notification) -> bool:
        return False

    def takes_inline(self, message: Request | Notification) -> bool:
        return True

    def start(
        self, origin: Origin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        runner = self.runner
        runner.bind()
        call = InboundCall(runner, method, message, self, self, deliver, size)
        refusal = runner.call_limit.enter(already_accepted=True, size=size)
        if refusal is not None:
            deliver(call.refused(refusal), refusal)
            return
        if self.calls is None:
            self.x.gone = call.drop
        else:
            self.calls.append(call)
        call.start()

    def settle(self, call: InboundCall) -> None:
        """No effect: no call is kept by id."""

    def release(self, call: InboundCall) -> None:
        self.runner.call_limit.leave(call.size)
        if self.calls is not None:
            self.calls.remove(call)
        elif not call.method.stream:
            self.x.gone = None  # no reference cycle after the end

    def responded(self, message: Result | Failure) -> None:
        """Ignored: no call waits for one on an exchange."""

    def malformed(self, message: Malformed) -> bool:
        return False

    def batched(self, origin: Origin) -> Origin:
        self.calls = []
        self.x.gone = self._gone
        return self

    def _gone(self) -> None:
        for call in tuple(self.calls or ()):
            call.drop()

    def deliver_batch(self, origin: Origin, answer: bytes | None, count: int, deliver: Deliver) -> None:
        deliver(answer)


class _Plain:
    """An exchange whose answer a task awaits."""

    __slots__ = ("caller", "future", "gone", "request")

    def __init__(self, request: bytes, future: asyncio.Future[bytes | None], caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None
        self.future = future

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def stream(self, message: bytes) -> bool:
        return False
