"""Tasks on a bus that is lost in the middle of a call, at each of its steps: others find everything, and clear up."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw, structs

from dragoman.bus import BusLost, Store
from dragoman.bus.memory import MemoryBus
from dragoman.store.contract import StoreLost
from dragoman.tasks import BusTasks, TaskLimits, TasksFull, rules
from dragoman.tasks.cells import Cell
from dragoman.tasks.ledger import SHARDS
from dragoman.tasks.shared import VISITS
from tests.engines.brokers import name

from .table import Time, record

ROUND = SHARDS // VISITS
"""Sweeps after which each shard was looked at."""
BIG = Raw(b'"' + b"x" * 9_000 + b'"')


class Breaking:
    """A store of a bus whose call of that number is lost: "before" it is done, "after", or because its caller was
    "cancelled" then. Calls after that are lost too, as if the process had ended."""

    def __init__(self, inner: Store, number: int, how: str) -> None:
        self._inner, self._number, self._how = inner, number, how
        self.calls = 0

    def __getattr__(self, verb: str) -> Any:
        async def call(*words: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls > self._number or (self.calls == self._number and self._how == "before"):
                raise BusLost("the bus is away")
            answer = await getattr(self._inner, verb)(*words, **options)
            if self.calls == self._number:
                raise asyncio.CancelledError if self._how == "cancelled" else BusLost("the bus is away")
            return answer

        return call


async def create(store: BusTasks) -> None:
    await store.create(record("new", runner="r1", keep=50.0, now=await store.now()))


async def create_waiting(store: BusTasks) -> None:
    await store.create(record("new", owner="", keep=50.0, now=await store.now()))


async def complete(store: BusTasks) -> None:
    await store.change("t1", lambda found: rules.completed(found, found.created, BIG))


async def cancel(store: BusTasks) -> None:
    await store.change("t1", rules.cancel_requested)


async def claim(store: BusTasks) -> None:
    await store.claim("r2", "reports", 5)


async def leave(store: BusTasks) -> None:
    await store.leave("r1", ("t1",))


async def beat(store: BusTasks) -> None:
    await complete(store)
    await store.beat("r1")


async def sweep(store: BusTasks) -> None:
    for _ in range(ROUND):
        await store.sweep(5)


CALLS: dict[str, Callable[[BusTasks], Awaitable[None]]] = {
    one.__name__: one for one in (create, create_waiting, complete, cancel, claim, leave, beat, sweep)
}
LATER = {"claim": 10.0, "sweep": 100.0}
"""Seconds after which a call is made: when the runner is lost, or the tasks are over."""


@pytest.mark.parametrize("how", ["before", "after", "cancelled"])
@pytest.mark.parametrize("call", CALLS)
async def test_a_bus_that_is_lost_in_a_call_leaves_nothing_behind(call: str, how: str) -> None:
    for number in itertools.count(1):
        clock = Time()
        bus = MemoryBus(name(), clock=clock)
        assert bus.store is not None
        healthy = BusTasks(bus.store, clock=clock)
        await healthy.beat("r1")
        for id in ("t1", "t2"):
            await healthy.create(record(id, runner="r1", keep=50.0, now=await healthy.now()))
        clock.ahead += LATER.get(call, 0.0)
        breaking = Breaking(bus.store, number, how)
        lost: list[BaseException] = []
        try:
            await CALLS[call](BusTasks(breaking, clock=clock))
        except (StoreLost, asyncio.CancelledError) as error:
            lost.append(error)
        await recover(bus.store, clock, call != "sweep")
        await bus.close()
        if not lost:
            assert number > 1
            return


async def recover(store: Store, clock: Time, claimable: bool) -> None:
    """See in another process that each task that has not ended can be claimed, and that nothing is left in the end."""
    other = BusTasks(store, clock=clock)
    clock.ahead += 10.0  # whoever ran the call is lost
    there = [one for one in [await other.read(id) for id in ("t1", "t2", "new")] if one is not None]
    assert len(there) >= 2 or not claimable
    claimed: list[str] = []
    for _ in range(4):
        claimed += [task.record.id for task in await other.claim("r9", "reports", 5)]
    assert sorted(claimed) == sorted(one.id for one in there if not one.ended)
    await other.beat("r9")
    for id in claimed:
        await other.change(id, lambda found: rules.completed(found, found.created, Raw(b"1")))
    clock.ahead += 1_000.0
    for _ in range(4 * ROUND):
        clock.ahead += 10.0
        await other.beat("r9")
        await other.sweep(5)
    assert [entry for cell in other._shards for entry in (await cell.read()).entries()] == []
    for runner in ("", "r1", "r2", "r9"):
        assert await other._runners.running(runner) == {}
    assert await other._runners._names.read() == ["r9"]
    for id in ("t1", "t2", "new"):
        assert await store.read(f"dragoman.task.record.{id}") == []


async def test_an_entry_without_a_task_is_dropped_and_no_other() -> None:
    """Of tasks that are kept for ever no time is over."""
    clock = Time()
    bus = MemoryBus(name(), clock=clock)
    assert bus.store is not None
    limits = TaskLimits(tasks_each=3)
    store = BusTasks(bus.store, limits, clock=clock)
    for id in ("t1", "t2"):
        await store.create(record(id, keep=None))
    await store._reserve(record("never", keep=None), 4096)
    with pytest.raises(TasksFull):
        await store.create(record("t3", keep=None))
    clock.ahead += 100.0
    for _ in range(ROUND):
        await store.sweep(5)
    await store.create(record("t3", keep=None))
    assert [one.id for one in await store.list_tasks("ann", "", 5)] == ["t3", "t2", "t1"]
    await bus.close()


async def test_a_task_whose_entry_ends_before_it_is_kept() -> None:
    """A change of its time was noted in the ledger, and then lost."""
    clock = Time()
    bus = MemoryBus(name(), clock=clock)
    assert bus.store is not None
    store = BusTasks(bus.store, clock=clock)
    made = record("t1", keep=1_000.0)
    await store.create(made)
    await store._reserve(structs.replace(made, keep=10.0), 4096)
    clock.ahead += 100.0
    for _ in range(2 * ROUND):
        assert await store.sweep(5) == 0
    assert [one.id for one in await store.list_tasks("ann", "", 5)] == ["t1"]
    clock.ahead += 1_000.0
    await store.change("t1", lambda found: rules.cancelled(found, 1.0, ""))
    assert sum([await store.sweep(5) for _ in range(3 * ROUND)]) == 1
    await bus.close()


async def test_a_call_that_was_not_noted_is_found() -> None:
    clock = Time()
    bus = MemoryBus(name(), clock=clock)
    assert bus.store is not None
    store = BusTasks(bus.store, clock=clock)
    await store.beat("r1")
    await store.create(record("t1", runner="r1"))
    await BusTasks(bus.store, clock=clock).change("t1", rules.cancel_requested)
    await bus.store.delete("dragoman.task.calls.r1")
    assert await store.beat("r1") == []
    clock.ahead += 11.0
    assert [one.id for one in await store.beat("r1")] == ["t1"]
    assert [one.id for one in await store.beat("r1")] == ["t1"]
    await bus.close()


async def test_a_cell_takes_all_changes_of_many_at_once() -> None:
    bus = MemoryBus(name())
    assert bus.store is not None
    cells = [Cell(bus.store, "cell", lambda written: [*written], bytes) for _ in range(3)]

    def add(number: int) -> Callable[[list[int]], bool]:
        def edit(value: list[int]) -> bool:
            if number % 10 == 3:
                raise LookupError(number)
            value.append(number)
            return True

        return edit

    found = await asyncio.gather(*[cells[n % 3].change(add(n)) for n in range(200)], return_exceptions=True)
    assert [n for n, error in enumerate(found) if error is not None] == [n for n in range(200) if n % 10 == 3]
    assert sorted(await cells[0].read()) == [n for n in range(200) if n % 10 != 3]
    await bus.close()


async def test_a_cell_goes_on_where_a_caller_is_cancelled() -> None:
    bus = MemoryBus(name())
    assert bus.store is not None
    permits, calls = asyncio.Semaphore(0), asyncio.Queue[str]()

    class Held:
        """A store of a bus that answers one call for each permit."""

        def __init__(self, inner: Store) -> None:
            self._inner = inner

        def __getattr__(self, verb: str) -> Any:
            async def call(*words: Any, **options: Any) -> Any:
                calls.put_nowait(verb)
                await permits.acquire()
                return await getattr(self._inner, verb)(*words, **options)

            return call

    held: Any = Held(bus.store)
    cell = Cell(held, "cell", lambda written: {*written}, bytes)

    def add(number: int) -> Callable[[set[int]], bool]:
        def edit(value: set[int]) -> bool:
            before = len(value)
            value.add(number)
            return len(value) > before

        return edit

    changes = [asyncio.ensure_future(cell.change(add(n))) for n in range(6)]
    for verb in ("read", "append"):  # the first alone
        assert await calls.get() == verb
        permits.release()
    assert await calls.get() == "append"  # the second, for all others
    for n in (1, 3):
        changes[n].cancel()
    for _ in range(10):
        permits.release()
    done = await asyncio.gather(*changes, return_exceptions=True)
    assert [n for n, one in enumerate(done) if one is not None] == [1, 3]
    assert {0, 2, 4, 5} <= await cell.read()
    await bus.close()
