"""What served objects share: the bus that they join, what keeps their `ctx.store`, and where their tasks are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .access import Protectable, Protection
from .channel import Servable
from .jsonrpc.limits import Limits
from .net.urls import scheme_of
from .observer import Measured
from .rpc.loop_watch import watch_loop
from .secret import read_secrets
from .store.contract import Engine, KeepsStore
from .tasks.contract import KeepsTasks

if TYPE_CHECKING:
    from ssl import SSLContext

    from .bus.contract import Bus


class BusAndStore:
    """The bus of the served objects, and what keeps their `ctx.store`: opened and joined before they start; closed
    after they end, if they were opened here. Meanwhile the event loop is watched for functions that block it."""

    def __init__(
        self,
        bus: str | Bus | None,
        store: str | Engine | None,
        tasks: str | None,
        limits: Limits,
        served: Iterable[Servable] = (),
        *,
        tls: SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._given = os.environ.get("DRAGOMAN_BUS") or None if bus is None else bus
        self._store = store
        self._tasks = tasks
        self._limits = limits
        self._served = served
        self._kept: list[KeepsStore] = []
        self._with_tasks: list[KeepsTasks] = []
        self._shared: list[Callable[[], None]] = []
        self._engine: Engine | None = None
        self.bus: Bus | None = None
        self.closing = False
        self._end_watch: Callable[[], None] = lambda: None

    async def start(self, served: Iterable[Servable] = ()) -> None:
        self._end_watch = watch_loop()
        given, store = self._given, self._store
        secrets = [] if given is None else read_secrets()
        if isinstance(given, str):
            from .bus.contract import open_bus  # noqa: PLC0415  (start-up: for those who share something)

            self.bus = await open_bus(given, tls=self._tls)
        else:
            self.bus = given
        if self.bus is not None and secrets:
            from .bus.sealed import sealed_bus  # noqa: PLC0415  (start-up: for those who share something)

            self.bus = sealed_bus(self.bus, secrets)
        if isinstance(store, str):
            from .store.opening import open_store  # noqa: PLC0415  (the store is paid for only by what uses it)

            self._engine = open_store(store, self._limits, self.bus)
        elif store is not None:
            self._engine = store
        protections: dict[int, Protection] = {}
        unjoined = False
        for one in {id(one): one for one in (*self._served, *served)}.values():
            if self.bus is not None:
                unjoined |= not await _join(one, self.bus)
            if isinstance(one, Protectable) and one.protection is not None:
                protections[id(one.protection)] = one.protection
            if self._engine is not None and isinstance(one, KeepsStore):
                one.keep_in(self._engine)
                self._kept.append(one)
            if isinstance(one, KeepsTasks):
                one.keep_tasks_at(self._tasks, self.bus)
                self._with_tasks.append(one)

        if self.bus is not None and self.bus.store is not None:
            self._shared += [each.share(self.bus.store) for each in protections.values()]
            if not secrets and (unjoined or protections or store == "bus"):
                from .bus.sealed import warn_unsealed  # noqa: PLC0415  (start-up: for those who share something)

                warn_unsealed(self.bus)

    async def stop(self) -> None:
        self._end_watch()
        for end in self._shared:
            end()
        self._shared.clear()
        for one in self._kept:
            one.keep_in(None)
        self._kept.clear()
        for each in self._with_tasks:
            each.keep_tasks_at(None)
        self._with_tasks.clear()
        if self._engine is not None and isinstance(self._store, str):
            await self._engine.close()
        self._engine = None
        if self.bus is not None and isinstance(self._given, str):
            await self.bus.close()

    @property
    def scheme(self) -> str:
        """The scheme of the bus; empty where there is none."""
        given = self._given if isinstance(self._given, str) or self._given is None else self._given.url
        return scheme_of(given) if given else ""

    @property
    def url(self) -> str:
        """The URL of the bus without credentials; empty where there is none."""
        return "" if self.bus is None else self.bus.url

    def measures(self) -> Mapping[str, float]:
        """Return the numbers of the bus for metrics; none where there is no bus."""
        return self.bus.measures() if isinstance(self.bus, Measured) else {}

    def unready(self) -> str:
        """Why new work should go elsewhere; empty if it should not."""
        if self.closing:
            return "draining"
        return "the bus is gone" if self.bus is not None and not self.bus.alive else ""


async def _join(one: Servable, bus: Bus) -> bool:
    """Have a served object join the bus; False if it is not one that joins."""
    from .bus.contract import JoinsBus  # noqa: PLC0415  (start-up: for those who share something)

    if not isinstance(one, JoinsBus):
        return False
    await one.join(bus)
    return True
