"""What an extension does on a client: its results, brought to an end.

What it declares is an `Extension`, as on a server: the client puts it into its capabilities, calls its methods by
`Client.request`, and takes its values of `resultType`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ..protocol.extension import Extension, Extensions


class Requests(Protocol):
    """What an extension may do with a client."""

    async def request(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> Any: ...


@runtime_checkable
class ClientExtension(Protocol):
    """An extension with what it does on a client, for `Client(extensions=[...])`."""

    @property
    def declares(self) -> Extension:
        """What both ends know of it."""

    async def settle(self, method: str, result: Struct, client: Requests) -> Struct | Mapping[str, Any]:
        """What a result of this extension's comes to in the end: the complete result of the method that was called, as
        its type or as what stands in its JSON. Whatever it raises is what the call raises."""


class Taken(Struct, frozen=True):
    """Those of one client, and who settles each value of `resultType`."""

    those: Extensions
    settlers: dict[str, ClientExtension]


def taken(given: Iterable[Extension | ClientExtension]) -> Taken:
    """LocalError for what is no extension, for two that are at odds, and for results that nothing settles."""
    declared, settlers = [], {}
    for one in given:
        if isinstance(one, ClientExtension):
            declared.append(one.declares)
            settlers.update(dict.fromkeys(one.declares.results, one))
        elif isinstance(one, Extension):
            if one.results:
                raise LocalError(
                    f"{one.name} has results of its own: a client takes it with what settles them, an object that has "
                    "`declares` and `async def settle(method, result, client)`"
                )
            declared.append(one)
        else:
            raise LocalError(f"an extension is an Extension, or has `declares` and `settle`; {one!r:.100} has not")
    return Taken(Extensions(declared), settlers)
