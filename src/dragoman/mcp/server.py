"""An MCP server: tools, resources, prompts and completions, served to clients of every revision at once.

The server owns a `Service` whose router knows the rows of `methods`: it admits a message (`lifecycle`)
and finds what serves it, a row's own method or that of the tool, resource or prompt that is named.
There is no second way through for either era.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw

from ..channel import Caller, Channel, Document, Exchange
from ..jsonrpc.codec import read
from ..jsonrpc.errors import LocalError, RpcError
from ..jsonrpc.limits import SERVER, Limits
from ..jsonrpc.messages import Notification, Request
from ..rpc.host import Host
from ..rpc.method import Method
from ..rpc.middleware import Call, Middleware
from ..rpc.peer import Peer
from ..rpc.service import Service
from . import rows
from .ask import verify
from .dialect import MCP
from .encoding import decode, encode
from .features import Catalog, Entry
from .functions import hints
from .http_options import HttpOptions
from .lifecycle import EVERYTHING, Admitted, admit, bad_id, offer
from .lifespan import Life
from .mailboxes import Mailboxes
from .params import CacheScope
from .registering import PromptOptions, ResourceOptions, ToolOptions
from .results import stamp
from .revisions import NEWEST, Revision
from .seal import SECRET, Seal, SealError, State
from .subscriptions import Subscriptions
from .types import (
    Icon,
    Implementation,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)

if TYPE_CHECKING:
    from ..bus import Bus
    from .shared import Shared

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("dragoman.mcp")


class Server:
    """An MCP server. It is a `Served`: `serve(server, urls=[...])`, `http_app(server)`, `Client(server)`.

    `name` to `website_url` are shown to clients; `instructions` tell a model how to use the server.
    `lifespan(server)`: an async context manager around the serving; its value is `ctx.state`.
    `page_size`: entries on a page of a list. `ttl` (seconds) and `cache_scope`: how long, and for whom,
    clients may keep lists and resources (server/utilities/caching). `keys`: secrets that seal the state of
    questions, the first seals and all open (default: the environment's DRAGOMAN_SECRET, else made anew by
    each process); `state_life`: seconds such a state lives; `once`: it can be used only once.
    `revisions`: those that are spoken (default: all). `principal(caller)`: who calls, where something before
    this server authenticated him. `http`: see `HttpOptions`. `debug=True` lets exceptions' texts cross the wire.
    """

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
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        page_size: int = 100,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        keys: Sequence[str | bytes] | str | None = None,
        state_life: float = 600,
        once: bool = False,
        revisions: Iterable[Revision] | None = None,
        principal: Callable[[Caller], str | None] | None = None,
        http: HttpOptions | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        debug: bool = False,
    ) -> None:
        self.name = name
        self.info = Implementation(
            name,
            version,
            title=UNSET if title is None else title,
            description=UNSET if description is None else description,
            icons=list(icons) or UNSET,
            website_url=UNSET if website_url is None else website_url,
        )
        self.instructions = instructions
        self.limits = limits
        self.offered = EVERYTHING if revisions is None else offer(_revisions(revisions))
        self.options = HttpOptions() if http is None else http
        self.principal = _nobody if principal is None else principal
        try:
            decode(encode(self.info, NEWEST), Implementation)
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise LocalError(f"a server cannot be called so: {error}") from None
        self.stamp = stamp(self.info)
        self.seal = Seal(keys, state_life, audience=name)
        self.once = once
        hints(ttl, cache_scope, "the server")
        self.ttl: float = ttl
        self.cache_scope: CacheScope = cache_scope
        self.service = Service(name, version=version, limits=limits, middleware=middleware, debug=debug, discover=False)
        self.service.answers = msgspec.structs.replace(self.service.answers, dialect=MCP)
        self.service.router = self._route
        self.host = Host(self.service)
        self.gate = self.host.gate
        self.subscriptions = Subscriptions(self)
        self._mailboxes = Mailboxes(self)
        self.catalog = Catalog(self, page_size=page_size, changed=self._changed, link=self.service.link)
        self._rows = rows.methods(self)
        for method in self._rows.values():
            self.service.link(method)
        self._life = Life(self, lifespan) if lifespan is not None else None
        if self._life is not None:
            self.service.use(self._life.around)
        self.on_roots_changed: list[Callable[[Peer], Any]] = []
        self.shared: Shared | None = None
        """What this server shares with others that serve the same; None: it is alone."""

    subprotocol = "mcp"
    """Of WebSocket."""

    def __repr__(self) -> str:
        return f"<mcp.Server {self.name} {self.info.version}>"

    @property
    def version(self) -> str:
        """The server's version."""
        return self.info.version

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts cross the wire."""
        return self.service.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.service.debug = debug

    @property
    def state(self) -> Any:
        """What the lifespan gave; None without one, and before it began."""
        return None if self._life is None else self._life.value

    # -- registering

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, name: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool; it stays the function. `@server.tool`, `@server.tool("name", title=...)`.

        The input schema comes from its annotations, the output schema from what it returns, the
        descriptions from the docstring, `Annotated` and `msgspec.Meta`; `options` are `ToolOptions`.
        Raises LocalError for a name that is taken, and annotations that no JSON can be decoded to.
        """
        if callable(name):
            self.add_tool(name)
            return name
        return _registering(lambda function: self.add_tool(function, name=name, **options))

    def add_tool(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> Entry:
        """What the decorator `tool` does, at any time: clients hear that the list has changed."""
        return self.catalog.add_tool(function, name=name, **options)

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as what reads a resource, or every resource of a template ("file:///{path}").

        A template's variables are the function's parameters. It returns text, bytes, JSON, a
        `ResourceContents`, or a list of them. `options` are `ResourceOptions`.
        Raises LocalError for a URI that is taken, and for variables that the function does not take.
        """
        if not isinstance(uri, str):
            raise LocalError('a resource has a URI: @server.resource("file:///notes.txt")')
        return _registering(lambda function: self.add_resource(function, uri, **options))

    def add_resource(self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Entry:
        """What the decorator `resource` does, at any time."""
        return self.catalog.add_resource(function, uri, **options)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str | None = None, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, name: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt. It returns text, a `PromptMessage`, content, or a list of them.

        `options` are `PromptOptions`. Raises LocalError for a name that is taken, and for arguments without names.
        """
        if callable(name):
            self.add_prompt(name)
            return name
        return _registering(lambda function: self.add_prompt(function, name=name, **options))

    def add_prompt(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[PromptOptions]
    ) -> Entry:
        """What the decorator `prompt` does, at any time."""
        return self.catalog.add_prompt(function, name=name, **options)

    def completion(self, ref: str, argument: str, /, *, inline: bool = False) -> Callable[[F], F]:
        """Register a function that completes an argument: `ref` is a prompt's name or a template's URI.

        It takes what the user has typed (and, by name, `ctx` and `arguments`, those that are known already),
        and returns a list of strings or a `Completion` (server/utilities/completion).
        """

        return _registering(lambda function: self.catalog.add_completion(function, ref, argument, inline=inline))

    def include(self, service: Service, *, prefix: str = "") -> None:
        """Turn the methods that a JSON-RPC service has now into tools, each named `prefix` + its name."""
        self.catalog.include(service, prefix=prefix)

    def remove_tool(self, name: str) -> None:
        """Take a tool away; clients hear that the list has changed. LocalError when there is none."""
        self.catalog.remove("tool", name)

    def remove_resource(self, uri: str) -> None:
        """Take a resource or a template away."""
        self.catalog.remove("resource", uri)

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away."""
        self.catalog.remove("prompt", name)

    def enable(self, kind: Literal["tool", "resource", "prompt"], key: str) -> None:
        """Show again what `disable` has hidden; `key`: a name, or a resource's URI."""
        self.catalog.enable(kind, key)

    def disable(self, kind: Literal["tool", "resource", "prompt"], key: str) -> None:
        """Hide something: it is not listed, and unknown when called."""
        self.catalog.disable(kind, key)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside what is there already, around every method and every tool. Usable as a decorator."""
        self.service.use(middleware)
        for method in (*self._rows.values(), *self.catalog.methods()):
            self.service.link(method)
        return middleware

    # -- telling clients

    def _changed(self, kind: str) -> None:
        self.subscriptions.changed(kind)  # type: ignore[arg-type]

    def notify_resource_updated(self, uri: str) -> None:
        """Tell everyone who subscribed to it that a resource has changed. From any thread."""
        self.subscriptions.updated(uri)

    def marks(self, name: str) -> Any:
        """The parameters of a tool that are mirrored in HTTP headers; empty for an unknown tool."""
        try:
            return self.catalog.tool(name).marked
        except RpcError:
            return ()

    def capabilities(self, revision: Revision) -> ServerCapabilities:
        """What is declared: the kinds of things that are registered."""
        has = self.catalog.has
        return ServerCapabilities(
            logging={},
            completions={} if has("completions") else UNSET,
            prompts=PromptsCapability(True) if has("prompts") else UNSET,
            resources=ResourcesCapability(True, True) if has("resources") else UNSET,
            tools=ToolsCapability(True) if has("tools") else UNSET,
        )

    # -- the router

    def _route(
        self, message: Request | Notification, caller: Caller, peer: Peer | None
    ) -> tuple[Method | None, Request | Notification]:
        """Admit a message and find what serves it."""
        if type(message) is Request:
            id: Any = message.id
            if type(id) is Raw and not _whole(id):
                raise bad_id()
            admitted = admit(
                message,
                None if peer is None else peer.state,
                self.offered,
                channel=peer is not None,
                principal=self.principal(caller),
            )
            if admitted is None:
                return None, message
            return self._method(admitted), Request(message.method, admitted, id)
        admitted = admit(message, None if peer is None else peer.state, self.offered, principal=self.principal(caller))
        if admitted is None:
            return None, message
        if admitted.method == "notifications/initialized" and admitted.session is not None:
            # what comes next counts on it, and its method may wait for a turn, or get none where too many calls run
            admitted.session.initialized = True
        return self._rows.get(message.method), Notification(message.method, admitted)

    def _method(self, admitted: Admitted) -> Method | None:
        """What serves a request. What is not there is answered by its method, not by a refusal to route."""
        name = admitted.method
        params = admitted.params
        try:
            if name == "tools/call":
                method = self.catalog.tool(params.name).method
            elif name == "resources/read":
                method = self.catalog.resource(params.uri, admitted.revision).method
            elif name == "prompts/get":
                method = self.catalog.prompt(params.name).method
            elif name == "completion/complete":
                return self.catalog.completion(params.ref, params.argument.name) or self._rows[name]
            else:
                return self._rows.get(name)
            if params.request_state is not UNSET:
                shared = self.shared
                state = verify(
                    admitted, name, admitted.principal, self, shared=shared is not None and shared.store is not None
                )
                if state is not None:
                    method = self._once(method, state)
        except RpcError as error:
            return rows.raising(error)
        return method

    def _once(self, method: Method, state: State) -> Method:
        """A method that first uses a state up, for all who serve this; SealError (-32602) where it was used before."""
        inner, shared = self.service.handler(method), self.shared
        assert shared is not None

        async def guarded(call: Call) -> Any:
            if not await shared.use(state, self.seal.clock()):
                raise SealError("used")
            return await inner(call)

        return msgspec.structs.replace(method, handler=guarded, quick=False, in_place=False)

    # -- Served

    def exchange(self, x: Exchange) -> None:
        """Take one exchange: of the stateless era, or of a session where its caller has a mailbox (brokers)."""
        tell = getattr(x, "tell", None)
        if tell is None:
            self.host.exchange(x)
            return
        message = read(x.request, self.limits, self.service.lenient)
        if not self._mailboxes.take(x, message, tell):
            self.host.take(x, message)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends: either era, as its client speaks."""
        self.peer().attach(channel)

    def peer(self) -> Peer:
        """A peer for one client's channel."""
        return Peer(self.host, limits=self.limits, dialect=MCP)

    def routes(self) -> Mapping[str, Document]:
        """Nothing beside the endpoint."""
        return {}

    def http_endpoints(self, at: str) -> Mapping[str, Any]:
        """Streamable HTTP at this path."""
        from .http import endpoints  # noqa: PLC0415  (a wire, imported when used)

        found: Mapping[str, Any] = endpoints(self, at)
        return found

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on; for `serve(limits=...)`."""
        self.limits = self.service.limits = limits
        self.service.answers = msgspec.structs.replace(self.service.answers, limits=limits)
        self.gate.limit = limits.calls

    async def join(self, bus: Bus) -> None:
        """Be one of several that serve the same, on this bus (docs/mcp/replicas.md); `serve(bus=...)` calls it.

        Raises LocalError where they could not open one another's sealed states, BusLost where the engine is away.
        """
        from .shared import Shared  # noqa: PLC0415  (nobody pays for a bus he does not take)

        if self.shared is not None:
            if self.shared.bus is bus:
                return
            raise LocalError(f"{self.name} is on the bus {self.shared.bus.url} already")
        if self.seal.own and self.offered.stateless:
            raise LocalError(
                f"{self.name}: servers on a bus share the keys of sealed states, and there is none to share: give all "
                f"of them the same {SECRET} (or keys=), made with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        self.shared = await Shared.open(bus, self.name, self.subscriptions)
        if bus.store is None and self.offered.stateful:
            logger.warning(
                "%s: the bus %s keeps nothing, so there are no sessions over HTTP: %s alone is spoken there",
                self.name,
                bus.url,
                " and ".join(self.offered.stateless) or "nothing",
            )

    async def start(self) -> None:
        """Begin, anew where it was drained before; and the lifespan, if there is one (the first call does it otherwise)."""
        self.gate.draining = False
        if self._life is not None:
            await self._life.start()

    async def drain(self, timeout: float) -> None:
        """End subscriptions with a word, refuse new calls, let those in flight end within `timeout` seconds."""
        self.gate.draining = True
        await self.subscriptions.close()
        await self.host.drain(timeout)
        await self.stop()

    async def stop(self) -> None:
        """Leave the bus, end the lifespan, if there is one; another `start` begins it anew."""
        shared, self.shared = self.shared, None
        if shared is not None:
            await shared.leave()
        if self._life is not None:
            await self._life.stop()


def _registering(add: Callable[[Callable[..., Any]], object]) -> Callable[[F], F]:
    """A decorator that hands a function to `add` and leaves it as it is."""

    def register(function: F) -> F:
        add(function)
        return function

    return register


def _revisions(given: Iterable[Revision]) -> tuple[Revision, ...]:
    found = tuple(given)
    if not found or not all(isinstance(one, Revision) for one in found):
        raise LocalError(f"revisions are records such as NEWEST, or REVISIONS['{NEWEST.date}'], and not {found!r}")
    return found


def _nobody(caller: Caller) -> None:
    return None


def _whole(id: Raw) -> bool:
    """Whether an id that Python would change is an integer all the same (1.0 is; 1.5 and null are not)."""
    try:
        value = msgspec.json.decode(id)
    except msgspec.DecodeError:
        return False
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
