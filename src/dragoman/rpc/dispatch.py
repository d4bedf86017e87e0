"""Dispatches every message, from a channel, an exchange, a batch or `answer(bytes)`.

A `Dispatcher` finds the method of a message. It runs a method that never waits in place, and passes any other call to
the acceptor, which knows what may run and where. Rules:

- It waits for nothing and imports no asyncio: an acceptor with a loop runs calls as tasks and in threads.
- A `MessageOrigin` is where a message came from: its caller, the stream for messages ahead of its answer, and the peer
  that can be called back, if any. A `MessageAcceptor` starts calls, or refuses them: a peer, an exchange, or `answer`
  itself.
- Each request is answered by exactly one `deliver`; `deliver(None)` means that no answer is owed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from msgspec import UNSET, Raw, Struct

from ..channel import Caller
from ..jsonrpc.codec import AnyAnswer, CallMessage, FailedAnswer, PlainMessage, ResultMessage, read, text_of
from ..jsonrpc.errors import PLAIN, CallRefused, LocalError, Refusal, RpcError, no_way
from ..jsonrpc.leniency import STRICT, Leniency
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result, Single
from ..jsonrpc.scanner import too_deep
from .batch_responder import BatchResponder, Start
from .binding.binding import Binding
from .binding.loose_arguments import bind_loosely
from .binding.results import to_json, write
from .context import Context, Site
from .method import LongResult, Method, MethodHandler, arguments_by_name
from .middleware import Call, drive
from .observing import Arrival, Deliver, MessageEndpoint, ServiceWatch, Speak, answers_only, speak
from .responses import ErrorAnswers

if TYPE_CHECKING:
    from .lifespan import Lifespan


class MessageOrigin(Struct, eq=False):
    """Where a message came from."""

    caller: Caller
    peer: Any = None
    """The `Peer` to call back; None if the wire carries no calls back."""
    reply_stream: Speak | None = None
    """Takes messages ahead of the answer, if these do not simply go to the peer's channel."""
    already_accepted: bool = False
    """The message is part of a batch that was accepted before draining began."""


