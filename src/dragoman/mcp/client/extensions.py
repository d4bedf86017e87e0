"""The client's side of extensions: turns their results into complete ones.

An extension is declared by an `Extension`, as on a server: the client declares it in its capabilities, calls its
methods by `Client.request`, and accepts its values of `resultType`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ..protocol.extension import Extension, Extensions


class ExtensionClient(Protocol):
    """The part of a client that an extension may use."""

    async def request(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> Any: ...


@runtime_checkable
class ClientExtension(Protocol):
    """An extension with its functions for a client, for `Client(extensions=[...])`."""

    @property
    def declares(self) -> Extension:
        """The declaration for both ends."""

    async def settle(self, method: str, result: Struct, client: ExtensionClient) -> Struct | Mapping[str, Any]:
        """Return the complete result of a call that ended in one of this extension's results, as a Struct or as JSON
        values. The call raises what it raises."""


class ClientExtensions(Struct, frozen=True):
    """The extensions of one client, and which of them settles each `resultType`."""

    those: Extensions
    settlers: dict[str, ClientExtension]


def check_extensions(given: Iterable[Extension | ClientExtension]) -> ClientExtensions:
    """Check the extensions of a client. Raises LocalError for an invalid one, for two that conflict, and for one with
    results that nothing settles."""
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
    return ClientExtensions(Extensions(declared), settlers)
