"""An MCP server: tools, resources, prompts and completions, served to clients of every revision at once.

A `Server` puts its parts together: the registry of its entries, the table of its methods with the router that finds
them, its capabilities and subscriptions. Wires serve a `ServedServer`, which has calls and sessions in addition.
"""

from __future__ import annotations

import logging as _logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ...channel import Caller
from ...jsonrpc.errors import LocalError
from ...jsonrpc.leniency import Leniency, chosen, without_v1
from ...jsonrpc.limits import SERVER, Limits
from ...jsonrpc.options import TEXT, check, elsewhere, many, strict
from ...observer import Observer
from ...rpc.binding.signature import defined_again, registrable
from ...rpc.including import check_acyclic
from ...rpc.method import CallOptions, RunOptions
from ...rpc.middleware import Middleware
from ...rpc.service import Service
from ...running import run_app
from ..asking.request_state import StateSeal
from ..protocol.admission import Admitted
from ..protocol.dialect import MCP
from ..protocol.extension import Extension
from ..protocol.http_options import ArgumentErrors, HttpOptions
from ..protocol.params import CacheScope, CallToolResult
from ..protocol.results import stamp
from ..protocol.revisions import Revision
from ..protocol.types import Icon, ServerCapabilities, Tool
from ..protocol.uri import normal
from . import builtin
from .calling import ANYONE, list_all, request
from .capabilities import Capabilities
from .extending.extension import ServerExtension, ServerExtensions, extension_method
from .extending.home import ServerHome
from .options import (
    METHOD,
    SERVER_OPTIONS,
    EntryKind,
    PromptOptions,
    ResourceOptions,
    ToolOptions,
    entry_options,
    info_of,
    server_options,
)
from .outcomes import check_declared, outcome_writers, write_values
from .registry import Entry, Registry
from .router import Router
from .served import Replicas, ServedServer
from .subscriptions import Subscriptions
from .surroundings import Surroundings
from .table import ServerMethods

if TYPE_CHECKING:
    from ...access import Verifiers
    from ..protocol.types import Implementation
else:
    Verifiers = Implementation = Any  # start-up: annotations resolve at run time, to no more than this

F = TypeVar("F", bound=Callable[..., Any])
logger: _logging.Logger = _logging.getLogger("dragoman.mcp")


