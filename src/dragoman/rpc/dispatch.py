"""The one way in: whatever asks, from a channel, an exchange, a batch or `answer(bytes)`, is dispatched here.

A `Dispatcher` finds the method of a message, runs it in place where it never waits, and else hands it to its origin,
which knows what may run and where. Rules:

- It waits for nothing and imports no asyncio: origins with a loop make tasks and threads of calls, that without one
  runs them where it stands.
- An `Origin` is where a message came from: its caller, where its answer and what is sent ahead of it go, which peer can
  be called back, if any, and who refuses it.
- Each request is answered by exactly one `deliver`; `deliver(None)` says that nothing is owed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET

from ..channel import Caller
from ..jsonrpc.codec import Answer, Leniency
from ..jsonrpc.errors import PLAIN, Dialect, LocalError, Refusal, RpcError
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result, Single
from .context import Context
from .method import Handler, Method
from .middleware import Call, drive
from .responses import Answers


class Deliver(Protocol):
    """Takes the answer to one message, or None when nothing is owed; `refusal`: it is ours, and nothing was begun."""

    def __call__(self, answer: bytes | None, refusal: Refusal | None = None, /) -> object: ...


Speak: TypeAlias = Callable[[bytes], bool]
"""Sends one whole message ahead of an answer; False when it was dropped."""


class Origin(Protocol):
    """Where a message came from, and where what it causes goes."""

    @property
    def caller(self) -> Caller:
        """What the wire knows about the far end."""

    @property
    def peer(self) -> Any:
        """The `Peer` to call back; None where the wire carries no calls back."""

    @property
    def reply_stream(self) -> Speak | None:
        """Takes what is sent ahead of the answer, where that is not simply the peer's channel."""

    @property
    def dialect(self) -> Dialect:
        """What this far end calls refusals, cancels and progress."""

    @property
    def limits(self) -> Limits:
        """What bounds a batch from here."""

    def heard(self, message: Notification) -> bool:
        """A notification came. True when it is the protocol's own (a cancel, progress): no method gets it."""

    def takes_inline(self, message: Request | Notification) -> bool:
        """Whether a method that never waits may run now, in place."""

    def start(self, method: Method, message: Request | Notification, deliver: Deliver) -> None:
        """Take on a call that takes time: run it, have it wait, or refuse it."""

    def responded(self, message: Result | Failure) -> None:
        """A response came."""

    def malformed(self, message: Malformed) -> bool:
        """What is no message came. True when it is dealt with; else it is answered."""

    def batch(self) -> Origin:
        """The origin of the elements of a batch that has been taken on."""

    def deliver_batch(self, answer: bytes | None, count: int, deliver: Deliver) -> None:
        """Deliver the answers to a batch, so many in one text."""


class MethodTable(Protocol):
    """What a dispatcher looks methods up in: a service."""

    limits: Limits
    lenient: Leniency
    answers: Answers
    dispatcher: Dispatcher

    def route(
        self, message: Request | Notification, caller: Caller, peer: Any = None
    ) -> tuple[Method | None, Request | Notification]:
        """The method for a message, and the message as that takes it. Raises RpcError to turn the message away."""


