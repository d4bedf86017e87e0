"""The server's side of extensions: the functions of an extension, and the parts of the server that it may use.

An extension is declared by an `Extension`: its rows are added to the server's table of methods, its settings to the
server's capabilities, its options to the decorators. Its functions are those of a `ServerExtension`. `outcomes` writes
what they may return.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from ....channel import Caller
from ....jsonrpc.errors import LocalError
from ....rpc.method import CallOptions, Method
from ....rpc.middleware import Call, Middleware, Next
from ...protocol.admission import Admitted
from ...protocol.extension import Extension, Extensions, overrides
from ...protocol.methods import Row
from ...protocol.revisions import Revision
from ...protocol.types import ToolAnnotations
from ..context import Context
from ..errors import failures
from ..handlers import handler_of, method_for
from ..options import PROMPT, RESOURCE, TOOL
from ..outcomes import result_writer

if TYPE_CHECKING:
    from ..listing import Entry
    from .home import ServerHome
else:
    ServerHome = Entry = Any  # start-up: annotations resolve at run time, to no more than this


class TopicGrant(Struct, frozen=True):
    """The part of a requested value of a topic that a caller is granted."""

    value: Any
    """The value as the acknowledgment repeats it."""
    keys: frozenset[str]
    """The keys whose notifications the caller gets."""


class Companion(Struct, frozen=True, eq=False):
    """A tool that an extension brings for clients that have not declared it."""

    name: str
    """Its name; a user's tool of that name is an error, whose text is `ServerExtension.taken`."""
    function: Callable[..., Any]
    """Its function, as `Server.add_tool` takes it."""
    annotations: ToolAnnotations | None = None
    """What is shown of it to hosts."""


