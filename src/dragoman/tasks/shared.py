"""Tasks in the store of a bus, for workers and replicas that share it.

A bus has no transactions. So a task is a log whose newest message is its record, which is changed by appending the next
number or not at all; what leads to a task is written before it, and dropped after it. A process that is killed in
between leaves an entry without a task, which `sweep` finds.

What is exact: a change, who claims a task, the number of tasks of one owner. What is approximate:

- The tasks of all, and those without an owner, are counted as this process has last seen the shards of the ledger: what
  other processes have created since then, which is some seconds, may be above the limit.
- Bytes: of two changes of one task at the same time that make it larger, the ledger may have the size of the other.
- The time: that of the machines' clocks, which have to agree within a second or so. A runner's life is counted by the
  engine.
- The engine may bound a record more than `TaskLimits.record_size` does: NATS takes 1 MiB (`max_payload`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError
from ..store.contract import StoreLost
from . import rules
from .cells import FOREVER, PAUSE, TRIES, Cell, SharedLogs
from .clock import Clock
from .contract import DEFAULTS, LIFE, ClaimedTask, Edit, TaskLimits, TasksFull
from .encoding import Encoding, Seal
from .ledger import (
    SHARDS,
    Ledger,
    LedgerEntry,
    ShardUsage,
    check_shard,
    read_ledger,
    shard_of,
    shard_usage,
    sum_usage,
    write_ledger,
)
from .record import TaskRecord, is_id
from .room import TaskCounts, check_record, counted
from .runners import NAMESPACE, BusRunners

UNSETTLED: Final = 60.0
"""Seconds for which an entry may have no task: it is being created."""
AFTER: Final = 3_600.0
"""Seconds after its time at which the engine drops a task by itself, if nobody has swept."""
VISITS: Final = 8
"""Shards that a sweep looks at."""
CHECKS: Final = 4
"""Entries of a shard of which a sweep checks whether their tasks are there."""
LOOK: Final = 10.0
"""Seconds after which a runner looks through its tasks, for calls that it has missed and tasks that it has no more."""
LOOKS: Final = 200
"""Tasks that it looks at then."""


READ: Final = 4 * 1024 * 1024
"""Bytes of records after which `list_recent` reads no more."""
AT_ONCE: Final = 32
"""Records that it reads at once: no more of them can be read in vain."""


class _Stored(Struct, frozen=True):
    """A task as it is in the store: the number of its record, which counts `size`; None: one that cannot be read."""

    number: int = 0
    size: int = 0
    record: TaskRecord | None = None


class BusTasks:
    """A `TaskStore` on the store of a bus, for one event loop. `life`: seconds that a runner lives after a beat.
    `seal`: encrypts the records."""

    def __init__(
        self,
        logs: SharedLogs,
        limits: TaskLimits = DEFAULTS,
        *,
        life: float = LIFE,
        seal: Seal | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.life: float = life
        self._logs = logs
        self._limits = limits
        self._clock = Clock(clock)
        self._counts = TaskCounts()
        self._encoding = Encoding("tasks on the bus", seal)
        self._runners = BusRunners(logs, life, self._clock.now)
        self._shards = [Cell(logs, f"{NAMESPACE}ledger.{n}", read_ledger, write_ledger) for n in range(SHARDS)]
        self._usage: list[ShardUsage] = []
        """What each shard was seen to have last."""
        self._shard = random.randrange(SHARDS)
        """The next shard to sweep."""
        self._closed = False

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Raise StoreLost if it is closed, and for errors of the bus."""
        if self._closed:
            raise StoreLost("the tasks on the bus: the store is closed")
        try:
            yield
        except StoreLost:
            raise
        except ConnectionError as error:
            raise StoreLost(str(error)) from error
        except TasksFull:
            self._counts.refused += 1
            raise

    async def now(self) -> float:
        """The Unix time by the store's clock, which never goes back."""
        return self._clock.now()

    # -- one task

    async def create(self, record: TaskRecord) -> None:
        """Keep a new task. Raises TasksFull, LocalError for an id that another has."""
        with self._open():
            written = self._encoding.encode(record)
            check_record(self._limits, record.id, written)
            reserved = await self._reserve(record, counted(written))
            if not record.ended:
                await self._runners.add(record.runner, {record.id: record.server})
            try:
                if not await self._append(record, written, 0):
                    raise LocalError(f"there is a task {record.id} already")
            except (LocalError, TasksFull):
                if reserved:
                    await self._shards[shard_of(record.owner, record.id)].change(lambda it: it.drop([record.id]))
                raise
            self._counts.created += 1

    async def _reserve(self, record: TaskRecord, size: int) -> bool:
        """Enter a new task in the ledger, or the new size of one; return whether it is new there. Raises TasksFull."""
        if not self._usage:
            await self._survey()
        id, owner, now = record.id, record.owner, self._clock.now()
        shard = shard_of(owner, id)
        others = sum_usage(one for n, one in enumerate(self._usage) if n != shard)
        new = False

        def edit(ledger: Ledger) -> bool:
            nonlocal new
            entry = ledger.find(owner, id)
            new = entry is None
            more = size if entry is None else size - entry.size
            if entry is not None and not more and entry.until == record.until:
                return False
            check_shard(self._limits, ledger, others, owner, now, new=new, more=more)
            if entry is None:
                ledger.owners.setdefault(owner, []).append(
                    LedgerEntry(id, size, record.until, now, record.created, record.server)
                )
            else:
                entry.size, entry.until = size, record.until
            self._usage[shard] = shard_usage(ledger, now)
            return True

        await self._shards[shard].change(edit)
        return new

    async def _survey(self) -> None:
        """See what all shards have."""
        now = self._clock.now()
        self._usage = [shard_usage(one, now) for one in await asyncio.gather(*[one.read() for one in self._shards])]

    async def _append(self, record: TaskRecord, written: bytes, number: int) -> bool:
        """Store a record after the one with this number; False if it is not the newest. Raises TasksFull."""
        ttl = FOREVER if record.until is None else max(0.0, record.until - self._clock.now()) + AFTER
        try:
            due = await self._logs.append(_key(record.id), written, ttl=ttl, messages=1, number=number + 1)
        except LocalError as error:  # longer than the engine takes
            raise TasksFull(f"the bus takes no record of {len(written)} bytes: {error}") from error
        return due == number + 1

    async def _find(self, id: str) -> _Stored:
        found = await self._logs.read(_key(id))
        if not found:
            return _Stored()
        number, stored = found[-1]
        return _Stored(number, counted(stored), self._encoding.decode(id, stored))

    async def _find_current(self, id: str) -> _Stored:
        """Return a task; one whose time is over has no record."""
        found = await self._find(id)
        return _Stored() if found.record is None or self._over(found.record) else found

    def _over(self, record: TaskRecord) -> bool:
        until = record.until
        return until is not None and until <= self._clock.now()

    async def read(self, id: str) -> TaskRecord | None:
        """Return a task; None where there is none, or its time is over."""
        with self._open():
            return (await self._find_current(id)).record if is_id(id) else None

    async def change(self, id: str, edit: Edit) -> TaskRecord | None:
        """Change a task in one step, unless it has ended; return it as it is then. None where there is none. Raises
        TasksFull, and what `edit` raises."""
        with self._open():
            for turn in range(TRIES if is_id(id) else 0):
                found = await self._find_current(id)
                record = found.record
                made = None if record is None or record.ended else edit(record)
                if record is None or made is None:
                    return record
                rules.check_same(record, made)
                written = self._encoding.encode(made)
                check_record(self._limits, id, written)
                if counted(written) > found.size or made.until != record.until:
                    await self._reserve(made, counted(written))
                if await self._replace(found, made, written):
                    if counted(written) < found.size:
                        await self._reserve(made, counted(written))
                    return made
                if turn > 1:
                    await asyncio.sleep(random.uniform(0, PAUSE))
            if is_id(id):
                raise StoreLost(f"the task {id} is changed by others all the time")
            return None

    async def _replace(self, found: _Stored, made: TaskRecord, written: bytes = b"") -> bool:
        """Store a changed task, unless another process has changed it too."""
        before = found.record
        assert before is not None
        if made.runner != before.runner and not made.ended:
            await self._runners.add(made.runner, {made.id: made.server})
        if not await self._append(made, written or self._encoding.encode(made), found.number):
            return False
        if made.ended or made.runner != before.runner:
            self._runners.drop_later(before.runner, made.id)
        if made.calls_runner and (made.answers != before.answers or made.cancelling != before.cancelling):
            await self._runners.call(made.runner, made.id)
        return True

    async def list_tasks(self, owner: str, after: str, limit: int) -> list[TaskRecord]:
        """Return tasks of an owner, the newest first, those that follow the task `after` ("": from the first). There
        are none where that is not there."""
        with self._open():
            entries = await self._entries(owner)
            if after:
                entries = _following(entries, after)
            found: list[TaskRecord] = []
            while entries and len(found) < limit:
                room = limit - len(found)
                some, entries = entries[:room], entries[room:]
                stored = await asyncio.gather(*[self._find_current(one.id) for one in some])
                found += [one.record for one in stored if one.record is not None and one.record.owner == owner]
            return found

    async def list_recent(
        self, server: str, before: float | None, limit: int, *, ended: bool | None = None
    ) -> list[TaskRecord]:
        """Return the recent tasks of a server, of all owners; see `TaskStore`."""
        with self._open():
            before, now = inf if before is None else before, self._clock.now()
            ledgers = await asyncio.gather(*[one.read() for one in self._shards])
            entries = [
                entry
                for ledger in ledgers
                for entry in ledger.entries()
                if entry.server == server and entry.created < before and not entry.over(now)
            ]
            entries.sort(key=lambda entry: -entry.created)
            found: list[TaskRecord] = []
            left = READ
            while entries and len(found) < limit and (left > 0 or not found):
                some = _within(entries[: min(AT_ONCE, limit)], left)
                entries, left = entries[len(some) :], left - sum(entry.size for entry in some)
                stored = [one.record for one in await asyncio.gather(*[self._find_current(one.id) for one in some])]
                found += [one for one in stored if one is not None and ended in (None, one.ended)]
            return found[:limit]

    async def _entries(self, owner: str) -> list[LedgerEntry]:
        """Return the entries of an owner, the newest first."""
        shards = [self._shards[shard_of(owner, "")]] if owner else self._shards
        ledgers = await asyncio.gather(*[one.read() for one in shards])
        entries = [entry for ledger in ledgers for entry in reversed(ledger.owners.get(owner, []))]
        return entries if owner else sorted(entries, key=lambda entry: -entry.since)

    # -- runners

    async def beat(self, runner: str) -> list[TaskRecord]:
        """Let a runner live for `life` seconds more; return those of its tasks that call it
        (`TaskRecord.calls_runner`)."""
        with self._open():
            await self._runners.let_live(runner)
            calling = await self._look(runner, await self._runners.calls(runner))
            due = await self._runners.due(runner, LOOK, LOOKS)
            await self._settle(runner, {id: one.since for id, one in due.items()})
            calling += await self._look(runner, {*due} - {one.id for one in calling})
            await self._runners.drop_ended()
            return calling

    async def _look(self, runner: str, ids: Iterable[str]) -> list[TaskRecord]:
        """Return those of the tasks that call this runner."""
        calling = []
        for id in ids:
            record = (await self._find_current(id)).record
            if record is not None and record.runner == runner and record.calls_runner:
                self._runners.note_call(runner, id)
                calling.append(record)
            else:
                self._runners.answered(runner, id)
        return calling

    async def _settle(self, runner: str, tasks: Mapping[str, float]) -> None:
        """Drop those of the tasks that this runner has no more. Each has the time since which it may have it."""
        gone = []
        for id, since in tasks.items():
            found = await self._find(id)
            missing = not found.number and since < self._clock.now() - UNSETTLED
            if missing or (found.number and not _runs(found.record, runner)):
                gone.append(id)
        if gone:
            await self._runners.drop(runner, gone)

    async def leave(self, runner: str, handed_over: tuple[str, ...] = ()) -> None:
        """End a runner. These of its tasks wait for another one now; the others are orphans at once."""
        with self._open():
            for id in handed_over:
                while True:
                    found = await self._find(id)
                    record = found.record
                    if record is None or not _runs(record, runner):
                        break
                    if await self._replace(found, rules.handed_over(record)):
                        break
            await self._runners.stop(runner)

    async def claim(self, runner: str, server: str, limit: int) -> list[ClaimedTask]:
        """Give this runner orphans of its server, at most `limit`, and return them. It lives on as after a beat: its
        own tasks are never among them."""
        with self._open():
            await self._runners.let_live(runner)
            claimed: list[ClaimedTask] = []
            for before in ["", *await self._runners.lost()]:
                if before == runner or len(claimed) >= limit:
                    continue
                try:
                    await self._claim_from(before, runner, server, limit, claimed)
                except ConnectionError:
                    if not claimed:
                        raise
                    break  # this runner has some, and is to know of them
            self._counts.claimed += len(claimed)
            return claimed

    async def _claim_from(self, before: str, runner: str, server: str, limit: int, claimed: list[ClaimedTask]) -> None:
        """Claim tasks that this lost runner has, or (""), that wait for one, until there are `limit`."""
        running = await self._runners.running(before)
        ids = [id for id, one in running.items() if one.server == server]
        await self._settle(before, {id: running[id].since for id in ids[:LOOKS]})
        while ids and len(claimed) < limit:
            room = limit - len(claimed)
            some, ids = ids[:room], ids[room:]
            await self._runners.add(runner, dict.fromkeys(some, server))
            for id in some:
                if (record := await self._take(id, before, runner)) is not None:
                    claimed.append(ClaimedTask(record, before))
                else:
                    self._runners.drop_later(runner, id)
        await self._runners.drop_ended()
        if before and not await self._runners.running(before):
            await self._runners.forget(before)

    async def _take(self, id: str, before: str, runner: str) -> TaskRecord | None:
        """Give a task to this runner, which has noted it, if that one still has it."""
        while True:
            found = await self._find_current(id)
            record = found.record
            if record is None or not _runs(record, before):
                return None
            made = rules.claimed(record, runner)
            if await self._append(made, self._encoding.encode(made), found.number):
                self._runners.drop_later(before, id)
                if made.calls_runner:
                    self._runners.note_call(runner, id)
                return made

    # -- what is over

    async def sweep(self, limit: int) -> int:
        """Delete tasks whose time is over, at most `limit`; return their number. One that still runs is failed, and
        deleted by a later sweep."""
        with self._open():
            if not self._usage:
                await self._survey()
            deleted = 0
            for _ in range(VISITS):
                count, rest = await self._sweep_shard(self._shard, limit - deleted)
                deleted += count
                if rest:
                    break
                self._shard = (self._shard + 1) % SHARDS
            await self._runners.drop_ended()
            for runner in ["", *await self._runners.lost()]:
                running = await self._runners.running(runner)
                await self._settle(runner, {id: one.since for id, one in [*running.items()][:LOOKS]})
                if runner and not running:
                    await self._runners.forget(runner)
            self._counts.deleted += deleted
            return deleted

    async def _sweep_shard(self, number: int, limit: int) -> tuple[int, bool]:
        """Delete tasks of a shard whose time is over; return how many, and whether there are more."""
        now = self._clock.now()
        ledger = await self._shards[number].read()
        self._usage[number] = shard_usage(ledger, now)
        over = [entry for entry in ledger.entries() if entry.over(now)]
        gone, deleted = [], 0
        for entry in over[:limit]:
            found = await self._find(entry.id)
            if found.record is not None and not self._over(found.record):  # it was to be changed so, and was not
                await self._reserve(found.record, found.size)
                continue
            if found.record is not None and not found.record.ended:
                await self._replace(found, rules.overdue(found.record, now))
                continue
            gone.append(entry.id)
            deleted += await self._logs.delete(_key(entry.id))
        settled = [one for one in ledger.entries() if not one.over(now) and one.since < now - UNSETTLED]
        for entry in random.sample(settled, min(CHECKS, len(settled))):
            if not await self._logs.read(_key(entry.id)):
                gone.append(entry.id)
        if gone:
            await self._shards[number].change(lambda it: it.drop(gone))
        return deleted, len(over) > limit

    # -- the store

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics, by name."""
        return self._counts.measures()

    async def close(self) -> None:
        """Take no more calls; the bus belongs to whoever opened it."""
        self._closed = True


def _key(id: str) -> str:
    return f"{NAMESPACE}record.{id}"


def _runs(record: TaskRecord | None, runner: str) -> bool:
    """Whether this runner has a task that has not ended."""
    return record is not None and not record.ended and record.runner == runner


def _following(entries: list[LedgerEntry], after: str) -> list[LedgerEntry]:
    """Return the entries that follow this one."""
    at = next((n for n, entry in enumerate(entries) if entry.id == after), len(entries))
    return entries[at + 1 :]


def _within(entries: list[LedgerEntry], size: int) -> list[LedgerEntry]:
    """Return the first of these whose tasks have so many bytes together; at least one."""
    for number, entry in enumerate(entries):
        size -= entry.size
        if size < 0 and number:
            return entries[:number]
    return entries
