"""The asynchronous face of a service: runs its calls on the loop, for exchanges and for peers alike.

A `Run` is one call in flight that takes time: a task, or a worker thread. It delivers exactly one
answer; when time is up or the caller cancels, the error is delivered at once and what the handler
brings afterwards is dropped, while its place stays taken until the work has really ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from ..channel import Caller, Channel, Closed, Document, Exchange, Gate, busy
from ..jsonrpc.codec import failure, read
from ..jsonrpc.errors import PLAIN, Dialect, LocalError, Refusal
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import NULL, Batch, Failure, Malformed, Notification, Request, Result, Single
from .binding import to_json
from .clock import Clock
from .context import Context
from .service import Method, Service

if TYPE_CHECKING:
    from .peer import Peer

Deliver: TypeAlias = Callable[[bytes | None], None]
Start: TypeAlias = Callable[[Single, Deliver], None]

_encode = msgspec.json.Encoder().encode

STEPS = 1_000
"""Progress of one call on its way from its thread to the loop; what is beyond that is dropped."""

if sys.version_info >= (3, 12):

    def _task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that starts at once, so that a handler that never waits costs no scheduling."""
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def _task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return loop.create_task(work)


class Run:
    """One call in flight. It is the `Site` of its Context."""

    __slots__ = (
        "_asking",
        "_begun",
        "_left",
        "_over",
        "_questions",
        "_steps",
        "_task",
        "_threads",
        "_told",
        "after",
        "caller",
        "context",
        "deliver",
        "dialect",
        "exchange",
        "host",
        "loop",
        "message",
        "method",
        "peer",
        "release",
    )

    def __init__(
        self,
        host: Host,
        method: Method,
        message: Request | Notification,
        caller: Caller,
        deliver: Deliver,
        *,
        peer: Peer | None = None,
        exchange: Exchange | None = None,
        release: Callable[[], None] | None = None,
        dialect: Dialect = PLAIN,
    ) -> None:
        self.host = host
        self.loop = host.loop
        self.method = method
        self.message = message
        self.caller = caller
        self.peer = peer
        self.after = 0 if peer is None else peer.conversation.last_id
        """The last call that had gone out to the caller when this one came in."""
        self.exchange = exchange
        self.deliver = deliver
        self.release = release
        self.dialect = dialect
        self.context = Context(message, self, method.kind)
        self._task: asyncio.Task[None] | None = None
        self._begun = False
        self._told = False
        self._over = False  # the coroutine has ended; its threads may go on
        self._threads = 0  # those that were given up on and have not returned
        self._asking = 0
        self._left: float | None = None  # of its time, when it began to ask
        self._questions: set[asyncio.Task[Any]] | None = None  # that threads wait for
        self._steps = 0  # of its progress, on their way from a thread to the loop

    # -- its life

    def start(self) -> None:
        """Begin; a place has been taken for it already."""
        timeout = self.method.timeout if self.method.timeout is not UNSET else self.host.service.limits.handler_timeout
        if timeout is not None:
            self.host.clock.set(self, timeout)
        self.host.runs.add(self)
        if self.method.concurrency is None:
            self._task = _task(self.loop, self._work())
        else:
            self._task = _task(self.loop, self._work_in_turn())
        if self._task.done():  # an eager task that never waited
            self._task = None
        elif self._begun and self._told:  # an eager task that was ended while it began
            self._task.cancel()

    async def _work(self) -> None:
        self._begun = True
        answer: bytes | None = None
        if self._told:  # ended before it began
            self._close(None)
            return
        try:
            answer = await self.host.service.work(self.method, self.message, self.context)
        except asyncio.CancelledError:
            if not self._told:  # nobody of ours cancelled: the handler did, or the loop is ending
                answer = self.host.service.failed(self.message, LocalError("the handler was cancelled"))
        except (KeyboardInterrupt, GeneratorExit):  # the end of the program, or of the loop
            self._told = True
            raise
        except BaseException as error:  # a handler may raise what is no Exception: it owes an answer all the same
            answer = self.host.service.failed(self.message, error)
        finally:
            self._close(answer)

    def _close(self, answer: bytes | None) -> None:
        """The coroutine has ended."""
        self.host.clock.drop(self)
        self._tell(answer)
        self._over = True
        if not self._threads:
            self._gone()

    async def _work_in_turn(self) -> None:
        self._begun = True
        places = self.host.places(self.method)
        if self._told:  # ended before it began
            self._close(None)
            return
        if not places.free:
            if self.method.queue is not None and len(places.queue) >= self.method.queue:
                self._close(self._error(busy(f"concurrency of {self.method.name}", self.method.concurrency or 0)))
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
            places.free -= 1
        inner = self.release

        def release() -> None:
            places.leave()
            if inner is not None:
                inner()

        self.release = release
        await self._work()

    def _tell(self, answer: bytes | None) -> None:
        if not self._told:
            self._told = True
            self.deliver(answer)

    def _gone(self) -> None:
        self.host.runs.discard(self)
        self._task = None
        self.host.gate.leave()
        if self.release is not None:
            self.release()

    def _error(self, refusal: Refusal) -> bytes | None:
        if isinstance(self.message, Notification):
            return None
        return failure(self.message.id, self.dialect.error(refusal), self.message.version)

    # -- its ends from outside

    def end(self, refusal: Refusal) -> None:
        """Deliver the refusal now and stop the work as far as it can be stopped."""
        self.context.cancelled = True
        self.host.clock.drop(self)
        self._tell(self._error(refusal))
        if self._task is not None and self._begun:  # before its first step it would end without giving its place back
            self._task.cancel()
        for question in tuple(self._questions or ()):
            question.cancel()

    def drop(self) -> None:
        """Nobody waits for the answer: stop the work."""
        self._told = True
        self.end(Refusal("cancelled", "Cancelled"))

    def expired(self) -> None:
        timeout = self.method.timeout if self.method.timeout is not UNSET else self.host.service.limits.handler_timeout
        data = {"limit": "handler_timeout", "allowed": timeout}
        self.end(Refusal("timed_out", f"Timed out: {self.method.name} took longer than {timeout} s", data))

    # -- what its Context may ask for

    def left(self) -> float | None:
        return self.host.clock.left(self)

    def progress(self, message: Request | Notification, value: Any) -> bool:
        if self._told or isinstance(message, Notification):
            return False
        if self.context.where != "thread":
            return self._progress(message, value)
        if self.peer is None or self._steps >= STEPS:
            return False
        value = Raw(to_json(value))
        self._steps += 1
        try:
            self.loop.call_soon_threadsafe(self._step, message, value)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _step(self, message: Request, value: Any) -> None:
        self._steps -= 1
        self._progress(message, value)

    def _progress(self, message: Request, value: Any) -> bool:
        if self._told:
            return False
        if self.peer is not None:
            return self.peer.inbox.tell_progress(message.id, value)
        return False

    async def thread(self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        work = self.host.pool.submit(contextvars.copy_context().run, _unstoppable, function, arguments)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            context.cancelled = True
            if not work.cancelled() and not work.done():
                self._threads += 1
                work.add_done_callback(self._thread_returned)
            raise

    def _thread_returned(self, work: Any) -> None:
        work.cancelled() or work.exception()
        try:
            self.loop.call_soon_threadsafe(self._thread_ended)
        except RuntimeError:  # the loop is closed: nothing counts any more
            pass

    def _thread_ended(self) -> None:
        self._threads -= 1
        if self._over and not self._threads:
            self._gone()

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        work = self._ask(method, params, result, timeout)
        return self._awaited(work) if context.where == "thread" else work

    def _awaited(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine, for a thread; when the call ends meanwhile, so does the waiting."""
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
            raise LocalError(
                f"{self.method.name}: {self.caller.scheme or 'this wire'} carries no calls back to the caller"
            )
        if not self._asking:
            self._left = self.left()
        self._asking += 1
        self.host.clock.drop(self)
        try:
            return await self.peer.call(method, params, result=result, timeout=timeout)
        finally:
            self._asking -= 1
            if not self._asking and self._left is not None and not self._told:
                self.host.clock.set(self, self._left)

    def tell(self, context: Context, method: str, params: Any) -> Any:
        if self.peer is None:
            where = self.caller.scheme or "this wire"
            raise LocalError(f"{self.method.name}: {where} carries no notifications to the caller")
        work = self.peer.notify(method, params)
        return self._awaited(work) if context.where == "thread" else work


def _unstoppable(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (StopIteration, GeneratorExit) as error:  # a Future, or a coroutine, cannot carry it
        raise RuntimeError(f"the method raised {type(error).__name__}") from error


class _Places:
    """The places of one method with a concurrency of its own."""

    __slots__ = ("free", "queue")

    def __init__(self, count: int) -> None:
        self.free = count
        self.queue: deque[asyncio.Future[None]] = deque()

    def leave(self) -> None:
        while self.queue:
            turn = self.queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class Gathering:
    """The answers of one batch, in the order of its requests, `concurrency` elements at once."""

    __slots__ = (
        "allowed",
        "answers",
        "done",
        "left",
        "messages",
        "next",
        "running",
        "size",
        "start",
        "stepping",
        "width",
    )

    def __init__(
        self, messages: Sequence[Single], start: Start, limits: Limits, done: Callable[[list[bytes], int], None]
    ) -> None:
        self.messages = messages
        self.start = start
        self.width = limits.batch_concurrency
        self.allowed = limits.response_size
        self.done = done
        self.answers: list[bytes | None] = [None] * len(messages)
        self.size = 1
        """Bytes of all of them; what is above `allowed`, and so will not be sent, is not kept."""
        self.left = len(messages)
        self.next = 0
        self.running = 0
        self.stepping = False

    def step(self) -> None:
        """Start what may start."""
        if self.stepping:
            return
        self.stepping = True
        while self.next < len(self.messages) and self.running < self.width:
            index = self.next
            self.next += 1
            self.running += 1
            self.start(self.messages[index], lambda answer, index=index: self._delivered(index, answer))  # type: ignore[misc]
        self.stepping = False
        if not self.left:
            self.left = -1
            self.done([answer for answer in self.answers if answer is not None], self.size)

    def _delivered(self, index: int, answer: bytes | None) -> None:
        if answer is not None:
            self.size += len(answer) + 1
            self.answers[index] = answer if self.size <= self.allowed else b""
        self.running -= 1
        self.left -= 1
        self.step()


class Host:
    """A `Service` as something served: one gate, one pool of threads, one clock for all its wires."""

    def __init__(self, service: Service, *, limits: Limits | None = None) -> None:
        self.service = service = service if limits is None else service.within(limits)
        self.name = service.name
        self.gate = Gate(service.limits.calls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clock: Clock | None = None
        self.runs: set[Run] = set()
        self.peers: set[Peer] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._places: dict[str, _Places] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, from the first use on; a test client may run one app on several loops, one by one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._clock = Clock(loop)
        return loop

    @property
    def clock(self) -> Clock:
        """The deadlines of everything in flight here."""
        if self._clock is None:
            self._clock = Clock(self.loop)
        return self._clock

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The worker threads, `limits.threads` of them at most."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.service.limits.threads, f"dragoman-{self.name}")
        return self._pool

    def places(self, method: Method) -> _Places:
        """The places of a method that has a concurrency of its own."""
        places = self._places.get(method.name)
        if places is None:
            places = self._places[method.name] = _Places(method.concurrency or 1)
        return places

    # -- Served

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange: in place where the method is quick, else from a task."""
        service = self.service
        if not self.gate.draining:
            answer = service.at_once(x.request)
            if answer is not None:
                x.respond(answer)
                return
        self._exchange(x, read(x.request, service.limits, service.lenient))

    def _exchange(self, x: Exchange, message: Any) -> None:
        refusal = self.gate.refusal()
        if refusal is not None and isinstance(message, Request | Notification | Batch):
            id = message.id if isinstance(message, Request) else NULL
            owed = not isinstance(message, Notification)
            x.respond(failure(id, PLAIN.error(refusal)) if owed else None, refusal)
            return
        runs: list[Run] = []

        def gone() -> None:
            for run in tuple(runs):
                run.drop()

        x.gone = gone

        def start(single: Single, deliver: Deliver) -> None:
            self._start(single, x, deliver, runs)

        if type(message) is Batch:
            limits = self.service.limits
            Gathering(message.messages, start, limits, lambda found, size: x.respond(self._joined(found, size))).step()
        elif isinstance(message, Malformed):
            x.respond(self.service.malformed(message), message.refusal)
        else:
            start(message, x.respond)

    def _joined(self, answers: list[bytes], size: int) -> bytes | None:
        return self.service.fitting_batch(answers, size) if answers else None

    def _start(self, message: Single, x: Exchange, deliver: Deliver, runs: list[Run]) -> None:
        if isinstance(message, Malformed):
            deliver(self.service.malformed(message))
            return
        if isinstance(message, Result | Failure):
            deliver(None)
            return
        method = self.service.find(message.method)
        if method is None:
            deliver(self.service.unknown(message))
            return
        run = Run(self, method, message, x.caller, deliver, exchange=x)
        if method.quick:
            deliver(self.service.quick(method, message, run.context))
            return
        if (refusal := self.gate.refusal()) is not None:
            deliver(run._error(refusal))
            return
        self.gate.enter()
        runs.append(run)
        run.release = lambda: runs.remove(run)
        run.start()

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends."""
        from .peer import Peer  # noqa: PLC0415  (peers know hosts; a host makes peers)

        Peer(self).attach(channel)

    def routes(self) -> Mapping[str, Document]:
        """`/openrpc.json`."""
        return {"/openrpc.json": Document("application/json", lambda: _encode(self.service.openrpc()))}

    async def answer(self, raw: bytes) -> bytes | None:
        """One message and its answer."""
        if len(raw) > self.service.limits.message_size:
            return self.service.oversized(len(raw))
        x = _Plain(raw, self.loop.create_future())
        self.exchange(x)
        try:
            return await x.future
        except asyncio.CancelledError:
            if x.gone is not None:
                x.gone()
            raise

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, wait for those in flight, cancel what is left, close every channel."""
        self.gate.draining = True
        for peer in tuple(self.peers):
            peer.drain()
        if self.gate.in_flight:
            idle = self.loop.create_future()
            self.gate.idle = lambda: None if idle.done() else idle.set_result(None)
            await asyncio.wait([idle], timeout=timeout)
            self.gate.idle = None
        refusal = Refusal("draining", "Draining: the server closed before the call was done")
        for peer in tuple(self.peers):
            peer.inbox.turn_away(refusal)
        for run in tuple(self.runs):
            run.end(refusal)
        if self.peers:
            await asyncio.wait([asyncio.ensure_future(peer.close(0)) for peer in tuple(self.peers)])
        if self._clock is not None:
            self._clock.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class _Plain:
    """An exchange whose answer somebody awaits."""

    __slots__ = ("caller", "future", "gone", "request")

    def __init__(self, request: bytes, future: asyncio.Future[bytes | None]) -> None:
        self.request = request
        self.caller = Caller()
        self.gone: Callable[[], None] | None = None
        self.future = future

    def respond(self, answer: bytes | None, refusal: Refusal | None = None) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def stream(self, message: bytes) -> bool:
        return False
