"""An `InboundCall` is one call in flight that takes time: it runs as a task, or in a worker thread.

It delivers exactly one answer. When time is up or the caller cancels, the error is delivered at once
and the handler's later result is dropped, while the slot of the call stays taken until the work has
really ended.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import UNSET, Raw

from ..channel import Caller, Closed
from ..jsonrpc.call_limit import busy
from ..jsonrpc.codec import Call as WireCall
from ..jsonrpc.codec import failure
from ..jsonrpc.errors import CallRefused, LocalError, Refusal, no_way
from ..jsonrpc.messages import Notification, Request
from .binding.results import to_json
from .context import Context
from .deadlines import Clock
from .dispatch import Acceptor, MethodTable, Origin, begin
from .method import Life, Method
from .observing import Arrival, Deliver, nothing, speak
from .thread_pool import ThreadPool


class Place(Protocol):
    """One slot of a method that has a concurrency of its own."""

    free: int
    queue: deque[asyncio.Future[None]]

    def take(self) -> None:
        """Take it; it is free."""

    def leave(self) -> None:
        """Release it to the next waiting call."""


class CallRunner(Protocol):
    """The part of a runner that a call uses."""

    runs: set[InboundCall]
    loop: asyncio.AbstractEventLoop
    clock: Clock

    @property
    def service(self) -> MethodTable:
        """The service whose methods it runs."""

    @property
    def pool(self) -> ThreadPool:
        """The worker threads."""

    def places(self, method: Method) -> Place:
        """The slots of a method that has a concurrency of its own."""


class CallAcceptor(Acceptor, Protocol):
    """An acceptor of calls that take time."""

    def settle(self, call: InboundCall) -> None:
        """The call has its answer, which is delivered next."""

    def release(self, call: InboundCall) -> None:
        """The call's work has ended, or is not counted: its slot is free."""


logger: logging.Logger = logging.getLogger("dragoman")

STEPS = 1_000
"""Progress values of one call on their way from its thread to the loop; further ones are dropped."""

if sys.version_info >= (3, 12):  # a task that starts at once, so that a handler that never waits costs no scheduling
    _task: Callable[..., asyncio.Task[None]] = partial(asyncio.Task, eager_start=True)
else:
    _task = asyncio.Task


