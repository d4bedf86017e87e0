"""One name of a service: the function behind it, and how it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from opcode import opmap
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct

from ..jsonrpc.errors import LocalError, RpcError
from ..jsonrpc.options import CALL_TIME, FLAG, NONE, NOT_GIVEN, Rule, check, many, whole
from .binding.binding import Binding, bind
from .context import Context
from .middleware import Middleware, Next


class Handler(Protocol):
    """What a `Method` runs for one call: `function(*arguments(params, context))`, awaited where `kind` is "async".

    A function's `Binding` is one. `params` is the message's own JSON text (`Raw`, or UNSET), or a router's replacement;
    `encode` makes the text of an answer that contains the result, and leaves a result that is `Raw` as it is, so a
    handler may take and return bytes that nothing decodes.
    """

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def arguments(self) -> Callable[..., tuple[Any, ...]]:
        """(params, context=None) -> the arguments of the function. Raises InvalidParams."""

    @property
    def encode(self) -> Callable[[Any], bytes]: ...
    @property
    def kind(self) -> Literal["async", "plain"]: ...
    @property
    def wants_context(self) -> bool:
        """Whether it needs a Context."""

    @property
    def opaque(self) -> bool:
        """True if a part of the params is left undecoded, so that its numbers are not checked."""


_encode = msgspec.json.Encoder().encode


class Passed(Struct, frozen=True, eq=False):
    """The `Handler` of a function that takes `(params, context)` as they are, and returns `Raw` or a JSON value.

    Without `wants_context` its context is None.
    """

    function: Callable[[Any, Any], Any]
    kind: Literal["async", "plain"] = "plain"
    wants_context: bool = True
    opaque: bool = True
    encode: Callable[[Any], bytes] = _encode

    def arguments(self, params: Any, context: Any = None) -> tuple[Any, ...]:
        """Both, unchanged."""
        return params, context


class Method(Struct, eq=False):
    """One name of a service and its handler."""

    name: str
    binding: Handler
    kind: Literal["inline", "thread", "async"]
    errors: tuple[type[RpcError], ...] = ()
    timeout: float | Any | None = UNSET
    """Seconds a call may take; None for ever; UNSET: the limits' `handler_timeout`."""
    concurrency: int | None = None
    """Calls of this method that run at once; None: no limit of its own."""
    queue: int | None = None
    """Calls that may wait for one of those; further ones are busy. None: no bound of its own."""
    idempotent: bool = False
    deprecated: bool = False
    description: str = ""
    middleware: tuple[Middleware, ...] = ()
    """Of the services from which it was included, outermost first."""
    handler: Next | None = None
    """The whole chain, if there is middleware."""
    quick: bool = False
    """Answered in place: inline, and no middleware."""
    waits: bool = True
    """An `async def` that may wait for something; see `may_wait`."""
    runs_inline: bool = False
    """Answered in place where a loop runs: quick, or an `async def` that never waits, without middleware."""
    stream: bool = False
    """A long-lived call that sends messages: it does not count among the calls in flight."""

    @property
    def signature(self) -> Binding:
        """The described function: its parameters and its result. Raises LocalError for a method without one, which a
        protocol on top answers itself."""
        if not isinstance(self.binding, Binding):
            raise LocalError(f"{self.name} is no method of a service: it has no signature of its own")
        return self.binding


RUNNING: Final = {
    "inline": FLAG,
    "timeout": CALL_TIME | NOT_GIVEN,
    "concurrency": whole(1) | NONE,
    "queue": whole(0) | NONE,
}
"""The rules of the options that say how a function runs."""
ERROR: Final = Rule(lambda value: isinstance(value, type) and issubclass(value, RpcError), "a subclass of RpcError")
METHOD: Final = RUNNING | {"errors": many(ERROR), "idempotent": FLAG, "deprecated": FLAG}


def bounded(name: str, concurrency: int | None, queue: int | None) -> None:
    """Raise LocalError for a queue without concurrency."""
    if queue is not None and concurrency is None:
        raise LocalError(f"{name}: queue bounds the calls that wait for one of `concurrency` places: give both")


def method_of(
    function: Callable[..., Any],
    name: str | None,
    *,
    inline: bool = False,
    errors: Iterable[type[RpcError]] = (),
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
    idempotent: bool = False,
    deprecated: bool = False,
) -> Method:
    """The method for a function, by its own name unless `name` gives another. Raises LocalError for what cannot be a
    method."""
    name = name or getattr(function, "__name__", "")
    check(str(name or function), METHOD, locals())
    if not name or name == "<lambda>":
        raise LocalError(f"{function!r} has no name of its own: give one, @service.method('name')")
    bounded(name, concurrency, queue)
    declared = tuple(errors)
    check(name, {"errors": METHOD["errors"]}, {"errors": declared})  # an iterator could not be looked into
    binding = bind(function, context_type=Context)
    if inline and binding.kind == "async":
        raise LocalError(f"{name}: an async def already runs on the loop; inline=True is for plain functions")
    return Method(
        name,
        binding,
        "async" if binding.kind == "async" else "inline" if inline else "thread",
        errors=declared,
        timeout=timeout,
        concurrency=concurrency,
        queue=queue,
        idempotent=idempotent,
        deprecated=deprecated,
        description=(getattr(function, "__doc__", None) or "").strip(),
        waits=may_wait(function),
    )


def may_wait(function: Callable[..., Any]) -> bool:
    """Whether an `async def` may wait. One whose code awaits nothing ends in its first step.

    With eager tasks (Python 3.12) it need not be known: such a task costs no scheduling there.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or sys.version_info >= (3, 12) or opmap["SEND"] in code.co_code[::2]
