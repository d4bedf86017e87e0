"""A service: named functions, callable without any wire.

`answer(bytes) -> bytes | None` handles all of JSON-RPC 2.0 for one message. Where functions run:
a function registered with `inline=True` runs in place, a plain one in a worker thread (in `answer`:
in the calling thread), an `async def` on the loop (in `answer`: on one background loop).
This module imports no asyncio, so a script that only answers bytes does not pay for it.

A `Service` is what its users call; `behind` gives what is behind it to those who serve it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType

from ..channel import Caller
from ..jsonrpc.codec import read
from ..jsonrpc.errors import RpcError
from ..jsonrpc.leniency import Leniency
from ..jsonrpc.limits import SERVER, Limits
from ..jsonrpc.options import check, strict
from ..observer import Observer
from ..running import run_app
from .dispatch import HERE, LooplessAcceptor
from .including import instance_of
from .method import SERVICE, Method, MethodOptions
from .middleware import Middleware
from .registering.service_core import ServiceCore

if TYPE_CHECKING:
    from ..access import Verifiers
else:
    Verifiers = Any  # start-up: annotations resolve at run time, to no more than this

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")


class Service:
    """Named methods, served as JSON-RPC 2.0 on any wire.

    `version`, `title` and `description` go into the OpenRPC document. `limits`: the bounds on messages, calls, channels
    and times. `middleware`: see `dragoman.middleware`; the first is outermost. `lifespan`: `lifespan(service)` is an
    async context manager, or an async generator with one `yield`, around the serving, on each event loop; its value is
    `ctx.state`. `lenient`: what is accepted beyond the specification (`jsonrpc.Leniency`; True: `jsonrpc.LENIENT`);
    `accept_v1`, `null_id` and `string_codes` are three of its options by their own names. `debug=True` sends
    exceptions' texts and the reasons of refusals to callers. `discover=False` removes `rpc.discover`. `errors`: those
    that each method declares. `servers`: URLs where callers reach it, for the OpenRPC document. `auth`: a verifier of
    tokens that says who is calling, on every wire (`dragoman.auth.Bearer`).
    """

    @strict("Service")
    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[Service], AbstractAsyncContextManager[Any] | AsyncIterator[Any]] | None = None,
        lenient: Leniency | bool = False,
        accept_v1: bool = False,
        null_id: Literal["request", "notification"] = "request",
        string_codes: bool = False,
        debug: bool = False,
        discover: bool = True,
        errors: Iterable[type[RpcError]] = (),
        servers: Iterable[str] = (),
        auth: Verifiers | None = None,
    ) -> None:
        arguments = locals().copy()
        given = {one: value for one, value in arguments.items() if one not in ("self", "lifespan")}
        check(f"Service {name!r}", SERVICE, arguments)
        self._core = ServiceCore(**given)
        if lifespan is not None:
            self._core.live(lifespan, self)

    def __repr__(self) -> str:
        return f"<Service {self.name} {self.version}>"

    @property
    def name(self) -> str:
        """For error texts, OpenRPC and metrics."""
        return self._core.name

    @property
    def version(self) -> str:
        """The version in the OpenRPC document."""
        return self._core.version

    @property
    def title(self) -> str | None:
        """The title in the OpenRPC document."""
        return self._core.title

    @property
    def description(self) -> str | None:
        """The description in the OpenRPC document."""
        return self._core.description

    @property
    def limits(self) -> Limits:
        """The bounds on messages, calls, channels and times."""
        return self._core.limits

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """Around every call, the first outermost."""
        return self._core.middleware

    @property
    def methods(self) -> Mapping[str, Method]:
        """The registered methods by name (not `rpc.discover`), without those that are disabled."""
        return self._core.methods

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts and the reasons of refusals are sent to callers."""
        return self._core.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self._core.debug = debug

    # -- registering

    @overload
    def method(self, function: F, /) -> F: ...
    @overload
    def method(self, name: str | None = None, **options: Unpack[MethodOptions]) -> Callable[[F], F]: ...
    def method(self, name: Callable[..., Any] | str | None = None, **options: Unpack[MethodOptions]) -> Any:
        """Register a function; the function is not changed. `@api.method`, `@api.method("name", inline=True)`,
        `@api.method(name="name")`.

        `inline`: it is quick, never blocks, and runs in place. `timeout`: seconds that a call may take (None: for ever;
        default: the limit `handler_timeout`); `concurrency`: how many calls run at once, `queue`: how many may wait for
        one of those. `errors`: those that it declares. `idempotent`: a call may be repeated. `deprecated`: the OpenRPC
        document says so. `tags`: what `enable` and `disable` may name in place of it. `scopes`: all are needed,
        `roles`: one is; `allow`: `allow(identity, arguments)` is True where this caller may make this call.

        Raises LocalError for a name that is taken or reserved (`rpc.`), and for annotations to which JSON cannot be
        decoded.
        """
        return self._core.method(name, **options)

    def service(self, kind: type[K], /) -> type[K]:
        """Register the methods of a class, marked with `dragoman.method`, of an instance that is made here. For an
        instance with arguments: `include`."""
        self._core.include(instance_of(kind))
        return kind

    def include(self, other: object, *, namespace: str = "", prefix: str = "", tags: Collection[str] = ()) -> None:
        """Add methods: those of another Service, with its middleware and its lifespan, now and whenever it gets more;
        or those that the class of an instance marks with `dragoman.method`. They are called `namespace` + "." + name,
        or `prefix` + name, and have these `tags` besides their own.

        Raises LocalError, without adding any, for a name that is taken, for a service that includes this one, and for
        an object without methods; so does later a registration there whose name is taken here.
        """
        self._core.include(behind(other), namespace=namespace, prefix=prefix, tags=tags)

    def remove(self, name: str) -> None:
        """Remove a method, also where this service is included. LocalError if there is none."""
        self._core.remove(name)

    def enable(self, name: str | None = None, *, tag: str | None = None) -> None:
        """Enable what `disable` has disabled, but for what another disabled tag holds back; see there."""
        self._core.turn("enable", name, tag, on=True)

    def disable(self, name: str | None = None, *, tag: str | None = None) -> None:
        """Disable a method, or all with a tag, those too that are registered or included later: they are unknown in
        calls, and not in the OpenRPC document. What is disabled here stays so, whatever an included service enables.
        LocalError for a name that no method has."""
        self._core.turn("disable", name, tag, on=False)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside the existing ones. Usable as a decorator."""
        return self._core.use(middleware)

    def route(
        self,
        path: str,
        *,
        methods: Iterable[str] = ("GET",),
        public: bool = False,
        timeout: float | UnsetType | None = UNSET,
    ) -> Callable[[F], F]:
        """Register a function that answers HTTP requests to a path of the server, beside the endpoint; the function is
        not changed. It takes the `RouteRequest`, and the `Context` if it has a second parameter, and returns bytes,
        text, a value for JSON, None (204) or a `RouteResponse`. A plain function runs in a worker thread.

        `methods`: those that it answers; GET brings HEAD. `public`: the guard is not asked. `timeout`: as for a method.
        On wires without HTTP a route is not there. Raises LocalError for a path that is taken, reserved or cannot be.
        """
        return self._core.route(path, methods=methods, public=public, timeout=timeout)

    def override(self, function: Callable[..., Any], fake: Callable[..., Any]) -> AbstractContextManager[None]:
        """For tests: within the block `fake` gives what the dependency `function` gives otherwise, wherever it is used
        in this app, in every thread. A plain `fake` runs in place. It may have dependencies of its own.

        LocalError for a function on which nothing here depends.
        """
        return self._core.override(function, fake)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer of all that comes in and goes out from now on, beside those that are told already. Gives the
        function that ends it. What is served already under other limits (`serve(limits=...)`) is not told of.

        LocalError for what is not an `Observer`.
        """
        return self._core.observe(observer)

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC 1.3 document of this service."""
        return self._core.openrpc()

    run = run_app

    # -- answering

    def answer(self, raw: bytes, *, caller: Caller = HERE.caller) -> bytes | None:
        """The answer to one message or batch as JSON text, or None when none is owed. Needs no loop. `caller`: for the
        context, such as the user that a web framework's view knows: `Caller(identity=Identity(subject="ada"))`.

        Plain functions run in the calling thread, `async def` on one background loop. Raises nothing
        because of `raw`. Raises LocalError inside a running loop, for a method that is not inline:
        `await service.answer_async(raw)` there.
        """
        core = self._core
        if len(raw) > core.limits.message_size:
            return core.oversized(raw, LooplessAcceptor(core.dispatcher))
        found = core.answer_inline(raw)
        if isinstance(found, bytes):
            return found
        return core.answer_read(read(raw, core.limits, core.lenient, found), raw, caller)

    async def answer_async(self, raw: bytes, *, caller: Caller = HERE.caller) -> bytes | None:
        """`answer` on the running loop: plain functions in worker threads, elements of a batch concurrently."""
        return await self._core.answer_async(raw, caller=caller)


@overload
def behind(app: Service) -> ServiceCore: ...
@overload
def behind(app: object) -> object: ...
def behind(app: object) -> object:
    """The core of a service, for the rooms that serve or include it; anything else as it is."""
    return app._core if isinstance(app, Service) else app
