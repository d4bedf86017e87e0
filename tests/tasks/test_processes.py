"""Processes that share a store and are killed: nothing that was said is lost, and each orphan goes to one of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Raw

from dragoman.bus import open_bus
from dragoman.bus.hub import open_hub
from dragoman.tasks import TaskStore, open_tasks
from tests.engines.brokers import Engine, name

from .table import record, until
from .worker import LIFE

PATIENCE = 40.0


@pytest.fixture(params=["file", "unix", "redis", "nats"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """What the processes share."""
    if request.param == "file":
        yield f"sqlite:{tmp_path}/tasks.db"
    elif request.param == "unix":
        hub = await open_hub(str(tmp_path / "bus.sock"))
        yield hub.url
        await hub.close()
    else:
        engine: Engine = request.getfixturevalue(request.param)
        yield f"{engine.url}?prefix={name('tasks')}{':' if request.param == 'redis' else ''}"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[TaskStore]:
    """The store in this process."""
    bus = None if url.startswith("sqlite:") else await open_bus(url)
    store = open_tasks(url if bus is None else "bus", bus=bus, life=LIFE)
    try:
        yield store
    finally:
        await store.close()
        if bus is not None:
            await bus.close()


class Worker:
    """A process of `tests.tasks.worker`. `said`: its whole lines, as words."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[list[str]] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while (line := await self.process.stdout.readline()).endswith(b"\n"):
            self.said.append(line.decode().split())

    def having(self, verb: str) -> list[str]:
        return [said[1] for said in self.said if said[0] == verb]

    async def until(self, enough: Callable[[Worker], bool]) -> None:
        async def look() -> bool:
            assert self.process.returncode is None
            return enough(self)

        await until(look, PATIENCE)

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading


async def worker(url: str, verb: str, runner: str) -> Worker:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.tasks.worker", url, verb, runner, stdout=asyncio.subprocess.PIPE
    )
    return Worker(process)


async def test_a_kill_loses_nothing_that_was_said(url: str) -> None:
    writers = [await worker(url, "write", f"w{n}") for n in range(2)]
    try:
        for turn in range(2):
            await writers[turn].until(lambda one: len(one.having("completed")) >= 60)
            await writers[turn].kill()
    finally:
        for one in writers:
            await one.kill()
    async with opened(url) as store:
        for one in writers:
            completed = {*one.having("completed")}
            for id in one.having("created"):
                found = await store.read(id)
                assert found is not None
                assert found.status == "completed" or id not in completed
                if id in completed:
                    assert found.result == Raw(b'"%d"' % int(id.partition("-")[2]))


async def test_orphans_are_claimed_once_by_those_that_live(url: str) -> None:
    lost = await worker(url, "write", "lost")
    claimers: list[Worker] = []
    try:
        await lost.until(lambda one: len(one.having("created")) >= 40)
        await lost.kill()
        claimers = [await worker(url, "claim", f"c{n}") for n in range(3)]
        orphans = {*lost.having("created")} - {*lost.having("completed")}

        async def all_claimed() -> bool:
            return orphans <= {id for one in claimers for id in one.having("claimed")}

        async with opened(url) as store:
            # of those whose completion was not said some were completed
            working = {id for id in orphans if (found := await store.read(id)) is not None and not found.ended}
            orphans = working
            assert orphans
            await until(all_claimed, PATIENCE)
            claimed = [id for one in claimers for id in one.having("claimed")]
            assert len(claimed) == len({*claimed})
            for one in claimers:
                for id in one.having("claimed"):
                    found = await store.read(id)
                    assert found is not None
                    assert found.runner == one.having("ready")[0]
    finally:
        for one in claimers:
            await one.kill()


async def test_an_orphan_is_claimed_again_when_who_claimed_it_is_killed(url: str) -> None:
    async with opened(url) as store:
        await store.create(record("t1", runner="nobody"))
        for n in range(2):
            one = await worker(url, "claim", f"c{n}")
            await one.until(lambda one: one.having("claimed") == ["t1"])
            await one.kill()
        [task] = await until(lambda: store.claim("last", "reports", 5), PATIENCE)
        assert (task.record.id, task.before) == ("t1", "c1")
