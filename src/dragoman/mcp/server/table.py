"""The methods of one server, and how the method for one call is found.

The rows are the protocol's, and those of the server's extensions. A row that nothing answers is an unknown method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from ...channel import Caller
from ...jsonrpc.errors import LocalError
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.methods import Row

Lookup: TypeAlias = Callable[[Admitted, Caller], Method | None]
"""Returns the method for one call of one caller; None: the row's own method. Raises RpcError for an unknown name."""


class TableRow(Struct, frozen=True, eq=False):
    """One method of the server."""

    row: Row
    method: Method | None
    """The method that answers every call for which `find` returns None."""
    find: Lookup | None = None
    """Finds the method for one call by the name in its params."""


class ServerMethods:
    """A server's methods by name; `rows`: all that the protocol and the extensions define."""

    def __init__(self, rows: Mapping[str, Row], methods: Mapping[str, Method], lookups: Mapping[str, Lookup]) -> None:
        self.rows = rows
        self._answered: dict[str, TableRow] = {}
        self.get: Callable[[str], TableRow | None] = self._answered.get
        for name in dict.fromkeys((*methods, *lookups)):
            self.add(name, methods.get(name), lookups.get(name))

    def add(self, name: str, method: Method | None, find: Lookup | None = None, *, again: bool = False) -> None:
        """Add a method; `again`: in place of an earlier one. Raises LocalError if it has no row here, or is already
        answered."""
        row = self.rows.get(name)
        if row is None or row.direction == "server":
            raise LocalError(f"{name} is not a method of this server: an Extension in `extensions` has to declare it")
        if name in self._answered and not again:
            raise LocalError(f"{name} is answered by a function already")
        self._answered[name] = TableRow(row, method, find)

    def methods(self) -> Iterator[Method]:
        """Yield the rows' own methods."""
        return (one.method for one in self._answered.values() if one.method is not None)
