"""Includes in a service what `include` takes: another service, whose methods stay in step, or an instance, by the marks
of its class.

A service that is included notifies each service or MCP server around it of its methods, of those that it has and of
those that are added later: a `MethodIncluder` puts them there under their names, with the middleware of the service
that they come from. So a call of an included method is found as any other is, in one step.

A mark says with which name and options a function is to be registered; it registers nothing, since a class has no
instance yet while it is made. A subclass inherits marks: a function that overrides a marked one is registered
instead, and `name = None` in the subclass takes it away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct

from ..jsonrpc.errors import LocalError
from .binding.signature import read
from .context import Context
from .method import Method, MethodOptions, declared

if TYPE_CHECKING:
    from ..access import Access, Verifiers

F = TypeVar("F", bound=Callable[..., Any])
Kind: TypeAlias = Literal["method", "tool", "resource", "prompt"]

_MARKS = "__dragoman_marks__"
Commit: TypeAlias = Callable[[], object]
"""Puts a method where it was found to fit."""


class MethodIncluder(Protocol):
    """A service or server that includes another: it has the other's methods, too."""

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        """Return the functions that add these methods. LocalError, before anything is changed, for one that cannot be
        there."""

    def chained(self) -> None:
        """The middleware of the included service has changed."""

    def dropped(self, name: str) -> None:
        """The included service has removed a method."""

    def switched(self, name: str, on: bool) -> None:
        """The included service has enabled or disabled a method."""


def check_method_name(app: str, name: str, taken: Collection[str], longest: int) -> None:
    """LocalError for a method's name that cannot be, or is taken already."""
    if name.startswith("rpc."):
        raise LocalError(f"{name}: names that begin with `rpc.` are reserved by the specification (4.3)")
    if len(name) > longest:
        raise LocalError(f"{name[:40]}...: a method's name has at most {longest} characters")
    if name in taken:
        raise LocalError(f"{app} has a method {name!r} already: give another name, or what is included a namespace")


def joined(app: str, namespace: str, prefix: str, separator: str) -> Callable[[str], str]:
    """Return the function that makes the name of what is included. LocalError for a namespace beside a prefix."""
    if namespace and prefix:
        raise LocalError(f"{app}.include: give namespace={namespace!r} or prefix={prefix!r}, not both")
    before = f"{namespace}{separator}" if namespace else prefix
    return lambda name: before + name


def check_acyclic(outer: Any, inner: Any) -> None:
    """Raise LocalError where `inner` is `outer`, or includes it. Both have `name` and `_included`."""
    waiting = [inner]
    while waiting:
        one = waiting.pop()
        if one is outer:
            raise LocalError(f"{outer.name} cannot include {inner.name}: {inner.name} is it, or includes it")
        waiting.extend(one._included)


class Guarded(Struct, frozen=True):
    """A service as far as its guard matters to what includes it."""

    name: str
    auth: Verifiers | None


def guarded(outer: Guarded, inner: Guarded, method: Method | None = None) -> Access | None:
    """Return what a method demands of its callers where it is included: its own demands, and the scopes that the guard
    of `inner` asks of every call.

    Raises LocalError where something behind a guard, or a method that demands something of its callers, would be
    included where no guard stands, or one whose callers the guard of `inner` does not know.
    """
    if outer.auth is None and (inner.auth is not None or (method is not None and method.access is not None)):
        what = "has auth=" if method is None or method.access is None else f"{method.name} is not for every caller"
        raise LocalError(
            f"{outer.name} cannot include {inner.name}: {what}, and {outer.name} has no auth=, so anybody could call it "
            f"there: give {outer.name} an auth= of its own"
        )
    own = None if method is None else method.access
    if inner.auth is None or inner.auth is outer.auth:
        return own
    from ..access import inherited_scopes, with_scopes  # noqa: PLC0415  (start-up: for what has a guard of its own)

    return with_scopes(own, inherited_scopes(outer, inner))