class InboundCall:
    """One call in flight. It is the `Site` of its Context."""

    __slots__ = (
        "_asking",
        "_begun",
        "_freed",
        "_left",
        "_over",
        "_place",
        "_pool",
        "_questions",
        "_steps",
        "_task",
        "_threads",
        "_told",
        "acceptor",
        "after",
        "cancelled",
        "deliver",
        "key",
        "loop",
        "message",
        "method",
        "origin",
        "peer",
        "runner",
        "seen",
        "size",
    )

    def __init__(
        self,
        runner: CallRunner,
        method: Method,
        message: Request | Notification,
        acceptor: CallAcceptor,
        origin: Origin,
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
        self.origin: Origin = origin
        self.peer: Any = origin.peer
        self.key: Any = key
        """The key of its id in the conversation; None for a notification."""
        self.after: int = 0 if self.peer is None else self.peer.conversation.last_id
        """The id of the last call to the caller when this one came in."""
        self.deliver: Deliver = deliver
        self.seen: Arrival | None = deliver if type(deliver) is Arrival else None
        """What tells observers; None where there are none."""
        self.cancelled: bool = False
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._told = False
        self._over = False  # the coroutine has ended; its threads may go on
        self._pool: ThreadPool | None = None  # the pool of its threads
        self._threads = 0  # abandoned threads that have not returned
        self._asking = 0
        self._left: float | None = None  # time left when it began to ask
        self._questions: set[asyncio.Task[Any]] | None = None  # questions that threads wait for
        self._steps = 0  # progress values on their way from a thread to the loop
        self._place: Place | None = None  # the slot of its method
        self._freed = False  # its slot among the calls in flight was released

    @property
    def reply_stream(self) -> Callable[[bytes], bool] | None:
        return self.origin.reply_stream

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""
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
            if method.stream:  # before the task: an eager one may end, and be released, in its first step
                self._uncount()
            work = self._work() if method.concurrency is None else self._work_in_turn()
            self._task = task = _task(work, loop=self.loop, context=None if self.seen is None else self.seen.context)
            if task.done():  # an eager task that never waited
                self._task = None
            elif self._begun and self._told:  # an eager task that was ended while it began
                task.cancel()
        except Exception as error:
            if self._task is not None or self._over:
                logger.exception("call %r: a fault after its beginning", method.name)
                return
            if work is not None:
                work.close()
            self._close(runner.service.answers.failed(self.message, error))

    def _uncount(self) -> None:
        """Release the slot of a long-lived call at once."""
        self._freed = True
        self.acceptor.release(self)

    async def _work(self) -> None:
        self._begun = True
        answer: bytes | None = None
        if self._told:  # ended before it began
            self._close(None)
            return
        method, message = self.method, self.message
        refusal: Refusal | None = None
        try:
            if self.seen is not None:
                self.seen.start()
            value = await begin(method, message, self)
            answer = self.runner.service.dispatcher.written(method.binding, message, value)
        except asyncio.CancelledError:
            if not self._told:  # not cancelled by us: by the handler, or by the end of the loop
                answer = self.runner.service.answers.failed(self.message, LocalError("the handler was cancelled"))
        except (KeyboardInterrupt, GeneratorExit) as error:
            if isinstance(error, KeyboardInterrupt) or not self._stepped():  # the end of the program, or of the loop
                self._told = True
                raise
            answer = self.runner.service.answers.failed(self.message, error)
        except BaseException as error:  # a handler may raise what is not an Exception: it owes an answer all the same
            if self.seen is not None:
                self.seen.raised(error)
            refusal = error.refusal if isinstance(error, CallRefused) else None
            answer = self.runner.service.answers.failed(self.message, error)
        finally:
            self._close(answer, refusal)

    def _stepped(self) -> bool:
        """Whether the loop runs this coroutine now, and is not closing it."""
        try:
            current = asyncio.current_task()
        except RuntimeError:
            return False
        return current is not None and self._task in (None, current)

    def _close(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        """The coroutine has ended. Its slot is released even if the wire fails to take the answer."""
        try:
            self._tell(answer, refusal)
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
            logger.exception("call %r: its place could not be given back", self.method.name)

    async def _work_in_turn(self) -> None:
        self._begun = True
        places = self.runner.places(self.method)
        if self._told:  # ended before it began
            self._close(None)
            return
        if not places.free:
            if self.method.queue is not None and len(places.queue) >= self.method.queue:
                refusal = busy(f"concurrency of {self.method.name}", self.method.concurrency or 0)
                self._close(self.refused(refusal), refusal)
                return
            turn: asyncio.Future[None] = self.loop.create_future()
            places.queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # its turn had come
                    places.leave()
                elif turn in places.queue:
                    places.queue.remove(turn)
                self._close(None)
                return
        else:
            places.take()
        self._place = places
        await self._work()

    def _tell(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if self._told:
            return
        self._told = True
        deliver, self.deliver = self.deliver, nothing
        try:
            self.acceptor.settle(self)
            deliver(answer) if refusal is None else deliver(answer, refusal)
        except Exception as error:  # a fault of ours on the way: the caller still gets an answer
            self.acceptor.settle(self)
            deliver(self.runner.service.answers.failed(self.message, error))

    def _gone(self) -> None:
        self.runner.runs.discard(self)
        self._task = None
        if self._place is not None:
            self._place.leave()
        if not self._freed:
            self._freed = True
            self.acceptor.release(self)

    def refused(self, refusal: Refusal) -> bytes | None:
        """What its caller is told in place of a result; None where the caller waits for none."""
        if self.seen is not None:
            self.seen.refusal = refusal
        if isinstance(self.message, Notification):
            return None
        return failure(self.message.id, self.acceptor.dialect.error(refusal), self.message.version)

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
        self._tell(None if refusal is None else self.refused(refusal))
        if self._task is not None and self._begun:  # before its first step it would end without giving its place back
            self._task.cancel()
        for question in tuple(self._questions or ()):
            question.cancel()

    @property
    def asks(self) -> bool:
        """Whether it waits for an answer of its caller."""
        return self._asking > 0

    def abandon(self) -> None:
        """Its caller cannot get the answer: `end` without one, and release the slot now, whatever its work does."""
        self.end(None)
        if not self._freed:
            self._uncount()

    def drop(self, why: str = "the caller went away") -> None:
        """The answer is not waited for: stop the work."""
        self._told = True
        if self.seen is not None:
            self.seen.end("lost", why)
        self.end(None)

    def expired(self) -> None:
        timeout = (
            self.method.timeout if self.method.timeout is not UNSET else self.runner.service.limits.handler_timeout
        )
        data = {"limit": "handler_timeout", "allowed": timeout}
        self.end(Refusal("timed_out", f"Timed out: {self.method.name} took longer than {timeout} s", data))

    # -- what its Context may ask for

    def left(self) -> float | None:
        return self.runner.clock.left(self)

    def renew(self) -> None:
        if self.method.kind != "thread":
            self._renew()
        elif not self._told:
            self._hand_over(self._renew)

    def _renew(self) -> bool:
        own = self.method.timeout
        timeout = self.runner.service.limits.handler_timeout if own is UNSET else own
        if timeout is not None and not self._told and self.left() is not None:  # None while a question is under way
            self.runner.clock.set(self, timeout)
        return True

    def progress(self, message: Request | Notification, value: Any) -> bool:
        if self._told:
            return False
        if isinstance(message, Notification) or self.peer is None:
            self.renew()
            return False
        if self.method.kind != "thread":
            return self._progress(message, value)
        return self._hand_over(self._progress, message, Raw(to_json(value)))

    def _progress(self, message: Request, value: Any) -> bool:
        if self._told:
            return False
        self._renew()
        if self.peer is not None and self.origin.reply_stream is None:
            return bool(self.peer.tell_progress(message.id, value))
        return False

    def speak(self, raw: bytes, method: str) -> bool:
        """Send a message ahead of the answer, where the call was asked; from a thread too. False: it was dropped."""
        if self._told:
            return False
        if self.method.kind != "thread":
            return self._speak(raw, method)
        return self._hand_over(self._speak, raw, method)

    def _speak(self, raw: bytes, method: str) -> bool:
        return not self._told and speak(self.origin, raw, method, self.runner.service.watch)

    def _hand_over(self, say: Callable[..., bool], *words: Any) -> bool:
        """Pass a message from a thread to the loop; False when too many are on their way."""
        if self._steps >= STEPS:
            return False
        self._steps += 1
        return self._pool is not None and self._pool.call_soon(self._handed_over, say, words)

    def _handed_over(self, say: Callable[..., bool], words: tuple[Any, ...]) -> None:
        self._steps -= 1
        say(*words)

    async def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self._pool = self.runner.pool
        work = self._pool.submit(function, arguments)
        try:
            return await work.future
        except asyncio.CancelledError:
            self.cancelled = True
            if work.abandon(self._thread_ended):
                self._threads += 1
            raise

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result()
        except RuntimeError:
            if not self.loop.is_closed():
                raise
            work.close()
            raise Closed(f"{self.method.name}: the loop that this call came in on is closed") from None

    @property
    def table(self) -> MethodTable:
        """The service whose method it is."""
        return self.runner.service

    @property
    def state(self) -> Any:
        life = self.method.life
        return None if life is None else life.held(self.loop).get(None)

    def held(self, life: Life) -> Mapping[Any, Any]:
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
        asked = [self.loop.create_task(self._ask(method, params, result, timeout)) for method, params in calls]
        try:
            return await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()

    def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, for a thread; if the call ends meanwhile, so does the waiting."""
        asked = self._question(work)
        try:
            question = asyncio.run_coroutine_threadsafe(asked, self.loop)
        except RuntimeError:
            asked.close()
            work.close()
            raise Closed(f"{self.method.name}: the loop that this call came in on is closed") from None
        return question.result()

    async def _question(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        if self._told and not isinstance(self.message, Notification):  # ended while this was on its way to the loop
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
        if not self._asking:
            self._left = self.left()
        self._asking += 1
        self.runner.clock.drop(self)
        try:
            say = self.origin.reply_stream
            return await self.peer.call(method, params, result=result, timeout=timeout, reply_stream=say)
        finally:
            self._asking -= 1
            if not self._asking and self._left is not None and not self._told:
                self.runner.clock.set(self, self._left)

    def tell(self, context: Context, method: str, params: Any) -> Any:
        work = self._notify(method, params) if self.peer is None else self.peer.notify(method, params)
        return self._awaited(work) if self.method.kind == "thread" else work

    async def _notify(self, method: str, params: Any) -> None:
        """Notify the caller ahead of the answer, on a wire that carries no calls back."""
        if not self._speak(to_json(WireCall(method, params)), method):
            wire = self.caller.scheme or "this wire"
            text = f"{self.method.name}: {wire} carries no notifications to the caller, or takes none now"
            raise no_way(text, "notifies its caller", wire)
