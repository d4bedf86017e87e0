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

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import fields, replace

from ..jsonrpc.errors import LocalError


class Call(Struct):
    """A call on its way through the middleware. Change `arguments` or `params`, or pass a new `Call` on."""

    method: str
    """Its name."""
    params: Any = UNSET
    """Incoming: Raw, not yet decoded. Outgoing: the caller's value."""
    id: Any = UNSET
    """UNSET for a notification."""
    context: Any = None
    """Incoming: the handler's Context. Outgoing: the Peer."""
    options: Any = None
    """Outgoing: the other arguments of `Peer.call`; None for a notification."""

    @property
    def arguments(self) -> Any:
        """The arguments, decoded when this is read: by name a mapping, by position a tuple, both read-only; of MCP
        those of the tool or the prompt. Assign others to change them. Empty for what has none, and for what is no JSON,
        which the call itself refuses."""
        given = self.params
        inner = getattr(given, "params", None)
        if inner is not None:
            given = getattr(inner, "arguments", UNSET)
        if isinstance(given, Raw):
            try:
                given = msgspec.json.decode(given)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                given = UNSET
        return tuple(given) if isinstance(given, list | tuple) else MappingProxyType(_mapping(given))

    @arguments.setter
    def arguments(self, arguments: Mapping[str, Any] | Sequence[Any]) -> None:
        inner = getattr(self.params, "params", None)
        if inner is None:
            self.params = _text(arguments)
            return
        kind: Any = type(inner)
        if "arguments" not in kind.__struct_fields__:
            raise LocalError(f"{self.method} has no arguments to change")
        field = next(one for one in fields(kind) if one.name == "arguments")
        value = msgspec.json.decode(_text(arguments), type=field.type)
        self.params = replace(self.params, params=replace(inner, arguments=value), condensed=None)

    def decoded(self, result: Any) -> Any:
        """What `await next(call)` returned as a value: of MCP the type of the method's result, `CallToolResult` or
        another, which may be changed and returned instead; else JSON values. What is a value stays as it is."""
        if not isinstance(result, Raw):
            return result
        row = getattr(self.params, "row", None)
        try:
            return msgspec.json.decode(result, type=Any if row is None or row.result is None else row.result)
        except msgspec.ValidationError:  # such as a result that asks the client
            return msgspec.json.decode(result)


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _text(arguments: Any) -> Raw:
    return Raw(msgspec.json.encode(dict(arguments) if isinstance(arguments, Mapping) else arguments))


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
