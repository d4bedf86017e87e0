"""What a server offers besides the entries of its catalog: the methods of extensions, what it includes, its middleware;
and who may call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from ....channel import Caller
from ....jsonrpc.errors import LocalError
from ....jsonrpc.leniency import Leniency
from ....jsonrpc.limits import Limits
from ....jsonrpc.options import TEXT, check, many
from ....rpc.binding.dependencies import Dependencies
from ....rpc.binding.signature import defined_again
from ....rpc.including import acyclic
from ....rpc.lifespan import Lifespan
from ....rpc.method import DEMANDS, RUNNING
from ....rpc.middleware import Middleware
from ....rpc.registering.service_core import ServiceCore
from ....rpc.routing.registering import RoutedServer
from ...asking.request_state import StateSeal
from ...protocol.admission import Admitted
from ...protocol.extension import Extensions
from ...protocol.options import ArgumentErrors
from ...protocol.params import CacheScope
from ...protocol.results import Stamp
from ...protocol.uri import normal
from ..extensions import extension_method
from ..handlers import Options
from ..outcomes import Finished, demand
from ..registering import CallOptions
from ..registry import Entry, Registry
from ..subscriptions import Subscriptions
from ..table import MethodTable

if TYPE_CHECKING:
    from ....access import Protection

F = TypeVar("F", bound=Callable[..., Any])
logger: logging.Logger = logging.getLogger("dragoman.mcp")


class Offering(RoutedServer):
    """What offers entries of all kinds, its own and included ones. A `ServerCore` is one, which serves them.

    `service` is the JSON-RPC side. `catalog`, `table`, `extensions`, `subscriptions`, `dependencies`, `outcomes`,
    `stamp` and `seal` are the library's.
    """

    service: ServiceCore
    catalog: Registry
    table: MethodTable
    extensions: Extensions
    subscriptions: Subscriptions
    dependencies: Dependencies
    outcomes: Mapping[type, Finished]
    stamp: Stamp
    seal: StateSeal
    _functions: dict[str, Callable[..., Any]]
    """Those that answer methods of extensions."""
    once: bool
    """Whether a sealed state can be used only once."""
    ttl: float
    """Seconds that clients may keep lists and resources."""
    cache_scope: CacheScope
    """For whom they may: "private", the same caller, or "public"."""

    argument_errors: ArgumentErrors
    """Whether wrong arguments are a result in each revision."""
    limits: Limits
    """The bounds that a message is held to."""

    @property
    def lenient(self) -> Leniency:
        """What is accepted beyond the specifications."""
        return self.service.lenient

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts are sent to clients."""
        return self.service.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.service.debug = debug

    @property
    def auth(self) -> Any:
        """What says who is calling, as it was given."""
        return self.service.auth

    @property
    def demanded(self) -> frozenset[str] | None:
        """As `Protectable`."""
        return self.service.demanded

    @property
    def protection(self) -> Protection | None:
        """As `Protectable`."""
        return self.service.protection

    def protect(self, protection: Protection) -> None:
        """As `Protectable`."""
        self.service.protect(protection)
        self.service.challenge = lambda refusal, caller, params: protection.challenged(
            refusal, caller, granted=not isinstance(params, Admitted) or params.revision.stateful
        )

    @property
    def life(self) -> Lifespan | None:
        """Its lifespan: None while there is nothing to open, neither of its own nor of what it includes."""
        return self.service.life

    @property
    def state(self) -> Any:
        """The value of the lifespan on this event loop; None without one, and before it began."""
        return None if self.life is None else self.life.held().get(None)

    def add_method(self, function: Callable[..., Any], name: str, **options: Unpack[CallOptions]) -> None:
        """As `Server.add_method`."""
        made = Options(**options)
        check(name, RUNNING | DEMANDS, msgspec.structs.asdict(made))
        extension = self.extensions.of_method(name)
        if extension is None:
            raise LocalError(f"{name} is declared by no extension of this server: Server(extensions=[Extension(...)])")

        def declared(admitted: Admitted, caller: Caller) -> None:
            demand(admitted, extension)

        method = extension_method(self.extensions.methods[name], function, self, made)
        again = defined_again(self._functions.get(name), function)
        self.table.add(name, method, declared, again=again)
        self._functions[name] = function
        if again:
            logger.info("the method %s is defined again, and replaced", name)
        self.service.link(method)

    def include(self, other: object, *, namespace: str = "", prefix: str = "", tags: Collection[str] = ()) -> None:
        """As `Server.include`."""
        check("Server.include", {"namespace": TEXT, "prefix": TEXT, "tags": many(TEXT)}, locals())
        added = frozenset(tags)
        if isinstance(other, Offering):
            acyclic(self, other)
            self.catalog.include_server(other, other.catalog, namespace, prefix, added)
        else:
            self.catalog.include(other, namespace, prefix, added)

    @property
    def included(self) -> Sequence[Any]:
        """The servers and services that it includes."""
        return self.catalog.included

    @property
    def around(self) -> tuple[Middleware, ...]:
        """Its middleware, the outermost first."""
        return self.service.middleware

    def everything(self) -> Sequence[Entry]:
        """The entries of all kinds."""
        return self.catalog.everything()

    def own_uri(self, uri: str) -> str:
        """A URI as the server's functions know it."""
        return uri

    def use(self, middleware: Middleware) -> Middleware:
        """As `Server.use`."""
        self.service.use(middleware)
        for method in (*self.table.methods(), *self.catalog.methods()):
            self.service.link(method)
        for includer in self.catalog.includers:
            includer.chained()
        return middleware

    def notify_resource_updated(self, uri: str) -> None:
        """As `Server.notify_resource_updated`."""
        uri = normal(uri)
        self.subscriptions.updated(uri)
        for includer in self.catalog.includers:
            includer.updated(uri)
