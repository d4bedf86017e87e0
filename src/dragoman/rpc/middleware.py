"""Middleware around calls, alike for single calls and inside batches, incoming and outgoing.

    async def timed(call, next):
        started = perf_counter()
        try:
            return await next(call)
        finally:
            print(call.method, perf_counter() - started)

A chain that never suspends is driven without a loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET, Struct

from ..jsonrpc.errors import LocalError


class Call(Struct):
    """A call on its way through the middleware. Change `params`, or pass a new `Call` on."""

    method: str
    params: Any = UNSET
    """Incoming: Raw, not yet decoded. Outgoing: the caller's value."""
    id: Any = UNSET
    """UNSET for a notification."""
    context: Any = None
    """Incoming: the handler's Context. Outgoing: the Peer."""
    options: Any = None
    """Outgoing: the other arguments of `Peer.call`; None for a notification."""


Next: TypeAlias = Callable[[Call], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Call, Next], Awaitable[Any]]


def chain(middleware: Sequence[Middleware], last: Next) -> Next:
    """The handler in which `middleware[0]` is outermost and `last` innermost."""
    handler = last
    for one in reversed(middleware):
        handler = _link(one, handler)
    return handler


def _link(one: Middleware, inner: Next) -> Next:
    def handler(call: Call) -> Awaitable[Any]:
        return one(call, inner)

    return handler


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends, without a loop. Raises LocalError when it suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise LocalError("the middleware waits for something, which needs a loop: use `await service.answer_async(...)`")
