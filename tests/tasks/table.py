"""The stores of tasks, one row each, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Raw

from dragoman.bus import Bus, open_bus
from dragoman.bus.hub import BusHub, open_hub
from dragoman.bus.sealed import sealed_bus
from dragoman.tasks import BusTasks, TaskLimits, TaskRecord, TaskStore
from dragoman.tasks.sqlite import SqliteTasks


class Time:
    """A clock for stores, in Unix seconds, that a test moves."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Row:
    """One kind of store. `open`: opens one more on the same tasks; a row in memory returns the same one again."""

    def __init__(self) -> None:
        self.clock = Time()
        self.opened: list[TaskStore] = []

    async def open(self, limits: TaskLimits | None = None, *, life: float = 3.0) -> TaskStore:
        store = await self.make(limits or TaskLimits(), life)
        self.opened.append(store)
        return store

    async def make(self, limits: TaskLimits, life: float) -> TaskStore:
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> None:
        """Let the clock of the store go on."""
        self.clock.ahead += seconds

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


class InMemory(Row):
    async def make(self, limits: TaskLimits, life: float) -> TaskStore:
        if self.opened:
            return self.opened[0]
        return SqliteTasks(":memory:", limits, life=life, clock=self.clock)


class InFile(Row):
    """One file, on which each `open` is a connection of its own, as in another process."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = str(folder / "tasks.db")

    async def make(self, limits: TaskLimits, life: float) -> TaskStore:
        return SqliteTasks(self.path, limits, life=life, clock=self.clock)


class OnBus(Row):
    """The store of a bus, to which each `open` connects anew. `url`: of a bus that no other test uses; `secrets`: what
    goes over it is sealed with them."""

    def __init__(self, url: str, hub: BusHub | None = None, secrets: Sequence[bytes] = ()) -> None:
        super().__init__()
        self.url = url
        self._secrets = secrets
        self._hub = hub
        self._buses: list[Bus] = []

    async def make(self, limits: TaskLimits, life: float) -> TaskStore:
        bus = sealed_bus(await open_bus(self.url), self._secrets)
        self._buses.append(bus)
        assert bus.store is not None
        return BusTasks(bus.store, limits, life=life, clock=self.clock)

    async def close(self) -> None:
        await super().close()
        for bus in self._buses:
            await bus.close()
        if self._hub is not None:
            await self._hub.close()


async def on_hub(folder: Path) -> OnBus:
    """The bus of workers."""
    hub = await open_hub(str(folder / "bus.sock"))
    return OnBus(hub.url, hub)


def record(id: str, *, now: float | None = None, **members: Any) -> TaskRecord:
    """A task as a server makes it."""
    created = time.time() if now is None else now
    made: dict[str, Any] = {
        "server": "reports",
        "method": "tools/call",
        "owner": "ann",
        "params": Raw(b'{"name":"render","arguments":{}}'),
        "created": created,
        "updated": created,
        "keep": 3600.0,
    }
    return TaskRecord(id=id, **{**made, **members})


async def until(found: Callable[[], Awaitable[Any]], seconds: float = 20.0) -> Any:
    """Ask again and again until something is found; return it."""
    async with asyncio.timeout(seconds):
        while not (something := await found()):  # noqa: ASYNC110  (another process, or the engine, changes it)
            await asyncio.sleep(0.02)
    return something
