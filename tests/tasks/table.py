"""The stores of tasks, one row each, for tests that hold for all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Raw

from dragoman.tasks import TaskLimits, TaskRecord, TaskStore
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
