"""A service: named functions, callable without any wire.

`answer(bytes) -> bytes | None` handles all of JSON-RPC 2.0 for one message. Where functions run:
a function registered with `inline=True` runs in place, a plain one in a worker thread (in `answer`:
in the calling thread), an `async def` on the loop (in `answer`: on one background loop).
This module imports no asyncio, so a script that only answers bytes does not pay for it.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from ..channel import LIMITS, Caller
from ..jsonrpc.codec import STRICT, Answer, Leniency, Wire, first_byte, plain, plain_batch, read
from ..jsonrpc.errors import LocalError, RpcError, too_large
from ..jsonrpc.limits import SERVER, Limits
from ..jsonrpc.messages import Batch, Malformed, Message, Notification, Request
from ..jsonrpc.options import CALLABLE, FLAG, NAME, NONE, TEXT, check, instance, many
from ..jsonrpc.scanner import SHORT, odd
from ..observer import OBSERVER, Observer
from .binding.binding import bind
from .binding.signature import registrable
from .context import Context
from .dispatch import HERE, Dispatcher, LooplessAcceptor, Router, run
from .method import Handler, Method, method_of
from .middleware import Call, Middleware, Next, chain
from .observing import Place, Watch
from .openrpc import document
from .responses import Answers, Debug

if TYPE_CHECKING:
    from .runner import Runner

F = TypeVar("F", bound=Callable[..., Any])


SERVICE: Final = {
    "name": NAME,
    "version": TEXT,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "limits": LIMITS,
    "middleware": many(CALLABLE),
    "debug": FLAG,
    "discover": FLAG,
}
"""What the options of a Service may be; those of `Leniency` are checked there."""


class Service:
    """Named methods, served as JSON-RPC 2.0 on any wire.

    `version`, `title` and `description` go into the OpenRPC document. `middleware`: see
    `dragoman.rpc.middleware`; the first is outermost. `accept_v1`, `null_id` and `string_codes`
    are lenient options (`jsonrpc.Leniency`). `debug=True` sends exceptions' texts and the reasons of
    refusals to callers. `discover=False` removes `rpc.discover`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        accept_v1: bool = False,
        null_id: Literal["request", "notification"] = "request",
        string_codes: bool = False,
        debug: bool = False,
        discover: bool = True,
    ) -> None:
        check(f"Service {name!r}", SERVICE, locals())
        self.name = name
        self._bound_by(limits)
        self.version = version
        self.title = title
        self.description = description
        self.lenient = (
            Leniency(accept_v1=accept_v1, null_id=null_id, string_codes=string_codes)
            if accept_v1 or string_codes or null_id != "request"
            else STRICT
        )
        self.answers = Answers(limits, Debug(debug))
        self.route: Router = self._by_name
        """Finds the method for a message; a protocol on top with rules of its own puts its router here."""
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self._table: dict[str, Method] = {}
        self._internal: dict[str, Method] = {}
        self._inline: dict[Any, Handler] = {}
        self.quick = self._inline
        """What `answer_inline` may answer: nothing while there are observers, which the dispatcher tells."""
        self.observers: tuple[Observer, ...] = ()
        self.watch: Watch | None = None
        """Its observers, where it has some."""
        self.dispatcher = Dispatcher(self)
        self._host: Runner | None = None
        self._behind: Runner | None = None
        self._document: tuple[int, Raw] | None = None
        if discover:
            discovery = bind(self._discover, context_type=Context)
            self._internal["rpc.discover"] = Method("rpc.discover", discovery, "inline")
            self.link(self._internal["rpc.discover"])

    def _bound_by(self, limits: Limits) -> None:
        self.limits = limits
        self._short = min(SHORT, 2 * limits.depth)
        """A message of at most this many bytes in its usual shape needs no further check."""
        self.modest = min(limits.response_size, 2 * limits.depth)
        """An answer of at most this many bytes is within every limit."""

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts and the reasons of refusals are sent to callers."""
        return self.answers.switch.on

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.answers.switch.on = debug

    # -- registering

    @property
    def methods(self) -> Mapping[str, Method]:
        """The registered methods by name (not `rpc.discover`)."""
        return self._table

    @overload
    def method(self, function: F, /) -> F: ...
    @overload
    def method(
        self,
        name: str | None = None,
        *,
        inline: bool = False,
        errors: Iterable[type[RpcError]] = (),
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
        idempotent: bool = False,
        deprecated: bool = False,
    ) -> Callable[[F], F]: ...
    def method(
        self,
        name: Any = None,
        *,
        inline: bool = False,
        errors: Iterable[type[RpcError]] = (),
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
        idempotent: bool = False,
        deprecated: bool = False,
    ) -> Any:
        """Register a function; the function is not changed. `@api.method`, `@api.method("name", inline=True)`,
        `@api.method(name="name")`.

        `inline`: the function is quick, never blocks, and runs in place. `errors`: the RpcErrors it
        declares. `timeout` in seconds. `concurrency` and `queue`: how many calls run at once, and wait.
        Raises LocalError for a name that is taken or reserved (`rpc.`), and for annotations to which JSON
        cannot be decoded.
        """
        given = None if name is None or isinstance(name, str) else registrable(name, "service.method")

        def register(function: F) -> F:
            self._put(
                method_of(
                    registrable(function, "service.method"),
                    name if given is None else None,
                    inline=inline,
                    errors=errors,
                    timeout=timeout,
                    concurrency=concurrency,
                    queue=queue,
                    idempotent=idempotent,
                    deprecated=deprecated,
                )
            )
            return function

        return register if given is None else register(given)

    def _put(self, method: Method) -> None:
        if method.name.startswith("rpc."):
            raise LocalError(f"{method.name}: names that begin with `rpc.` are reserved by the specification (4.3)")
        if len(method.name) > self.limits.method_length:
            raise LocalError(
                f"{method.name[:40]}...: a method's name has at most {self.limits.method_length} characters"
            )
        if method.name in self._table:
            raise LocalError(f"{self.name} has a method {method.name!r} already")
        self._link(method)
        self._table[method.name] = method

    def link(self, method: Method) -> None:
        """Put the service's middleware around a method, also around one that a router finds."""
        around = self.middleware + method.middleware
        method.handler = chain(around, self._last(method)) if around else None
        method.quick = method.kind == "inline" and not around and method.concurrency is None
        never = method.kind == "async" and not method.waits
        method.runs_inline = method.quick or (never and not around and method.concurrency is None)

    def handler(self, method: Method) -> Next:
        """The function that runs a method with its middleware."""
        return method.handler if method.handler is not None else self._last(method)

    def _link(self, method: Method) -> None:
        self.link(method)
        self._inline.pop(method.name, None)
        if method.quick and not method.binding.wants_context and not method.binding.opaque:
            self._inline[method.name] = method.binding

    def include(self, other: Service, *, prefix: str = "") -> None:
        """Add the methods that `other` has now, each under `prefix` + its name, with its middleware.

        Raises LocalError for a name that is taken.
        """
        check("Service.include", {"other": instance(Service, "a Service"), "prefix": TEXT}, locals())
        for method in other._table.values():
            around = other.middleware + method.middleware
            self._put(msgspec.structs.replace(method, name=prefix + method.name, middleware=around))

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside the existing ones. Usable as a decorator."""
        check("Service.use", {"middleware": CALLABLE}, locals())
        self.middleware = (*self.middleware, middleware)
        for method in self._table.values():
            self._link(method)
        for method in self._internal.values():
            self.link(method)
        return middleware

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer of all that comes in and goes out from now on, beside those that are told already. Gives the
        function that ends it. What is served already under other limits (`serve(limits=...)`) is not told of.

        LocalError for what is no `Observer`.
        """
        check("Service.observe", {"observer": OBSERVER}, locals())
        self._watched((*self.observers, observer))
        return lambda: self._watched(tuple(one for one in self.observers if one is not observer))

    def _watched(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        self.watch = Watch(self.name, observers) if observers else None
        self.quick = {} if observers else self._inline

    def restrict(self, limits: Limits) -> None:
        """Answer under other limits from now on."""
        self._bound_by(limits)
        self.answers = msgspec.structs.replace(self.answers, limits=limits)

    def within(self, limits: Limits) -> Service:
        """The same service under other limits, including methods added later."""
        other = copy.copy(self)
        other.restrict(limits)
        other.dispatcher = Dispatcher(other)
        other._host = other._behind = None
        return other

    def find(self, name: str) -> Method | None:
        """The method of a name, also `rpc.discover`."""
        return self._table.get(name) or self._internal.get(name)

    def _by_name(
        self, message: Request | Notification, caller: Caller, peer: Any
    ) -> tuple[Method | None, Request | Notification]:
        return self._table.get(message.method) or self._internal.get(message.method), message

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC 1.3 document of this service."""
        found: dict[str, Any] = document(self)
        return found

    def _discover(self) -> Any:
        """The document as JSON, made again only when there are more methods, because it is costly to make."""
        if self._document is None or self._document[0] != len(self._table):
            self._document = len(self._table), Raw(msgspec.json.encode(self.openrpc()))
        return self._document[1]

    # -- answering

    def answer(self, raw: bytes) -> bytes | None:
        """The answer to one message or batch as JSON text, or None when none is owed. Needs no loop.

        Plain functions run in the calling thread, `async def` on one background loop. Raises nothing
        because of `raw`. Raises LocalError inside a running loop, for a method that is not inline:
        `await service.answer_async(raw)` there.
        """
        if len(raw) > self.limits.message_size:
            return self.oversized(raw, LooplessAcceptor(self.dispatcher))
        return self.answer_inline(raw) or self._answer(read(raw, self.limits, self.lenient), raw)

    def oversized(self, raw: bytes, place: Place) -> bytes:
        """The answer to a message above `limits.message_size`, which is not read."""
        answer = self.answers.oversized(len(raw))
        if self.watch is not None:
            refusal = too_large("message_size", self.limits.message_size, len(raw))
            self.watch.refused(Malformed("too_large", refusal.reason), place, Caller(), answer, refusal, raw)
        return answer

    def answer_inline(self, raw: bytes) -> bytes | None:
        """The hot path: the answer to a request in its usual shape, or a batch of them, for quick methods.

        None for everything else, of which nothing has run: the slow path handles it and describes faults.
        """
        try:
            if raw[0] == 91:  # "["
                return self._batch_inline(raw)
            wire = plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return None
        id = wire.id
        binding = self.quick.get(wire.method)
        if (
            binding is None
            or id is UNSET
            or ((len(raw) > self._short or not raw.isascii()) and odd(raw, self.limits.depth))
        ):
            return None
        try:
            arguments = binding.arguments(wire.params)
        except (Exception, SystemExit) as error:
            return None if self._wordy(wire, raw) else self.answers.failed(_request(wire), error)
        if (id == 0 and b"-0" in raw) or (type(id) is str and len(id) > self.limits.id_length):
            return None
        try:
            value = binding.function(*arguments)
            answer = binding.encode(Answer(None if value is UNSET else value, id))
        except BaseException as error:
            return self.answers.failed(_request(wire), error)
        return answer if len(answer) <= self.modest else self.answers.fitting(Request("", UNSET, id), answer)

    def _wordy(self, wire: Wire, raw: bytes) -> bool:
        """Whether more than the arguments is wrong with a message, so that the slow path must describe it."""
        id, params = wire.id, wire.params
        return (
            (params is not UNSET and first_byte(params) not in b"[{")
            or (id == 0 and b"-0" in raw)
            or (type(id) is str and len(id) > self.limits.id_length)
        )

    def _batch_inline(self, raw: bytes) -> bytes | None:
        wires = plain_batch(raw)
        quick = self.quick
        try:
            calls = [(quick[wire.method], wire) for wire in wires]
        except KeyError:
            return None
        if not 0 < len(wires) <= self.limits.batch_length or odd(raw, self.limits.depth + 1):
            return None
        longest, minus = self.limits.id_length, b"-0" in raw
        if minus or {type(wire.id) for wire in wires} != _INTEGERS:
            for id in [wire.id for wire in wires]:
                if id is UNSET or (minus and id == 0) or (type(id) is str and len(id) > longest):
                    return None
        return self.dispatcher.run_together(calls)

    async def answer_async(self, raw: bytes) -> bytes | None:
        """`answer` on the running loop: plain functions in worker threads, elements of a batch concurrently."""
        from .runner import Runner  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._host is None:
            self._host = Runner(self)
        return await self._host.answer(raw)

    async def _answer_behind(self, raw: bytes) -> bytes | None:
        """`answer_async` on the background loop, with a runner of its own, because two loops must not share one."""
        from .runner import Runner  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._behind is None:
            self._behind = Runner(self)
        return await self._behind.answer(raw)

    def _answer(self, message: Message, raw: bytes) -> bytes | None:
        """The answer to a message that is not answered in place; inside a running loop nothing of it runs."""
        kinds = set()
        for one in message.messages if type(message) is Batch else (message,):
            if type(one) is Request or type(one) is Notification:
                method = self._table.get(one.method) or self._internal.get(one.method)
                if method is not None and not method.quick:
                    kinds.add(method.kind)
        if kinds:
            if inside_a_loop():
                raise LocalError("answer() would block the running loop: use `await service.answer_async(raw)` here")
            if "async" in kinds:
                from .background import run as run_behind  # noqa: PLC0415  (asyncio is paid for only by async methods)

                return run_behind(lambda: self._answer_behind(raw))
        acceptor = LooplessAcceptor(self.dispatcher)
        answers: list[bytes | None] = []
        self.dispatcher.dispatch(message, acceptor, HERE, lambda answer, _=None: answers.append(answer), raw)
        if acceptor.error is not None:
            raise acceptor.error
        return answers[0]

    @staticmethod
    def _last(method: Method) -> Next:
        async def last(call: Call) -> Any:
            return await run(method, method.binding.arguments(call.params, call.context), call.context._site)

        return last


_INTEGERS = {int}


def _request(wire: Wire) -> Request:
    """A call in its usual shape as a message."""
    return Request(str(wire.method), wire.params, wire.id)


def inside_a_loop() -> bool:
    """Whether a loop runs in this thread, found out without importing asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
