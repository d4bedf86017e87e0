"""A service as a `Servable`: peers for its channels, a runner for its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..channel import Channel, Document, Exchange
from ..jsonrpc.limits import Limits
from ..observer import Connection, Observer
from ..routes import Route
from .channel_peer import ChannelPeer
from .connections import channels_of, end_peer
from .routing.registering import http_routes
from .runner import Runner
from .service import Service

if TYPE_CHECKING:
    from ..access import Protection
    from ..channel import CallLimit
    from ..jsonrpc.leniency import Leniency
    from ..store.contract import Engine


class ServesService:
    """What a served object has of its service: the guard, and what keeps the values of callers."""

    service: Service

    @property
    def auth(self) -> Any:
        """The verifiers of tokens that the service was given; None without."""
        return self.service._auth

    @property
    def demanded(self) -> frozenset[str] | None:
        """The scopes that its methods demand of callers; None where none demands anything."""
        return self.service._demanded

    @property
    def protection(self) -> Protection | None:
        """The guard behind which it is served."""
        return self.service._protection

    def keep_in(self, engine: Engine | None) -> None:
        """Keep `ctx.store` in this engine; None: in memory."""
        self.service._kept_in = engine

    def keep_tasks_at(self, url: str | None, bus: Any = None) -> None:
        """Keep tasks in the store at this URL (None: as the app says itself, else in memory), and tell their changes on
        this bus."""
        self.service._tasks_url, self.service._tasks_bus = url, bus


class ServableService(ServesService):
    """A `Service` that wires can serve. `limits`: others than the service's own."""

    def __init__(self, service: Service, *, limits: Limits | None = None) -> None:
        self.service = service if limits is None else service._within(limits)
        service = self.service
        self.name: str = service.name
        self.runner: Runner = Runner(service)
        self.call_limit: CallLimit = self.runner.call_limit
        self._started = 0

    subprotocol: str | None = None

    @property
    def limits(self) -> Limits:
        """The service's limits."""
        return self.service.limits

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on."""
        self.service = self.runner.service = self.service._within(limits)
        self.call_limit.restrict(limits)

    @property
    def lenient(self) -> Leniency:
        """The messages beyond the specification that its service accepts."""
        return self.service._lenient

    def protect(self, protection: Protection) -> None:
        """Serve it behind this guard; behind another guard too, it is served as a copy of its own."""
        if self.service._protection is not None and self.service._protection is not protection:
            self.service = self.runner.service = self.service._within(self.limits)
        self.service._protect(protection)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Notify an observer of what is served here alone. Returns the function that ends it."""
        self.service = self.runner.service = self.service._within(self.limits)
        self.service.observe(observer)
        ends = [observer]

        def over() -> None:
            if ends:  # of the copy that is served by then
                self.service._unobserve(ends.pop())

        return over

    def measures(self) -> Mapping[str, float]:
        """For metrics: channels, calls that wait, tasks, and events."""
        tasks, events = self.service._tasks, self.service._events
        found = dict(self.runner.measures())
        if tasks is not None:
            found |= tasks.measures()
        if events is not None:
            found |= events.publisher.measures()
        return found

    def boards(self) -> Sequence[object]:
        """Its tasks, for the operator."""
        return () if self.service._tasks is None else self.service._tasks.boards()

    def connections(self) -> list[Connection]:
        """The channels that are open."""
        return channels_of(self.runner)

    def end_connection(self, id: str) -> bool:
        """Begin to close a channel. False if there is none with this id."""
        return end_peer(self.runner.peers, id)

    def describe(self) -> Mapping[str, Any]:
        """What it offers: its OpenRPC document."""
        return {"kind": "service", "name": self.name, "openrpc": self.service.openrpc()}

    async def start(self) -> None:
        """Count one more user of the service's lifespan on this event loop, if it has one."""
        if self.service._tasks is not None:
            self.service._tasks.serve_by(self.runner)
        if self.service._lifespan is not None:
            await self.service._lifespan.start()
            self._started += 1

    async def stop(self) -> None:
        """One user less of the lifespan; the last one ends it."""
        if self.service._tasks is not None:
            self.service._tasks.leave(self.runner)
        if self.service._lifespan is not None and self._started:
            self._started -= 1
            await self.service._lifespan.stop()

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange, now or later."""
        self.runner.exchange(x)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends."""
        if self.service._protection is not None:
            channel.caller = self.service._protection.known(channel.caller)
        ChannelPeer(self.runner).attach(channel)

    def routes(self) -> Mapping[str, Document]:
        """`/openrpc.json`: the result of `rpc.discover`."""
        return {"/openrpc.json": Document("application/json", method="rpc.discover")}

    def http_routes(self) -> Sequence[Route]:
        """The routes of its service for HTTP, also those of what is included."""
        return http_routes(self.service, self.runner)

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, wait for those in flight, cancel the rest, close every channel;
        `stop`."""
        await self.runner.drain(timeout)
        await self.stop()
