"""What is behind an MCP `Server`: its parts, and what wires serve of it.

It owns a `ServiceCore` whose router knows the rows of `protocol.methods`: it admits a message
(`protocol.admission`) and finds the method that answers it, a row's own or that of the named tool, resource or prompt.
Both eras use this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from logging import Logger, getLogger
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from ....channel import Channel, Document, Exchange
from ....jsonrpc.codec import read
from ....jsonrpc.errors import LocalError
from ....jsonrpc.leniency import Leniency, chosen, without_v1
from ....jsonrpc.limits import Limits
from ....observer import Observer
from ....rpc.method import LongResult
from ....rpc.middleware import Call, Middleware, Next
from ....rpc.peering.channel_peer import ChannelPeer
from ....rpc.registering.service_core import ServiceCore
from ....rpc.runner import Runner
from ....secret import SECRET
from ...asking.request_state import StateSeal
from ...protocol.admission import EVERYTHING, offer
from ...protocol.dialect import MCP
from ...protocol.extension import Extension
from ...protocol.options import ArgumentErrors, HttpOptions
from ...protocol.params import CacheScope
from ...protocol.results import finish, stamp
from ...protocol.revisions import Revision
from ...protocol.types import Icon, PromptsCapability, ResourcesCapability, ServerCapabilities, ToolsCapability
from ...session.mailbox import MailboxSessions
from .. import builtin
from ..extensions import ServerExtension, declared_by
from ..outcomes import outcomes
from ..registering import (
    info_of,
    revisions_of,
)
from ..registry import Entry, Registry
from ..router import Router
from ..subscriptions import Subscriptions
from ..table import MethodTable
from .offering import Offering

if TYPE_CHECKING:
    from ....access import Verifiers
    from ....bus.contract import Bus
    from ....channel import CallLimit
    from ....rpc.binding.dependencies import Dependencies
    from ...protocol.admission import Offer
    from ...protocol.extension import Extensions
    from ...protocol.results import Stamp
    from ...protocol.types import Implementation
    from ...session.shared import Replica
    from ..outcomes import Finished


logger: Logger = getLogger("dragoman.mcp")

_CALLED = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}
"""The methods by which what is registered is called."""


class ServerCore(Offering):
    """A server as the rooms of dragoman see it, with the options of `Server`, which has their defaults: a `Servable`.

    The attribute `info` is the `Implementation` that clients get, `offered` the revisions that are spoken, `options`
    the `HttpOptions`, `limits` the bounds on messages, calls, channels and times. `host` runs its calls.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None,
        description: str | None,
        icons: Sequence[Icon],
        instructions: str | None,
        website_url: str | None,
        page_size: int | None,
        ttl: float,
        cache_scope: CacheScope,
        tools: bool,
        resources: bool,
        prompts: bool,
        completions: bool,
        logging: bool,
        keys: Sequence[str | bytes] | str | None,
        state_life: float,
        once: bool,
        revisions: Iterable[Revision] | None,
        extensions: Sequence[Extension | ServerExtension],
        http: HttpOptions | None,
        limits: Limits,
        middleware: Sequence[Middleware],
        lenient: Leniency | bool,
        argument_errors: ArgumentErrors,
        debug: bool,
        auth: Verifiers | None,
    ) -> None:
        self.name = name
        self.info: Implementation = info_of(name, version, title, description, icons, website_url)
        self.instructions = instructions
        self.limits: Limits = limits
        self.offered: Offer = EVERYTHING if revisions is None else offer(revisions_of(revisions))
        self.options: HttpOptions = HttpOptions() if http is None else http
        self.stamp: Stamp = stamp(self.info)
        self.seal: StateSeal = StateSeal(keys, state_life, audience=name)
        self.once = once
        self.ttl: float = ttl
        self.cache_scope: CacheScope = cache_scope
        self.argument_errors: ArgumentErrors = argument_errors
        lenient = without_v1(f"Server {name!r}", chosen(lenient))
        service = ServiceCore(
            name, version=version, limits=limits, middleware=middleware, lenient=lenient, debug=debug, discover=False
        )
        self.service: ServiceCore = service
        self.service.auth = auth
        self.service.finishing = self._finished
        self.dependencies: Dependencies = self.service.dependencies
        self.service.answers = msgspec.structs.replace(self.service.answers, dialect=MCP)
        self._logs = logging
        declared = {"tools": tools, "resources": resources, "prompts": prompts, "completions": completions}
        self._declared = frozenset(kind for kind, said in declared.items() if said)
        self._assemble(extensions, page_size)

    def _assemble(self, extensions: Sequence[Extension | ServerExtension], page_size: int | None) -> None:
        """Make the parts: what runs and routes calls, what is registered, and what changes are told by."""
        self.host: Runner = Runner(self.service)
        self.call_limit: CallLimit = self.host.call_limit
        """The calls in flight on all wires."""
        self.subscriptions: Subscriptions = Subscriptions(self)
        self._mailboxes = MailboxSessions(self)
        self._functions = {}
        self.extensions: Extensions = declared_by(extensions)
        self.outcomes: dict[type, Finished] = outcomes(self, self.stamp, self.extensions)
        self.catalog: Registry = Registry(
            self, page_size=page_size, changed=self._changed, link=self.service.link, removed=self._removed
        )
        own = builtin.methods(self)
        self.table: MethodTable = MethodTable(self.extensions.methods, own, self.catalog.lookups(own))
        for method in self.table.methods():
            self.service.link(method)
        for one in extensions:
            if isinstance(one, ServerExtension):
                for wanted, function in one.handlers.items():
                    self.add_method(function, wanted)
        self.service.router = Router(self).route
        self._users = 0
        self._common = _Common()

    @property
    def shared(self) -> Replica | None:
        """The state that this server shares with its replicas; None without a bus."""
        return self._common.shared

    subprotocol = "mcp"
    """The WebSocket subprotocol."""

    def __repr__(self) -> str:
        return f"<mcp.Server {self.name} {self.info.version}>"

    @property
    def version(self) -> str:
        """The server's version."""
        return self.info.version

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer of all that comes in and goes out from now on, on every wire; gives what ends that."""
        return self.service.observe(observer)

    def measures(self) -> Mapping[str, float]:
        """For metrics: calls, channels, sessions, streams, subscribers, and how far these are behind."""
        from ...session.measuring import measure_sessions  # noqa: PLC0415  (start-up: metrics, of sessions)

        return measure_sessions(self.host) | self.subscriptions.measures()

    async def _finished(self, call: Call, next: Next) -> Any:
        """Around all middleware: a value that it returns in place of JSON text is written for the caller's revision."""
        value = await next(call)
        if isinstance(value, Struct) and not isinstance(value, LongResult) and hasattr(value, "meta"):
            return finish(value, call.params.revision, self.stamp)
        return value

    # -- telling clients

    def _changed(self, kind: Any, entry: Entry) -> None:
        self.subscriptions.changed(kind, entry.id, entry.shown_to)

    def _removed(self, kind: str, key: str) -> None:
        if (watch := self.service.watch) is not None:
            watch.removed(_CALLED[kind], key)

    def capabilities(self) -> ServerCapabilities:
        """The declared capabilities: kinds of which something is registered, and those that were declared
        beforehand. `encode` leaves out what a revision does not know."""

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

    def stateless_capabilities(self) -> ServerCapabilities:
        """The same for the stateless era: logging, which is deprecated there, only where a function may log."""
        found = self.capabilities()
        return found if self._logs or self.catalog.contextual else msgspec.structs.replace(found, logging=UNSET)

    def scopes_of(self, method: str, name: str) -> frozenset[str]:
        """As `mcp.http.serving.Serving`."""
        own = self.table.get(method)
        found = self.catalog.known_to_all(method, name)
        methods = (None if own is None else own.method, None if found is None else found.method)
        demanded = [one.access for one in methods if one is not None and one.access is not None]
        return frozenset[str]().union(*(one.scopes for one in demanded if not one.hides))

    # -- Servable

    def exchange(self, x: Exchange) -> None:
        """Take one exchange: of the stateless era, or of a session where its caller has a mailbox (brokers)."""
        protection = self.service.protection
        if protection is not None:
            x.caller = protection.known(x.caller)
        message = read(x.request, self.limits, self.service.lenient)
        tell = getattr(x, "tell", None)
        if tell is None or not self._mailboxes.take(x, message, tell):
            self.host.take(x, message)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends, in the era that its client speaks."""
        if self.protection is not None:
            channel.caller = self.protection.known(channel.caller)
        self.peer().attach(channel)

    def peer(self) -> ChannelPeer:
        """A peer for one client's channel."""
        return ChannelPeer(self.host, limits=self.limits, dialect=MCP)

    def routes(self) -> Mapping[str, Document]:
        """None: there are only the endpoints of `http_endpoints`."""
        return {}

    def http_endpoints(self, at: str) -> Mapping[str, Any]:
        """Streamable HTTP at this path."""
        from ...http.endpoint import endpoints  # noqa: PLC0415  (a wire, imported when used)

        found: Mapping[str, Any] = endpoints(self, at)
        return found

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on; for `serve(limits=...)`."""
        self.limits = limits
        self.service.restrict(limits)
        self.call_limit.restrict(limits)

    async def join(self, bus: Bus) -> None:
        """Join this bus as one of several replicas (docs/mcp/replicas.md); `serve(bus=...)` calls it.

        Raises LocalError if replicas could not open one another's sealed states, BusLost if the engine is away.
        """
        from ....bus.sealed import sealed_bus, tell_unsealed  # noqa: PLC0415  (start-up: what only replicas need)

        bus = sealed_bus(bus, self.seal.keys)
        if self.shared is not None:
            if sealed_bus(self.shared.bus, ()) is sealed_bus(bus, ()):
                return
            raise LocalError(
                f"{self.name} is on the bus {self.shared.bus.url} already, which another serve opened: open it once for "
                "all of them, bus=await dragoman.bus.open_bus(url)"
            )
        if self.seal.own and self.offered.stateless:
            raise LocalError(
                f"{self.name}: servers on a bus share the keys of sealed states, and there is none to share: give all "
                f"of them the same {SECRET} (or keys=), made with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        from ...session.shared import Replica  # noqa: PLC0415  (start-up: what only replicas need)

        if not self.seal.keys:
            tell_unsealed(bus)
        self._common.shared = await Replica.open(bus, self.name, self.subscriptions)
        if bus.store is None and self.offered.stateful:
            logger.warning(
                "%s: the bus %s keeps nothing, so there are no sessions over HTTP: %s alone is spoken there",
                self.name,
                bus.url,
                " and ".join(self.offered.stateless) or "nothing",
            )

    def for_serving(self) -> ServerCore:
        """Return what one `serve` serves of this: the same tools and subscribers, with calls, channels and sessions of
        its own, for several may serve it at once, and each drains its own."""
        one = copy(self)
        one.host = Runner(self.service)
        one.call_limit = one.host.call_limit
        one._mailboxes = MailboxSessions(one)
        one._users = 0
        return one

    async def start(self) -> None:
        """Count one more user: begin serving, also again after a drain, and the lifespan of this event loop, if there
        is one.

        Each `start` needs a `stop` or a `drain` on the same loop; a call that comes before any begins the lifespan too.
        """
        self.call_limit.draining = False
        if self.life is not None:
            await self.life.start()
        self._users += 1
        self._common.users += 1

    async def drain(self, timeout: float) -> None:
        """End subscriptions in order, refuse new calls, let those in flight end within `timeout` seconds; `stop`."""
        self.call_limit.draining = True
        await self.subscriptions.close(self.host.runs)
        await self.host.drain(timeout)
        await self.stop()

    async def stop(self) -> None:
        """One user less. The last one leaves the bus, and ends the lifespan of its event loop; a `start` begins
        anew."""
        common, counted = self._common, self._users > 0
        if counted:
            self._users -= 1
            common.users -= 1
        if not common.users:
            shared, common.shared = common.shared, None
            if shared is not None:
                await shared.leave()
        if self.life is not None and (counted or not common.users):
            await self.life.stop()


class _Common:
    """What all that serve one server at once have in common: how many they are, and the bus."""

    __slots__ = ("shared", "users")

    def __init__(self) -> None:
        self.users = 0
        self.shared: Replica | None = None
