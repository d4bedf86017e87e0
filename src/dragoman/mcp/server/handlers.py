"""The common parts of making a user's function the `Method` of a tool, a resource, a prompt or a completion.

Each such method's function takes `(admitted, context)` and returns the whole result as JSON text for the caller's
revision. As much as possible is prepared at registration; the function's own `Binding` decodes the arguments. `errors`
describes how functions fail, `output` how a tool's result is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw

from ...rpc.binding.annotations import result_tree
from ...rpc.binding.binding import Binding, bind
from ...rpc.binding.dependencies import Dependencies
from ...rpc.binding.projection import projection
from ...rpc.context import Context as RpcContext
from ...rpc.method import (
    NO_CONTEXT,
    CallOptions,
    LongResult,
    Method,
    Passed,
    by_name,
    demands,
    may_wait,
    running_function,
    running_of,
)
from ..protocol.admission import Admitted
from .content import CONTENT
from .context import Context
from .errors import FailureHandler
from .outcomes import ResultWriter

Handler: TypeAlias = Callable[[Admitted, RpcContext], Any]
ContextMaker: TypeAlias = Callable[[RpcContext, Admitted], Any]
"""(the JSON-RPC context, admitted) -> the function's context."""
ArgumentReader: TypeAlias = Callable[[Admitted, Any], tuple[Any, ...]]
"""(admitted, context) -> the function's arguments."""


_encode = msgspec.json.Encoder().encode


def bind_function(function: Callable[..., Any], dependencies: Dependencies, options: CallOptions) -> Binding:
    """Return the binding of a function of a server, which takes its arguments by name. Raises LocalError for
    annotations that cannot be decoded."""
    function = running_function(function, getattr(function, "__name__", "") or str(function), options)
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
    """Return the method that runs a function through this handler, with these options. `arguments`: returns the
    arguments of a call by their names, for the option `allow`; None: its params. Raises LocalError for options that
    conflict."""
    running = running_of(name, kind, options)
    return Method(
        name,
        Passed(handler, kind, wants_context=wants_context),
        **running,
        quick=running["kind"] == "inline" and running["concurrency"] is None,
        waits=may_wait(function),
        access=demands(name, options, arguments or _params),
    )


def _params(admitted: Admitted) -> dict[str, Any]:
    return {"params": admitted.params}


def method_of(name: str, binding: Binding, handler: Handler, options: CallOptions, read: ArgumentReader) -> Method:
    """Return the method of a function's binding, whose arguments `read` returns."""

    def arguments(admitted: Admitted) -> dict[str, Any]:
        return by_name(binding, read(admitted, NO_CONTEXT))

    wants_context = binding.wants_context
    return method_for(
        name, binding.kind, binding.function, handler, options, wants_context=wants_context, arguments=arguments
    )


def handler_of(
    function: Callable[..., Any],
    kind: Literal["async", "plain"],
    read: ArgumentReader,
    write_result: ResultWriter,
    handle_failure: FailureHandler,
    make_context: ContextMaker | None,
) -> Handler:
    """Return the handler that reads the arguments, runs the function and makes the result. `make_context`: makes the
    context that the function takes; None: it takes none."""

    async def run_async(admitted: Admitted, rpc: RpcContext) -> Raw | LongResult:
        values = None
        try:
            values = read(admitted, None if make_context is None else make_context(rpc, admitted))
            value = await function(*values)
            return (admitted.surroundings.outcomes.get(type(value)) or write_result)(value, admitted)
        except BaseException as error:
            return handle_failure(error, admitted, values is not None)

    def run_plain(admitted: Admitted, rpc: RpcContext) -> Raw | LongResult:
        values = None
        try:
            values = read(admitted, None if make_context is None else make_context(rpc, admitted))
            value = function(*values)
            return (admitted.surroundings.outcomes.get(type(value)) or write_result)(value, admitted)
        except BaseException as error:
            return handle_failure(error, admitted, values is not None)

    return run_async if kind == "async" else run_plain


def restrict_result(binding: Binding, write_result: ResultWriter) -> ResultWriter:
    """Return a `write_result` that writes only the members that the function's result type declares."""
    project = projection(result_tree(binding.result_type, "result", CONTENT), CONTENT)
    return write_result if project is None else lambda value, admitted: write_result(project(value), admitted)


def context_maker(binding: Binding) -> ContextMaker | None:
    """Return what makes the context that a function takes; None if it takes none."""
    return Context if binding.wants_context else None


def rpc_context(rpc: RpcContext, admitted: Admitted) -> Any:
    """Return the context for a service's method that became a tool: the one that it has as a method."""
    return rpc
