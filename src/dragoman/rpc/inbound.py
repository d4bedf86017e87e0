"""One call of the far end in flight: runs as a task, or in a worker thread, and delivers exactly one answer.

When time is up or the caller cancels, the error is delivered at once and the handler's later result is dropped, while
the slot of the call stays taken until the work has really ended.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import UNSET, Raw
from msgspec.structs import replace

from ..channel import Caller, CallLimit, Closed
from ..jsonrpc.call_limit import busy
from ..jsonrpc.codec import AnyAnswer, CallMessage, FailedAnswer
from ..jsonrpc.errors import CallRefused, Dialect, LocalError, Refusal, no_way
from ..jsonrpc.messages import Notification, Request
from .binding.results import to_json
from .concurrency import ConcurrencyLimit
from .context import Context
from .deadlines import DeadlineClock
from .dispatch import MessageOrigin, MethodHost, begin
from .method import Method
from .observing import Arrival, Deliver, nothing, speak
from .thread_pool import ThreadPool, Work
from .thread_share import ThreadShare

if TYPE_CHECKING:
    from ..allowance import Allowance
    from .lifespan import Lifespan

logger: logging.Logger = logging.getLogger("dragoman")

STEPS = 1_000
"""Progress values of one call on their way from its thread to the loop; further ones are dropped."""

if sys.version_info >= (3, 12):  # a task that starts at once, so that a handler that never waits costs no scheduling
    _task: Callable[..., asyncio.Task[None]] = partial(asyncio.Task, eager_start=True)
else:
    _task = asyncio.Task


class CallAcceptor(Protocol):
    """What has accepted a call that takes time."""

    @property
    def _dialect(self) -> Dialect:
        """The far end's conventions for refusals, cancels and progress."""

    def settle(self, call: InboundCall) -> None:
        """The call has its answer, which is delivered next."""

    def release(self, call: InboundCall) -> None:
        """The call's work has ended, or is not counted: its slot is free."""


class CallRunner(Protocol):
    """What runs calls, and has their limits, clock and threads: a `Runner`."""

    service: MethodHost
    call_limit: CallLimit
    loop: asyncio.AbstractEventLoop
    clock: DeadlineClock
    runs: set[InboundCall]
    parked: int
    detached: Allowance | None

    @property
    def pool(self) -> ThreadPool: ...
    @property
    def detached_threads(self) -> ThreadShare: ...
    def slots(self, method: Method) -> ConcurrencyLimit: ...


CLOSED: Final = Refusal("draining", "Draining: the server closed before the call was done")


