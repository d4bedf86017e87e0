"""The arguments of a call: read as its method declares them, and what does not fit as leniently as its service says.

The sites that run thousands of calls a second read by themselves, and come here with what did not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ..channel import Caller
from ..jsonrpc.errors import Refusal
from ..jsonrpc.leniency import STRICT, Leniency
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Notification, Request
from .binding.binding import Binding
from .binding.loose_arguments import bind_loosely
from .context import Context, Site
from .method import Handler, Method, arguments_by_name


class Reading(Protocol):
    """A service, as far as it says how calls are read and refused: a `dispatch.MethodTable`."""

    lenient: Leniency
    limits: Limits
    challenge: Callable[[Refusal, Caller, Any], Refusal] | None


def arguments_of(handler: Handler, params: Any, context: Context | None, site: Site) -> tuple[Any, ...]:
    """The arguments of a call at its site. Raises what `Handler.arguments` raises."""
    try:
        return handler.arguments(params, context)
    except Exception as error:
        return loosely(handler, params, context, error, site.table, site.peer)


def loosely(
    handler: Handler, params: Any, context: Context | None, error: Exception, table: Reading | None, peer: Any
) -> tuple[Any, ...]:
    """The arguments of a call that `Handler.arguments` refused with `error`, as leniently as its peer or else its
    service reads them. Raises `error`, or what a later reading found."""
    if table is None:
        raise error
    return bind_loosely(handler, params, context, error, leniency(table, peer), table.limits.depth)


def leniency(table: Reading | None, peer: Any) -> Leniency:
    """How leniently a call is read: as the peer on which it came says, or else the service that answers."""
    lenient: Leniency = peer.lenient if peer is not None else STRICT if table is None else table.lenient
    return lenient


def demand(method: Method, message: Request | Notification, caller: Caller, table: Reading, peer: Any) -> None:
    """Raise CallRefused unless this caller may make this call, by the arguments that the function would get."""
    access = method.access
    if access is None:
        return
    lenient = leniency(table, peer)
    if lenient is not STRICT and isinstance(method.binding, Binding):
        access = access.reading(partial(arguments_by_name, method.binding, lenient=lenient, depth=table.limits.depth))
    access.demand(message, caller, table.challenge)
