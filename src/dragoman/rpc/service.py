"""A service: named functions, callable without any wire.

`answer(bytes) -> bytes | None` handles all of JSON-RPC 2.0 for one message. Where functions run:
a function registered with `inline=True` runs in place, a plain one in a worker thread (in `answer`:
in the calling thread), an `async def` on the loop (in `answer`: on one background loop).
This module imports no asyncio, so a script that only answers bytes does not pay for it.

What has an underscore is for the rooms that serve, include or call a service.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack, overload
from weakref import WeakSet

import msgspec
from msgspec import UNSET, Raw

from ..channel import LIMITS, Caller
from ..jsonrpc.codec import (
    AnyAnswer,
    FailedAnswer,
    PlainMessage,
    ResultMessage,
    first_byte,
    plain,
    plain_batch,
    read,
    text_of,
)
from ..jsonrpc.errors import LocalError, Refusal, RpcError
from ..jsonrpc.leniency import CHOSEN, STRICT, Leniency, chosen
from ..jsonrpc.limits import SERVER, Limits
from ..jsonrpc.messages import Batch, Malformed, Message, Notification, Request
from ..jsonrpc.options import ANYTHING, CALLABLE, FLAG, NAME, NONE, TEXT, check, many, nearest, strict
from ..jsonrpc.scanner import HOLDABLE, odd
from ..observer import OBSERVER, Observer
from ..running import run_app
from .binding.binding import Binding, bind
from .binding.dependencies import Dependencies
from .binding.signature import defined_again, name_of, registrable
from .context import Context
from .dispatch import HERE, HERE_IN, Dispatcher, LooplessAcceptor, MessageOrigin, Router, arguments_of, run
from .including import (
    Commit,
    Guarded,
    IncludedService,
    MethodIncluder,
    check_acyclic,
    check_method_name,
    guarded,
    joined,
    make_instance,
    marked,
)
from .method import AUTH, ERROR, LongResult, Method, MethodHandler, MethodOptions, declared, living, method_of
from .middleware import Call, Middleware, Next, chain
from .observing import Arrival, MessageEndpoint, ServiceWatch, nothing
from .responses import Debug, ErrorAnswers
from .routing.registering import Routed
from .switching import Switches

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..access import Access, Protection, Verifiers
    from ..events.publisher import EventPublisher
    from ..tasks.contract import TaskStore
    from ..tasks.settings import TaskSettings
    from .background import Portal
    from .lifespan import Lifespan
    from .runner import Runner
    from .service_events import ServiceEvents
else:
    EventPublisher = TaskSettings = TaskStore = Verifiers = (
        Any  # start-up: annotations resolve at run time, to no more than this
    )

logger: logging.Logger = logging.getLogger("dragoman")

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")

SERVICE: Final = {
    "name": NAME,
    "version": TEXT,
    "title": TEXT | NONE,
    "description": TEXT | NONE,
    "limits": LIMITS,
    "middleware": many(CALLABLE),
    "lifespan": CALLABLE | NONE,
    "lenient": CHOSEN,
    "debug": FLAG,
    "discover": FLAG,
    "errors": many(ERROR),
    "servers": many(TEXT),
    "auth": AUTH,
    "tasks": ANYTHING,
    "events": ANYTHING,
}
"""The rules of the options of a Service; those of `Leniency`, `tasks` and `events` are checked there."""


class Service(Routed):
    """Named methods, served as JSON-RPC 2.0 on any wire.

    `version`, `title` and `description` go into the OpenRPC document. `limits`: the bounds on messages, calls, channels
    and times. `middleware`: see `dragoman.middleware`; the first is outermost. `lifespan`: `lifespan(service)` is an
    async context manager, or an async generator with one `yield`, around the serving, on each event loop; its value is
    `ctx.state`. `lenient`: what is accepted beyond the specification (`jsonrpc.Leniency`; True: `jsonrpc.LENIENT`);
    `accept_v1`, `null_id` and `string_codes` are three of its options by their own names. `debug=True` sends
    exceptions' texts and the reasons of refusals to callers. `discover=False` removes `rpc.discover`. `errors`: those
    that each method declares. `servers`: URLs where callers reach it, for the OpenRPC document. `auth`: a verifier of
    tokens that says who is calling, on every wire (`dragoman.auth.Bearer`). `tasks`: where the tasks of its methods are
    kept (`@api.method(task=True)`): "sqlite:PATH", "memory:", "bus", a `TaskStore` or a `TaskSettings`; True and None:
    where `serve(tasks=...)` says, else in memory. `events`: a `dragoman.events.EventPublisher`, to whose events peers
    may subscribe (`Peer.subscribe`).
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
        tasks: str | bool | TaskStore | TaskSettings | None = None,
        events: EventPublisher | None = None,
    ) -> None:
        check(f"Service {name!r}", SERVICE, locals())
        self._name = name
        self.version: Final = version
        """The version in the OpenRPC document."""
        self.title: Final = title
        """The title in the OpenRPC document."""
        self.description: Final = description
        """The description in the OpenRPC document."""
        self._errors: tuple[type[RpcError], ...] = tuple(errors)
        """The errors that each of its methods declares."""
        check(f"Service {name!r}", {"errors": SERVICE["errors"]}, {"errors": self._errors})  # it may be an iterator
        self._servers: tuple[str, ...] = tuple(servers)
        """URLs where it can be reached, for the OpenRPC document."""
        self._set_limits(limits)
        self._middleware: tuple[Middleware, ...] = tuple(middleware)
        self._lenient: Leniency = chosen(lenient, accept_v1=accept_v1, null_id=null_id, string_codes=string_codes)
        """The messages beyond the specification that are accepted."""
        self._prepare()
        self._auth: Verifiers | None = auth
        """The option as it was given: a verifier of tokens, or several."""
        self._answers: ErrorAnswers = ErrorAnswers(limits, Debug(debug))
        self._router: Router = self._find_by_name
        """Finds the method for a message; a protocol on top with rules of its own puts its router here."""
        self._dispatcher: Dispatcher = Dispatcher(self)
        self._runners: dict[AbstractEventLoop, Runner] = {}
        """The runners of `answer_async`, which frameworks call on a loop for each of their threads."""
        self._background: Runner | None = None
        self._portal: Portal | None = None
        self._document: tuple[dict[str, Any], Raw] | None = None
        if discover:
            method = Method("rpc.discover", bind(self._discover, context_type=Context), "inline")
            self._internal[method.name] = method
            self._link(method)
        if lifespan is not None:
            self._set_lifespan(lifespan, self)
        if tasks is not None:
            from .service_tasks import keep_tasks  # noqa: PLC0415  (start-up: for services that have tasks)

            keep_tasks(self, tasks)
        if events is not None:
            from .service_events import add_events  # noqa: PLC0415  (start-up: for services that have events)

            add_events(self, events)

    def _prepare(self) -> None:
        """Set the attributes of a service without methods, guard and observers."""
        self._protection: Protection | None = None
        """The guard of `auth` behind which it is served."""
        self._challenge: Callable[[Refusal, Caller, Any], Refusal] | None = None
        """(refusal, caller, params): adds to the refusal of a forbidden call what its caller must show."""
        self._extending: tuple[Middleware, ...] = ()
        self._finishing: Middleware | None = None
        """The middleware of a protocol on top, around all other: it writes values that middleware returns."""
        self._observers: tuple[Observer, ...] = ()
        """The observers, in the order in which they were added."""
        self._watch: ServiceWatch | None = None
        """Its observers, where it has some."""
        self._registered: dict[str, Method] = {}
        """The registered methods by name, those too that are disabled."""
        self._enabled: dict[str, Method] = {}
        self._internal: dict[str, Method] = {}
        """`rpc.discover`, and the methods of tasks."""
        self._quick: dict[Any, MethodHandler] = {}
        """The methods that may be answered in place, without the dispatcher."""
        self._functions: dict[str, Callable[..., Any]] = {}
        """The functions that were registered one by one, by the names of their methods."""
        self._switches = Switches()
        self._accesses: list[Access] = []
        self._origin = self
        """The service of which this is a copy under other limits, or itself."""
        self._copies: WeakSet[Service] = WeakSet()
        """The same under other limits, where it is served so."""
        self._included: list[Service] = []
        self._includers: list[MethodIncluder] = []
        self._dependencies: Dependencies = Dependencies(self._lifespan_dependency_added)
        self._own_lifespan: Lifespan | None = None
        self._events: ServiceEvents | None = None
        """The events to which peers may subscribe."""

    def __repr__(self) -> str:
        return f"<Service {self.name} {self.version}>"

    @property
    def name(self) -> str:  # type: ignore[override]  # here it cannot be set
        """For error texts, OpenRPC and metrics."""
        return self._name

    @property
    def limits(self) -> Limits:
        """The bounds on messages, calls, channels and times."""
        return self._limits

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """Around every call, the first outermost."""
        return self._middleware

    @property
    def methods(self) -> Mapping[str, Method]:
        """The registered methods by name (not `rpc.discover`), without those that are disabled."""
        return self._enabled

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts and the reasons of refusals are sent to callers."""
        return self._answers.switch.on

    @debug.setter
    def debug(self, debug: bool) -> None:
        self._answers.switch.on = debug

    def _set_limits(self, limits: Limits) -> None:
        self._limits = limits
        self._short = min(HOLDABLE, 2 * limits.depth)
        """A message of at most this many bytes in its usual shape needs no further check."""
        self._modest = min(limits.response_size, 2 * limits.depth)
        """An answer of at most this many bytes is within every limit."""

    def _restrict(self, limits: Limits) -> None:
        """Answer under other limits from now on."""
        self._set_limits(limits)
        self._answers = msgspec.structs.replace(self._answers, limits=limits)

    def _within(self, limits: Limits) -> Service:
        """Return the same service under other limits, including methods added later."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other._restrict(limits)
        other._dispatcher = Dispatcher(other)
        other._runners = {}
        other._background = other._portal = None
        self._copies.add(other)
        return other

    @property
    def _guarded(self) -> Guarded:
        return Guarded(self.name, self._auth)

    @property
    def _demanded(self) -> frozenset[str] | None:
        """The scopes that its methods demand of callers; None where no method demands anything of them."""
        accesses = self._accesses
        return frozenset().union(*(one.scopes for one in accesses)) if accesses else None

    def _protect(self, protection: Protection) -> None:
        """Serve it behind this guard."""
        self._protection = protection
        self._challenge = lambda refusal, caller, params: protection.challenged(refusal, caller)

    # -- registering

    @overload
    def method(self, function: F, /) -> F: ...
    @overload
    def method(self, name: str | None = None, **options: Unpack[MethodOptions]) -> Callable[[F], F]: ...
    def method(self, name: Callable[..., Any] | str | None = None, **options: Unpack[MethodOptions]) -> Any:
        """Register a function; the function is not changed. `@api.method`, `@api.method("name", inline=True)`,
        `@api.method(name="name")`.

        `inline`: it is quick, never blocks, and runs in place. `process`: it runs in a child process, which is killed
        when its call ends early: for work that holds the processor. `timeout`: seconds that a call may take (None: for
        ever; default: the limit `handler_timeout`); `concurrency`: how many calls run at once, `queue`: how many may
        wait for one of those; further ones are busy. `errors`: those that it declares. `idempotent`: a call may be
        repeated. `deprecated`: the OpenRPC document says so. `tags`: what `enable` and `disable` may name in place of
        it, and its tags in that document. `scopes`: all are needed (as text, with spaces between them), `roles`: one
        is; `allow`: `allow(identity, arguments)` is True where this caller may make this call: a plain function, which
        is called on the loop, with None for the arguments where the method is listed. `task`: True, or a `TaskPolicy`:
        a call may be started as a task, which outlives its request, its connection and a restart (`Peer.start`).

        Raises LocalError for a name that is taken or reserved (`rpc.`), and for annotations to which JSON cannot be
        decoded.
        """
        own = name if isinstance(name, str) else None

        def register(function: F) -> F:
            made = method_of(registrable(function, "service.method"), own, **options)
            if defined_again(self._functions.get(made.name), function):
                logger.info("%s: the method %s is defined again, and replaced", self.name, made.name)
                self._remove(made.name, back=True)
            self._put(made)
            self._functions[made.name] = function
            return function

        return register if name is None or own is not None else register(registrable(name, "service.method"))

    def _put(self, *methods: Method) -> None:
        for method in methods:
            method.errors = declared(method.errors, self._errors)
        for commit in self._planned(methods):
            commit()

    def _planned(self, methods: Iterable[Method]) -> list[Commit]:
        """Return the functions that register these methods, here and where this service is included. LocalError for a
        name that is taken or cannot be."""
        found = list(methods)
        for method in found:
            check_method_name(
                self.name, method.name, {*self._registered, *self._task_methods}, self._limits.method_length
            )
        if (taken := len({one.name for one in found})) != len(found):
            raise LocalError(f"{self.name}: {len(found)} methods would have {taken} names")
        given = {method.name: method.enabled for method in found}
        for method in found:
            method.enabled = method.enabled and self._switches.takes(method.name, "method", method.tags)
        commits: list[Commit] = []
        if self._tasks is None and any(method.task is not None for method in found):
            from .service_tasks import planned_tasks  # noqa: PLC0415  (start-up: for services that have tasks)

            commits += planned_tasks(self, found)
        commits += [lambda one=one: self._add(one, given[one.name]) for one in found]  # type: ignore[misc]
        for includer in self._includers:
            commits += includer.planned(found)
        return commits

    def _add(self, method: Method, given: bool) -> None:
        injection = method.binding.injection if isinstance(method.binding, Binding) else None
        if injection is not None and injection.owner is None:
            self._dependencies.add(injection)
        self._switches.add(method.name, "method", method.tags, given)
        self._registered[method.name] = method
        if method.enabled:
            self._enable(method)

    def service(self, kind: type[K], /) -> type[K]:
        """Register the methods of a class, marked with `dragoman.method`, of an instance that is made here. For an
        instance with arguments: `include`."""
        self.include(make_instance(kind))
        return kind

    def include(self, other: object, *, namespace: str = "", prefix: str = "", tags: Collection[str] = ()) -> None:
        """Add methods: those of another Service, with its middleware and its lifespan, now and whenever it gets more;
        or those that the class of an instance marks with `dragoman.method`. They are called `namespace` + "." + name,
        or `prefix` + name, and have these `tags` besides their own.

        Raises LocalError, without adding any, for a name that is taken, for a service that includes this one, and for
        an object without methods; so does later a registration there whose name is taken here.
        """
        check("Service.include", {"namespace": TEXT, "prefix": TEXT, "tags": many(TEXT)}, locals())
        added = frozenset(tags)
        name_there = joined("Service", namespace, prefix, ".")
        if not isinstance(other, Service):
            found = marked(other, "Service", "method")
            those = [method_of(made, name_there(mark.name or name), **mark.options) for mark, name, made in found]
            for one in those:
                one.tags |= added
            self._put(*those)
            return
        check_acyclic(self._origin, other._origin)
        guarded(self._guarded, other._guarded)
        includer = IncludedService(self, other, name_there, added)
        commits = includer.planned(other._registered.values())
        if other._task_settings is not None:
            from .service_tasks import include_tasks  # noqa: PLC0415  (start-up: for services that have tasks)

            include_tasks(self, other)
        self._dependencies.include(other._dependencies)
        for commit in commits:
            commit()
        self._included.append(other._origin)
        other._includers.append(includer)

    def remove(self, name: str) -> None:
        """Remove a method, also where this service is included. LocalError if there is none."""
        self._remove(name)

    def _remove(self, name: str, *, back: bool = False) -> None:
        """Remove a method; `back`: it may be registered again, and is disabled then if it was by its name."""
        if self._registered.pop(name, None) is None:
            raise LocalError(f"{self.name} has no method {name!r}; {nearest(name, self._registered)}")
        self._switches.remove(name, back=back)
        self._functions.pop(name, None)
        self._enabled.pop(name, None)
        self._quick.pop(name, None)
        for includer in self._includers:
            includer.dropped(name)
        for one in {self._origin, *self._copies}:
            if one._watch is not None:
                one._watch.removed(name)

    def _relink(self, methods: Iterable[Method]) -> None:
        """Replace the methods of these names by these, whose middleware is another."""
        for method in methods:
            there = self._registered.get(method.name)
            if there is None:  # it was removed here alone
                continue
            self._registered[method.name] = method
            method.enabled = there.enabled
            if method.enabled:
                self._enable(method)
        for includer in self._includers:
            includer.chained()

    def enable(self, name: str | None = None, *, tag: str | None = None) -> None:
        """Enable what `disable` has disabled, but for what another disabled tag holds back; see there."""
        self._turn("enable", name, tag, on=True)

    def disable(self, name: str | None = None, *, tag: str | None = None) -> None:
        """Disable a method, or all with a tag, those too that are registered or included later: they are unknown in
        calls, and not in the OpenRPC document. What is disabled here stays so, also where an included service enables
        it. LocalError for a name that no method has."""
        self._turn("disable", name, tag, on=False)

    def _turn(self, call: str, name: str | None, tag: str | None, *, on: bool) -> None:
        """Enable or disable; `call`: the name of the public method, for errors."""
        check(f"Service.{call}", {"name": TEXT | NONE, "tag": TEXT | NONE}, {"name": name, "tag": tag})
        if (name is None) == (tag is None):
            raise LocalError(f'{call} takes the name of a method, {call}("erase"), or a tag, {call}(tag="admin")')
        if name is None:
            for key in self._switches.turn(None, tag, on):
                self._switch(str(key))
        elif name in self._registered:
            self._switches.name([name], on)
            self._switch(name)
        else:
            raise LocalError(f"{self.name} has no method {name!r}; {nearest(name, self._registered)}")

    def _switched(self, name: str, on: bool) -> None:
        """Follow the service that a method is included from, which has enabled or disabled it."""
        self._switches.give(name, on)
        self._switch(name)

    def _switch(self, name: str) -> None:
        """Enable or disable a method, as it is switched now."""
        method, on = self._registered[name], self._switches.on(name)
        if method.enabled == on:
            return
        method.enabled = on
        if on:
            self._enable(method)
        else:
            self._enabled.pop(name, None)
            self._quick.pop(name, None)
        for includer in self._includers:
            includer.switched(name, on)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside the existing ones. Usable as a decorator."""
        check("Service.use", {"middleware": CALLABLE}, locals())
        around = (*self._middleware, middleware)
        for one in (self, *self._copies):
            one._middleware = around
        for method in self._internal.values():
            self._link(method)
        self._relink(tuple(self._registered.values()))
        return middleware

    def override(self, function: Callable[..., Any], fake: Callable[..., Any]) -> AbstractContextManager[None]:
        """For tests: within the block `fake` is called instead of the dependency `function`, wherever that is used
        in this app, in every thread. A plain `fake` runs in place. It may have dependencies of its own.

        LocalError for a function on which nothing here depends.
        """
        if not self._dependencies.knows(function):
            raise LocalError(f"{self.name}: nothing here depends on {name_of(function)}, so there is none to override")
        return self._dependencies.override(function, fake)

    @property
    def _lifespan(self) -> Lifespan | None:
        """Its lifespan: None while there is nothing to open."""
        return self._origin._own_lifespan

    def _set_lifespan(self, lifespan: Callable[[Any], Any], app: Any) -> None:
        """Take what the user gave as the lifespan of `app`. LocalError for what can be none."""
        from .lifespan import managed  # noqa: PLC0415  (asyncio is paid for only by what opens something)

        make = managed(lifespan, self.name)
        self._make_lifespan().around(lambda: make(app))
        self._quick.clear()  # a method of these would be answered before the lifespan has begun

    def _make_lifespan(self) -> Lifespan:
        """Return its lifespan, and make it where there is something to open."""
        root = self._origin
        if root._own_lifespan is None:
            from .lifespan import Lifespan  # noqa: PLC0415  (asyncio is paid for only by what opens something)

            root._own_lifespan = self._dependencies.life = Lifespan(self.name, self._dependencies)
        return root._own_lifespan

    def _lifespan_dependency_added(self) -> None:
        """Take dependencies into the lifespan that live as long as it does."""
        self._make_lifespan().changed()

    def _link(self, method: Method, *, protocol: bool = True, extending: tuple[Middleware, ...] | None = None) -> None:
        """Put the service's middleware around a method, also around one that a router finds. `protocol`: whether the
        middleware of a protocol on top is around it, too; an HTTP route is no call of the protocol. `extending`: that
        middleware for this method; None: that of every method."""
        if method.life is None:
            method.life = self._lifespan
        if extending is None:
            extending = self._extending if protocol else ()
        around = extending + self._middleware + method.middleware
        outermost = (self._finishing,) if protocol and self._finishing is not None else ()
        method.handler = chain((*outermost, *around), self._last(method)) if around else None
        method.quick = method.kind == "inline" and not around and method.concurrency is None
        if method.access is not None and method.access not in self._accesses:
            self._accesses.append(method.access)
        never = method.kind == "async" and not method.waits
        method.runs_inline = method.quick or (never and not around and method.concurrency is None)

    def _handler(self, method: Method) -> Next:
        """Return the function that runs a method with its middleware."""
        return method.handler if method.handler is not None else self._last(method)

    def _enable(self, method: Method) -> None:
        self._enabled[method.name] = method
        self._link(method)
        self._quick.pop(method.name, None)
        held = self._lifespan is not None and self._lifespan.state
        free = not held and method.access is None
        if method.quick and free and not method.binding.wants_context and not method.binding.opaque:
            self._quick[method.name] = method.binding

    def _find(self, name: str) -> Method | None:
        """Return the method of a name, also `rpc.discover`; None for an unknown one."""
        return self._enabled.get(name) or self._internal.get(name)

    @staticmethod
    def _last(method: Method) -> Next:
        async def last(call: Call) -> Any:
            site = call.context._site
            value = await run(method, arguments_of(method.binding, call.params, call.context, site), site)
            return value.as_text() if isinstance(value, LongResult) else value

        return last

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Notify an observer of all that comes in and goes out from now on, beside existing observers. Returns the
        function that ends it. What is served already under other limits (`serve(limits=...)`) is not reported.

        LocalError for what is not an `Observer`.
        """
        check("Service.observe", {"observer": OBSERVER}, locals())
        self._set_observers((*self._observers, observer))
        ends = [observer]  # an end that is called twice ends one registration

        def over() -> None:
            if ends:
                self._unobserve(ends.pop())

        return over

    def _unobserve(self, observer: Observer) -> None:
        """Take back one `observe`, of this service or of the one that it is a copy of."""
        found = [at for at, one in enumerate(self._observers) if one is observer]
        if found:
            self._set_observers((*self._observers[: found[-1]], *self._observers[found[-1] + 1 :]))

    def _set_observers(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        self._watch = ServiceWatch(self.name, observers) if observers else None

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC 1.3 document of this service."""
        from .openrpc import document  # noqa: PLC0415  (start-up: for those who ask for it)

        return document(
            self._listed,
            title=self.title or self.name,
            version=self.version,
            description=self.description,
            servers=self._servers,
        )

    def _find_by_name(
        self, message: Request | Notification, caller: Caller, peer: Any
    ) -> tuple[Method | None, Request | Notification]:
        method = self._enabled.get(message.method) or self._internal.get(message.method)
        if type(message) is Request and message.condensed is not None:  # its parameters are decoded from the whole text
            message = msgspec.structs.replace(message, condensed=None)
        life = self._own_lifespan
        if life is None or method is None or life.here() is not None:  # to call `living` costs more
            return method, message
        return living(life, method, self._handler), message

    @property
    def _listed(self) -> Mapping[str, Method]:
        """The methods in the OpenRPC document: those that are registered, and those of tasks."""
        return {**self._enabled, **self._task_methods} if self._tasks is not None else self._enabled

    def _shown_methods(self, caller: Caller) -> list[str]:
        """Return the names of the methods that this caller may see; those of tasks where it may see one that has
        some."""
        shown = [one for one in self._enabled.values() if one.access is None or one.access.shown(caller)]
        more = self._task_methods if any(one.task is not None for one in shown) else ()
        return [one.name for one in shown] + list(more)

    def _discover(self, context: Context) -> Any:
        """Return the document as JSON, made again only when there are other methods, because it is costly to make;
        without methods that are not for this caller."""
        shown = set(self._shown_methods(context.caller))
        if len(shown) < len(self._listed):
            found = self.openrpc()
            return found | {"methods": [one for one in found["methods"] if one["name"] in shown]}
        now = {one.name: one.binding for one in self._listed.values()}
        if self._document is None or self._document[0] != now:
            self._document = now, Raw(msgspec.json.encode(self.openrpc()))
        return self._document[1]

    run = run_app

    # -- answering

    def answer(self, raw: bytes, *, caller: Caller = HERE.caller) -> bytes | None:
        """The answer to one message or batch as JSON text, or None when none is owed. Needs no loop. `caller`: for the
        context, such as the user that a web framework's view knows: `Caller(identity=Identity(subject="ada"))`.

        Plain functions run in the calling thread, `async def` on one background loop. Raises nothing
        because of `raw`. Raises LocalError inside a running loop, for a method that is not inline:
        `await service.answer_async(raw)` there.
        """
        if len(raw) > self._limits.message_size:
            return self._oversized(raw, LooplessAcceptor(self._dispatcher))
        found = self._answer_inline(raw, None, HERE_IN, caller)
        if isinstance(found, bytes):
            return found
        if type(found) is FailedAnswer:
            return found.text
        return self._answer_read(read(raw, self._limits, self._lenient, found), raw, caller)

    async def answer_async(self, raw: bytes, *, caller: Caller = HERE.caller) -> bytes | None:
        """`answer` on the running loop: plain functions in worker threads, elements of a batch concurrently."""
        from .runner import runner_of_loop  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        return await runner_of_loop(self._runners, self).answer(raw, caller)

    def _oversized(self, raw: bytes, endpoint: MessageEndpoint) -> bytes | None:
        """The answer to a message above `limits.message_size`, which is not read."""
        answer = self._answers.oversized(len(raw))
        if self._watch is not None:
            malformed = Malformed("too_large", answer.error.message)
            self._watch.refused(malformed, endpoint, Caller(), answer, None, raw)
        return answer.text

    def _answer_inline(
        self, raw: bytes, lenient: Leniency | None, endpoint: MessageEndpoint, caller: Caller
    ) -> bytes | FailedAnswer | PlainMessage | None:
        """The hot path: the answer to a request in its usual shape, or a batch of them, for quick methods. `lenient`:
        of the channel on which it came; None: the service's own. `endpoint`, `caller`: for observers.

        Of everything else nothing has run: `read` takes it, with the `PlainMessage` where the text was decoded to one.
        """
        try:
            if raw[0] == 91:  # "["
                return self._batch_inline(raw, self._lenient if lenient is None else lenient)
            wire = plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return None
        except (KeyError, TypeError) as error:
            raise LocalError(f"{self.name}: a message is bytes, not {raw!r:.60}") from error
        id = wire.id
        binding = self._quick.get(wire.method)
        if (
            binding is None
            or id is UNSET
            or ((len(raw) > self._short or not raw.isascii()) and odd(raw, self._limits.depth))
        ):
            return wire
        take, function, encode = binding.arguments, binding.function, binding.encode  # to call a slot costs more
        try:
            arguments = take(wire.params)
        except (Exception, SystemExit) as error:
            loose = self._watch is not None or (self._lenient if lenient is None else lenient) is not STRICT
            return wire if loose or self._wordy(wire, raw) else self._answers.failed(_request(wire), error)
        if (id == 0 and b"-0" in raw) or (type(id) is str and len(id) > self._limits.id_length):
            return wire
        if self._watch is not None:
            message = _request(wire)
            seen = self._watch.came_in(message, endpoint, caller, nothing, raw)
            answered = seen.run(self._run_watched, message, binding, arguments, seen)
            seen.over(answered)
            return answered
        try:
            value = function(*arguments)
            answer = encode(ResultMessage(None if value is UNSET else value, id))
        except BaseException as error:
            return self._answers.failed(_request(wire), error)
        return answer if len(answer) <= self._modest else self._answers.fitting(Request("", UNSET, id), answer)

    def _run_watched(
        self, message: Request, binding: MethodHandler, arguments: tuple[Any, ...], seen: Arrival
    ) -> bytes | FailedAnswer:
        """Run a quick method in place, as its observers see it."""
        try:
            value = binding.function(*arguments)
            answer = binding.encode(ResultMessage(None if value is UNSET else value, message.id))
            return answer if len(answer) <= self._modest else self._answers.fitting(message, answer)
        except BaseException as error:
            seen.raised(error)
            return self._answers.failed(message, error)

    def _wordy(self, wire: PlainMessage, raw: bytes) -> bool:
        """Whether more than the arguments is wrong with a message, so that the slow path must describe it."""
        id, params = wire.id, wire.params
        return (
            (params is not UNSET and first_byte(params) not in b"[{")
            or (id == 0 and b"-0" in raw)
            or (type(id) is str and len(id) > self._limits.id_length)
        )

    def _batch_inline(self, raw: bytes, lenient: Leniency) -> AnyAnswer:
        if self._watch is not None:  # it is told of each element by the dispatcher
            return None
        wires = plain_batch(raw)
        quick = self._quick
        try:
            calls = [(quick[wire.method], wire) for wire in wires]
        except KeyError:
            return None
        if not 0 < len(wires) <= self._limits.batch_length or odd(raw, self._limits.depth + 1):
            return None
        if lenient is not STRICT and any(w.params is not UNSET and first_byte(w.params) == _NULL for w in wires):
            return None
        longest, minus = self._limits.id_length, _MINUS in raw and b"-0" in raw
        if minus or {type(wire.id) for wire in wires} != _INTEGERS:
            for id in [wire.id for wire in wires]:
                if id is UNSET or (minus and id == 0) or (type(id) is str and len(id) > longest):
                    return None
        return self._dispatcher.run_together(calls, lenient)

    async def _answer_in_background(self, raw: bytes, caller: Caller) -> bytes | None:
        """`answer_async` on the background loop, with a runner of its own, because two loops must not share one."""
        from .runner import Runner  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._background is None:
            self._background = Runner(self)
        if self._portal is None and self._lifespan is not None:  # begun here, and ended with the interpreter
            from .background import Portal  # noqa: PLC0415  (as above)

            self._portal = Portal("service", self._lifespan.stop)
            await self._lifespan.start()
        return await self._background.answer(raw, caller)

    def _answer_read(self, message: Message, raw: bytes, caller: Caller) -> bytes | None:
        """The answer to a message that is not answered in place; inside a running loop nothing of it runs."""
        kinds = set()
        for one in message.messages if type(message) is Batch else (message,):
            if type(one) is Request or type(one) is Notification:
                method = self._enabled.get(one.method) or self._internal.get(one.method)
                if method is not None and (self._lifespan is not None or not method.quick):
                    kinds.add("async" if self._lifespan is not None else method.kind)
        if kinds:
            if inside_a_loop():
                raise LocalError("answer() would block the running loop: use `await service.answer_async(raw)` here")
            if "async" in kinds:
                from .background import run as run_behind  # noqa: PLC0415  (asyncio is paid for only by async methods)

                return run_behind(lambda: self._answer_in_background(raw, caller))
        acceptor = LooplessAcceptor(self._dispatcher)
        answers: list[AnyAnswer] = []
        origin = HERE if caller is HERE.caller else MessageOrigin(caller)
        self._dispatcher.dispatch(message, acceptor, origin, answers.append, raw)
        if acceptor.error is not None:
            raise acceptor.error
        return text_of(answers[0])


_INTEGERS = {int}
_NULL = ord("n")
_MINUS = ord("-")  # one byte is found ten times faster than two, and most texts have none


def _request(wire: PlainMessage) -> Request:
    """A call in its usual shape as a message."""
    return Request(str(wire.method), wire.params, wire.id)


def inside_a_loop() -> bool:
    """Whether a loop runs in this thread, found out without importing asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
