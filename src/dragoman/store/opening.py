"""Opens a store: `memory:`, `sqlite:PATH`, or `bus`, the store of the bus that the processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..jsonrpc.errors import LocalError
from ..jsonrpc.limits import Limits
from .contract import Engine
from .memory import InMemoryStore

if TYPE_CHECKING:
    from .shared import Values

FORMS = "memory: (this process), sqlite:PATH (a file) or bus (the store of the bus)"


class SharesValues(Protocol):
    """The part of a `bus.Bus` that a store uses."""

    @property
    def url(self) -> str:
        """The URL without credentials."""

    @property
    def store(self) -> Values | None:
        """None if it stores nothing."""


def form_of(url: str) -> tuple[str, str]:
    """Which store a URL names, "memory", "bus" or "sqlite", and its path. Raises LocalError for another one."""
    scheme, _, path = url.partition(":")
    if (scheme in ("memory", "bus") and not path) or (scheme == "sqlite" and path):
        return scheme, path.removeprefix("//")
    raise LocalError(f"there is no store {url!r}: one of {FORMS}")


def open_store(url: str, limits: Limits, bus: SharesValues | None = None) -> Engine:
    """The engine that a URL names. `bus`: the `Bus` that the processes share, None without one. Raises LocalError for
    another URL, for a file that cannot be opened, and for a bus that stores nothing."""
    kind, path = form_of(url)
    if kind == "memory":
        return InMemoryStore(limits.store_owners, limits.store_total)
    if kind == "bus":
        if bus is None or bus.store is None:
            what = "there is no bus: give bus=, or serve with workers" if bus is None else f"{bus.url} stores nothing"
            raise LocalError(f"store='bus': {what}; the others are memory: and sqlite:PATH")
        from .shared import SharedStore  # noqa: PLC0415  (an engine, imported when used)

        return SharedStore(bus.store)
    from .sqlite import SqliteStore  # noqa: PLC0415  (an engine, imported when used)

    return SqliteStore(path, limits.store_owners, limits.store_total)
