"""The contract of engines that keep the documents of callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from ..allowance import Owner
from ..jsonrpc.errors import CallRefused, Refusal


class StoreFull(CallRefused):
    """Something is above a limit of the store; the text names the limit. If it ends a
    call, the refusal is "too_large" for what this caller may store, and "busy" where all callers together have filled
    the store."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(Refusal("busy" if busy else "too_large", text))


def full(total: bool, owners: int, size: int) -> StoreFull:
    """The error of a store that has no room for another caller, or (`total`) for more bytes."""
    if total:
        text = f"all callers together may store {size} bytes; limit store_total allows no more"
    else:
        text = f"{owners} callers have something stored; limit store_owners allows no more"
    return StoreFull(text, busy=True)


class StoreLost(ConnectionError):
    """The engine of a store is away, or did not answer in time; the text says which and why."""


class Edit(Struct, frozen=True):
    """What becomes of a document. `document`: the new one, None where nothing is left. `until`: the Unix time at which
    all of it has expired; None: never. `changed`: False if the old one stays. `stranger`: the owner, if the caller
    is anonymous: then the document is dropped early where there is no room for others; None: it stays."""

    document: bytes | None
    until: float | None
    result: Any = None
    changed: bool = True
    stranger: Owner | None = None


Change: TypeAlias = Callable[[bytes | None], Edit]
"""The edit of a document; it may be called again with a newer one, and raises StoreFull."""


@runtime_checkable
class Engine(Protocol):
    """Keeps documents by their owners. An owner is text of the letters a to f and digits."""

    async def read(self, owner: str) -> bytes | None:
        """The document, or None. Raises StoreLost."""

    async def change(self, owner: str, edit: Change) -> Any:
        """Change a document in one step, also where others change it; returns the edit's result. Raises StoreLost, and
        what `edit` raises."""

    async def close(self) -> None:
        """Release what it holds."""


@runtime_checkable
class KeepsStore(Protocol):
    """A served object whose functions have a store."""

    def keep_in(self, engine: Engine | None) -> None:
        """Use this engine from now on; None: one of its own, in memory."""
