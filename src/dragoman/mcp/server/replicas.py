"""What a server shares with its replicas over a bus, and how many serve it in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...jsonrpc.errors import LocalError
from ...secret import SECRET
from ..asking.request_state import Seal
from ..protocol.admission import Offer

if TYPE_CHECKING:
    from ...bus.contract import Bus
    from ..session.shared import Shared
    from .subscriptions import Subscriptions

logger: logging.Logger = logging.getLogger("dragoman.mcp")


class Replicas:
    """A server's part in its replicas. `users`: how often it is served in this process now; the last one to stop ends
    this part."""

    __slots__ = ("name", "shared", "users")

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0
        self.shared: Shared | None = None
        """The state that it shares with its replicas; None without a bus."""

    async def join(self, bus: Bus, seal: Seal, offered: Offer, subscriptions: Subscriptions) -> None:
        """Join this bus as one of several replicas (docs/mcp/replicas.md).

        Raises LocalError if replicas could not open one another's sealed states, BusLost if the engine is away.
        """
        from ...bus.sealed import sealed_bus, tell_unsealed  # noqa: PLC0415  (start-up: what only replicas need)

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
        from ..session.shared import Shared  # noqa: PLC0415  (start-up: what only replicas need)

        if not seal.keys:
            tell_unsealed(bus)
        self.shared = await Shared.open(bus, self.name, subscriptions)
        if bus.store is None and offered.stateful:
            logger.warning(
                "%s: the bus %s keeps nothing, so there are no sessions over HTTP: %s alone is spoken there",
                self.name,
                bus.url,
                " and ".join(offered.stateless) or "nothing",
            )

    async def stop_one(self, *, counted: bool) -> None:
        """Count one user less, if it was `counted`. The last one leaves the bus."""
        self.users -= counted
        if not self.users:
            shared, self.shared = self.shared, None
            if shared is not None:
                await shared.leave()
