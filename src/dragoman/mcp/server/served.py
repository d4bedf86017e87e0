"""An MCP server as wires serve it: its exchanges, channels and routes, with the calls and sessions of one `serve`, and
its part in its replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from ...channel import Channel, Document, Exchange
from ...jsonrpc.codec import read
from ...jsonrpc.errors import LocalError
from ...jsonrpc.limits import Limits
from ...observer import Connection, HasBoards, Observer
from ...rpc.channel_peer import ChannelPeer
from ...rpc.connections import end_peer
from ...rpc.routing.registering import http_routes
from ...rpc.runner import Runner
from ...rpc.servable import ServesService
from ...secret import SECRET
from ..asking.request_state import StateSeal
from ..protocol.admission import Admitted, Offer
from ..protocol.dialect import MCP
from ..protocol.http_options import HttpOptions
from ..session.mailbox import MailboxSessions
from .extending.extension import ServerExtensions
from .extending.home import ServingServer
from .registry import Registry
from .subscriptions import Subscriptions
from .table import ServerMethods

if TYPE_CHECKING:
    from ...access import Protection
    from ...bus.contract import Bus
    from ...channel import CallLimit
    from ...routes import RegisteredRoute, Route
    from ...rpc.lifespan import Lifespan
    from ..session.shared import Replica

logger: logging.Logger = logging.getLogger("dragoman.mcp")


class ServedServer(ServesService):
    """One serving of a `Server`: a `Servable`. `host` runs its calls; `options`: those of HTTP; `offered`: the
    revisions that it speaks."""

    subprotocol = "mcp"
    """The WebSocket subprotocol."""

    def __init__(
        self,
        registry: Registry,
        table: ServerMethods,
        subscriptions: Subscriptions,
        replicas: Replicas,
        extensions: ServerExtensions,
    ) -> None:
        self.service = registry.surroundings.service
        self.name: str = self.service.name
        self.limits: Limits = self.service.limits
        self.catalog = registry
        self.seal: StateSeal = registry.surroundings.seal
        self.subscriptions = subscriptions
        self.offered: Offer = registry.surroundings.options.offered
        self.options: HttpOptions = registry.surroundings.options.http
        self._included: list[Any] = []
        """The servers and services that it includes, each as wires serve it."""
        self._table = table
        self._replicas = replicas
        self._extensions = extensions
        self._begin()

    def _begin(self) -> None:
        self.host: Runner = Runner(self.service)
        self.call_limit: CallLimit = self.host.call_limit
        """The calls in flight on all wires."""
        self._mailboxes = MailboxSessions(self)
        self._users = 0

    def for_serving(self) -> ServedServer:
        """Return a copy for one more `serve`: it has the same tools and subscribers, but calls, channels and sessions
        of its own, since several may serve it at once, and each drains its own."""
        one = copy(self)
        one._begin()
        return one

    def include(self, other: ServedServer) -> None:
        """Serve another server as a part of this one."""
        self._included.append(other)
        other._replicas.outer.append(self)

    def serving(self) -> ServingServer:
        """Return the server that is served now: this one, or else one that includes it; this one if none is."""
        return self._serving() or ServingServer(self.service, self.shared)

    def _serving(self) -> ServingServer | None:
        if self._replicas.users:
            return ServingServer(self.service, self.shared)
        return next(filter(None, (one._serving() for one in self._replicas.outer)), None)

    def __repr__(self) -> str:
        return f"<mcp.Server {self.name} {self.service.version}>"

    # -- who may call

    def protect(self, protection: Protection) -> None:
        """Serve it behind this guard."""
        self.service._protect(protection)
        self.service._challenge = lambda refusal, caller, params: protection.challenged(
            refusal, caller, granted=not isinstance(params, Admitted) or params.revision.stateful
        )

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """Return the scopes that a call of this method needs, for the tool, prompt or resource of this name or URI.
        They are empty for an entry that not everybody may know of. Raises nothing."""
        own = self._table.get(method)
        found = self.catalog.known_to_all(method, name)
        methods = (None if own is None else own.method, None if found is None else found.method)
        demanded = [one.access for one in methods if one is not None and one.access is not None]
        return frozenset[str]().union(*(one.scopes for one in demanded if not one.hides))

    # -- calls

    def exchange(self, x: Exchange) -> None:
        """Serve one exchange: of the stateless era, or of a session if its caller has a mailbox (brokers)."""
        protection = self.service._protection
        if protection is not None:
            x.caller = protection.known(x.caller)
        message = read(x.request, self.limits, self.service._lenient)
        tell = getattr(x, "tell", None)
        if tell is None or not self._mailboxes.take(x, message, tell):
            self.host.take(x, message)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends, in the era that its client speaks."""
        if self.protection is not None:
            channel.caller = self.protection.known(channel.caller)
        self.peer().attach(channel)

    def peer(self) -> ChannelPeer:
        """Return a new peer for one client's channel."""
        return ChannelPeer(self.host, limits=self.limits, dialect=MCP)

    def routes(self) -> Mapping[str, Document]:
        """Return no documents: there are only the endpoints of `http_endpoints`."""
        return {}

    def http_endpoints(self, at: str) -> Mapping[str, Any]:
        """Return the endpoints of Streamable HTTP at this path."""
        from ..http.endpoint import endpoints  # noqa: PLC0415  (a wire, imported when used)

        found: Mapping[str, Any] = endpoints(self, at)
        return found

    @property
    def _own_routes(self) -> tuple[RegisteredRoute, ...]:
        """The HTTP routes that were registered with it, in order."""
        return self.service._own_routes

    def http_routes(self) -> Sequence[Route]:
        """Return all HTTP routes, those of included servers and services too."""
        return http_routes(self, self.host)

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on; for `serve(limits=...)`."""
        self.limits = limits
        self.service._restrict(limits)
        self.call_limit.restrict(limits)

    # -- observing

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Report all that comes in and goes out from now on, on every wire, to an observer; returns a function that
        stops it."""
        return self.service.observe(observer)

    def measures(self) -> Mapping[str, float]:
        """Return the measures for metrics: of calls, channels, sessions, streams, subscribers, how far these are
        behind, and of extensions."""
        from ..session.measuring import measure_sessions  # noqa: PLC0415  (start-up: metrics, of sessions)

        own = measure_sessions(self.host) | self.subscriptions.measures()
        return self._extension_measures() | own

    def connections(self) -> list[Connection]:
        """Return the channels, sessions, subscriptions and streams that are open in this process."""
        from ..session.measuring import list_sessions  # noqa: PLC0415  (start-up: metrics, of sessions)

        return [*list_sessions(self.host, self.subscriptions.lag_of), *self.subscriptions.connections(self.name)]

    def boards(self) -> list[object]:
        """Return what the extensions have for the operator, those of included servers too."""
        included = [board for one in self._included if isinstance(one, HasBoards) for board in one.boards()]
        return [*self._extensions.boards(), *included]

    def end_connection(self, id: str) -> bool:
        """Begin to end a channel, a session or a subscription; a stream ends with its session. False if there is none
        with this id."""
        return self.subscriptions.end(id) or end_peer(self.host.peers, id)

    def describe(self) -> Mapping[str, Any]:
        """Return its tools, prompts and resources, of all versions, as a list of the latest revision has them."""
        entries = [{"kind": one.kind, "listed": one.listed} for one in self.catalog.everything()]
        return {"kind": "mcp", "name": self.name, "entries": entries}

    def _extension_measures(self) -> dict[str, float]:
        """Return the measures of the extensions, those of included servers too."""
        found = self._extensions.measures()
        for one in self._included:
            if isinstance(one, ServedServer):
                for name, value in one._extension_measures().items():
                    found[name] = found.get(name, 0) + value
        return found

    # -- life

    @property
    def shared(self) -> Replica | None:
        """This process's part in what the replicas share; None without a bus."""
        return self._replicas.shared

    async def join(self, bus: Bus) -> None:
        """Join this bus as one of several replicas; `serve(bus=...)` calls it. Raises LocalError if replicas could not
        open one another's sealed states, BusLost if the engine is away."""
        await self._replicas.join(bus, self.seal, self.offered, self.subscriptions)

    @property
    def life(self) -> Lifespan | None:
        """Its lifespan; None while there is none to open, neither its own nor one of what it includes."""
        return self.service._lifespan

    @property
    def state(self) -> Any:
        """The value of the lifespan on this event loop; None without one, and before it began."""
        return None if self.life is None else self.life.held().get(None)

    async def start(self) -> None:
        """Count one more user. Begin to serve, also after a drain, and begin the lifespan of this event loop, if there
        is one.

        Each `start` needs a `stop` or a `drain` on the same loop; a call that comes before any begins the lifespan too.
        """
        self.call_limit.draining = False
        self._replicas.users += 1  # what the lifespan opens may use the store and the bus of what is served
        try:
            if self.life is not None:
                await self.life.start()
        except BaseException:
            self._replicas.users -= 1
            raise
        self._users += 1

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, end subscriptions regularly, let calls in flight end within `timeout` seconds; then
        `stop`."""
        self.call_limit.drain()
        await self.subscriptions.close(self.host.runs, timeout)
        await self.host.drain(timeout)
        await self.stop()

    async def stop(self) -> None:
        """Count one user less. After the last one the lifespan of the event loop ends, and the server leaves the bus; a
        `start` begins anew."""
        counted = self._users > 0
        last = self._replicas.users == counted
        self._users -= counted
        try:
            if self.life is not None and (counted or last):
                await self.life.stop()
        finally:
            await self._replicas.stop_one(counted=counted)


class Replicas:
    """A server's part in its replicas. `users`: how often this process serves it now; with the last one to stop this
    part ends."""

    __slots__ = ("name", "outer", "shared", "users")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.users: int = 0
        self.shared: Replica | None = None
        """This process's part in what the replicas share; None without a bus."""
        self.outer: list[ServedServer] = []
        """The servers that include it."""

    async def join(self, bus: Bus, seal: StateSeal, offered: Offer, subscriptions: Subscriptions) -> None:
        """Join this bus as one of several replicas (docs/mcp/replicas.md).

        Raises LocalError if replicas could not open one another's sealed states, BusLost if the engine is away.
        """
        from ...bus.sealed import sealed_bus, warn_unsealed  # noqa: PLC0415  (start-up: what only replicas need)

        bus = sealed_bus(bus, seal.keys)
        if self.shared is not None:
            if sealed_bus(self.shared.bus, ()) is sealed_bus(bus, ()):
                return
            raise LocalError(
                f"{self.name} is on the bus {self.shared.bus.url} already, which another serve opened: open it once for "
                "all of them, bus=await dragoman.bus.open_bus(url)"
            )
        if seal.own and offered.stateless:
            raise LocalError(
                f"{self.name}: servers on a bus share the keys of sealed states, and there is none to share: give all "
                f"of them the same {SECRET} (or keys=), made with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        from ..session.shared import Replica  # noqa: PLC0415  (start-up: what only replicas need)

        if not seal.keys:
            warn_unsealed(bus)
        self.shared = await Replica.open(bus, self.name, subscriptions)
        if bus.store is None and offered.stateful:
            logger.warning(
                "%s: the bus %s keeps nothing, so there are no sessions over HTTP: %s alone is spoken there",
                self.name,
                bus.url,
                " and ".join(offered.stateless) or "nothing",
            )

    async def stop_one(self, *, counted: bool) -> None:
        """Count one user less, if it was `counted`. After the last one the server leaves the bus."""
        self.users -= counted
        if not self.users:
            shared, self.shared = self.shared, None
            if shared is not None:
                await shared.leave()
