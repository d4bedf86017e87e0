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

    A function's `Binding` is one. `params` is the message's own JSON text (`Raw`, or UNSET), or what a router put in its
    place; `encode` makes the text of an answer of which the result is a part, and leaves a result that is `Raw` as it is:
    so a handler may take and give bytes that nothing decodes.
    """

    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def arguments(self) -> Callable[..., tuple[Any, ...]]:
        """(params, context=None) -> what the function is called with. Raises InvalidParams."""

    @property
    def encode(self) -> Callable[[Any], bytes]: ...
    @property
    def kind(self) -> Literal["async", "plain"]: ...
    @property
    def wants_context(self) -> bool:
        """Whether a Context has to be made for it."""

    @property
    def opaque(self) -> bool:
        """True where a part of the params is left unread, so that its numbers are unread."""


_encode = msgspec.json.Encoder().encode


class Passed(Struct, frozen=True, eq=False):
    """The `Handler` of a function that takes `(params, context)` as they are, and gives `Raw` or what JSON can say.

    Without `wants_context` its context is None.
    """

    function: Callable[[Any, Any], Any]
    kind: Literal["async", "plain"] = "plain"
    wants_context: bool = True
    opaque: bool = True
    encode: Callable[[Any], bytes] = _encode

    def arguments(self, params: Any, context: Any = None) -> tuple[Any, ...]:
        """Both, as they are."""
        return params, context


class Method(Struct, eq=False):
    """One name of a service and what stands behind it."""

    name: str
    binding: Handler
    kind: Literal["inline", "thread", "async"]
    errors: tuple[type[RpcError], ...] = ()
    timeout: float | Any | None = UNSET
    """Seconds a call may take; None for ever; UNSET: the limits' `handler_timeout`."""
    concurrency: int | None = None
    """Calls of this method that run at once; None: no limit of its own."""
    queue: int | None = None
    """Calls that may wait for one of those; beyond, busy. None: no bound of its own."""
    idempotent: bool = False
    deprecated: bool = False
    description: str = ""
    middleware: tuple[Middleware, ...] = ()
    """Of the services it was included from, outermost first."""
    handler: Next | None = None
    """The whole chain, when there is middleware."""
    quick: bool = False
    """Answered in place: inline, and no middleware."""
    waits: bool = True
    """An `async def` that may wait for something; see `may_wait`."""
    runs_inline: bool = False
    """Answered in place where a loop runs: quick, or an `async def` that never waits, and no middleware."""
    stream: bool = False
    """A call that lives long, since it sends and sends: it does not count among the calls in flight."""

    @property
    def signature(self) -> Binding:
        """The function as it is described: its parameters and its result. LocalError for a method that has none, since
        a protocol on top answers it itself."""
        if not isinstance(self.binding, Binding):
            raise LocalError(f"{self.name} is no method of a service: it has no signature of its own")
        return self.binding


RUNNING: Final = {
    "inline": FLAG,
    "timeout": CALL_TIME | NOT_GIVEN,
    "concurrency": whole(1) | NONE,
    "queue": whole(0) | NONE,
}
"""What the options may be that say how a function runs."""
ERROR: Final = Rule(lambda value: isinstance(value, type) and issubclass(value, RpcError), "a subclass of RpcError")
METHOD: Final = RUNNING | {"errors": many(ERROR), "idempotent": FLAG, "deprecated": FLAG}


def bounded(name: str, concurrency: int | None, queue: int | None) -> None:
    """LocalError for a queue of calls that wait for nothing."""
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
    """The method that a function is, by its own name unless `name` gives another. LocalError for what cannot be one."""
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
    """Whether an `async def` may wait for something. One whose code awaits nothing ends in its first step.

    Where Python has eager tasks it need not be known: there such a task costs no scheduling.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or sys.version_info >= (3, 12) or opmap["SEND"] in code.co_code[::2]
