"""Runs calls that take time: one loop, its threads, its deadlines and limits, for exchanges and peers alike.

`Runner.answer` and `Runner.exchange` take single messages; peers bring theirs through the dispatcher of the same
service. `inbound` has one call in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..channel import Caller, CallLimit, Exchange
from ..jsonrpc.codec import AnyAnswer, FailedAnswer, PlainMessage, read
from ..jsonrpc.errors import Dialect, LocalError, Refusal
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result
from .concurrency import ConcurrencyLimit, MethodKey
from .deadlines import DeadlineClock
from .dispatch import HERE, MessageOrigin, MethodHost
from .inbound import CLOSED, InboundCall
from .method import Method
from .observing import Arrival, Deliver, nothing, numbers
from .thread_pool import ThreadPool
from .thread_share import ThreadShare

if TYPE_CHECKING:
    from ..allowance import Allowance

logger: logging.Logger = logging.getLogger("dragoman")

PATIENCE = 0.5
"""The part of a drain during which a channel takes new calls because older ones are still in flight on it."""
_ASKING = (Request, Notification, Batch)


class Runner:
    """Runs the calls of one service: one call limit, one pool of threads, one clock for all its wires."""

    def __init__(self, service: MethodHost) -> None:
        self.service = service
        self.call_limit: CallLimit = CallLimit(service.limits)
        self.loop: asyncio.AbstractEventLoop
        """The loop on which it runs now; see `bind`."""
        self.clock: DeadlineClock
        self._bound: asyncio.AbstractEventLoop | None = None
        self.runs: set[InboundCall] = set()
        self.peers: set[Any] = set()
        """The `Peer`s whose calls it runs; it closes them when it drains."""
        self._pool: ThreadPool | None = None
        self._concurrency_limits: dict[MethodKey, ConcurrencyLimit] = {}
        self.parked: int = 0
        """Threads that wait for answers from elsewhere: at most half of all, so that others find one."""
        self.detached: Allowance | None = None
        """The calls that go on beyond their requests, by owner; None before the first of them."""
        self._detached_threads: ThreadShare | None = None
        self._exchanges = _ExchangesInPlace(service)

    def bind(self) -> None:
        """Run on the running loop from now on; a test client may run one app on several loops, one by one.

        Raises LocalError where calls still run on another loop, which runs in another thread.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._bound:
            if self._bound is not None and self._bound.is_running() and (self.runs or self.peers):
                raise LocalError(
                    f"{self.service.name} is served on another event loop, in another thread, and calls run there: serve "
                    "it once, or make a service for each loop"
                )
            self._bound = self.loop = loop
            self.clock = DeadlineClock(loop)
            self._pool = self._detached_threads = None

    @property
    def pool(self) -> ThreadPool:
        """The worker threads, `limits.threads` of them at most."""
        if self._pool is None:
            self._pool = ThreadPool(self.loop, self.service.limits.threads, f"dragoman-{self.service.name}")
        return self._pool

    @property
    def detached_threads(self) -> ThreadShare:
        """The threads of calls that go on beyond their requests: three quarters of all. Half of all may wait for
        answers, and neither these nor the quick functions of requests must be without any."""
        if self._detached_threads is None:
            self._detached_threads = ThreadShare(max(1, self.service.limits.threads * 3 // 4))
        return self._detached_threads

    def slots(self, method: Method) -> ConcurrencyLimit:
        """The slots of a method that has a concurrency of its own."""
        key = method.name, method.binding
        return self._concurrency_limits.get(key) or ConcurrencyLimit(
            method.concurrency or 1, key, self._concurrency_limits
        )

    def measures(self) -> dict[str, float]:
        """For metrics: channels, and calls that wait for a slot or for a thread."""
        peers = tuple(self.peers)
        waiting = sum(len(peer._conversation.waiting) for peer in peers)
        waiting += sum(len(one.queue) for one in tuple(self._concurrency_limits.values()))
        waiting += 0 if self._pool is None else self._pool.waiting
        waiting += 0 if self._detached_threads is None else self._detached_threads.waiting
        return {"channels": len(peers), "calls_waiting": waiting}

    # -- exchanges

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange: in place where the method is quick, else from a task. Raises nothing: a fault of ours is
        the answer."""
        service = self.service
        wire = None
        try:
            if service._quick and not self.call_limit.draining:
                found = service._answer_inline(x.request, None, self._exchanges, x.caller)
                if found is not None and type(found) is not PlainMessage:
                    x.respond(found)
                    return
                wire = found
            self.take(x, read(x.request, service.limits, service._lenient, wire))
        except Exception as error:
            self._faulty(x, error)

    def take(self, x: Exchange, message: Message) -> None:
        """Answer one exchange whose message is already decoded. Raises nothing, as `exchange`."""
        try:
            origin = ExchangeOrigin(x.caller, None, x.stream, True, runner=self, x=x)
            refusal = self.call_limit.refusal()
            if refusal is None or type(message) not in _ASKING:
                self.service._dispatcher.dispatch(message, origin, origin, x.respond, x.request)
            else:
                self._refuse(origin, message, refusal)
        except Exception as error:
            self._faulty(x, error)

    def _faulty(self, x: Exchange, error: Exception) -> None:
        if self.service._watch is not None:
            self.service._watch.faulty(x.caller.path, x.caller, x.request, error)
        self.service._answers.faulty(x.request, error, x.respond)

    def _refuse(self, origin: ExchangeOrigin, message: Message, refusal: Refusal) -> None:
        answer, x = self.service._answers.refused(message, refusal), origin.x
        if self.service._watch is not None:
            self.service._watch.refused(message, origin, x.caller, answer, None, x.request)
        x.respond(answer)

    async def answer(self, raw: bytes, caller: Caller = HERE.caller) -> bytes | None:
        """One message and its answer."""
        self.bind()
        x = _Plain(raw, self.loop.create_future(), caller)
        if len(raw) > self.service.limits.message_size:
            return self.service._oversized(raw, ExchangeOrigin(x.caller, None, x.stream, True, runner=self, x=x))
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
        """Refuse new exchanges, close each channel once its own calls have ended (`ChannelPeer.part`); after `timeout`
        seconds cancel what is still in flight and close the rest."""
        self.bind()
        self.call_limit.drain()
        for run in tuple(self.runs):
            if run.is_parked:
                run.end(CLOSED)
        owed: dict[Any, set[InboundCall]] = {}
        for run in [run for run in self.runs if not run.method.stream and run.acceptor is run.peer]:
            owed.setdefault(run.peer, set()).add(run)
        patience = timeout * PATIENCE
        waits: set[asyncio.Future[None]] = set()
        for peer in tuple(self.peers):
            waits.add(self.loop.create_task(peer.part(owed.get(peer, set()), patience)))
        parting = tuple(waits)
        if self.call_limit.in_flight:
            idle = self.loop.create_future()
            waits.add(idle)
            self.call_limit.idle = lambda: None if idle.done() else idle.set_result(None)
        if waits:
            await asyncio.wait(waits, timeout=timeout)
        self.call_limit.idle = None
        for peer in tuple(self.peers):
            peer.turn_away(CLOSED)
        for run in tuple(self.runs):
            run.end(CLOSED)
        if self.peers:
            await asyncio.wait([asyncio.ensure_future(peer.close(0)) for peer in tuple(self.peers)])
        for one in parting:
            one.cancel()
        self.release()


def runner_of_loop(runners: dict[asyncio.AbstractEventLoop, Runner], service: MethodHost) -> Runner:
    """Return the runner of the running loop among `runners`, one a loop, or make it. Those of closed loops go."""
    loop = asyncio.get_running_loop()
    if (found := runners.get(loop)) is not None:
        return found
    for other in tuple(runners):
        if other.is_closed():
            runners.pop(other, None)
    made = runners[loop] = Runner(service)
    return made


class _ExchangesInPlace:
    """Exchanges that are answered in place, as observers see them: each has another number."""

    __slots__ = ("_service",)
    _session_name = ""

    def __init__(self, service: MethodHost) -> None:
        self._service = service

    @property
    def _dialect(self) -> Dialect:
        return self._service._answers.dialect

    @property
    def _number(self) -> int:
        return next(numbers)


class ExchangeOrigin(MessageOrigin, kw_only=True, eq=False):
    """The origin of one exchange's messages, and its acceptor. Whether the runner drains was looked at when it came."""

    runner: Runner
    x: Exchange
    given: int = 0
    """Its number, made when it is first read: only observers do."""
    calls: list[InboundCall] | None = None
    """The calls of its batch; None for a single message."""

    @property
    def _number(self) -> int:
        """Its number for observers."""
        self.given = self.given or next(numbers)
        return self.given

    _session_name = ""
    """An exchange has no session."""

    @property
    def acknowledges(self) -> bool:
        """Whether a notification is acknowledged when it was accepted, or when its handler has ended."""
        return getattr(self.x, "acknowledges", False)

    @property
    def _dialect(self) -> Dialect:
        return self.runner.service._answers.dialect

    @property
    def _limits(self) -> Limits:
        return self.runner.service.limits

    def consumes(self, message: Notification) -> bool:
        return False

    def takes_inline(self, message: Request | Notification) -> bool:
        return True

    def start_call(
        self, origin: MessageOrigin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        runner = self.runner
        runner.bind()
        notified = type(message) is Notification and self.acknowledges
        answers = deliver
        if notified and self.calls is None:  # one of a batch is waited for by the next, which takes its slot
            answers = deliver.work_alone() if type(deliver) is Arrival else nothing
        call = InboundCall(runner, method, message, self, self, answers, size)
        refusal = runner.call_limit.enter(already_accepted=True, size=size)
        if refusal is not None:
            if answers is not deliver and call.seen is not None:
                call.seen.over(None, refusal)
            deliver(call.refused(refusal))
            return
        if notified:  # it goes on when the caller leaves
            call.start()
            if answers is not deliver:
                deliver(None)
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
            if call in self.calls:
                self.calls.remove(call)
        elif not call.method.stream:
            self.x.gone = None  # no reference cycle after the end

    def responded(self, message: Result | Failure) -> None:
        """Ignored: no call waits for one on an exchange."""

    def malformed(self, message: Malformed) -> bool:
        return False

    def batched(self, origin: MessageOrigin) -> MessageOrigin:
        self.calls = []
        self.x.gone = self._gone
        return self

    def _gone(self) -> None:
        for call in tuple(self.calls or ()):
            call.drop()

    def deliver_batch(self, origin: MessageOrigin, answer: AnyAnswer, count: int, deliver: Deliver) -> None:
        deliver(answer)


class _Plain:
    """An exchange whose answer a task awaits."""

    __slots__ = ("caller", "future", "gone", "request")

    def __init__(self, request: bytes, future: asyncio.Future[bytes | None], caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None
        self.future = future

    def respond(self, answer: AnyAnswer) -> None:
        if not self.future.done():
            self.future.set_result(answer.text if type(answer) is FailedAnswer else answer)

    def stream(self, message: bytes) -> bool:
        return False
