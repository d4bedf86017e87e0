"""A user's function as the `Method` of a tool, a resource, a prompt or a completion: the common parts.

Each such method's function takes `(admitted, context)` and returns the whole result as JSON text for the caller's
revision. As much as possible is prepared at registration; the function's own `Binding` decodes the arguments.
`errors` describes how functions fail, `output` what a tool's result becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from ...jsonrpc.errors import LocalError
from ...rpc.binding.annotations import result_tree
from ...rpc.binding.binding import Binding, bind
from ...rpc.binding.dependencies import Dependencies
from ...rpc.binding.projection import projection
from ...rpc.context import Context as RpcContext
from ...rpc.method import NO_CONTEXT, LongResult, Method, Passed, bounded, by_name, demands, may_wait
from ..protocol.admission import Admitted
from .content import CONTENT
from .context import Context
from .errors import Failed
from .outcomes import Finished
from .registering import CallOptions

Handler: TypeAlias = Callable[[Admitted, RpcContext], Any]
Giver: TypeAlias = Callable[[RpcContext, Admitted], Any]
Reader: TypeAlias = Callable[[Admitted, Any], tuple[Any, ...]]
"""(admitted, context) -> the function's arguments."""


_encode = msgspec.json.Encoder().encode


def bound(function: Callable[..., Any], dependencies: Dependencies, options: CallOptions) -> Binding:
    """The binding of a function of this server: it takes arguments by name."""
    binding = bind(function, context_type=Context, by_position=False, result=False)
    if binding.injection is not None:
        if options["inline"]:
            binding.injection.run_inline()
        dependencies.add(binding.injection)
    return binding


def method_for(
    name: str,
    kind: Literal["async", "plain"],
    function: Callable[..., Any],
    handler: Handler,
    options: CallOptions,
    *,
    wants_context: bool = True,
    arguments: Callable[[Admitted], Mapping[str, Any]] | None = None,
) -> Method:
    """The method that runs a function through this handler, with these options. `arguments`: of a call, by their names;
    by default its params alone. Raises LocalError for options that conflict."""
    if options["inline"] and kind == "async":
        raise LocalError(f"{name}: an async def already runs on the loop; inline=True is for plain functions")
    bounded(name, options["concurrency"], options["queue"])
    runs: Literal["inline", "thread", "async"] = (
        "async" if kind == "async" else "inline" if options["inline"] else "thread"
    )
    return Method(
        name,
        Passed(handler, kind, wants_context=wants_context),
        runs,
        timeout=options["timeout"],
        concurrency=options["concurrency"],
        queue=options["queue"],
        quick=runs == "inline" and options["concurrency"] is None,
        waits=may_wait(function),
        access=demands(name, options["scopes"], options["roles"], options["allow"], arguments or _params),
    )


def _params(admitted: Admitted) -> dict[str, Any]:
    return {"params": admitted.params}


def method_of(name: str, binding: Binding, handler: Handler, options: CallOptions, read: Reader) -> Method:
    """`method_for` a function's binding, whose arguments `read` gives."""

    def arguments(admitted: Admitted) -> dict[str, Any]:
        return by_name(binding, read(admitted, NO_CONTEXT))

    wants_context = binding.wants_context
    return method_for(
        name, binding.kind, binding.function, handler, options, wants_context=wants_context, arguments=arguments
    )


def handler_of(
    function: Callable[..., Any],
    kind: Literal["async", "plain"],
    read: Reader,
    finished: Finished,
    failed: Failed,
    give: Giver | None,
) -> Handler:
    """Return what reads the arguments, runs the function and makes the result. `give` makes the context that the
    function wants."""

    async def awaited(admitted: Admitted, rpc: RpcContext) -> Raw | LongResult:
        values = None
        try:
            values = read(admitted, None if give is None else give(rpc, admitted))
            value = await function(*values)
            return (admitted.surroundings.outcomes.get(type(value)) or finished)(value, admitted)
        except BaseException as error:
            return failed(error, admitted, values is not None)

    def called(admitted: Admitted, rpc: RpcContext) -> Raw | LongResult:
        values = None
        try:
            values = read(admitted, None if give is None else give(rpc, admitted))
            value = function(*values)
            return (admitted.surroundings.outcomes.get(type(value)) or finished)(value, admitted)
        except BaseException as error:
            return failed(error, admitted, values is not None)

    return awaited if kind == "async" else called


def leaving(binding: Binding, finished: Finished) -> Finished:
    """`finished`, restricted to what the function's results declare."""
    leave = projection(result_tree(binding.result_type, "result", CONTENT), CONTENT)
    return finished if leave is None else lambda value, admitted: finished(leave(value), admitted)


def giver(binding: Binding) -> Giver | None:
    """Makes the context that a function wants; None if it wants none."""
    return Context if binding.wants_context else None


def rpc_context(rpc: RpcContext, admitted: Admitted) -> Any:
    """The context of a method of a service that became a tool: it keeps its own."""
    return rpc
