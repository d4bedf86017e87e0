"""The client's side of extensions: the functions of an extension, and what they get.

An extension is declared by an `Extension`, as on a server: the client declares it in its capabilities, calls its
methods by `Client.request`, sends its notifications by `Client.notify`, and accepts its results. Its functions are
those of a `ClientExtension`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from ...jsonrpc.errors import LocalError
from ..protocol.extension import Extension, Extensions, StatefulForm, overrides
from ..protocol.revisions import Revision
from ..protocol.types import ServerCapabilities, Tool
from .extension_client import ExtensionClient
from .options import OnProgress

ExtensionFunction: TypeAlias = Callable[[Any, ExtensionClient], Any]
"""(params, client): a function of an extension that gets the params of a request or notification of the server."""


class OutgoingCall(Struct, frozen=True, kw_only=True):
    """A call that the client is about to make."""

    method: str
    """Its method, such as "tools/call"."""
    name: str | None
    """The name of the tool or prompt, the URI of the resource, or the value of an extension's `Row.named`; None: the
    method has none of these."""
    revision: Revision
    """The revision in use."""
    capabilities: ServerCapabilities
    """What the server declared that it can do."""
    tool: Tool | None = None
    """The tool as the server listed it; None: it was not listed yet, or no tool is called."""


class PendingResult(Struct, frozen=True, kw_only=True):
    """A call that the server answered by a result of an extension; `ClientExtension.settle` returns the method's own
    result for it."""

    method: str
    """The method that was called."""
    name: str | None = None
    """The name or URI that the call is about, as in `OutgoingCall`."""
    result: Struct
    """The result, of the type that the extension declares; in stateful revisions of the type of its stateful form."""
    client: ExtensionClient
    """The client, for this call: where the server asks within what is requested by it, the functions of this call
    answer."""
    total: float | None = None
    """Seconds that are left of the call's `total`; None: it has none. After that `settle` is cancelled."""
    on_progress: OnProgress | None = None
    """Reports progress to the caller; raises nothing. None: the caller wants no progress. What the server reports
    under the token of the call reaches the caller without it."""


class ClientExtension:
    """An extension with its functions for a client, for `Client(extensions=[...])`. A subclass sets `declares`, and
    overrides what it needs. An object of it belongs to one client."""

    declares: Extension
    """The declaration for both ends."""
    _client: ExtensionClient | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.declares.name}>"

    @property
    def client(self) -> ExtensionClient:
        """The client that it was given to, outside of any call. Raises LocalError where it was given to none."""
        if self._client is None:
            raise LocalError(f"{type(self).__name__} belongs to no client: give it to one, Client(extensions=[...])")
        return self._client

    def attach(self, client: ExtensionClient) -> None:
        """Belong to this client from now on. Raises LocalError for a second one."""
        if self._client is not None:
            raise LocalError(f"{type(self).__name__} belongs to another client: make one for each")
        self._client = client

    @property
    def answers(self) -> Mapping[str, ExtensionFunction]:
        """The functions that answer requests of the server, by method: `function(params, client)` returns the row's
        result, a mapping with its members, or None for an empty one.

        The methods are rows of the extension with a result and the direction "server" or "both"; the params are of the
        row's type. Only in revisions with `server_calls` may a server call. A plain function runs in a worker thread,
        `async def` on the loop. The server gets an RpcError that it raises, and for any other exception an internal
        error. At most `limits.questions` run at once, each for at most 600 seconds.
        """
        return {}

    @property
    def heard(self) -> Mapping[str, ExtensionFunction]:
        """The functions that get notifications of the server, by method: `function(params, client)`.

        A method is that of a row of the extension without a result, with the direction "server" or "both", or that of
        one of its topics. The params are of the row's type; without a row they are a dict. The function is called on
        the loop, in the order of the messages; an async one runs as a task. What it raises is logged.
        """
        return {}

    def prepare(self, call: OutgoingCall) -> Mapping[str, Any]:
        """Return members to add to the params of a call; one that the call has already is kept, and `_meta` is merged.
        Called for `call_tool`, `get_prompt`, `read_resource` and `request`, before the first round trip."""
        return {}

    def needs_tool(self, call: OutgoingCall) -> bool:
        """Return whether `prepare` has to know the tool of this call, which was not listed yet: then the client lists
        the tools first. A tool that the server does not list stays None."""
        return False

    def connected(self, client: ExtensionClient) -> AbstractAsyncContextManager[Any] | None:
        """Return an async context manager that is entered when the client is connected, and left before its channel is
        closed; None: there is nothing to enter. With `client` the extension can call its methods on its own."""
        return None

    async def settle(self, pending: PendingResult) -> Struct | Mapping[str, Any] | Raw:
        """Return the method's own result for a call that ended in one of this extension's results: as a Struct, as JSON
        values, or as JSON text. What it raises, the call raises.

        It is cancelled when the task that awaits the call is cancelled, and when the call's `total` is over; a
        `finally` may still send a request that ends the work at the server."""
        raise NotImplementedError(f"{type(self).__name__} settles no results")


