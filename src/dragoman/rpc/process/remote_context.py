"""The context of a call in a child process: its members are carried out in the parent, on the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import nearest
from ..context_members import ContextMembers
from .connection import ParentConnection


class RemoteContext:
    """The context of a call, or a member of it that has members. `index`: which context of the call it is."""

    def __init__(
        self, connection: ParentConnection, kind: type, members: ContextMembers, index: int, path: str = ""
    ) -> None:
        self._connection = connection
        self._kind = kind
        self._members = members
        self._index = index
        self._path = path
        self._awaits = connection.awaits

    def __repr__(self) -> str:
        return f"<{self._kind.__name__} in a child process>"

    def __reduce__(self) -> Any:
        raise LocalError("a context belongs to its call: it cannot be sent to another process, or back")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        members = self._members
        path = f"{self._path}{name}"
        if name in members.constants:
            return members.constants[name]
        if name in members.at_once or name in members.awaited:
            return self._method(path, waits=name in members.at_once or not self._awaits)
        if name in members.live:
            return self._connection.ask(self._index, path, None).result()
        if name in members.values:
            found = self._connection.ask(self._index, path, None).result()
        elif name in members.inside:
            found = RemoteContext(self._connection, self._kind, members.inside[name], self._index, f"{path}.")
        elif name in members.refused:
            raise LocalError(f"ctx.{path} is not there in a child process: {members.refused[name]}")
        else:
            there = nearest(name, members.names())
            raise AttributeError(
                f"{self._kind.__name__!r} object has no attribute {name!r} in a child process; {there}"
            )
        vars(self)[name] = found
        return found

    def _method(self, path: str, *, waits: bool) -> Callable[..., Any]:
        """Return a method. `waits`: whether it blocks until it is done, or returns a coroutine."""

        def blocking(*arguments: Any, **named: Any) -> Any:
            return self._connection.ask(self._index, path, (arguments, named)).result()

        async def awaited(*arguments: Any, **named: Any) -> Any:
            import asyncio  # noqa: PLC0415  (start-up: a plain function needs none)

            return await asyncio.wrap_future(self._connection.ask(self._index, path, (arguments, named)))

        return blocking if waits else awaited


connection: ParentConnection | None = None
"""The connection of this process to its parent, if it is a child process."""


def open_context(kind: Any, index: int) -> RemoteContext:
    """Return a context of the call that runs in this process: what a pickled context becomes there."""
    if connection is None:
        raise LocalError("a context is opened in a child process")
    return RemoteContext(connection, kind, kind._in_child, index)


class KeptCredential:
    """Stands for a caller's credential, which is a secret: it stays in the parent."""

    def __repr__(self) -> str:
        return "<a credential that is kept in the parent>"

    def reveal(self) -> str:
        """Raise LocalError."""
        raise LocalError(_KEPT)

    async def exchange(self, *, audience: str | None, resource: str | None, scopes: Iterable[str]) -> str:
        """Raise LocalError."""
        raise LocalError(_KEPT)


_KEPT: Final = (
    "a caller's credential stays in the server's process: exchange the token there, in a dependency (Depends), and take the "
    "new one as an argument"
)
