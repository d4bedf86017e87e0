"""One name of a service: the function behind it, and how it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from opcode import opmap
from typing import Any, Literal

from msgspec import UNSET, Struct

from ..jsonrpc.errors import LocalError, RpcError
from .binding import Binding, bind
from .context import Context
from .middleware import Middleware, Next


class Method(Struct, eq=False):
    """One name of a service and what stands behind it."""

    name: str
    binding: Binding
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
    in_place: bool = False
    """Answered in place where a loop runs: quick, or an `async def` that never waits, and no middleware."""
    stream: bool = False
    """A call that lives long, since it sends and sends: it does not count among the calls in flight."""


def method_of(
    function: Callable[..., Any],
    name: str | None,
    *,
    inline: bool = False,
    errors: tuple[type[RpcError], ...] = (),
    timeout: float | Any | None = UNSET,
    concurrency: int | None = None,
    queue: int | None = None,
    idempotent: bool = False,
    deprecated: bool = False,
) -> Method:
    """The method that a function is, by its own name unless `name` gives another. LocalError for what cannot be one."""
    name = name or getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise LocalError(f"{function!r} has no name of its own: give one, @service.method('name')")
    binding = bind(function, context_type=Context)
    if inline and binding.kind == "async":
        raise LocalError(f"{name}: an async def already runs on the loop; inline=True is for plain functions")
    if queue is not None and concurrency is None:
        raise LocalError(f"{name}: queue bounds the calls that wait for one of `concurrency` places: give both")
    if concurrency is not None and concurrency < 1:
        raise LocalError(f"{name}: concurrency must be at least 1, not {concurrency}")
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, RpcError)):
            raise LocalError(f"{name}: errors lists subclasses of RpcError, not {error!r}")
    return Method(
        name,
        binding,
        "async" if binding.kind == "async" else "inline" if inline else "thread",
        errors=errors,
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
