"""An MCP server: tools, resources, prompts and completions, served to clients of every revision at once.

The server owns a `Service` whose router knows the rows of `protocol.methods`: it admits a message
(`protocol.admission`) and finds the method that answers it, a row's own or that of the named tool, resource or prompt.
Both eras use this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET

from ...channel import Caller, Channel, Document, Exchange
from ...jsonrpc.codec import read
from ...jsonrpc.errors import LocalError
from ...jsonrpc.limits import SERVER, Limits
from ...jsonrpc.options import check
from ...observer import Observer
from ...rpc.binding.signature import registrable
from ...rpc.lifespan import Lifespan
from ...rpc.method import RUNNING
from ...rpc.middleware import Middleware
from ...rpc.peer import Peer
from ...rpc.runner import Runner
from ...rpc.service import Service
from ..asking.request_state import SECRET, Seal
from ..protocol.admission import EVERYTHING, Admitted, offer
from ..protocol.dialect import MCP
from ..protocol.encoding import decode, encode
from ..protocol.extension import Extension
from ..protocol.options import HttpOptions
from ..protocol.params import CacheScope
from ..protocol.results import stamp
from ..protocol.revisions import NEWEST, Revision
from ..protocol.types import (
    Icon,
    Implementation,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from ..session.mailbox import Mailboxes
from ..session.shared import Shared
from . import builtin
from .extensions import ServerExtension, declared_by, extension_method
from .handlers import Options
from .outcomes import demand, outcomes
from .registering import SERVER_OPTIONS, PromptOptions, ResourceOptions, RunOptions, ToolOptions
from .registry import Entry, Registry
from .router import Router
from .subscriptions import Subscriptions
from .table import MethodTable

if TYPE_CHECKING:
    from ...bus.contract import Bus

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("dragoman.mcp")

_ANYONE = Caller()


class Server:
    """An MCP server. It is a `Servable`: `serve(server, urls=[...])`, `http_app(server)`, `Client(server)`.

    `name` to `website_url` are shown to clients; `instructions` tell a model how to use the server. `lifespan(server)`:
    an async context manager around the serving, on each event loop; its value is `ctx.state`. `page_size`: entries on a
    page of a list. `ttl` (seconds) and `cache_scope`: how long, and for whom, clients may keep lists and resources
    (server/utilities/caching). `tools`, `resources`, `prompts`, `completions`: declare the capability though there is
    none yet, because some are added while clients are there; what is registered is declared anyway. `keys`: secrets
    that seal the state of questions, the first seals and all open (default: the environment's DRAGOMAN_SECRET, else
    made anew by each process); `state_life`: seconds such a state lives; `once`: it can be used only once.
    `extensions`: what both ends may have agreed on beyond the protocol (docs/mcp/extensions.md). `revisions`: those
    that are spoken (default: all). `http`: see `HttpOptions`. `debug=True` lets exceptions' texts cross the wire.
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
        tools: bool = False,
        resources: bool = False,
        prompts: bool = False,
        completions: bool = False,
        keys: Sequence[str | bytes] | str | None = None,
        state_life: float = 600,
        once: bool = False,
        revisions: Iterable[Revision] | None = None,
        extensions: Sequence[Extension | ServerExtension] = (),
        http: HttpOptions | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        debug: bool = False,
    ) -> None:
        check(f"Server {name!r}", SERVER_OPTIONS, locals())
        self.name = name
        self.info = _info(name, version, title, description, icons, website_url)
        self.instructions = instructions
        self.limits = limits
        self.offered = EVERYTHING if revisions is None else offer(_revisions(revisions))
        self.options = HttpOptions() if http is None else http
        self.stamp = stamp(self.info)
        self.seal = Seal(keys, state_life, audience=name)
        self.once = once
        self.ttl: float = ttl
        self.cache_scope: CacheScope = cache_scope
        self.service = Service(name, version=version, limits=limits, middleware=middleware, debug=debug, discover=False)
        self.service.answers = msgspec.structs.replace(self.service.answers, dialect=MCP)
        self.life = Lifespan(name, lambda: lifespan(self)) if lifespan is not None else None
        declared = {"tools": tools, "resources": resources, "prompts": prompts, "completions": completions}
        self._declared = frozenset(kind for kind, said in declared.items() if said)
        self._assemble(extensions, page_size)

    def _assemble(self, extensions: Sequence[Extension | ServerExtension], page_size: int) -> None:
        """Make the parts: what runs and routes calls, what is registered, and what changes are told by."""
        self.host = Runner(self.service)
        self.gate = self.host.gate
        self.subscriptions = Subscriptions(self)
        self._mailboxes = Mailboxes(self)
        self.extensions = declared_by(extensions)
        self.outcomes = outcomes(self, self.stamp, self.extensions)
        self.catalog = Registry(self, page_size=page_size, changed=self._changed, link=self.service.link)
        self.table = MethodTable(self.extensions.methods, builtin.methods(self), self.catalog.lookups())
        for method in self.table.methods():
            self.service.link(method)
        for one in extensions:
            if isinstance(one, ServerExtension):
                for wanted, function in one.handlers.items():
                    self.add_method(function, wanted)
        self.service.route = Router(self).route
        self._users = 0
        self.on_roots_changed: list[Callable[[Peer], Any]] = []
        self.shared: Shared | None = None
        """The state that this server shares with its replicas; None without a bus."""

    subprotocol = "mcp"
    """The WebSocket subprotocol."""

    def __repr__(self) -> str:
        return f"<mcp.Server {self.name} {self.info.version}>"

    @property
    def version(self) -> str:
        """The server's version."""
        return self.info.version

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts are sent to clients."""
        return self.service.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.service.debug = debug

    @property
    def state(self) -> Any:
        """The value of the lifespan on this event loop; None without one, and before it began."""
        return None if self.life is None else self.life.value

    # -- registering

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, name: Any = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool; the function is not changed. `@server.tool`,
        `@server.tool("name", title=...)`.

        The input schema comes from its annotations, the output schema from its return type, the
        descriptions from the docstring, `Annotated` and `msgspec.Meta`; `options` are `ToolOptions`.
        Raises LocalError for a name that is taken, and for annotations to which JSON cannot be decoded.
        """
        if name is None or isinstance(name, str):
            return _registering(lambda function: self.add_tool(function, name=name, **options), "server.tool")
        return _registering(lambda function: self.add_tool(function, **options), "server.tool")(name)

    def add_tool(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> Entry:
        """As the decorator `tool`, at any time: clients are told that the list has changed."""
        return self.catalog.add_tool(function, name=name, **options)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function that reads a resource, or every resource of a template ("file:///{path}").

        A template's variables are the function's parameters. It returns text, bytes, JSON, a
        `ResourceContents`, or a list of them. `options` are `ResourceOptions`.
        Raises LocalError for a URI that is taken, and for variables that the function does not take.
        """
        if not isinstance(uri, str):
            raise LocalError('a resource has a URI: @server.resource("file:///notes.txt")')
        return _registering(lambda function: self.add_resource(function, uri, **options), "server.resource")

    def add_resource(self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]) -> Entry:
        """As the decorator `resource`, at any time."""
        return self.catalog.add_resource(function, uri, **options)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str | None = None, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, name: Any = None, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt. It returns text, a `PromptMessage`, content, or a list of them.

        `options` are `PromptOptions`. Raises LocalError for a name that is taken, and for arguments without names.
        """
        if name is None or isinstance(name, str):
            return _registering(lambda function: self.add_prompt(function, name=name, **options), "server.prompt")
        return _registering(lambda function: self.add_prompt(function, **options), "server.prompt")(name)

    def add_prompt(
        self, function: Callable[..., Any], *, name: str | None = None, **options: Unpack[PromptOptions]
    ) -> Entry:
        """As the decorator `prompt`, at any time."""
        return self.catalog.add_prompt(function, name=name, **options)

    def completion(self, ref: str, argument: str, **options: Unpack[RunOptions]) -> Callable[[F], F]:
        """Register a function that completes an argument: `ref` is a prompt's name or a template's URI.

        It takes what the user has typed (and, by name, `ctx` and `arguments`, the arguments already known),
        and returns a list of strings or a `Completion` (server/utilities/completion). `options` are `RunOptions`.
        """
        add = self.catalog.add_completion
        return _registering(lambda function: add(function, ref, argument, **options), "server.completion")

    def method(self, name: str, **options: Unpack[RunOptions]) -> Callable[[F], F]:
        """Register the function that answers a method of an extension: it takes `(params, context)`, the params as the
        type of the extension's row, and returns the row's result (None if the row is a notification). `options` are
        `RunOptions`.

        Raises LocalError for a method that no extension of this server declares, and for one that is already answered.
        """
        return _registering(lambda function: self.add_method(function, name, **options), "server.method")

    def add_method(self, function: Callable[..., Any], name: str, **options: Unpack[RunOptions]) -> None:
        """As the decorator `method`."""
        made = Options(**options)
        check(name, RUNNING, msgspec.structs.asdict(made))
        extension = self.extensions.of_method(name)
        if extension is None:
            raise LocalError(f"{name} is declared by no extension of this server: Server(extensions=[Extension(...)])")

        def declared(admitted: Admitted, caller: Caller) -> None:
            demand(admitted, extension)

        method = extension_method(self.extensions.methods[name], function, self, made)
        self.table.add(name, method, declared)
        self.service.link(method)

    def include(self, service: Service, *, prefix: str = "") -> None:
        """Turn the methods that a JSON-RPC service has now into tools, each named `prefix` + its name."""
        self.catalog.include(service, prefix=prefix)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; clients are told that the list has changed. Raises LocalError when there is none."""
        self.catalog.remove("tool", name)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template. Raises LocalError when there is none."""
        self.catalog.remove("resource", uri)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt. Raises LocalError when there is none."""
        self.catalog.remove("prompt", name)

    def enable(self, kind: Literal["tool", "resource", "prompt"], key: str) -> None:
        """Enable what `disable` has disabled; `key`: a name, or a resource's URI."""
        self.catalog.enable(kind, key)

    def disable(self, kind: Literal["tool", "resource", "prompt"], key: str) -> None:
        """Disable an entry: it is not listed, and unknown when called."""
        self.catalog.disable(kind, key)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware inside the existing ones, around every method and every tool. Usable as a decorator."""
        self.service.use(middleware)
        for method in (*self.table.methods(), *self.catalog.methods()):
            self.service.link(method)
        return middleware

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer of all that comes in and goes out from now on, on every wire; gives what ends that."""
        return self.service.observe(observer)

    # -- telling clients

    def _changed(self, kind: str) -> None:
        self.subscriptions.changed(kind)  # type: ignore[arg-type]

    def notify_resource_updated(self, uri: str) -> None:
        """Tell every client that subscribed to a resource that it has changed. From any thread."""
        self.subscriptions.updated(uri)

    def capabilities(self, revision: Revision) -> ServerCapabilities:
        """The declared capabilities: kinds of which something is registered, and those that were declared
        beforehand."""

        def has(kind: str) -> bool:
            return kind in self._declared or self.catalog.has(kind)

        return ServerCapabilities(
            logging={},
            completions={} if has("completions") else UNSET,
            prompts=PromptsCapability(True) if has("prompts") else UNSET,
            resources=ResourcesCapability(True, True) if has("resources") else UNSET,
            tools=ToolsCapability(True) if has("tools") else UNSET,
            extensions=self.extensions.declared,
        )

    # -- Servable

    def exchange(self, x: Exchange) -> None:
        """Take one exchange: of the stateless era, or of a session where its caller has a mailbox (brokers)."""
        message = read(x.request, self.limits, self.service.lenient)
        tell = getattr(x, "tell", None)
        if tell is None or not self._mailboxes.take(x, message, tell):
            self.host.take(x, message)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends, in the era that its client speaks."""
        self.peer().attach(channel)

    def peer(self) -> Peer:
        """A peer for one client's channel."""
        return Peer(self.host, limits=self.limits, dialect=MCP)

    def routes(self) -> Mapping[str, Document]:
        """None: there are only the endpoints of `http_endpoints`."""
        return {}

    def http_endpoints(self, at: str) -> Mapping[str, Any]:
        """Streamable HTTP at this path."""
        from ..http.endpoint import endpoints  # noqa: PLC0415  (a wire, imported when used)

        found: Mapping[str, Any] = endpoints(self, at)
        return found

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on; for `serve(limits=...)`."""
        self.limits = limits
        self.service.restrict(limits)
        self.gate.limit = limits.calls

    async def join(self, bus: Bus) -> None:
        """Join this bus as one of several replicas (docs/mcp/replicas.md); `serve(bus=...)` calls it.

        Raises LocalError if replicas could not open one another's sealed states, BusLost if the engine is away.
        """
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
        """Count one more user: begin serving, also again after a drain, and the lifespan of this event loop, if there
        is one.

        Each `start` needs a `stop` or a `drain` on the same loop; a call that comes before any begins the lifespan too.
        """
        self.gate.draining = False
        if self.life is not None:
            await self.life.start()
        self._users += 1

    async def drain(self, timeout: float) -> None:
        """End subscriptions in order, refuse new calls, let those in flight end within `timeout` seconds; leave the
        bus, and `stop`."""
        self.gate.draining = True
        await self.subscriptions.close()
        await self.host.drain(timeout)
        await self._leave()
        await self.stop()

    async def stop(self) -> None:
        """One user less. The last one leaves the bus, and ends the lifespan of its event loop; a `start` begins
        anew."""
        self._users = max(0, self._users - 1)
        if not self._users:
            await self._leave()
        if self.life is not None:
            await self.life.stop()

    async def _leave(self) -> None:
        shared, self.shared = self.shared, None
        if shared is not None:
            await shared.leave()


def _registering(add: Callable[[Callable[..., Any]], object], decorator: str) -> Callable[[F], F]:
    """A decorator that passes a function to `add` and returns it unchanged. Raises LocalError for what cannot be
    called."""

    def register(function: F) -> F:
        add(registrable(function, decorator))
        return function

    return register


def _info(
    name: str,
    version: str,
    title: str | None,
    description: str | None,
    icons: Sequence[Icon],
    website_url: str | None,
) -> Implementation:
    info = Implementation(
        name,
        version,
        title=UNSET if title is None else title,
        description=UNSET if description is None else description,
        icons=list(icons) or UNSET,
        website_url=UNSET if website_url is None else website_url,
    )
    try:
        decode(encode(info, NEWEST), Implementation)
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise LocalError(f"a server cannot be called so: {error}") from None
    return info


def _revisions(given: Iterable[Revision]) -> tuple[Revision, ...]:
    found = tuple(given)
    if not found or not all(isinstance(one, Revision) for one in found):  # an iterator was taken on trust
        raise LocalError(f"revisions are records such as NEWEST, or REVISIONS['{NEWEST.date}'], and not {found!r}")
    return found