class Dispatcher:
    """Dispatches messages to the methods of one table."""

    __slots__ = ("table",)

    def __init__(self, table: MethodTable) -> None:
        self.table = table

    def dispatch(self, message: Message, origin: Origin, deliver: Deliver) -> None:
        """Answer one message, now or later. Raises nothing: a fault of ours is the answer."""
        try:
            kind = type(message)
            if kind is Request or kind is Notification:
                self._call(message, origin, deliver)  # type: ignore[arg-type]
            elif kind is Batch:
                self._batch(message, origin, deliver)  # type: ignore[arg-type]
            elif kind is Malformed:
                self._malformed(message, origin, deliver)  # type: ignore[arg-type]
            else:
                origin.responded(message)  # type: ignore[arg-type]
                deliver(None)
        except Exception as error:
            deliver(self.table.answers.fault(message, error, origin.dialect))

    def _call(self, message: Request | Notification, origin: Origin, deliver: Deliver) -> None:
        table = self.table
        if type(message) is Notification and origin.heard(message):
            deliver(None)
            return
        try:
            method, message = table.route(message, origin.caller, origin.peer)
        except Exception as error:  # turned away, or a fault of the router's own
            why = Refusal("unfit", error.message) if isinstance(error, RpcError) else None
            deliver(table.answers.failed(message, error, origin.dialect), why)
            return
        if method is None:
            deliver(table.answers.unknown(message))
        elif method.runs_inline and origin.takes_inline(message):
            deliver(self.run_inline(method, message, origin))
        else:
            origin.start(method, message, deliver)

    def _malformed(self, message: Malformed, origin: Origin, deliver: Deliver) -> None:
        if origin.malformed(message):
            deliver(None)
        else:
            deliver(self.table.answers.malformed(message, origin.dialect), message.refusal)

    def _batch(self, batch: Batch, origin: Origin, deliver: Deliver) -> None:
        answers = self.table.answers
        dialect = origin.dialect
        if not dialect.batches:
            deliver(answers.no_batch(dialect), Refusal("unfit", "no batches"))
            return
        asked: list[Single] = []
        for message in batch.messages:
            if isinstance(message, Result | Failure):
                origin.responded(message)
            elif not (isinstance(message, Malformed) and origin.malformed(message)):
                asked.append(message)
        inner = origin.batch()

        def start(message: Single, deliver: Deliver) -> None:
            if isinstance(message, Request | Notification):
                self._call(message, inner, deliver)
            else:
                deliver(answers.malformed(message, dialect) if isinstance(message, Malformed) else None)

        def done(found: list[bytes], size: int) -> None:
            inner.deliver_batch(answers.batch(found, size) if found else None, len(found), deliver)

        limits = origin.limits
        BatchResponder(
            asked,
            start,
            done,
            lambda message, error: answers.fault(message, error, dialect),
            width=limits.batch_concurrency,
            allowed=self.table.limits.response_size,
        ).step()

    # -- running

    def run_inline(self, method: Method, message: Request | Notification, origin: Origin) -> bytes | None:
        """Run a method that does not wait, in place: its answer, or None for a notification."""
        binding = method.binding
        call = None
        try:
            if binding.wants_context:
                call = InlineCall(origin)
                value = binding.function(*binding.arguments(message.params, Context(message, call, method.kind)))
            else:
                value = binding.function(*binding.arguments(message.params))
            if method.kind == "async":  # in a context of its own, as in a task
                value = copy_context().run(drive, value)
            return self.written(binding, message, value)
        except BaseException as error:
            return self.table.answers.failed(message, error)
        finally:
            if call is not None:
                call.over = True

    async def work(self, method: Method, message: Request | Notification, context: Context) -> bytes | None:
        """Run any method: its answer, or None for a notification. Raises CancelledError alone."""
        binding = method.binding
        try:
            if method.handler is not None:
                id = UNSET if type(message) is Notification else message.id
                value = await method.handler(Call(message.method, message.params, id, context))
            elif method.kind == "async":
                value = await binding.function(*binding.arguments(message.params, context))
            else:
                value = await run(method, binding.arguments(message.params, context), context)
            return self.written(binding, message, value)
        except (Exception, SystemExit) as error:
            return self.table.answers.failed(message, error)

    def written(self, binding: Handler, message: Request | Notification, value: Any) -> bytes | None:
        """A method's result as the answer to a message, in the form of its version; None for a notification."""
        if type(message) is Notification:
            return None
        if value is UNSET:
            value = None
        answers = self.table.answers
        if message.version == "1.0":
            return answers.fitting(message, binding.encode({"result": value, "error": None, "id": message.id}))
        return answers.fitting(message, binding.encode(Answer(value, message.id)))


async def run(method: Method, arguments: tuple[Any, ...], context: Context) -> Any:
    """Call a method's function where its kind runs."""
    function = method.binding.function
    if method.kind == "async":
        return await function(*arguments)
    if method.kind == "thread":
        return await context._site.thread(context, function, arguments)
    return function(*arguments)


# -- calls without a loop -----------------------------------------------------------------------------