class InboundCall:
    """One call in flight. It is the `Site` of its Context."""

    __slots__ = (
        "_answered", "_asking", "_begun", "_freed", "_left", "_over", "_parked", "_pool", "_questions", "_slots", "_steps", "_task",
        "_thread_work", "_threads", "acceptor", "after", "cancelled", "deliver", "key", "loop", "message", "method", "origin", "peer",
        "runner", "seen", "size",
    )  # fmt: skip

    def __init__(
        self,
        runner: CallRunner,
        method: Method,
        message: Request | Notification,
        acceptor: CallAcceptor,
        origin: MessageOrigin,
        deliver: Deliver,
        size: int,
        key: Any = None,
    ) -> None:
        self.runner: CallRunner = runner
        self.loop: asyncio.AbstractEventLoop = runner.loop
        self.method: Method = method
        self.message: Request | Notification = message
        self.size: int = size
        """Bytes of its params as they came."""
        self.acceptor: CallAcceptor = acceptor
        self.origin: MessageOrigin = origin
        self.peer: Any = origin.peer
        self.key: Any = key
        """The key of its id in the conversation; None for a notification."""
        self.after: int = 0 if self.peer is None else self.peer._conversation.last_id
        """The id of the last call to the caller when this one came in."""
        self.deliver: Deliver = deliver
        self.seen: Arrival | None = deliver if type(deliver) is Arrival else None
        """Notifies observers; None where there are none."""
        self.cancelled: bool = False
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._answered = False
        self._over = False  # the coroutine has ended; its threads may go on
        self._pool: ThreadPool | None = None  # the pool of its threads
        self._thread_work: Work | None = None  # the function that runs in a thread, or waits for one
        self._threads = 0  # abandoned threads that have not returned
        self._asking = 0
        self._parked = 0  # answers from later requests that it waits for
        self._left: float | None = None  # time left when it began to ask
        self._questions: set[asyncio.Task[Any]] | None = None  # questions that threads wait for
        self._steps = 0  # progress values on their way from a thread to the loop
        self._slots: ConcurrencyLimit | None = None  # the slot of its method
        self._freed = False  # its slot among the calls in flight was released

    def take_slot(self) -> ConcurrencyLimit | None:
        """Take the slot of its method from this call, for another that does its work from now on; None: it has none."""
        slots, self._slots = self._slots, None
        return slots

    @property
    def reply_stream(self) -> Callable[[bytes], bool] | None:
        return self.origin.reply_stream

    @property
    def caller(self) -> Caller:
        """The far end, as the wire knows it."""
        return self.origin.caller

    # -- its life

    def start(self) -> None:
        """Start; its slot is already taken. Raises nothing: a fault of ours becomes the call's answer."""
        runner, method = self.runner, self.method
        work: Coroutine[Any, Any, None] | None = None
        try:
            timeout = method.timeout if method.timeout is not UNSET else runner.service.limits.handler_timeout
            if timeout is not None:
                runner.clock.set(self, timeout)
            runner.runs.add(self)
            if self.seen is not None:
                self.seen.seen.stop = self.end
                self.seen.seen.work = self
            if method.stream:  # before the task: an eager one may end, and be released, in its first step
                self._uncount()
            work = self._work() if method.concurrency is None else self._work_in_turn()
            self._task = task = _task(work, loop=self.loop, context=None if self.seen is None else self.seen.context)
            if task.done():  # an eager task that never waited
                self._task = None
            elif self._begun and self._answered:  # an eager task that was ended while it began
                task.cancel()
        except Exception as error:
            if self._task is not None or self._over:
                logger.exception("call %r: a fault after its beginning", method.name)
                return
            if work is not None:
                work.close()
            self._close(runner.service._answers.failed(self.message, error))

    def _uncount(self) -> None:
        """Release the slot of a long-lived call at once."""
        self._freed = True
        self.acceptor.release(self)

    async def _work(self) -> None:
        self._begun = True
        answer: AnyAnswer = None
        if self._answered:  # ended before it began
            self._close(None)
            return
        method, message = self.method, self.message
        try:
            if self.seen is not None:
                self.seen.enter()
            value = await begin(method, message, self)
            answer = self.runner.service._dispatcher.written(method.binding, message, value)
        except asyncio.CancelledError:
            if not self._answered:  # not cancelled by us: by the handler, or by the end of the loop
                answer = self.runner.service._answers.failed(self.message, LocalError("the handler was cancelled"))
        except (KeyboardInterrupt, GeneratorExit) as error:
            if isinstance(error, KeyboardInterrupt) or not self._stepped():  # the end of the program, or of the loop
                self._answered = True
                raise
            answer = self.runner.service._answers.failed(self.message, error)
        except BaseException as error:  # a handler may raise what is not an Exception: it owes an answer all the same
            if self.seen is not None:
                self.seen.raised(error)
            answer = self.runner.service._answers.failed(self.message, error)
        finally:
            self._close(answer)

    def _stepped(self) -> bool:
        """Whether the loop runs this coroutine now, and is not closing it."""
        try:
            current = asyncio.current_task()
        except RuntimeError:
            return False
        return current is not None and self._task in (None, current)

    def _close(self, answer: AnyAnswer) -> None:
        """The coroutine has ended. Its slot is released even if the wire fails to take the answer."""
        try:
            self._deliver_once(answer)
            self.runner.clock.drop(self)
        except Exception:
            logger.exception("call %r: its answer could not be given to its wire", self.method.name)
        self._over = True
        if self.seen is not None:
            self.seen.end("lost", "it was ended before its answer")
        if self._threads:
            return
        try:
            self._gone()
        except Exception:
            logger.exception("call %r: its slot could not be released", self.method.name)

    async def _work_in_turn(self) -> None:
        self._begun = True
        slots = self.runner.slots(self.method)
        if self._answered:  # ended before it began
            self._close(None)
            return
        if not slots.free:
            if self.method.queue is not None and len(slots.queue) >= self.method.queue:
                self._close(self.refused(busy(f"concurrency of {self.method.name}", self.method.concurrency or 0)))
                return
            turn: asyncio.Future[None] = self.loop.create_future()
            slots.queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # its turn had come
                    slots.leave()
                elif turn in slots.queue:
                    slots.queue.remove(turn)
                self._close(None)
                return
        else:
            slots.take()
        self._slots = slots
        await self._work()

    def _deliver_once(self, answer: AnyAnswer) -> None:
        if self._answered:
            return
        self._answered = True
        deliver, self.deliver = self.deliver, nothing
        try:
            self.acceptor.settle(self)
            deliver(answer)
        except Exception as error:  # a fault of ours on the way: the caller still gets an answer
            self.acceptor.settle(self)
            deliver(self.runner.service._answers.failed(self.message, error))

    def _gone(self) -> None:
        self.runner.runs.discard(self)
        self._task = None
        slots = self.take_slot()  # which a detached call cannot take any more
        if slots is not None:
            slots.leave()
        if not self._freed:
            self._freed = True
            self.acceptor.release(self)

    def refused(self, refusal: Refusal) -> FailedAnswer:
        """Return the error that its caller receives instead of a result."""
        return self.runner.service._answers.refused(self.message, refusal, self.acceptor._dialect)

    @property
    def is_here(self) -> bool:
        """Whether the running code is inside this call."""
        if self._task is None:  # an eager task is not known before its first step is over
            return self._begun and not self._over
        return self._task is asyncio.current_task()

    # -- its ends from outside

    def end(self, refusal: Refusal | None) -> None:
        """Deliver the refusal (None: no answer) now and stop the work as far as possible."""
        self.cancelled = True
        self.runner.clock.drop(self)
        self._deliver_once(None if refusal is None else replace(self.refused(refusal), refusal=None, ended=refusal))
        if self._task is not None and self._begun:  # before its first step it would end without releasing its slot
            self._task.cancel()
        for question in tuple(self._questions or ()):
            question.cancel()

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer that comes in a later request."""
        return self._parked > 0

    @property
    def asks(self) -> bool:
        """Whether it waits for an answer of its caller."""
        return self._asking > 0

    def abandon(self) -> None:
        """Its caller cannot get the answer: `end` without one, and release the slot now, also while its work goes
        on."""
        self.end(None)
        if not self._freed:
            self._uncount()

    def drop(self, why: str = "the caller went away") -> None:
        """The answer is not waited for: stop the work."""
        self._answered = True
        if self.seen is not None:
            self.seen.end("lost", why)
        self.end(None)

    def expired(self) -> None:
        timeout = (
            self.method.timeout if self.method.timeout is not UNSET else self.runner.service.limits.handler_timeout
        )
        data = {"limit": "handler_timeout", "allowed": timeout}
        self.end(Refusal("timed_out", f"Timed out: {self.method.name} took longer than {timeout} s", data))

    # -- where it is

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs it; None in its first step, and after its end."""
        return self._task

    @property
    def thread_id(self) -> int:
        """The thread that runs its function; 0: none does now."""
        return 0 if self._thread_work is None else self._thread_work.thread

    # -- what its Context may ask for

    def left(self) -> float | None:
        return self.runner.clock.left(self)

    def renew(self) -> None:
        if self.method.kind != "thread":
            self._renew()
        elif not self._answered:
            self._hand_over(self._renew)

    def _renew(self) -> bool:
        own = self.method.timeout
        timeout = self.runner.service.limits.handler_timeout if own is UNSET else own
        if timeout is not None and not self._answered and self.left() is not None:  # None while a question is under way
            self.runner.clock.set(self, timeout)
        return True

    def progress(self, message: Request | Notification, value: Any) -> bool:
        if self._answered:
            return False
        if isinstance(message, Notification) or self.peer is None:
            self.renew()
            return False
        if self.method.kind != "thread":
            return self._progress(message, value)
        return self._hand_over(self._progress, message, Raw(to_json(value)))

    def _progress(self, message: Request, value: Any) -> bool:
        if self._answered:
            return False
        self._renew()
        if self.peer is not None and self.origin.reply_stream is None:
            return bool(self.peer.send_progress(message.id, value))
        return False

    def speak(self, raw: bytes, method: str) -> bool:
        """Send a message ahead of the answer, on the stream of the call; from a thread too. False: it was dropped."""
        if self._answered:
            return False
        if self.method.kind != "thread":
            return self._speak(raw, method)
        return self._hand_over(self._speak, raw, method)

    def _speak(self, raw: bytes, method: str) -> bool:
        return not self._answered and speak(self.origin, raw, method, self.runner.service._watch)

    def _hand_over(self, say: Callable[..., bool], *words: Any) -> bool:
        """Pass a message from a thread to the loop; False when too many are on their way."""
        if self._steps >= STEPS:
            return False
        self._steps += 1
        return self._pool is not None and self._pool.call_soon(self._handed_over, say, words)

    def _handed_over(self, say: Callable[..., bool], words: tuple[Any, ...]) -> None:
        self._steps -= 1
        if self.seen is None:
            say(*words)
        else:  # this may run in the context of another thread's call
            self.seen.within(say, *words)

    async def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self._pool = self.runner.pool
        self._thread_work = work = self._pool.submit(function, arguments)
        try:
            return await work.future
        except asyncio.CancelledError:
            self.cancelled = True
            if work.abandon(self._thread_ended):
                self._threads += 1
            raise
        finally:
            self._thread_work = None  # no reference cycle after the end

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result()
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            work.close()
            raise Closed(f"{self.method.name}: the loop that this call came in on is closed") from None

    @property
    def service(self) -> MethodHost:
        """The service whose method it is."""
        return self.runner.service

    @property
    def state(self) -> Any:
        life = self.method.life
        return None if life is None else life.held(self.loop).get(None)

    def held(self, life: Lifespan) -> Mapping[Any, Any]:
        return life.held(self.loop)

    def _thread_ended(self) -> None:
        self._threads -= 1
        if self._over and not self._threads:
            self._gone()

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        work = self._ask(method, params, result, timeout)
        return self._awaited(work) if self.method.kind == "thread" else work

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        work = self._ask_all(calls, result, timeout)
        return self._awaited(work) if self.method.kind == "thread" else work

    async def _ask_all(self, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> list[Any]:
        tasks = [self.loop.create_task(self._ask(method, params, result, timeout)) for method, params in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for one in tasks:
                one.cancel()

    def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, for a thread; if the call ends meanwhile, so does the waiting."""
        asking = self._question(work)
        try:
            question = asyncio.run_coroutine_threadsafe(asking, self.loop)
        except RuntimeError:
            asking.close()
            work.close()
            raise Closed(f"{self.method.name}: the loop that this call came in on is closed") from None
        return question.result()

    async def _question(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        if self._answered and not isinstance(self.message, Notification):  # ended while this was on its way to the loop
            work.close()
            raise asyncio.CancelledError
        self._questions = questions = self._questions or set()
        questions.add(task)
        try:
            return await work
        finally:
            questions.discard(task)

    async def _ask(self, method: str, params: Any, result: Any, timeout: Any) -> Any:
        if self.peer is None:
            wire = self.caller.scheme or "this wire"
            text = f"{self.method.name}: {wire} carries no calls back to the caller"
            raise no_way(text, "calls its caller back", wire)
        say = self.origin.reply_stream
        return await self._paused(self.peer.call(method, params, result=result, timeout=timeout, reply_stream=say))

    def ask_elsewhere(self, context: Context, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if self.method.kind == "thread":
            return self._awaited(self._park(work))
        return self._elsewhere(work)

    async def _elsewhere(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Await an answer that comes in a later request. Ends the call if the server drains: none comes any more."""
        if self.runner.call_limit.draining:
            self.end(CLOSED)
            raise asyncio.CancelledError
        self._parked += 1
        try:
            return await self._paused(work())
        finally:
            self._parked -= 1

    async def _park(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Await an answer for a thread, which may come after days. Raises CallRefused where too many threads wait."""
        runner = self.runner
        most = max(1, runner.service.limits.threads // 2)
        if runner.parked >= most:
            data = {"limit": "threads", "allowed": most, "retry_after": 1}
            raise CallRefused(Refusal("busy", f"Busy: {most} threads wait for answers, half of all", data))
        runner.parked += 1
        try:
            return await self._elsewhere(work)
        finally:
            runner.parked -= 1

    async def _paused(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await an answer; the call's time-out is paused meanwhile."""
        if not self._asking:
            self._left = self.left()
        self._asking += 1
        self.runner.clock.drop(self)
        try:
            return await work
        finally:
            self._asking -= 1
            if not self._asking and self._left is not None and not self._answered:
                self.runner.clock.set(self, self._left)

    def notify(self, context: Context, method: str, params: Any) -> Any:
        work = self._notify(method, params) if self.peer is None else self.peer.notify(method, params)
        return self._awaited(work) if self.method.kind == "thread" else work

    async def _notify(self, method: str, params: Any) -> None:
        """Notify the caller ahead of the answer, on a wire that carries no calls back."""
        if not self._speak(to_json(CallMessage(method, params)), method):
            wire = self.caller.scheme or "this wire"
            text = f"{self.method.name}: {wire} carries no notifications to the caller, or takes none now"
            raise no_way(text, "notifies its caller", wire)
