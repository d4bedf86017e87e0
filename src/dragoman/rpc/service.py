"""A service: names and the functions behind them, callable without any wire.

`answer(bytes) -> bytes | None` is the whole of JSON-RPC 2.0 for one message. What runs where:
a function registered with `inline=True` runs in place, a plain one in a worker thread (in `answer`:
in the calling thread), an `async def` on the loop (in `answer`: on one background loop).
This module imports no asyncio, so that a script which only answers bytes never pays for it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from ..channel import Caller
from ..jsonrpc.codec import SHORT, STRICT, Answer, Leniency, odd, plain, plain_batch, read
from ..jsonrpc.errors import LocalError, RpcError
from ..jsonrpc.limits import SERVER, Limits
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result, Single
from .answers import Answers
from .binding import Binding, bind
from .context import Context
from .here import HERE, InPlace, inside_a_loop
from .method import Method, method_of
from .middleware import Call, Middleware, Next, chain, drive
from .openrpc import document

if TYPE_CHECKING:
    from .host import Host
    from .peer import Peer

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("dragoman")


Router: TypeAlias = Callable[[Request | Notification, Caller, Any], tuple[Method | None, Request | Notification]]
"""Finds the method for a message, given who sent it and the `Peer` it came in on (None: an exchange), and may
replace the message by one whose params are made ready. Raises RpcError to turn the message away."""


class Service:
    """Named methods, served as JSON-RPC 2.0 on any wire.

    `version`, `title` and `description` go into the OpenRPC document. `middleware`: see
    `dragoman.rpc.middleware`; the first is outermost. `accept_v1`, `null_id` and `string_codes`
    are lenient options (`jsonrpc.Leniency`). `debug=True` lets exceptions' texts and the reasons of
    refusals cross the wire. `discover=False` takes `rpc.discover` away.
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
        self.name = name
        self.version = version
        self.title = title
        self.description = description
        self.limits = limits
        self.lenient = (
            Leniency(accept_v1=accept_v1, null_id=null_id, string_codes=string_codes)
            if accept_v1 or string_codes or null_id != "request"
            else STRICT
        )
        self.answers = Answers(limits, debug)
        self.router: Router | None = None
        """Stands before the table of methods where a protocol on top has rules of its own; None: names alone decide."""
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self._table: dict[str, Method] = {}
        self._internal: dict[str, Method] = {}
        self._quick: dict[Any, Binding] = {}
        self._host: Host | None = None
        self._behind: Host | None = None
        self._document: tuple[int, Raw] | None = None
        if discover:
            discovery = bind(self._discover, context_type=Context)
            self._internal["rpc.discover"] = Method("rpc.discover", discovery, "inline", quick=True)

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts and the reasons of refusals cross the wire."""
        return self.answers.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.answers = msgspec.structs.replace(self.answers, debug=debug)

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
        /,
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
        /,
        *,
        inline: bool = False,
        errors: Iterable[type[RpcError]] = (),
        timeout: float | Any | None = UNSET,
        concurrency: int | None = None,
        queue: int | None = None,
        idempotent: bool = False,
        deprecated: bool = False,
    ) -> Any:
        """Register a function; it stays the function. `@api.method`, `@api.method("name", inline=True)`.

        `inline`: the function is quick, never blocks, and runs in place. `errors`: the RpcErrors it
        declares. `timeout` in seconds. `concurrency` and `queue`: how many calls run at once, and wait.
        Raises LocalError for a name that is taken or reserved (`rpc.`), and for annotations that no
        JSON can be decoded to.
        """
        if callable(name):
            self._put(method_of(name, None))
            return name

        def register(function: F) -> F:
            self._put(
                method_of(
                    function,
                    name,
                    inline=inline,
                    errors=tuple(errors),
                    timeout=timeout,
                    concurrency=concurrency,
                    queue=queue,
                    idempotent=idempotent,
                    deprecated=deprecated,
                )
            )
            return function

        return register

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
        """Put the service's middleware around a method, also one that a router finds."""
        around = self.middleware + method.middleware
        method.handler = chain(around, self._last(method)) if around else None
        method.quick = method.kind == "inline" and not around and method.concurrency is None
        never = method.kind == "async" and not method.waits
        method.in_place = method.quick or (never and not around and method.concurrency is None)

    def handler(self, method: Method) -> Next:
        """What runs a method, its middleware around it."""
        return method.handler if method.handler is not None else self._last(method)

    def _link(self, method: Method) -> None:
        self.link(method)
        self._quick.pop(method.name, None)
        if method.quick and not method.binding.wants_context and not method.binding.opaque:
            self._quick[method.name] = method.binding

    def include(self, other: Service, *, prefix: str = "") -> None:
        """Take on the methods that `other` has now, each under `prefix` + its name, with its middleware.

        Raises LocalError for a name that is taken.
        """
        for method in other._table.values():
            around = other.middleware + method.middleware
            self._put(msgspec.structs.replace(method, name=prefix + method.name, middleware=around))

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside what is there already. Usable as a decorator."""
        self.middleware = (*self.middleware, middleware)
        for method in self._table.values():
            self._link(method)
        return middleware

    @property
    def has_quick(self) -> bool:
        """Whether `at_once` may answer anything."""
        return bool(self._quick)

    def within(self, limits: Limits) -> Service:
        """The same service, methods added later too, under other limits."""
        other = copy.copy(self)
        other.limits = limits
        other.answers = msgspec.structs.replace(self.answers, limits=limits)
        other._host = other._behind = None
        return other

    def find(self, name: str) -> Method | None:
        """The method behind a name, `rpc.discover` too."""
        return self._table.get(name) or self._internal.get(name)

    def route(
        self, message: Request | Notification, caller: Caller, peer: Any = None
    ) -> tuple[Method | None, Request | Notification]:
        """The method for a message, and the message as that takes it. Raises RpcError where the router refuses."""
        if self.router is not None:
            return self.router(message, caller, peer)
        return self._table.get(message.method) or self._internal.get(message.method), message

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC 1.3 document of this service."""
        found: dict[str, Any] = document(self)
        return found

    def _discover(self) -> Any:
        """The document as JSON, made anew only when there are more methods: making it costs much, asking little."""
        if self._document is None or self._document[0] != len(self._table):
            self._document = len(self._table), Raw(msgspec.json.encode(self.openrpc()))
        return self._document[1]

    # -- answering

    def answer(self, raw: bytes) -> bytes | None:
        """The answer to one message or batch as JSON text, or None when nothing is owed. Needs no loop.

        Plain functions run in the calling thread, `async def` on one background loop. Never raises
        for what is in `raw`. Raises LocalError inside a running loop, for a method that is not inline:
        `await service.answer_async(raw)` there.
        """
        if len(raw) > self.limits.message_size:
            return self.answers.oversized(len(raw))
        return self.at_once(raw) or self._answer(read(raw, self.limits, self.lenient), raw)

    def at_once(self, raw: bytes) -> bytes | None:
        """The hot path: the answer to a plain request, or a batch of them, of quick methods.

        None for everything else, of which nothing has run yet: it takes the long way, which has the words.
        """
        try:
            if raw[0] == 91:  # "["
                return self._batch_at_once(raw)
            wire = plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return None
        id = wire.id
        binding = self._quick.get(wire.method)
        if binding is None or id is UNSET or ((len(raw) > SHORT or not raw.isascii()) and odd(raw)):
            return None
        try:
            arguments = binding.arguments(wire.params)
        except (Exception, SystemExit):
            return None
        if (id == 0 and b"-0" in raw) or (type(id) is str and len(id) > self.limits.id_length):
            return None
        try:
            value = binding.function(*arguments)
            answer = binding.encode(Answer(None if value is UNSET else value, id))
        except BaseException as error:
            return self.answers.failed(Request(str(wire.method), wire.params, id), error)
        return (
            answer if len(answer) <= self.limits.response_size else self.answers.fitting(Request("", UNSET, id), answer)
        )

    def _batch_at_once(self, raw: bytes) -> bytes | None:
        wires = plain_batch(raw)
        quick = self._quick
        found = [quick.get(wire.method) for wire in wires]
        if None in found or not 0 < len(wires) <= self.limits.batch_length or odd(raw):
            return None
        longest, minus = self.limits.id_length, b"-0" in raw
        ready: list[tuple[Binding, tuple[Any, ...], Any]] = []
        try:
            for wire, binding in zip(wires, found, strict=True):
                id = wire.id
                if id is UNSET or (minus and id == 0) or (type(id) is str and len(id) > longest):
                    return None
                ready.append((binding, binding.arguments(wire.params), id))  # type: ignore[arg-type,union-attr]
        except (Exception, SystemExit):
            return None
        answers = []
        size, allowed = 1, self.limits.response_size
        for (binding, arguments, id), wire in zip(ready, wires, strict=True):
            try:
                value = binding.function(*arguments)
                answer = binding.encode(Answer(None if value is UNSET else value, id))
            except BaseException as error:
                answer = self.answers.failed(Request(str(wire.method), wire.params, id), error) or b""
            size += len(answer) + 1
            if size <= allowed:  # what cannot be sent is not kept
                answers.append(answer)
        return self.answers.batch(answers, size)

    async def answer_async(self, raw: bytes) -> bytes | None:
        """`answer` on the running loop: plain functions in worker threads, elements of a batch concurrently."""
        from .host import Host  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._host is None:
            self._host = Host(self)
        return await self._host.answer(raw)

    async def _answer_behind(self, raw: bytes) -> bytes | None:
        """`answer_async` on the background loop, with a host of its own: two loops must not share one."""
        from .host import Host  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._behind is None:
            self._behind = Host(self)
        return await self._behind.answer(raw)

    def _answer(self, message: Message, raw: bytes) -> bytes | None:
        if type(message) is Batch:
            elements: Sequence[Single] = message.messages
        else:
            elements = (message,)
        found = [self.find(m.method) for m in elements if isinstance(m, Request | Notification)]
        if any(method is not None and not method.quick for method in found):
            if inside_a_loop():
                raise LocalError("answer() would block the running loop: use `await service.answer_async(raw)` here")
            if any(method is not None and method.kind == "async" for method in found):
                from .background import run  # noqa: PLC0415  (asyncio is paid for only by async methods)

                return run(lambda: self._answer_behind(raw))
        if type(message) is not Batch:
            return self._alone(elements[0])
        answers: list[bytes] = []
        size = 1
        for element in elements:
            if (answer := self._alone(element)) is not None:
                size += len(answer) + 1
                if size <= self.limits.response_size:
                    answers.append(answer)
        return self.answers.batch(answers, size) if size > 1 else None

    def _alone(self, message: Single) -> bytes | None:
        """One element, without a loop."""
        if isinstance(message, Result | Failure):
            return None
        if isinstance(message, Malformed):
            return self.answers.malformed(message)
        method = self.find(message.method)
        if method is None:
            return self.answers.unknown(message)
        if method.quick:
            return self.quick(method, message)
        context = Context(message, HERE, method.kind)
        try:
            answer: bytes | None = drive(self.work(method, message, context))
        except LocalError:  # middleware that waits: the caller of `answer` must know
            raise
        except BaseException as error:
            return self.answers.failed(message, error)
        return answer

    def quick(self, method: Method, message: Request | Notification, context: Context | None = None) -> bytes | None:
        """Run a method in place that does not wait: its answer, or None for a notification."""
        binding = method.binding
        try:
            if binding.wants_context and context is None:
                context = Context(message, HERE, "inline")
            value = binding.function(*binding.arguments(message.params, context))
            if method.kind == "async":  # in a context of its own, as in a task
                value = copy_context().run(drive, value)
            return self._written(binding, message, value)
        except BaseException as error:
            return self.answers.failed(message, error)

    def in_place(
        self,
        method: Method,
        message: Request | Notification,
        caller: Caller,
        peer: Peer | None,
        via: Callable[[bytes], bool] | None,
    ) -> bytes | None:
        """`quick` for a call that came over a wire: its context may tell, until it is answered."""
        if not method.binding.wants_context:
            return self.quick(method, message)
        site = InPlace(caller, peer, via)
        answer = self.quick(method, message, Context(message, site, method.kind))
        site.over = True
        return answer

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
                value = await self._run(method, binding.arguments(message.params, context), context)
            return self._written(binding, message, value)
        except (Exception, SystemExit) as error:
            return self.answers.failed(message, error)

    def _written(self, binding: Binding, message: Request | Notification, value: Any) -> bytes | None:
        """A method's result as the answer to a message, in the form of its version; None for a notification."""
        if type(message) is Notification:
            return None
        if value is UNSET:
            value = None
        if message.version == "1.0":
            return self.answers.fitting(message, binding.encode({"result": value, "error": None, "id": message.id}))
        return self.answers.fitting(message, binding.encode(Answer(value, message.id)))

    def _last(self, method: Method) -> Next:
        async def last(call: Call) -> Any:
            arguments = method.binding.arguments(call.params, call.context)
            return await self._run(method, arguments, call.context)

        return last

    async def _run(self, method: Method, arguments: tuple[Any, ...], context: Context) -> Any:
        function = method.binding.function
        if method.kind == "async":
            return await function(*arguments)
        if method.kind == "thread":
            return await context._site.thread(context, function, arguments)
        return function(*arguments)