class InlineCall:
    """The site of a call that ends in its first step: it may tell, and cannot ask."""

    __slots__ = ("origin", "over")
    cancelled = False

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.over = False
        """It is answered: nothing may follow."""

    @property
    def caller(self) -> Caller:
        return self.origin.caller

    @property
    def peer(self) -> Any:
        return self.origin.peer

    @property
    def reply_stream(self) -> Speak | None:
        return self.origin.reply_stream

    def progress(self, message: Request | Notification, value: Any) -> bool:
        origin = self.origin
        if self.over or origin.peer is None or origin.reply_stream is not None or isinstance(message, Notification):
            return False
        return bool(origin.peer.inbox.tell_progress(message.id, value))

    def speak(self, raw: bytes) -> bool:
        origin = self.origin
        if self.over:
            return False
        if origin.reply_stream is not None:
            return origin.reply_stream(raw)
        return origin.peer is not None and bool(origin.peer.inbox.tell(raw))

    def _cannot(self, context: Context, verb: str) -> LocalError:
        if isinstance(self.origin, Nowhere):
            return LocalError(f"{context.method}: there is no wire to {verb} on")
        return LocalError(f"{context.method}: a call that awaits nothing cannot {verb}: await it in an async function")

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        raise self._cannot(context, "call back")

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        raise self._cannot(context, "call back")

    def tell(self, context: Context, method: str, params: Any) -> Any:
        raise self._cannot(context, "notify")

    def left(self) -> float | None:
        return None

    async def thread(self, context: Context, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


class Nowhere:
    """The origin of what `Service.answer` is given: no wire, no loop, and the calling thread runs what it asks."""

    __slots__ = ("_dispatcher", "error")
    caller = Caller()
    peer = None
    reply_stream = None
    dialect = PLAIN

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.error: LocalError | None = None
        """What the caller of `answer` must know: middleware waits, which needs a loop."""

    @property
    def limits(self) -> Limits:
        return self._dispatcher.table.limits

    def heard(self, message: Notification) -> bool:
        return False

    def takes_inline(self, message: Request | Notification) -> bool:
        return True

    def start(self, method: Method, message: Request | Notification, deliver: Deliver) -> None:
        dispatcher = self._dispatcher
        answer: bytes | None = None
        try:
            answer = drive(dispatcher.work(method, message, Context(message, InlineCall(self), method.kind)))
        except LocalError as error:
            self.error = error
        except BaseException as error:
            answer = dispatcher.table.answers.failed(message, error)
        deliver(answer)

    def responded(self, message: Result | Failure) -> None:
        """Nothing here waits for one."""

    def malformed(self, message: Malformed) -> bool:
        return False

    def batch(self) -> Nowhere:
        return self

    def deliver_batch(self, answer: bytes | None, count: int, deliver: Deliver) -> None:
        deliver(answer)


# -- batches ------------------------------------------------------------------------------------------

Start: TypeAlias = Callable[[Single, Deliver], None]


class BatchResponder:
    """The answers of one batch, in the order of its requests, `width` elements at once.

    `start` begins one element, `done` gets the answers and their bytes in all, `fault` gives the answer where a step of
    ours raised. Answers above `allowed` bytes in all are not kept, for they will not be sent.
    """

    __slots__ = (
        "allowed",
        "answers",
        "delivered",
        "done",
        "fault",
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
        self,
        messages: Sequence[Single],
        start: Start,
        done: Callable[[list[bytes], int], None],
        fault: Callable[[Single, Exception], bytes | None],
        *,
        width: int,
        allowed: int,
    ) -> None:
        self.messages = messages
        self.start = start
        self.width = width
        self.allowed = allowed
        self.done = done
        self.fault = fault
        self.delivered = bytearray(len(messages))
        self.answers: list[bytes | None] = [None] * len(messages)
        self.size = 1
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
            message = self.messages[index]
            try:
                self.start(message, lambda answer, _=None, index=index: self._delivered(index, answer))
            except Exception as error:  # this element's alone
                self._delivered(index, self.fault(message, error))
        self.stepping = False
        if not self.left:
            self.left = -1
            self._finish()

    def _finish(self) -> None:
        try:
            self.done([answer for answer in self.answers if answer is not None], self.size)
        except Exception as error:
            faults = [answer for message in self.messages if (answer := self.fault(message, error)) is not None]
            self.done(faults, sum(map(len, faults)) + len(faults) + 1)

    def _delivered(self, index: int, answer: bytes | None) -> None:
        if self.delivered[index]:
            return
        self.delivered[index] = True
        if answer is not None:
            self.size += len(answer) + 1
            self.answers[index] = answer if self.size <= self.allowed else b""
        self.running -= 1
        self.left -= 1
        self.step()
