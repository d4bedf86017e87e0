"""A service as a `Servable`: peers for its channels, a runner for its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..channel import Channel, Document, Exchange
from ..jsonrpc.limits import Limits
from ..observer import Observer
from .peer import Peer
from .runner import Runner
from .service import Service


class ServableService:
    """A `Service` that wires can serve. `limits`: others than the service's own."""

    def __init__(self, service: Service, *, limits: Limits | None = None) -> None:
        self.service = service = service if limits is None else service.within(limits)
        self.name = service.name
        self.runner = Runner(service)
        self.gate = self.runner.gate

    subprotocol: str | None = None

    @property
    def limits(self) -> Limits:
        """The service's limits."""
        return self.service.limits

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on."""
        self.service = self.runner.service = self.service.within(limits)
        self.gate.limit = limits.calls

    def observe(self, observer: Observer) -> Callable[[], None]:
        """As `Service.observe`, of what is served here alone."""
        self.service = self.runner.service = self.service.within(self.limits)
        return self.service.observe(observer)

    async def start(self) -> None:
        """No effect: a service has no lifespan."""

    async def stop(self) -> None:
        """No effect: a service has no lifespan."""

    def exchange(self, x: Exchange) -> None:
        """Answer one exchange, now or later."""
        self.runner.exchange(x)

    def attach(self, channel: Channel) -> None:
        """Serve a channel until it ends."""
        Peer(self.runner).attach(channel)

    def routes(self) -> Mapping[str, Document]:
        """`/openrpc.json`: the result of `rpc.discover`."""
        return {"/openrpc.json": Document("application/json", method="rpc.discover")}

    async def drain(self, timeout: float) -> None:
        """Refuse new calls, wait for those in flight, cancel the rest, close every channel."""
        await self.runner.drain(timeout)
