"""Which members of a call's context exist in a child process, and how each is carried out.

The class of a context has a `ContextMembers` as `_in_child`. The parent carries out no others: what a table does not
name cannot be reached from a child.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError


class ContextMembers(Struct, frozen=True, kw_only=True):
    """The public members of a context, by how a child has them."""

    constants: Mapping[str, Any] = {}
    """Values that are always the same there."""
    values: frozenset[str] = frozenset()
    """Values that are read from the parent once for each call."""
    live: frozenset[str] = frozenset()
    """Values that are read from the parent each time."""
    at_once: frozenset[str] = frozenset()
    """Methods that are done when they return, also in `async def`."""
    awaited: frozenset[str] = frozenset()
    """Methods that are awaited in `async def`, and block in a plain function."""
    inside: Mapping[str, ContextMembers] = {}
    """Members that have members themselves."""
    refused: Mapping[str, str] = {}
    """Members that cannot exist there, and why."""

    def names(self) -> set[str]:
        """Return the names of all members."""
        return {
            *self.constants,
            *self.values,
            *self.live,
            *self.at_once,
            *self.awaited,
            *self.inside,
            *self.refused,
        }


def reach(context: Any, path: str) -> tuple[Any, bool]:
    """Return the member of a context at a path such as "store.get", and whether it is a method. Raises LocalError for
    one that a child may not use, and what the member raises."""
    found, members = context, context._in_child
    *outer, last = path.split(".")
    for name in outer:
        if name not in members.inside:
            raise LocalError(f"a child process may not use {path} of a context")
        found, members = getattr(found, name), members.inside[name]
    if last in members.at_once or last in members.awaited:
        return getattr(found, last), True
    if last in members.values or last in members.live:
        return getattr(found, last), False
    raise LocalError(f"a child process may not use {path} of a context")


STORE: Final = ContextMembers(awaited=frozenset({"get", "set", "delete", "keys"}))
"""The members of `ctx.store`."""
_STATE: Final = (
    "what the lifespan yielded stays in the server's process, with its connections and locks: pass what the function needs "
    "as an argument, or open it in the function's own module"
)
CONTEXT: Final = ContextMembers(
    constants={"cancelled": False},  # its process is killed then
    values=frozenset({"message", "values", "method", "id", "caller", "identity", "headers", "redelivered"}),
    live=frozenset({"time_left"}),
    at_once=frozenset({"progress", "renew", "speak"}),
    awaited=frozenset({"call", "call_all", "notify"}),
    inside={"store": STORE},
    refused={
        "state": _STATE,
        "peer": "its channel is the server's: use ctx.call and ctx.notify",
        "log": "use a logger of your own, logging.getLogger(__name__): its records reach the server's handlers",
    },
)
"""The members of a `dragoman.Context`."""
