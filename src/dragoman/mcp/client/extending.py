"""The client's side of extensions: the functions of an extension, and the parts of the client that it may use.

An extension is declared by an `Extension`, as on a server: the client declares it in its capabilities, calls its
methods by `Client.request`, and accepts its results. What it does is a `ClientExtension`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from ...jsonrpc.errors import LocalError
from ..protocol.extension import Extension, Extensions


class ExtensionClient(Protocol):
    """The part of a client that an extension may use."""

    async def request(self, method: str, params: Struct | Mapping[str, Any] | None = None) -> Any: ...


class PendingResult(Struct, frozen=True):
    """A call that ended in a result of an extension, which is to become the result of the method."""

    method: str
    result: Struct
    """The result, of the type that the extension declares; of its stateful form in stateful revisions."""
    client: ExtensionClient


class ClientExtension:
    """An extension with its functions for a client, for `Client(extensions=[...])`. A subclass sets `declares`, and
    overrides what it needs."""

    declares: Extension
    """The declaration for both ends."""

    async def settle(self, pending: PendingResult) -> Struct | Mapping[str, Any]:
        """Return the complete result of a call that ended in one of this extension's results, as a Struct or as JSON
        values. The call raises what it raises."""
        raise NotImplementedError(f"{type(self).__name__} settles no results")


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
            if not isinstance(getattr(one, "declares", None), Extension):
                raise LocalError(f"{type(one).__name__}: `declares` is an Extension: set it in the class")
            if one.declares.results and type(one).settle is ClientExtension.settle:
                raise LocalError(f"{type(one).__name__}: {one.declares.name} has results of its own: `settle` them")
            declared.append(one.declares)
            settlers.update(dict.fromkeys(one.declares.results, one))
        elif isinstance(one, Extension):
            if one.results:
                raise LocalError(
                    f"{one.name} has results of its own: a client takes it with what settles them, a ClientExtension "
                    "that has `declares` and `async def settle(self, pending)`"
                )
            declared.append(one)
        else:
            raise LocalError(f"an extension is an Extension or a ClientExtension, and not {one!r:.100}")
    return ClientExtensions(Extensions(declared), settlers)
