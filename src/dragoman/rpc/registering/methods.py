"""The methods of a service: registered, included, removed, each with what is around it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import msgspec

from ...jsonrpc.errors import LocalError, RpcError
from ...jsonrpc.limits import Limits
from ...jsonrpc.options import CALLABLE, NONE, TEXT, check, many, nearest
from ..binding.binding import Binding
from ..binding.dependencies import Dependencies
from ..binding.signature import defined_again, name_of, registrable
from ..dispatch import run
from ..including import (
    Commit,
    Includer,
    acyclic,
    guarded,
    joined,
    marked,
    registrable_name,
)
from ..method import Handler, LongResult, Method, declared, method_of
from ..middleware import Call, Middleware, Next, chain
from ..reading import arguments_of
from ..routing.registering import Routed
from .switching import Switches

logger: logging.Logger = logging.getLogger("dragoman")

if TYPE_CHECKING:
    from ...access import Access, Protection, Verifiers
    from ...channel import Caller
    from ...jsonrpc.errors import Refusal
    from ..lifespan import Lifespan

F = TypeVar("F", bound=Callable[..., Any])


class Registered(Routed):
    """What has methods: their names, the middleware and the lifespan around them, and what it includes. A `ServiceCore`
    is one, which answers their calls. `included`, `includers` and `dependencies` are the library's."""

    limits: Limits
    """The bounds on messages, calls, channels and times."""

    def __init__(self, name: str, middleware: Sequence[Middleware]) -> None:
        self.name = name
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        """Around every call, the first outermost."""
        self._registered: dict[str, Method] = {}
        self._table: dict[str, Method] = {}
        """Those of them that are enabled."""
        self._switches = Switches()
        self._internal: dict[str, Method] = {}
        self._inline: dict[Any, Handler] = {}
        """The methods that may be answered in place, without the dispatcher."""
        self._origin = self
        self._copies: WeakSet[Registered] = WeakSet()
        """The same under other limits, where it is served so."""
        self.included: list[Registered] = []
        self.includers: list[Includer] = []
        self._life: Lifespan | None = None
        self.dependencies: Dependencies = Dependencies(self._held)
        self.auth: Verifiers | None = None
        """What says who is calling, as it was given: a verifier of tokens, or several."""
        self.protection: Protection | None = None
        """The guard of `auth` behind which it is served."""
        self.challenge: Callable[[Refusal, Caller, Any], Refusal] | None = None
        """Adds to the refusal of a forbidden call what its caller must show."""
        self.finishing: Middleware | None = None
        """Of a protocol on top, around all middleware: writes values that middleware returns."""
        self._accesses: list[Access] = []
        self._functions: dict[str, Callable[..., Any]] = {}
        """Those that were registered one by one, by the names of their methods."""
        self.errors: tuple[type[RpcError], ...] = ()
        """Those that each of its methods declares."""

    @property
    def demanded(self) -> frozenset[str] | None:
        """The scopes that its methods demand of callers; None where no method demands anything of them."""
        accesses = self._accesses
        return frozenset().union(*(one.scopes for one in accesses)) if accesses else None

    def protect(self, protection: Protection) -> None:
        """As `access.Protectable`."""
        self.protection = protection
        self.challenge = lambda refusal, caller, params: protection.challenged(refusal, caller)

    @property
    def methods(self) -> Mapping[str, Method]:
        """The registered methods by name (not `rpc.discover`), without those that are disabled."""
        return self._table

    @property
    def registered(self) -> Mapping[str, Method]:
        """The registered methods by name, those too that are disabled."""
        return self._registered

    def method(self, name: Any = None, **options: Any) -> Any:
        """As `Service.method`."""
        given = None if name is None or isinstance(name, str) else registrable(name, "service.method")

        def register(function: F) -> F:
            own = name if given is None else None
            made = method_of(registrable(function, "service.method"), own, **options)
            if defined_again(self._functions.get(made.name), function):
                logger.info("%s: the method %s is defined again, and replaced", self.name, made.name)
                self.remove(made.name, back=True)
            self._put(made)
            self._functions[made.name] = function
            return function

        return register if given is None else register(given)

    def _put(self, *methods: Method) -> None:
        for method in methods:
            method.errors = declared(method.errors, self.errors)
        for commit in self.planned(methods):
            commit()

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        """What registers these methods, here and wherever this service is included. LocalError for a name that is
        taken or cannot be."""
        found = list(methods)
        for method in found:
            registrable_name(self.name, method.name, self._registered, self.limits.method_length)
        if (taken := len({one.name for one in found})) != len(found):
            raise LocalError(f"{self.name}: {len(found)} methods would have {taken} names")
        given = {method.name: method.enabled for method in found}
        for method in found:
            method.enabled = method.enabled and self._switches.takes(method.name, "method", method.tags)
        commits: list[Commit] = [lambda one=one: self._take(one, given[one.name]) for one in found]  # type: ignore[misc]
        for includer in self.includers:
            commits += includer.planned(found)
        return commits

    def _take(self, method: Method, given: bool) -> None:
        injection = method.binding.injection if isinstance(method.binding, Binding) else None
        if injection is not None and injection.owner is None:
            self.dependencies.add(injection)
        self._switches.add(method.name, "method", method.tags, given)
        self._registered[method.name] = method
        if method.enabled:
            self._link(method)
            self._table[method.name] = method

    def remove(self, name: str, *, back: bool = False) -> None:
        """As `Service.remove`; `back`: as of `Switches.remove`."""
        if self._registered.pop(name, None) is None:
            raise LocalError(f"{self.name} has no method {name!r}; {nearest(name, self._registered)}")
        self._switches.remove(name, back=back)
        self._functions.pop(name, None)
        self._table.pop(name, None)
        self._inline.pop(name, None)
        for includer in self.includers:
            includer.dropped(name)

    def relink(self, methods: Iterable[Method]) -> None:
        """Have these in place of those of their names: their middleware is another."""
        for method in methods:
            there = self._registered.get(method.name)
            if there is None:  # it was removed here alone
                continue
            self._registered[method.name] = method
            method.enabled = there.enabled
            if method.enabled:
                self._link(method)
                self._table[method.name] = method
        for includer in self.includers:
            includer.chained()

    def turn(self, call: str, name: str | None, tag: str | None, *, on: bool) -> None:
        """As `Service.enable` and `Service.disable`; `call`: which of them."""
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

    def switched(self, name: str, on: bool) -> None:
        """The service that a method is included from has enabled or disabled it."""
        self._switches.give(name, on)
        self._switch(name)

    def _switch(self, name: str) -> None:
        """Have a method in the table, or not, as it is switched."""
        method, on = self._registered[name], self._switches.on(name)
        if method.enabled == on:
            return
        method.enabled = on
        if on:
            self._link(method)
            self._table[name] = method
        else:
            self._table.pop(name, None)
            self._inline.pop(name, None)
        for includer in self.includers:
            includer.switched(name, on)

    @property
    def life(self) -> Lifespan | None:
        """Its lifespan: None while there is nothing to open."""
        return self._origin._life

    def live(self, lifespan: Callable[[Any], Any], app: Any) -> None:
        """Take what the user gave as the lifespan of `app`. LocalError for what can be none."""
        from ..lifespan import managed  # noqa: PLC0415  (asyncio is paid for only by what opens something)

        make = managed(lifespan, self.name)
        self.opens().around(lambda: make(app))
        self._inline.clear()  # a method of these would be answered before the lifespan has begun

    def opens(self) -> Lifespan:
        """Its lifespan, made when there is something to open."""
        root = self._origin
        if root._life is None:
            from ..lifespan import Lifespan  # noqa: PLC0415  (asyncio is paid for only by what opens something)

            root._life = self.dependencies.life = Lifespan(self.name, self.dependencies)
        return root._life

    def _held(self) -> None:
        """Dependencies that live as long as the lifespan were added."""
        self.opens().changed()

    def override(self, function: Callable[..., Any], fake: Callable[..., Any]) -> AbstractContextManager[None]:
        """As `Service.override`."""
        if not self.dependencies.knows(function):
            raise LocalError(f"{self.name}: nothing here depends on {name_of(function)}, so there is none to override")
        return self.dependencies.override(function, fake)

    def link(self, method: Method) -> None:
        """Put the service's middleware around a method, also around one that a router finds."""
        if method.life is None:
            method.life = self.life
        around = self.middleware + method.middleware
        outermost = () if self.finishing is None else (self.finishing,)
        method.handler = chain((*outermost, *around), self._last(method)) if around else None
        method.quick = method.kind == "inline" and not around and method.concurrency is None
        if method.access is not None and method.access not in self._accesses:
            self._accesses.append(method.access)
        never = method.kind == "async" and not method.waits
        method.runs_inline = method.quick or (never and not around and method.concurrency is None)

    def handler(self, method: Method) -> Next:
        """The function that runs a method with its middleware."""
        return method.handler if method.handler is not None else self._last(method)

    def _link(self, method: Method) -> None:
        self.link(method)
        self._inline.pop(method.name, None)
        held = self.life is not None and self.life.state
        free = not held and method.access is None
        if method.quick and free and not method.binding.wants_context and not method.binding.opaque:
            self._inline[method.name] = method.binding

    def include(self, other: object, *, namespace: str = "", prefix: str = "", tags: Collection[str] = ()) -> None:
        """As `Service.include`."""
        check("Service.include", {"namespace": TEXT, "prefix": TEXT, "tags": many(TEXT)}, locals())
        added = frozenset(tags)
        name_there = joined("Service", namespace, prefix, ".")
        if not isinstance(other, Registered):
            found = marked(other, "Service", "method")
            those = [method_of(made, name_there(mark.name or name), **mark.options) for mark, name, made in found]
            for one in those:
                one.tags |= added
            self._put(*those)
            return
        acyclic(self._origin, other._origin)
        guarded(self, other)
        includer = _Included(self, other, name_there, added)
        commits = includer.planned(other.registered.values())
        self.dependencies.include(other.dependencies)
        for commit in commits:
            commit()
        self.included.append(other._origin)
        other.includers.append(includer)

    def use(self, middleware: Middleware) -> Middleware:
        """As `Service.use`."""
        check("Service.use", {"middleware": CALLABLE}, locals())
        around = (*self.middleware, middleware)
        for one in (self, *self._copies):
            one.middleware = around
        for method in self._internal.values():
            self.link(method)
        self.relink(tuple(self._registered.values()))
        return middleware

    def find(self, name: str) -> Method | None:
        """The method of a name, also `rpc.discover`."""
        return self._table.get(name) or self._internal.get(name)

    @staticmethod
    def _last(method: Method) -> Next:
        async def last(call: Call) -> Any:
            site = call.context._site
            value = await run(method, arguments_of(method.binding, call.params, call.context, site), site)
            return value.as_text() if isinstance(value, LongResult) else value

        return last


class _Included:
    """A service within another: an `Includer`. `joined`: the name there of each name here; `tags`: those that the
    methods have there, too."""

    def __init__(
        self, outer: Registered, inner: Registered, joined: Callable[[str], str], tags: frozenset[str]
    ) -> None:
        self._outer, self._inner, self._joined, self._tags = outer, inner, joined, tags

    def _there(self, one: Method) -> Method:
        access = guarded(self._outer, self._inner, one)
        around = self._inner.middleware + one.middleware
        name = self._joined(one.name)
        errors = declared(one.errors, self._outer.errors)
        tags = one.tags | self._tags
        return msgspec.structs.replace(one, name=name, middleware=around, tags=tags, access=access, errors=errors)

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        return self._outer.planned([self._there(one) for one in methods])

    def chained(self) -> None:
        self._outer.relink([self._there(one) for one in self._inner.registered.values()])

    def dropped(self, name: str) -> None:
        if self._joined(name) in self._outer.registered:  # it may have been removed there alone
            self._outer.remove(self._joined(name), back=True)

    def switched(self, name: str, on: bool) -> None:
        if self._joined(name) in self._outer.registered:
            self._outer.switched(self._joined(name), on)