class MessageAcceptor(MessageEndpoint, Protocol):
    """Starts calls, or refuses them: a peer, an exchange, or `answer` itself."""

    @property
    def _limits(self) -> Limits:
        """The limits for a batch."""

    @property
    def acknowledges(self) -> bool:
        """Whether the answers to a batch do not wait for its notifications, which go on."""

    def consumes(self, message: Notification) -> bool:
        """A notification has come. True if it belongs to the protocol (a cancel, progress) and goes to no method."""

    def takes_inline(self, message: Request | Notification) -> bool:
        """Whether a method that never waits may run now, in place."""

    def start_call(
        self, origin: MessageOrigin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        """Take a call that takes time: run it, queue it, or refuse it. `size`: the bytes of its params."""

    def responded(self, message: Result | Failure) -> None:
        """A response came."""

    def malformed(self, message: Malformed) -> bool:
        """A malformed message has come. True when it is handled; False if it must be answered."""

    def batched(self, origin: MessageOrigin) -> MessageOrigin:
        """The origin of the elements of an accepted batch."""

    def deliver_batch(self, origin: MessageOrigin, answer: AnyAnswer, count: int, deliver: Deliver) -> None:
        """Deliver the answers to a batch, `count` in one text."""


Router: TypeAlias = Callable[[Request | Notification, Caller, Any], tuple[Method | None, Request | Notification]]
"""Finds the method for a message, given its caller and the `Peer` it came in on (None: an exchange); may replace the
message by one with prepared params. Raises RpcError to refuse the message."""


class MethodHost(Protocol):
    """The service whose methods are called, as far as calls need it: what runs calls does not know what registers
    methods."""

    _lenient: Leniency
    _answers: ErrorAnswers
    _dispatcher: Dispatcher
    _quick: dict[Any, MethodHandler]
    """Methods that every acceptor runs in place, by name: they neither wait nor take a context."""
    _modest: int
    """An answer of at most this many bytes is within every limit."""
    _router: Router
    _watch: ServiceWatch | None
    """Its observers, where it has some."""
    _challenge: Callable[[Refusal, Caller, Any], Refusal] | None
    """(refusal, caller, params): adds to the refusal of a forbidden call what its caller must show."""

    def _shown_methods(self, caller: Caller) -> list[str]:
        """The names of its methods that this caller may see."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> Limits: ...

    @property
    def _demanded(self) -> frozenset[str] | None:
        """The scopes that its methods demand of callers; None where none demands anything (`access.Access`)."""

    def _answer_inline(
        self, raw: bytes, lenient: Leniency | None, endpoint: MessageEndpoint, caller: Caller
    ) -> bytes | FailedAnswer | PlainMessage | None:
        """Answer a message in place where that can be; of any other nothing has run, and `read` takes what was decoded
        of it. `lenient`: of the channel on which it came; None: the service's own. `endpoint`, `caller`: for
        observers."""

    def _oversized(self, raw: bytes, endpoint: MessageEndpoint) -> bytes | None:
        """Return the answer to a message that is too large to be read."""


class Dispatcher:
    """Dispatches messages to the methods of one service."""

    __slots__ = ("service",)

    def __init__(self, service: MethodHost) -> None:
        self.service: MethodHost = service

    def dispatch(
        self,
        message: Message,
        acceptor: MessageAcceptor,
        origin: MessageOrigin,
        deliver: Deliver,
        raw: bytes = b"",
        batch: Arrival | None = None,
    ) -> None:
        """Answer one message, now or later. Raises nothing: a fault of ours is the answer. For observers: `raw`, its
        text; `batch`, of which it is an element."""
        kind = type(message)
        watch = self.service._watch
        if watch is not None and not answers_only(message):
            deliver = watch.came_in(
                message, acceptor, origin.caller, deliver, raw, None if batch is None else batch.seen
            )
        try:
            if kind is Request or (kind is Notification and not acceptor.consumes(message)):  # type: ignore[arg-type]
                self._call(message, acceptor, origin, deliver)  # type: ignore[arg-type]
            elif kind is Batch:
                self._batch(message, acceptor, origin, deliver, raw)  # type: ignore[arg-type]
            elif kind is Malformed and not acceptor.malformed(message):  # type: ignore[arg-type]
                deliver(self.service._answers.malformed(message, acceptor._dialect))  # type: ignore[arg-type]
            else:
                if kind is Result or kind is Failure:
                    if watch is not None:
                        self._tell_responded(watch, message, acceptor, origin, raw)
                    acceptor.responded(message)  # type: ignore[arg-type]
                deliver(None)
        except Exception as error:
            deliver(self.service._answers.fault(message, error, acceptor._dialect))

    def _call(
        self, message: Request | Notification, acceptor: MessageAcceptor, origin: MessageOrigin, deliver: Deliver
    ) -> None:
        service, params = self.service, message.params
        route, caller, seen = service._router, origin.caller, deliver if type(deliver) is Arrival else None
        try:
            method, message = route(message, caller, origin.peer)
            if method is not None and method.access is not None:
                demand(method, message, caller, service, origin.peer)
        except Exception as error:  # refused, or a fault of the router
            unfit = Refusal("unfit", error.message) if isinstance(error, RpcError) else None
            if seen is not None:
                seen.raised(error)
            deliver(service._answers.failed(message, error, acceptor._dialect, unfit))
            return
        if method is None:
            deliver(service._answers.unknown(message, lambda: service._shown_methods(caller)))
            return
        if seen is not None:
            seen.found(method.name)
        if method.runs_inline and acceptor.takes_inline(message):
            if seen is None:
                deliver(self.run_inline(method, message, origin))
            else:
                deliver(seen.run(self.run_inline, method, message, origin, seen))
        else:
            acceptor.start_call(origin, method, message, deliver, 0 if params is UNSET else len(params))

    def _tell_responded(
        self, watch: ServiceWatch, message: Any, acceptor: MessageAcceptor, origin: MessageOrigin, raw: bytes
    ) -> None:
        conversation = None if origin.peer is None else origin.peer._conversation
        watch.responded(message, acceptor, origin.caller, conversation, raw)

    def _batch(
        self, batch: Batch, acceptor: MessageAcceptor, origin: MessageOrigin, deliver: Deliver, raw: bytes
    ) -> None:
        answers = self.service._answers
        dialect, watch = acceptor._dialect, self.service._watch
        if not dialect.batches:
            deliver(answers.no_batch(dialect))
            return
        elements: list[Single] = []
        for message in batch.messages:
            if isinstance(message, Result | Failure):
                if watch is not None:
                    self._tell_responded(watch, message, acceptor, origin, raw)
                acceptor.responded(message)
            elif not (isinstance(message, Malformed) and acceptor.malformed(message)):
                elements.append(message)
        together = self._quick(elements, acceptor)
        if together:
            lenient = leniency_of(self.service, origin.peer)
            acceptor.deliver_batch(origin, self.run_together(together, lenient), len(elements), deliver)
            return
        inner = acceptor.batched(origin)
        whole = deliver if type(deliver) is Arrival else None

        def done(found: list[bytes], size: int) -> None:
            answer = answers.batch(found, size) if found else None
            if whole is not None:
                whole.over(answer)
            acceptor.deliver_batch(origin, answer, len(found), deliver if whole is None else whole.deliver)

        BatchResponder(
            elements,
            make_start(elements, self, acceptor, origin, inner, whole),
            done,
            lambda message, error: answers.fault(message, error, dialect),
            width=acceptor._limits.batch_concurrency,
            allowed=self.service.limits.response_size,
            acknowledges=acceptor.acknowledges,
        ).step()

    def _quick(
        self, elements: list[Single], acceptor: MessageAcceptor
    ) -> list[tuple[MethodHandler, Request | PlainMessage]]:
        """The calls of a batch with their methods, if all run in place unobserved; otherwise none."""
        if self.service._watch is not None:  # it is told of each element
            return []
        quick = self.service._quick
        together: list[tuple[MethodHandler, Request | PlainMessage]] = []
        for message in elements:
            if type(message) is not Request or message.version != "2.0" or not acceptor.takes_inline(message):
                return []
            if (binding := quick.get(message.method)) is None:
                return []
            together.append((binding, message))
        return together

    # -- running

    def run_together(
        self, calls: Sequence[tuple[MethodHandler, Request | PlainMessage]], lenient: Leniency
    ) -> bytes | FailedAnswer:
        """Run a batch of JSON-RPC 2.0 calls in place, none of which waits; returns their answers in one text.

        Results are encoded `batch_concurrency` at a time, which is faster than one by one, and bounds what is held.
        """
        service = self.service
        allowed, width = service.limits.response_size, service.limits.batch_concurrency
        depth = service.limits.depth
        found: list[bytes] = []
        size = 1
        last: MethodHandler | None = None
        for at in range(0, len(calls), width):
            part = calls[at : at + width]
            values: list[ResultMessage | Raw] = []
            add = values.append
            for binding, call in part:
                if binding is not last:  # most calls of a batch are of one method
                    last, function, arguments, encode = binding, binding.function, binding.arguments, binding.encode
                try:
                    try:
                        given = arguments(call.params)
                    except Exception as error:
                        given = bind_loosely(binding, call.params, None, error, lenient, depth)
                    value = function(*given)
                    answer = ResultMessage(None if value is UNSET else value, call.id)
                    add(answer if encode is write else Raw(encode(answer)))
                except BaseException as error:
                    add(Raw(self._not_run(call, error)))
            text = self._together(part, values)
            size += len(text) + 1
            if size <= allowed:  # answers that cannot be sent are not kept
                found.append(text)
        return service._answers.batch(found, size)

    def _together(
        self, calls: Sequence[tuple[MethodHandler, Request | PlainMessage]], values: list[ResultMessage | Raw]
    ) -> bytes:
        """Answers as elements of an array; one that is above a limit, or not JSON, becomes its own error."""
        limits, answers = self.service.limits, self.service._answers
        try:
            text = write(values)[1:-1]
            if len(text) <= self.service._modest:
                return text
            if len(text) <= limits.response_size and not too_deep(text, limits.depth):
                return text
        except Exception:  # one of them; the loop below finds it
            pass
        found = []
        for (_, call), value in zip(calls, values, strict=True):
            try:
                answer = bytes(value) if isinstance(value, Raw) else write(value)
            except BaseException as error:
                answer = self._not_run(call, error)
            found.append(text_of(answers.fitting(Request("", UNSET, call.id), answer)) or b"")
        return b",".join(found)

    def _not_run(self, call: Request | PlainMessage, error: BaseException) -> bytes:
        """The answer to a call in its usual shape that was invalid or failed: faults of the shape come first."""
        service = self.service
        message = read(to_json(CallMessage(str(call.method), call.params, call.id)), service.limits, service._lenient)
        if isinstance(message, Malformed):
            return service._answers.malformed(message).text or b""
        assert isinstance(message, Request)
        return service._answers.failed(message, error).text or b""

    def run_inline(
        self, method: Method, message: Request | Notification, origin: MessageOrigin, seen: Arrival | None = None
    ) -> AnyAnswer:
        """Run a method that does not wait, in place: its answer, or None for a notification."""
        binding, call, context = method.binding, None, None
        try:
            if binding.wants_context:
                call = InlineCall(origin, self.service, method.life)
                context = Context(message, call, method.kind)
            try:
                arguments = binding.arguments(message.params, context)
            except Exception as error:
                arguments = read_loosely(binding, message.params, context, error, self.service, origin.peer)
            value = binding.function(*arguments)
            if method.kind == "async":  # in a context of its own, as in a task
                value = copy_context().run(drive, value)
            return self.written(binding, message, value)
        except BaseException as error:
            if seen is not None:
                seen.raised(error)
            return self.service._answers.failed(message, error)
        finally:
            if call is not None:
                call.over = True

    def written(self, binding: MethodHandler, message: Request | Notification, value: Any) -> AnyAnswer:
        """A method's result as the answer to a message of its version; None for a notification."""
        if type(message) is Notification:
            return None
        if value is UNSET:
            value = None
        if message.version == "1.0":
            answer = binding.encode({"result": value, "error": None, "id": message.id})
        elif type(value) is Raw:  # JSON text is inserted as it is: half the cost of encoding it again
            answer = b"".join((b'{"jsonrpc":"2.0","result":', value, b',"id":', write(message.id), b"}"))
        else:
            answer = binding.encode(ResultMessage(value, message.id))
        if len(answer) <= self.service._modest:
            return answer
        return self.service._answers.fitting(message, answer, shallow=binding.shallow or isinstance(value, LongResult))


# -- the arguments of a call, and who may make it ------------------------------------------------------


def arguments_of(handler: MethodHandler, params: Any, context: Context | None, site: Site) -> tuple[Any, ...]:
    """Return the arguments of a call at its site. Raises what `MethodHandler.arguments` raises."""
    try:
        return handler.arguments(params, context)
    except Exception as error:
        return read_loosely(handler, params, context, error, site.service, site.peer)


def read_loosely(
    handler: MethodHandler,
    params: Any,
    context: Context | None,
    error: Exception,
    service: MethodHost | None,
    peer: Any,
) -> tuple[Any, ...]:
    """Return the arguments of a call that `MethodHandler.arguments` refused with `error`, as leniently as its peer or
    else its service reads them. Raises `error`, or what a later reading found."""
    if service is None:
        raise error
    return bind_loosely(handler, params, context, error, leniency_of(service, peer), service.limits.depth)


def leniency_of(service: MethodHost | None, peer: Any) -> Leniency:
    """How leniently a call is read: as the peer on which it came says, or else the service that answers."""
    lenient: Leniency = peer.lenient if peer is not None else STRICT if service is None else service._lenient
    return lenient


def demand(method: Method, message: Request | Notification, caller: Caller, service: MethodHost, peer: Any) -> None:
    """Raise CallRefused unless this caller may make this call, by the arguments that the function would get."""
    access = method.access
    if access is None:
        return
    lenient = leniency_of(service, peer)
    if lenient is not STRICT and isinstance(method.binding, Binding):
        access = access.reading(partial(arguments_by_name, method.binding, lenient=lenient, depth=service.limits.depth))
    access.demand(message, caller, service._challenge)


def forbidden_batch(message: Message, peer: Any, caller: Caller, raw: bytes) -> Refusal | None:
    """For a wire on which a message is one request: why nothing of it may run, with the scopes of all its calls; None
    if all may be made."""
    service = peer._runner.service
    if service._demanded is None:
        return None
    found = forbidden_among(message.messages if type(message) is Batch else (message,), service, caller, peer)
    if not found:
        return None
    from ..access import union  # noqa: PLC0415  (start-up: for calls that not every caller may make)

    refusal = union(error.refusal for error in found.values())
    refusal = refusal if service._challenge is None else service._challenge(refusal, caller, None)
    if service._watch is not None:
        service._watch.refused(message, peer, caller, None, refusal, raw)
    return refusal


def forbidden_among(
    messages: Iterable[Any], service: MethodHost, caller: Caller, peer: Any
) -> Mapping[int, CallRefused]:
    """Return the calls and notifications that their caller may not make, by the identity of the message. `peer`: the
    one on which they came in."""
    found: dict[int, CallRefused] = {}
    for message in messages:
        if type(message) is not Request and type(message) is not Notification:
            continue
        try:
            method, routed = service._router(message, caller, peer)
            if method is not None:
                demand(method, routed, caller, service, peer)
        except CallRefused as error:
            if error.refusal.kind == "forbidden":
                found[id(message)] = error
        except Exception:  # it is answered with this when its turn comes
            continue
    return found


def make_start(
    messages: Sequence[Single], dispatcher: Any, acceptor: Any, origin: Any, inner: Any, batch: Arrival | None
) -> Start:
    """Return the function that starts the elements of a batch, or answers that their caller may not make them. `inner`:
    their origin."""
    service = dispatcher.service

    def start(message: Single, deliver: Deliver) -> None:
        dispatcher.dispatch(message, acceptor, inner, deliver, batch=batch)

    if service._demanded is None:
        return start
    forbidden = forbidden_among(messages, service, origin.caller, origin.peer)

    def start_or_refuse(message: Single, deliver: Deliver) -> None:
        error = forbidden.get(id(message))
        if error is None:
            start(message, deliver)
            return
        if service._watch is not None:
            seen = None if batch is None else batch.seen
            deliver = service._watch.came_in(message, acceptor, origin.caller, deliver, b"", seen)
        deliver(service._answers.failed(message, error, acceptor._dialect))

    return start_or_refuse


def begin(method: Method, message: Request | Notification, site: Site) -> Awaitable[Any]:
    """Begin any method's work; returns an awaitable of its result. Raises what decoding its arguments raises."""
    binding = method.binding
    if method.handler is not None:
        id = UNSET if type(message) is Notification else message.id
        return method.handler(Call(message.method, message.params, id, Context(message, site, method.kind)))
    context = Context(message, site, method.kind) if binding.wants_context else None
    try:
        arguments = binding.arguments(message.params, context)
    except Exception as error:
        arguments = read_loosely(binding, message.params, context, error, site.service, site.peer)
    return binding.function(*arguments) if method.kind == "async" else run(method, arguments, site)


async def run(method: Method, arguments: tuple[Any, ...], site: Site) -> Any:
    """Call a method's function in the way of its kind."""
    function = method.binding.function
    if method.kind == "async":
        return await function(*arguments)
    if method.kind == "thread":
        return await site.thread(function, arguments)
    return function(*arguments)


# -- calls without a loop -----------------------------------------------------------------------------


class InlineCall:
    """The context's side of a call that ends in its first step: it may send progress, but cannot ask."""

    __slots__ = ("_life", "origin", "over", "service")
    cancelled = False

    def __init__(self, origin: MessageOrigin, service: MethodHost | None = None, life: Lifespan | None = None) -> None:
        self.service: MethodHost | None = service
        self._life = life
        self.origin: MessageOrigin = origin
        self.over: bool = False
        """Whether it is answered: no message may follow then."""

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
        return bool(origin.peer.send_progress(message.id, value))

    def speak(self, raw: bytes, method: str) -> bool:
        return not self.over and speak(self.origin, raw, method, None if self.service is None else self.service._watch)

    def _cannot(self, context: Context, verb: str) -> LocalError:
        if type(self.origin) is MessageOrigin and self.origin.peer is None:  # of `answer`
            return no_way(f"{context.method}: there is no wire to {verb} on", f"would {verb}", "this wire")
        return LocalError(f"{context.method}: a call that awaits nothing cannot {verb}: await it in an async function")

    def ask(self, context: Context, method: str, params: Any, result: Any, timeout: Any) -> Any:
        raise self._cannot(context, "call back")

    def ask_all(self, context: Context, calls: Sequence[tuple[str, Any]], result: Any, timeout: Any) -> Any:
        raise self._cannot(context, "call back")

    def ask_elsewhere(self, context: Context, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        raise self._cannot(context, "ask")

    def notify(self, context: Context, method: str, params: Any) -> Any:
        raise self._cannot(context, "notify")

    def left(self) -> float | None:
        return None

    def renew(self) -> None: ...

    async def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        from .background import run as run_behind  # noqa: PLC0415  (asyncio is paid for only by async dependencies)

        return run_behind(lambda: work)

    @property
    def state(self) -> Any:
        return None if self._life is None else self._life.held().get(None)

    def held(self, life: Lifespan) -> Mapping[Any, Any]:
        return life.held()


HERE = MessageOrigin(Caller())
"""The origin of messages given to `Service.answer`: no wire, no loop."""


class LooplessEndpoint:
    """Where the messages given to `Service.answer` come in, for observers."""

    __slots__ = ()
    _dialect = PLAIN
    _number = 0
    _session_name = ""


HERE_IN: Final = LooplessEndpoint()
"""That of a message that is answered in place."""


class LooplessAcceptor(LooplessEndpoint):
    """Takes the calls of `Service.answer`: the calling thread runs them."""

    __slots__ = ("_dispatcher", "error")
    acknowledges = False

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.error: LocalError | None = None
        """The error for the caller of `answer`: middleware waits, which needs a loop."""

    @property
    def _limits(self) -> Limits:
        return self._dispatcher.service.limits

    def consumes(self, message: Notification) -> bool:
        return False

    def takes_inline(self, message: Request | Notification) -> bool:
        return True

    def start_call(
        self, origin: MessageOrigin, method: Method, message: Request | Notification, deliver: Deliver, size: int
    ) -> None:
        seen = deliver if type(deliver) is Arrival else None
        if method.handler is None:
            run = self._dispatcher.run_inline
            deliver(run(method, message, origin) if seen is None else seen.run(run, method, message, origin, seen))
            return
        dispatcher, answers = self._dispatcher, self._dispatcher.service._answers

        async def work() -> AnyAnswer:
            try:
                site = InlineCall(origin, dispatcher.service, method.life)
                return dispatcher.written(method.binding, message, await begin(method, message, site))
            except (Exception, SystemExit) as error:
                if seen is not None:
                    seen.raised(error)
                return answers.failed(message, error)

        answer: AnyAnswer = None
        try:
            answer = drive(work()) if seen is None else seen.run(drive, work())
        except LocalError as error:
            self.error = error
        except BaseException as error:
            answer = answers.failed(message, error)
        deliver(answer)

    def responded(self, message: Result | Failure) -> None:
        """Ignored: no call waits for one."""

    def malformed(self, message: Malformed) -> bool:
        return False

    def batched(self, origin: MessageOrigin) -> MessageOrigin:
        return origin

    def deliver_batch(self, origin: MessageOrigin, answer: AnyAnswer, count: int, deliver: Deliver) -> None:
        deliver(answer)