class ClientExtensions(Struct, frozen=True):
    """The extensions of one client, and their functions by purpose."""

    declarations: Extensions
    settlers: dict[str, ClientExtension]
    """The extensions that settle results, by `resultType`."""
    forms: dict[str, StatefulForm]
    """The stateful forms of results, by `resultType`."""
    answers: dict[str, ExtensionFunction]
    """The functions for requests of the server, by method."""
    heard: dict[str, ExtensionFunction]
    """The functions for notifications of the server, by method."""
    preparing: tuple[ClientExtension, ...]
    """The extensions that add members to calls."""
    functions: tuple[ClientExtension, ...]
    """The extensions that have functions, in the order in which they were given."""
    opening: tuple[ClientExtension, ...]
    """The extensions with a context manager around the connection."""


def check_extensions(given: Iterable[Extension | ClientExtension]) -> ClientExtensions:
    """Check the extensions of a client, and return them. Raises LocalError for an invalid one, for two that conflict,
    for one with results that nothing settles, and for functions of methods that it does not declare."""
    declared: list[Extension] = []
    settlers: dict[str, ClientExtension] = {}
    answers: dict[str, ExtensionFunction] = {}
    heard: dict[str, ExtensionFunction] = {}
    preparing: list[ClientExtension] = []
    functions: list[ClientExtension] = []
    opening: list[ClientExtension] = []
    for one in given:
        if isinstance(one, ClientExtension):
            if not isinstance(getattr(one, "declares", None), Extension):
                raise LocalError(f"{type(one).__name__}: `declares` is an Extension: set it in the class")
            if one.declares.results and not overrides(one, ClientExtension, "settle"):
                raise LocalError(f"{type(one).__name__}: {one.declares.name} has results of its own: `settle` them")
            declared.append(one.declares)
            functions.append(one)
            settlers.update(dict.fromkeys(one.declares.results, one))
            answers.update(_answers(one))
            for method, function in _heard(one).items():
                if method in heard:
                    raise LocalError(f"{one.declares.name}: another extension hears {method} already")
                heard[method] = function
            if overrides(one, ClientExtension, "prepare"):
                preparing.append(one)
            if overrides(one, ClientExtension, "connected"):
                opening.append(one)
        elif isinstance(one, Extension):
            if one.results:
                raise LocalError(
                    f"{one.name} has results of its own: a client takes it with what settles them, a ClientExtension "
                    "that has `declares` and `async def settle(self, pending)`"
                )
            declared.append(one)
        else:
            raise LocalError(f"an extension is an Extension or a ClientExtension, and not {one!r:.100}")
    declarations = Extensions(declared)
    forms = _forms(declarations)
    return ClientExtensions(
        declarations, settlers, forms, answers, heard, tuple(preparing), tuple(functions), tuple(opening)
    )


def _answers(one: ClientExtension) -> dict[str, ExtensionFunction]:
    """Return an extension's functions for requests of the server. Raises LocalError for one without a row."""
    rows = {row.name for row in one.declares.methods if row.result is not None and row.direction != "client"}
    where = f"{type(one).__name__}.answers"
    return _checked(one.answers, rows, where, "requests of a server, rows with a result and another direction than")


def _heard(one: ClientExtension) -> dict[str, ExtensionFunction]:
    """Return an extension's functions for notifications of the server. Raises LocalError for one without a row or
    topic."""
    rows = {row.name for row in one.declares.methods if row.result is None and row.direction != "client"}
    where = f"{type(one).__name__}.heard"
    known = rows | {topic.method for topic in one.declares.topics}
    return _checked(one.heard, known, where, "notifications of a server, topics or rows of another direction than")


def _checked(
    given: Mapping[str, ExtensionFunction], known: set[str], where: str, what: str
) -> dict[str, ExtensionFunction]:
    """Return functions by method. Raises LocalError for a method that is not `known`, and for what cannot be called.
    `where`, `what`: the property and its methods, for the error."""
    for method, function in given.items():
        if method not in known:
            has = ", ".join(sorted(known)) or "none"
            raise LocalError(f'{where}: {method} is not declared: here are {what} "client"; `declares` has {has}')
        if not callable(function):
            raise LocalError(f"{where}: {method} has a function(params, client), and not {function!r:.100}")
    return dict(given)


def _forms(declarations: Extensions) -> dict[str, StatefulForm]:
    """Return the stateful forms of results, by `resultType`. Raises LocalError for two that are recognised by the same
    member."""
    found: dict[str, StatefulForm] = {}
    for kind, result in declarations.results.items():
        form = result.stateful
        if form is None:
            continue
        for other, taken in found.items():
            if form.member == taken.member:
                raise LocalError(f"the results {other!r} and {kind!r} are both recognised by the member {form.member}")
        found[kind] = form
    return found