class Server:
    """An MCP server: `serve(server, urls=[...])`, `http_app(server)`, `Client(server)`.

    `name`, `version`, `title`, `description`, `icons` and `website_url` are shown to clients; `instructions` tell a
    model how to use the server. `lifespan`: `lifespan(server)` is an async context manager, or an async generator with
    one `yield`, around the serving, on each event loop; its value is `ctx.state`. `page_size`: entries on a page of a
    list (None: all, as far as 2 MiB go, since many hosts read the first page alone). `ttl` (seconds) and `cache_scope`:
    how long, and for whom, clients may keep lists and resources (server/utilities/caching). `tools`, `resources`,
    `prompts`, `completions`: declare the capability though there is none yet, because some are added while clients are
    there; what is registered is declared anyway. `logging`: declare it in 2026-07-28, where it is deprecated, though no
    function takes a `Context`. `keys`: secrets that seal the state of questions, the first seals and all open (default:
    the environment's DRAGOMAN_SECRET, else made anew by each process); `state_life`: seconds such a state lives;
    `once`: it can be used only once. `extensions`: agreed on beyond the protocol (docs/mcp/extensions.md). `revisions`:
    those that are spoken (default: all). `http`: see `HttpOptions`. `limits`: the bounds on messages, calls, channels
    and times. `middleware`: see `dragoman.middleware`; the first is outermost. `lenient=True`: accept what hosts send
    beyond the specifications, arguments as text foremost; a `jsonrpc.Leniency` chooses. `argument_errors="revision"`:
    wrong arguments are JSON-RPC errors in the revisions that say so, which no model reads, and not results of the tool
    in all. `debug=True` lets exceptions' texts cross the wire. `auth`: a verifier of tokens that says who is calling
    (`dragoman.auth.Bearer`).
    """

    @strict("Server")
    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        instructions: str | None = None,
        website_url: str | None = None,
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any] | AsyncIterator[Any]] | None = None,
        page_size: int | None = None,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        tools: bool = False,
        resources: bool = False,
        prompts: bool = False,
        completions: bool = False,
        logging: bool = False,
        keys: Sequence[str | bytes] | str | None = None,
        state_life: float = 600,
        once: bool = False,
        revisions: Iterable[Revision] | None = None,
        extensions: Sequence[Extension | ServerExtension] = (),
        http: HttpOptions | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        lenient: Leniency | bool = False,
        argument_errors: ArgumentErrors = "result",
        debug: bool = False,
        auth: Verifiers | None = None,
    ) -> None:
        where = f"Server {name!r}"
        check(where, SERVER_OPTIONS, given := locals())
        self._extending = ServerExtensions(extensions)
        self._extensions = self._extending.declarations
        lenient = without_v1(where, chosen(lenient))
        self._service = service = Service(
            name,
            version=version,
            limits=limits,
            middleware=middleware,
            lenient=lenient,
            debug=debug,
            discover=False,
            auth=auth,
        )
        shown, seal = stamp(info_of(given)), StateSeal(keys, state_life, audience=name)
        options, found = server_options(given), outcome_writers(self._extensions)
        added = self._extensions.options
        surroundings = Surroundings(service, shown, seal, options, found, added, self.notify_resource_updated)
        self._registry = Registry(surroundings, self._extending, changed=self._changed)
        self._capabilities = Capabilities(self._registry, self._extensions)
        self._assemble()
        if lifespan is not None:
            service._set_lifespan(lifespan, self)

    def _assemble(self) -> None:
        """Make the parts that answer clients and notify them."""
        surroundings = self._registry.surroundings
        self._service._answers = replace(self._service._answers, dialect=MCP)
        self._service._finishing = write_values(surroundings.stamp)
        self._service._extending = self._extending.middleware({})
        self._subscriptions = Subscriptions(self._registry, self._capabilities, extensions=self._extending)
        own = builtin.methods(surroundings, self._registry, self._subscriptions, self._capabilities)
        self._table = ServerMethods(self._extensions.methods, own, self._registry.lookups(own))
        self._link_table()
        self._functions: dict[str, Callable[..., Any]] = {}
        """The functions that answer methods of extensions, by method."""
        for name, function in self._extending.handlers().items():
            self.add_method(function, name)
        replicas = Replicas(self.name)
        self._service._router = Router(surroundings, self._table, replicas).route
        self._served = ServedServer(self._registry, self._table, self._subscriptions, replicas, self._extending)
        for extension in self._extending.opening:
            self._service._make_lifespan().add_last(extension, partial(self._open, extension))

    @asynccontextmanager
    async def _open(self, extension: ServerExtension) -> AsyncIterator[Any]:
        """Open what an extension opens around the serving."""
        registry = self._registry
        home = ServerHome(
            registry.surroundings,
            extension.declares.name,
            self._served.serving,
            self._subscriptions.notify,
            registry.refusal_of_tool,
        )
        opening = extension.open(home)
        if opening is None:
            yield None
            return
        async with opening as value:
            try:
                yield value
            finally:  # nothing of the extension runs while it is left
                await home.close()

    def __servable__(self) -> ServedServer:
        return self._served

    def __repr__(self) -> str:
        return f"<mcp.Server {self.name} {self.version}>"

    @property
    def name(self) -> str:
        """The server's name."""
        return self._service.name

    @property
    def version(self) -> str:
        """The server's version."""
        return self._service.version

    @property
    def info(self) -> Implementation:
        """The server's description, as clients get it."""
        return self._registry.surroundings.stamp.info

    @property
    def instructions(self) -> str | None:
        """How a model should use the server; None: it has no instructions."""
        return self._registry.surroundings.options.instructions

    @property
    def limits(self) -> Limits:
        """The bounds on messages, calls, channels and times."""
        return self._served.limits

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts are sent to clients."""
        return self._service.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self._service.debug = debug

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, name: Callable[..., Any] | str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool; the function is not changed. `@server.tool`,
        `@server.tool("name", title=...)`.

        The input schema comes from its annotations, the output schema from its return type, the descriptions from the
        docstring, `Annotated` and `msgspec.Meta`. `title`, `description`, `icons`, `meta` (its `_meta`) and
        `annotations` (`ToolAnnotations`) are shown in lists. `input_schema`: the function takes one dict, which this
        schema checks; `output_schema`: checks what it returns. `visible`: `visible(caller)` says whether it is there
        for a caller. `tags`: what `enable` and `disable` may name in place of it. `version`: several may have one name,
        each with a version. `inline`: it is quick, never blocks, and runs in place. `process`: it runs in a child
        process, which is killed when its call ends early: for work that holds the processor. `timeout`: seconds that a
        call may take (None: for ever; default: the limit `handler_timeout`); `concurrency`: how many calls run at once,
        `queue`: how many may wait for one of those. `scopes`: all are needed, `roles`: one is; `allow`:
        `allow(identity, arguments)` is True where this caller may make this call. `task`: of the extension
        `Tasks`: True, or a `TaskPolicy`, lets its calls go on as tasks.

        Raises LocalError for a name that is taken, and for annotations to which JSON cannot be decoded.
        """
        return _named_decorator(self.add_tool, name, options, "server.tool")

    def add_tool(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> Entry:
        """Register a function as a tool, with the options of the decorator `tool`, at any time: clients are
        notified."""
        return self._registry.add_tool(function, name=name, **options)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function that reads a resource, or every resource of a template ("file:///{path}").

        A template's variables are the function's parameters. It returns text, bytes, JSON, a
        `ResourceContents`, or a list of them. `name`, `mime_type`, `annotations` (`Annotations`) and `size` (bytes) are
        shown in lists; `ttl` (seconds) and `cache_scope`: how long, and for whom, clients may keep it, by default as
        the server says; `any_path`: values of `{+x}`, `{#x}`, `{/x*}` and of the query may be absolute paths and URLs.
        As for a tool: `title`, `description`, `icons`, `meta`, `visible`, `tags`, `version`, `inline`, `process`,
        `timeout`, `concurrency`, `queue`, `scopes`, `roles`, `allow`.

        Raises LocalError for a URI that is taken, and for variables that the function does not take.
        """
        if not isinstance(uri, str):
            raise LocalError('a resource has a URI: @server.resource("file:///notes.txt")')
        return _decorator(lambda function: self.add_resource(function, uri, **options), "server.resource")

    def add_resource(self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Entry:
        """Register a function as a resource, with the options of the decorator `resource`, at any time."""
        return self._registry.add_resource(function, uri, **options)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str | None = None, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, name: Callable[..., Any] | str | None = None, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt. It returns text, a `PromptMessage`, content, or a list of them.

        As for a tool: `title`, `description`, `icons`, `meta`, `visible`, `tags`, `version`, `inline`, `process`,
        `timeout`, `concurrency`, `queue`, `scopes`, `roles`, `allow`. Raises LocalError for a name that is taken, and
        for arguments without names.
        """
        return _named_decorator(self.add_prompt, name, options, "server.prompt")

    def add_prompt(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[PromptOptions]
    ) -> Entry:
        """Register a function as a prompt, with the options of the decorator `prompt`, at any time."""
        return self._registry.add_prompt(function, name=name, **options)

    def completion(self, ref: str, argument: str, **options: Unpack[RunOptions]) -> Callable[[F], F]:
        """Register a function that completes an argument: `ref` is a prompt's name or a template's URI.

        It takes what the user has typed (and, by name, `ctx` and `arguments`, the arguments already known),
        and returns a list of strings or a `Completion` (server/utilities/completion). As for a tool: `inline`,
        `process`, `timeout`, `concurrency`, `queue`.
        """
        add = self._registry.add_completion
        return _decorator(lambda function: add(function, ref, argument, **options), "server.completion")

    def method(self, name: str, **options: Unpack[CallOptions]) -> Callable[[F], F]:
        """Register the function that answers a method of an extension: it takes `(params, context)`, the params as the
        type of the extension's row, and returns the row's result (None if the row is a notification). As for a tool:
        `inline`, `timeout`, `concurrency`, `queue`, `scopes`, `roles` and `allow`, which gets the params as the one
        argument `params`.

        Raises LocalError for a method that no extension of this server declares, and for one that is already answered.
        """
        return _decorator(lambda function: self.add_method(function, name, **options), "server.method")

    def add_method(self, function: Callable[..., Any], name: str, **options: Unpack[CallOptions]) -> None:
        """Register the function that answers a method of an extension, with the options of the decorator `method`."""
        given = entry_options("@server.method", name, METHOD, options)
        extension = self._extensions.of_method(name)
        if extension is None:
            raise LocalError(f"{name} is declared by no extension of this server: Server(extensions=[Extension(...)])")

        def declared(admitted: Admitted, caller: Caller) -> None:
            check_declared(admitted, extension)

        row = self._extensions.methods[name]
        method = extension_method(row, function, given, extension.codes)
        again = defined_again(self._functions.get(name), function)
        self._table.add(name, method, None if row.open else declared, again=again)
        self._functions[name] = function
        if again:
            logger.info("the method %s is defined again, and replaced", name)
        self._service._link(method)

    def include(self, other: object, *, namespace: str = "", prefix: str = "", tags: Collection[str] = ()) -> None:
        """Include the entries of another server, the methods of a JSON-RPC service as tools, or the functions that the
        class of an instance marks. What a server or service adds, removes or changes later changes here too
        (docs/mcp/composition.md). `tags`: added to those of all included entries.
        Raises LocalError for a name that is taken, a server that includes this one, and an object without marks."""
        check("Server.include", {"namespace": TEXT, "prefix": TEXT, "tags": many(TEXT)}, locals())
        if isinstance(other, Server):
            check_acyclic(self._served, other._served)
            self._registry.include_registry(other._registry, namespace, prefix, frozenset(tags))
            self._served.include(other._served)
            return
        self._registry.include(other, namespace, prefix, frozenset(tags))
        if isinstance(other, Service):
            self._served._included.append(other._origin)

    def remove_tool(self, name: str, *, version: str | None = None) -> None:
        """Remove a tool, in all its versions or in this one; clients are notified that the list has changed. Raises
        LocalError if there is none."""
        self._registry.remove("tool", name, version)

    def remove_resource(self, uri: str, *, version: str | None = None) -> None:
        """Remove a resource or a template, in all its versions or in this one. Raises LocalError if there is none."""
        self._registry.remove("resource", uri, version)

    def remove_prompt(self, name: str, *, version: str | None = None) -> None:
        """Remove a prompt, in all its versions or in this one. Raises LocalError if there is none."""
        self._registry.remove("prompt", name, version)

    def enable(
        self,
        kind: EntryKind | None = None,
        key: str | None = None,
        *,
        tag: str | None = None,
        version: str | None = None,
    ) -> None:
        """Enable again what `disable` has disabled: an entry, all of a kind, or all with a tag. An entry of another
        disabled tag or kind stays disabled. Raises LocalError if there is no such entry."""
        self._registry.turn(kind, key, tag, version, on=True)

    def disable(
        self,
        kind: EntryKind | None = None,
        key: str | None = None,
        *,
        tag: str | None = None,
        version: str | None = None,
    ) -> None:
        """Disable an entry, `key` (a name or URI), in all versions or in one; or all of a kind, or with a tag, later
        ones too. They are not listed, and unknown when they are called. They stay disabled, also if an included server
        enables them. Raises LocalError if there is no such entry."""
        self._registry.turn(kind, key, tag, version, on=False)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside the existing middleware, around every method and every tool. It can be a decorator."""
        self._service.use(middleware)
        self._link_table()
        self._registry.relink_all()
        return middleware

    def override(self, function: Callable[..., Any], fake: Callable[..., Any]) -> AbstractContextManager[None]:
        """Replace a dependency by a fake, for tests, until the context manager ends. Raises LocalError where nothing
        here depends on `function`."""
        return self._service.override(function, fake)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to a resource that it has changed. From any thread."""
        uri = normal(uri)
        self._subscriptions.updated(uri)
        for includer in self._registry.includers:
            includer.updated(uri)

    def route(
        self,
        path: str,
        *,
        methods: Iterable[str] = ("GET",),
        public: bool = False,
        timeout: float | UnsetType | None = UNSET,
    ) -> Callable[[F], F]:
        """Register a function that answers HTTP requests to a path of the server, beside the endpoint; the function is
        not changed. It takes the `RouteRequest`, and the `Context` if it has a second parameter, and returns bytes,
        text, a value for JSON, None (204) or a `RouteResponse`. A plain function runs in a worker thread.

        `methods`: those that it answers; GET brings HEAD. `public`: for callers without a token, too. `timeout`: as for
        a method. Wires without HTTP do not have routes. Raises LocalError for a path that is taken, reserved or
        invalid."""
        return self._service.route(path, methods=methods, public=public, timeout=timeout)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Report all that comes in and goes out from now on, on every wire, to an observer; returns a function that
        stops it."""
        return self._service.observe(observer)

    def capabilities(self) -> ServerCapabilities:
        """Return the declared capabilities: those of kinds with a registered entry, and those that were declared
        beforehand. `encode` leaves out those that a revision does not have."""
        return self._capabilities.stateful()

    def _changed(self, kind: Any, entry: Entry) -> None:
        self._subscriptions.changed(kind, entry.id, entry.shown_to)

    def _link_table(self) -> None:
        for method in self._table.methods():
            self._service._link(method)

    run = run_app

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(elsewhere("Server", "server", name, _ELSEWHERE))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: Caller = ANYONE,
        version: str | None = None,
    ) -> CallToolResult:
        """Call a tool without a wire, through the middleware and the checks of its arguments, in the newest revision.
        `caller`: the caller, `Caller(identity=...)`; without an identity there are no scopes. `version`: the tool's, by
        default the highest. Raises RpcError (InvalidParams for an unknown tool). A tool that asks the user fails here:
        call it by `Client(server)`, which can answer.
        """
        params = {"name": name, "arguments": arguments or {}}
        return await request(self._served, "tools/call", params, caller, CallToolResult, version)

    async def list_tools(self, *, caller: Caller = ANYONE) -> list[Tool]:
        """Return the tools that this caller can see, from all pages, without a wire."""
        return await list_all(self._served, caller)


_ELSEWHERE: Final = {
    "mount": 'include(other, namespace="...")',
    "import_server": 'include(other, namespace="...")',
    "add_middleware": "use(middleware)",
    "custom_route": "route(path)",
    "add_custom_route": "route(path)",
    "add_resource_fn": "add_resource(function, uri)",
    "completions": "completion(ref, argument)",
    "get_tools": "list_tools()",
    "tool_manager": "list_tools()",
    "http_app": "dragoman.http_app(server)",
    "streamable_http_app": "dragoman.http_app(server)",
    "sse_app": "dragoman.http_app(server), with HttpOptions(sse_2024=True)",
    "run_async": "dragoman.serve(server, urls=[...])",
    "run_stdio_async": "dragoman.serve(server, urls=['stdio:'])",
    "run_streamable_http_async": "dragoman.serve(server, urls=[...])",
}
"""Names in other libraries, with those to use here."""


def _decorator(add: Callable[[Callable[..., Any]], object], decorator: str) -> Callable[[F], F]:
    """Return a decorator that passes a function to `add` and returns it unchanged. It raises LocalError for what cannot
    be called."""

    def register(function: F) -> F:
        add(registrable(function, decorator))
        return function

    return register


def _named_decorator(add: Callable[..., object], name: Any, options: Mapping[str, Any], decorator: str) -> Any:
    """Return the decorator of `@server.tool(...)` and `@server.tool("name")`; for `@server.tool` without parentheses,
    where `name` is the function itself, that function."""
    if name is None or isinstance(name, str):
        return _decorator(lambda function: add(function, name=name, **options), decorator)
    return _decorator(lambda function: add(function, **options), decorator)(name)
