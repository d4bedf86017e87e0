"""Handler to handler: what surrounds a call, alike for single calls and inside batches, in and out.

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
    """A call on its way through the middleware. Change `params`, or pass on a new one."""

    method: str
    params: Any = UNSET
    """Incoming: Raw, not yet decoded. Outgoing: what the user gave."""
    id: Any = UNSET
    """UNSET for a notification."""
    context: Any = None
    """Incoming: the handler's Context. Outgoing: the Peer."""
    options: Any = None
    """Outgoing: what `Peer.call` was given besides; None for a notification."""


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
    """Run a coroutine that never suspends, without a loop. LocalError when it does suspend."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise LocalError("the middleware waits for something, which needs a loop: use `await service.answer_async(...)`")
