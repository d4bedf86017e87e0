"""A `Run` is one call in flight that takes time: a task, or a worker thread.

It delivers exactly one answer; when time is up or the caller cancels, the error is delivered at once
and what the handler brings afterwards is dropped, while its place stays taken until the work has
really ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw

from ..channel import Caller, Closed, busy
from ..jsonrpc.codec import failure
from ..jsonrpc.errors import PLAIN, Dialect, LocalError, Refusal
from ..jsonrpc.messages import Notification, Request
from .context import Context
from .method import Method
from .results import to_json

if TYPE_CHECKING:
    from .host import Host
    from .peer import Peer

Deliver: TypeAlias = Callable[[bytes | None], None]

Speak: TypeAlias = Callable[[bytes], bool]
"""Sends one whole message; False when it was dropped."""

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
        "host",
        "loop",
        "message",
        "method",
        "peer",
        "release",
        "via",
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
        release: Callable[[], None] | None = None,
        dialect: Dialect = PLAIN,
        via: Speak | None = None,
    ) -> None:
        self.host = host
        self.loop = host.loop
        self.method = method
        self.message = message
        self.caller = caller
        self.peer = peer
        self.after = 0 if peer is None else peer.conversation.last_id
        """The last call that had gone out to the caller when this one came in."""
        self.deliver = deliver
        self.release = release
        self.dialect = dialect
        self.via = via
        """Where this call was asked, when that is not simply the peer's channel: what is sent ahead of its answer."""
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
        if self.method.stream:
            self._uncount()
        if self._task.done():  # an eager task that never waited
            self._task = None
        elif self._begun and self._told:  # an eager task that was ended while it began
            self._task.cancel()

    def _uncount(self) -> None:
        """Give the place of a long-lived call back at once."""
        self.host.gate.leave()
        if self.peer is not None and self.release is not None:
            self.release()
            self.release = None

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
                answer = self.host.service.answers.failed(self.message, LocalError("the handler was cancelled"))
        except (KeyboardInterrupt, GeneratorExit) as error:
            if isinstance(error, KeyboardInterrupt) or not self._stepped():  # the end of the program, or of the loop
                self._told = True
                raise
            answer = self.host.service.answers.failed(self.message, error)
        except BaseException as error:  # a handler may raise what is no Exception: it owes an answer all the same
            answer = self.host.service.answers.failed(self.message, error)
        finally:
            self._close(answer)

    def _stepped(self) -> bool:
        """Whether the loop runs this coroutine now, and nobody closes it."""
        try:
            current = asyncio.current_task()
        except RuntimeError:
            return False
        return current is not None and self._task in (None, current)

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
                self._close(self.refused(busy(f"concurrency of {self.method.name}", self.method.concurrency or 0)))
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
        if not self.method.stream:
            self.host.gate.leave()
        if self.release is not None:
            self.release()

    def refused(self, refusal: Refusal) -> bytes | None:
        """What its caller is told in place of a result; None where he waits for none."""
        if isinstance(self.message, Notification):
            return None
        return failure(self.message.id, self.dialect.error(refusal), self.message.version)

    @property
    def is_here(self) -> bool:
        """Whether the code that asks runs inside this very call."""
        if self._task is None:  # an eager task is not known before its first step is over
            return self._begun and not self._over
        return self._task is asyncio.current_task()

    # -- its ends from outside

    def end(self, refusal: Refusal | None) -> None:
        """Deliver the refusal (None: no answer at all) now and stop the work as far as it can be stopped."""
        self.context.cancelled = True
        self.host.clock.drop(self)
        self._tell(None if refusal is None else self.refused(refusal))
        if self._task is not None and self._begun:  # before its first step it would end without giving its place back
            self._task.cancel()
        for question in tuple(self._questions or ()):
            question.cancel()

    def drop(self) -> None:
        """Nobody waits for the answer: stop the work."""
        self._told = True
        self.end(None)

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
        return self.peer is not None and self._hand_over(self._progress, message, Raw(to_json(value)))

    def _progress(self, message: Request, value: Any) -> bool:
        if self._told:
            return False
        if self.peer is not None and self.via is None:
            return self.peer.inbox.tell_progress(message.id, value)
        return False

    def speak(self, raw: bytes) -> bool:
        """Send a message ahead of the answer, where the call was asked; from a thread too. False: it was dropped."""
        if self._told:
            return False
        if self.context.where != "thread":
            return self._speak(raw)
        return self._hand_over(self._speak, raw)

    def _speak(self, raw: bytes) -> bool:
        if self._told:
            return False
        if self.via is not None:
            return self.via(raw)
        return self.peer is not None and self.peer.inbox.tell(raw)

    def _hand_over(self, say: Callable[..., bool], *words: Any) -> bool:
        """From a thread to the loop; False when too much is on its way already."""
        if self._steps >= STEPS:
            return False
        self._steps += 1
        try:
            self.loop.call_soon_threadsafe(self._handed_over, say, words)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _handed_over(self, say: Callable[..., bool], words: tuple[Any, ...]) -> None:
        self._steps -= 1
        say(*words)

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

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        work = self._ask_all(calls, result, timeout)
        return self._awaited(work) if context.where == "thread" else work

    async def _ask_all(self, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> list[Any]:
        asked = [self.loop.create_task(self._ask(method, params, result, timeout)) for method, params in calls]
        try:
            return await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()

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
            return await self.peer.call(method, params, result=result, timeout=timeout, via=self.via)
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
