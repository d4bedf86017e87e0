"""The tasks of one server or service on one event loop, as its operator may reach them: a `TaskBoard`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Raw

from .contract import RecentTasks
from .record import ENDED, Status, TaskRecord
from .runner import TaskRunner

LOOKED: Final = 1_000
"""Records that are looked at for one page at most: a state that few tasks have may be far to seek."""
SOUGHT: Final = 100
"""Records that are read at once where those of one state are sought."""
SIZE: Final = 16 << 20
"""Bytes of results and params of those, from which on no more are looked at: they are read on the event loop."""


class RunnerBoard:
    """The tasks of `server`, which this runner runs here; those that others run are reached through its store."""

    def __init__(self, runner: TaskRunner, server: str) -> None:
        self.server: str = server
        self.runner: str = runner.name
        self._runner = runner

    def __repr__(self) -> str:
        return f"<RunnerBoard of {self.server}>"

    async def list_recent(self, status: Status | None, before: float | None, limit: int) -> RecentTasks:
        ended = None if status is None else status in ENDED
        at_once = limit if status is None else max(limit, SOUGHT)
        found: list[TaskRecord] = []
        looked = size = 0
        while len(found) < limit and looked < LOOKED and size < SIZE:
            records = await self._runner.store.list_recent(self.server, before, at_once, ended=ended)
            if not records:
                return RecentTasks(found)
            before = records[-1].created
            looked += len(records)
            size += sum(len(bytes(one.params)) + len(bytes(one.result or b"")) for one in records)
            found += [one for one in records if status in (None, one.status)]
        return RecentTasks(found[:limit], found[limit - 1].created if len(found) >= limit else before)

    async def find(self, id: str) -> TaskRecord | None:
        record = await self._runner.store.read(id)
        return None if record is None or record.server != self.server else record

    async def cancel(self, id: str) -> None:
        await self._runner.cancel(id)

    async def answer(self, id: str, answers: Mapping[str, Raw]) -> None:
        await self._runner.answer(id, answers)