class ServerExtension:
    """An extension with its functions for a server, for `Server(extensions=[...])`. A subclass sets `declares`, and
    overrides what it needs."""

    declares: Extension
    """The declaration for both ends."""
    options_only: bool = False
    """Whether `around` runs only around calls of entries that have a value for one of the extension's options: other
    calls cost nothing then."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {self.declares.name}>"

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that answer its methods, by name, as `Server.method` takes them."""
        return {}

    async def around(self, call: Call, next: Next) -> Any:
        """Run around every call of the server's methods and entries (but see `options_only`), outside the server's own
        middleware. `call.params` is the `Admitted` call; the values of the extension's options are in
        `call.params.surroundings.extended`. It may return one of the extension's results in place of that of
        `next`."""
        return await next(call)

    def check_call(self, entry: Entry, admitted: Admitted) -> None:
        """Raise an RpcError for a call of a tool that is not to be made, also of one whose options do not concern this
        extension: what `around` need not run for. Called for each `tools/call`, so it must be quick."""

    def listed(self, entry: Entry, revision: Revision) -> Mapping[str, Any]:
        """Return the members to add to an entry's description in lists, in this revision; `_meta` is merged.
        `entry.known` is the description, of a foreign entry too. Called once for each entry and revision, when the
        entry is registered. That raises LocalError for a member that the description or another extension has
        already."""
        return {}

    def adapt(self, entry: Entry) -> Entry:
        """Return an entry as it is to be registered: this one, or a copy with another description. Called once, before
        the entry is registered; `entry.surroundings.extended` has the values of the extension's options."""
        return entry

    def companions(self, entry: Entry) -> Sequence[Companion]:
        """Return the tools that clients without the extension need beside this entry. Called whenever an entry is
        registered; a tool that is there already is not registered again. Lists show them only to clients that have not
        declared the extension."""
        return ()

    def taken(self, name: str) -> str:
        """Return the text of the error for a tool of a user that has the name of a companion."""
        return f"the extension {self.declares.name} has a tool {name!r}: give another name to one of them"

    def grant(self, topic: str, caller: Caller, value: Any) -> TopicGrant | Awaitable[TopicGrant | None] | None:
        """Return the part of a requested value that a caller is granted; None: nothing of it. An RpcError refuses the
        subscription. Any other exception is logged, and nothing is granted; the same holds for an awaitable that
        takes more than 5 seconds.

        `value`: the decoded member of the filter, of any type but null: check it. None: a session of the stateful
        era, for a topic with `sessions`. Then `grant` is called once, when the session is initialized, and again at
        each replica to which it moves. So grant it keys that are good as long as it lives, such as one for the
        caller's account, and send under that key also what has a key of its own, such as the state of a new task.
        """
        return None

    def open(self, home: ServerHome) -> AbstractAsyncContextManager[Any] | None:
        """Return an async context manager that is entered on each event loop when the server is served there, after
        the server's own lifespan, and left before it; None: there is nothing to enter. Before it is left, the home is
        closed: detached calls are ended, and the work of `lead` is stopped."""
        return None

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics, by name: a name that ends in "_total" is a counter, any other a gauge. Called
        whenever metrics are read. A name that the server has itself is ignored; numbers of one name of included
        servers are added up."""
        return {}

    def boards(self) -> Sequence[object]:
        """Return objects for the operator of the server, as they are on the running event loop: the console shows those
        that it knows, such as a `tasks.contract.TaskBoard`. Called whenever somebody looks."""
        return ()


_OWN_OPTIONS: Final = {"tool": TOOL, "resource": RESOURCE, "prompt": PROMPT}


class ServerExtensions:
    """The extensions of one server, with their functions. Raises LocalError for an invalid one, and for two that
    conflict."""

    def __init__(self, given: Iterable[Extension | ServerExtension]) -> None:
        declared: list[Extension] = []
        self.all: tuple[ServerExtension, ...] = ()
        """Those that were given with functions."""
        for one in given:
            if isinstance(one, ServerExtension):
                if not isinstance(getattr(one, "declares", None), Extension):
                    raise LocalError(f"{type(one).__name__}: `declares` is an Extension: set it in the class")
                self.all += (one,)
                declared.append(one.declares)
            elif isinstance(one, Extension):
                declared.append(one)
            else:
                raise LocalError(f"an extension is an Extension or a ServerExtension, and not {one!r:.100}")
        self.declarations = Extensions(declared)
        for kind, own in _OWN_OPTIONS.items():
            if taken := sorted(own.keys() & self.declarations.options[kind].keys()):
                raise LocalError(f"a {kind} has the option {taken[0]!r} already: name that of the extension otherwise")
        self.listing: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "listed")
        )
        """Those that add members to the descriptions of entries."""
        self.opening: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "open")
        )
        """Those with a context manager around the serving."""
        self.measuring: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "measures")
        )
        """Those with measures."""
        self.adapting: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "adapt")
        )
        """Those that adapt entries."""
        self.checking: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "check_call")
        )
        """Those that look at calls of tools before they are made."""
        self.accompanying: tuple[ServerExtension, ...] = tuple(
            one for one in self.all if overrides(one, ServerExtension, "companions")
        )
        """Those with companions."""

    def middleware(self, options: Mapping[str, Any]) -> tuple[Middleware, ...]:
        """Return the functions around the calls of an entry with these values of the extensions' options, the first
        extension's outermost."""

        def concerned(one: ServerExtension) -> bool:
            own = [name for rules in one.declares.options.values() for name in rules]
            return not one.options_only or any(options.get(name) not in (None, False) for name in own)

        return tuple(one.around for one in self.all if overrides(one, ServerExtension, "around") and concerned(one))

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that answer their methods, by name."""
        return {name: function for one in self.all for name, function in one.handlers.items()}

    def granting(self, topic: str) -> ServerExtension | None:
        """Return the extension whose `grant` decides about a topic; None: it was given without functions, so nothing
        of the topic is granted."""
        extension = self.declarations.of_topic(topic)
        return next((one for one in self.all if one.declares is extension), None)

    def measures(self) -> dict[str, float]:
        """Return the measures of all extensions, by name."""
        return {name: value for one in self.measuring for name, value in one.measures().items()}

    def boards(self) -> list[object]:
        """Return what the extensions have for the operator."""
        return [board for one in self.all for board in one.boards()]


def extension_method(
    row: Row, function: Callable[..., Any], options: CallOptions, codes: frozenset[int] = frozenset()
) -> Method:
    """Return the method of a row of an extension, which `function(params, context)` answers by the row's result.
    `codes`: the extension's. Raises LocalError for options that conflict."""
    runs: Literal["async", "plain"] = "async" if inspect.iscoroutinefunction(function) else "plain"
    handler = handler_of(function, runs, _params_and_context, result_writer(row), failures(row.name, codes), Context)
    method = method_for(row.name, runs, function, handler, options)
    return replace(method, stream=True, timeout=None) if row.stream else method


def _params_and_context(admitted: Admitted, context: Any) -> tuple[Any, ...]:
    """Return the arguments of an extension's function."""
    return admitted.params, context