class IncludedService:
    """A service within another: a `MethodIncluder`. `joined`: the name there of each name here; `tags`: those that the
    methods have there, too."""

    def __init__(self, outer: Any, inner: Any, joined: Callable[[str], str], tags: frozenset[str]) -> None:
        self._outer, self._inner, self._joined, self._tags = outer, inner, joined, tags

    def _there(self, one: Method) -> Method:
        access = guarded(self._outer._guarded, self._inner._guarded, one)
        around = self._inner._middleware + one.middleware
        name = self._joined(one.name)
        errors = declared(one.errors, self._outer._errors)
        tags = one.tags | self._tags
        return msgspec.structs.replace(one, name=name, middleware=around, tags=tags, access=access, errors=errors)

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        commits: list[Commit] = self._outer._planned([self._there(one) for one in methods])
        return commits

    def chained(self) -> None:
        self._outer._relink([self._there(one) for one in self._inner._registered.values()])

    def dropped(self, name: str) -> None:
        if self._joined(name) in self._outer._registered:  # it may have been removed there alone
            self._outer._remove(self._joined(name), back=True)

    def switched(self, name: str, on: bool) -> None:
        if self._joined(name) in self._outer._registered:
            self._outer._switched(self._joined(name), on)


class Mark(Struct, frozen=True):
    """How a function of a class is to be registered. `name`: None for its own; a resource's URI."""

    kind: Kind
    name: str | None
    options: Mapping[str, Any]


def mark(function: F, kind: Kind, name: str | None, options: Mapping[str, Any]) -> F:
    """Put a mark on a function of a class, which is otherwise not changed. LocalError for what is not a function."""
    plain = getattr(function, "__func__", function)  # of a classmethod or staticmethod
    if isinstance(plain, type) or not callable(plain):
        raise LocalError(f"@{kind} marks a function within a class, and {function!r:.100} is none")
    setattr(plain, _MARKS, (*getattr(plain, _MARKS, ()), Mark(kind, name, options)))
    return function


def marked(instance: object, app: str, *kinds: Kind) -> list[tuple[Mark, str, Callable[..., Any]]]:
    """The marks of these kinds that an instance's class has, those of its bases first, each with the name of the
    function and the function of the instance. LocalError, with what to write, for an object without any; `app`: the
    class that includes it."""
    if isinstance(instance, type):
        raise LocalError(f"{app}.include takes an instance: include({instance.__name__}(...))")
    found: dict[str, tuple[Mark, ...]] = {}
    for kind in reversed(type(instance).__mro__):
        for name, value in vars(kind).items():
            marks = getattr(getattr(value, "__func__", value), _MARKS, ())
            if marks:
                found[name] = marks
            elif value is None:
                found.pop(name, None)
    those = [
        (one, name, getattr(instance, name)) for name, marks in found.items() for one in marks if one.kind in kinds
    ]
    if not those:
        door = "dragoman" if kinds == ("method",) else "dragoman.mcp"
        raise LocalError(
            f"{app}.include: {instance!r:.100} is not a Service, and its class marks no function: "
            f"from {door} import {kinds[0]}, and @{kinds[0]} above those to be called"
        )
    return those


def make_instance(given: type) -> Any:
    """The instance that a decorated class gives. LocalError, with what to write, for one that takes arguments."""
    if not isinstance(given, type):
        raise LocalError("@service.service stands above a class; for an instance write service.include(instance)")
    required = [slot.name for slot in read(given, Context).slots if slot.required]
    if required:
        raise LocalError(
            f"@service.service: {given.__name__}(...) needs {', '.join(required)}: "
            f"leave the decorator out and write service.include({given.__name__}(...))"
        )
    return given()


@overload
def method(function: F, /) -> F: ...
@overload
def method(name: str | None = None, **options: Unpack[MethodOptions]) -> Callable[[F], F]: ...
def method(name: Any = None, **options: Unpack[MethodOptions]) -> Any:
    """Mark a function of a class as a method, with the options of `Service.method`. It is registered when an instance
    is: `@api.service` above the class, or `api.include(instance)`."""
    if "errors" in options:  # an iterator would be empty for the second instance
        options["errors"] = tuple(options["errors"])
    if name is None or isinstance(name, str):
        return lambda function: mark(function, "method", name, {**options})
    return mark(name, "method", None, {**options})
