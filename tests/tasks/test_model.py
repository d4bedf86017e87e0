"""A store in a file against a dict: whatever is called in whatever order, both say the same."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, invariant, multiple, rule
from msgspec import Raw, structs

from dragoman.tasks import SqliteTasks, TaskLimits, TaskRecord, TasksFull, rules
from dragoman.tasks.room import counted

from .table import record

T = TypeVar("T")

LIMITS = TaskLimits(tasks=16, tasks_each=5, total=120_000, total_each=30_000, record_size=20_000)
LIFE = 5.0
RUNNERS, OWNERS, SERVERS = ["", "r1", "r2", "r3"], ["", "ann", "bob"], ["reports", "mail"]
PARAMS = st.integers(0, 12_000).map(lambda size: Raw(b'"' + b"x" * size + b'"'))
NEW = st.fixed_dictionaries(
    {
        "owner": st.sampled_from(OWNERS),
        "server": st.sampled_from(SERVERS),
        "runner": st.sampled_from(RUNNERS),
        "keep": st.sampled_from([None, 30.0, 300.0]),
        "params": PARAMS,
    }
)
EDITS: dict[str, Callable[[TaskRecord], TaskRecord | None]] = {
    "progress": lambda found: rules.progressed(found, 1.0, 0.5, None, "half"),
    "ask": lambda found: rules.asked(found, 1.0, {"q": Raw(b"{}")}, "which?"),
    "answer": lambda found: rules.answered(found, 1.0, {"q": Raw(b"1")}),
    "take": lambda found: rules.taken(found, frozenset({"q"})),
    "cancel": rules.cancel_requested,
    "complete": lambda found: rules.completed(found, 1.0, Raw(b'"' + b"y" * 9_000 + b'"')),
    "fail": lambda found: rules.failed(found, 1.0, Raw(b'{"code":1}'), "no"),
    "again": lambda found: rules.begun_again(found, 1.0, lost=True),
    "keep": lambda found: structs.replace(found, keep=None),
    "nothing": lambda found: None,
}


class Clocked:
    """A clock that a rule moves; it stands still otherwise."""

    def __init__(self) -> None:
        self.time = 1_000_000_000.0  # far behind the machine's, so that nothing else moves it

    def __call__(self) -> float:
        return self.time


class Tasks(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clocked()
        self.model: dict[str, TaskRecord] = {}
        self.lives: dict[str, float] = {}
        self.created = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def open(self) -> None:
        path = os.path.join(self.folder.name, "tasks.db")
        self.store = SqliteTasks(path, LIMITS, life=LIFE, clock=self.clock)
        self.store._clock._monotonic = lambda: 0.0

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    # -- the model

    def over(self, found: TaskRecord) -> bool:
        return found.until is not None and found.until <= self.clock.time

    def current(self, id: str) -> TaskRecord | None:
        found = self.model.get(id)
        return None if found is None or self.over(found) else found

    def size(self, found: TaskRecord) -> int:
        return counted(self.store._encoding.encode(found))

    def usage(self, owner: str | None) -> tuple[int, int]:
        mine = [one for one in self.model.values() if owner in (None, one.owner)]
        return len(mine), sum(map(self.size, mine))

    def fits(self, found: TaskRecord, before: TaskRecord | None) -> bool:
        size, (tasks, total), (mine, total_mine) = self.size(found), self.usage(None), self.usage(found.owner)
        more = size - (0 if before is None else self.size(before))
        most, most_size = (LIMITS.tasks_each, LIMITS.total_each) if found.owner else (8, 60_000)
        if len(self.store._encoding.encode(found)) > LIMITS.record_size:
            return False
        if before is None and (tasks >= LIMITS.tasks or mine >= most):
            return False
        return more <= 0 or (total + more <= LIMITS.total and total_mine + more <= most_size)

    def alive(self, runner: str) -> bool:
        return self.lives.get(runner, 0.0) > self.clock.time

    # -- the rules

    @initialize(target=ids, some=st.lists(NEW, min_size=3, max_size=8))
    def begin(self, some: list[dict[str, Any]]) -> MultipleResults[str]:
        self.open()
        return multiple(*[self.make(members) for members in some])

    @rule(target=ids, members=NEW)
    def create(self, members: dict[str, Any]) -> str:
        return self.make(members)

    def make(self, members: dict[str, Any]) -> str:
        self.created += 1
        id = f"t{self.created}"
        made = record(id, now=self.clock.time, **members)
        try:
            self.run(self.store.create(made))
        except TasksFull:
            assert not self.fits(made, None)
        else:
            assert self.fits(made, None)
            self.model[id] = made
        return id

    @rule(id=ids, names=st.lists(st.sampled_from([*EDITS]), min_size=1, max_size=5))
    def change(self, id: str, names: list[str]) -> None:
        for edit in [EDITS[name] for name in names]:
            before = self.current(id)
            made = None if before is None or before.ended else edit(before)
            try:
                found = self.run(self.store.change(id, edit))
            except TasksFull:
                assert made is not None
                assert not self.fits(made, before)
                continue
            if made is not None:
                assert self.fits(made, before)
                self.model[id] = made
            assert found == self.current(id)

    @rule(runner=st.sampled_from(RUNNERS[1:]))
    def beat(self, runner: str) -> None:
        found = self.run(self.store.beat(runner))
        self.lives[runner] = self.clock.time + LIFE
        calling = {id for id, one in self.model.items() if one.runner == runner and one.calls_runner}
        assert {one.id for one in found} == {id for id in calling if self.current(id) is not None}

    @rule(runner=st.sampled_from(RUNNERS[1:]), id=ids, other=ids)
    def leave(self, runner: str, id: str, other: str) -> None:
        ids = (id, other)
        self.run(self.store.leave(runner, ids))
        self.lives.pop(runner, None)
        for id in ids:
            found = self.model.get(id)
            if found is not None and not found.ended and found.runner == runner:
                self.model[id] = rules.handed_over(found)

    @rule(runner=st.sampled_from(RUNNERS[1:]), server=st.sampled_from(SERVERS), limit=st.integers(1, 4))
    def claim(self, runner: str, server: str, limit: int) -> None:
        found = self.run(self.store.claim(runner, server, limit))
        self.lives[runner] = self.clock.time + LIFE
        orphans = {
            id: one.runner
            for id, one in self.model.items()
            if not one.ended and one.server == server and not self.alive(one.runner) and not self.over(one)
        }
        assert len(found) == min(limit, len(orphans))
        for task in found:
            id = task.record.id
            assert orphans[id] == task.before
            self.model[id] = rules.claimed(self.model[id], runner)
            assert task.record == self.model[id]

    @rule(limit=st.integers(1, 4))
    def sweep(self, limit: int) -> None:
        deleted = self.run(self.store.sweep(limit))
        over = sorted((one for one in self.model.values() if self.over(one)), key=lambda one: one.until or 0.0)
        ended = {one.id for one in over if one.ended}
        assert deleted <= min(limit, len(ended))
        there = self.run(self.everything())
        gone = {*self.model} - {*there}
        assert len(gone) == deleted
        assert gone <= ended
        for id, found in there.items():
            if found != self.model[id]:
                assert self.over(self.model[id])
                assert not self.model[id].ended
                assert found.status == "failed"
        assert deleted or not over or any(found != self.model[id] for id, found in there.items())
        self.model = there

    async def everything(self) -> dict[str, TaskRecord]:
        """All records in the file."""
        rows = self.store._database.read(lambda db: db.execute("SELECT id, record FROM tasks").fetchall())
        found = {id: self.store._encoding.decode(id, stored) for id, stored in rows}
        return {id: one for id, one in found.items() if one is not None}

    @rule(seconds=st.sampled_from([0.5, 4.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule()
    def open_again(self) -> None:
        self.run(self.store.close())
        self.open()

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 3))
    def list_pages(self, owner: str, limit: int) -> None:
        found: list[str] = []
        while page := self.run(self.store.list_tasks(owner, found[-1] if found else "", limit)):
            assert len(page) <= limit
            found += [one.id for one in page]
        assert found == [id for id in reversed(self.model) if self.model[id].owner == owner and self.current(id)]

    @invariant()
    def says_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        for id in [*self.model, "t0"]:
            assert self.run(self.store.read(id)) == self.current(id)
        rows = self.store._database.read(lambda db: db.execute("SELECT owner, tasks, size FROM task_owners").fetchall())
        assert {owner: (tasks, size) for owner, tasks, size in rows} == {
            owner: self.usage(owner) for owner in {one.owner for one in self.model.values()}
        }
        [whole] = self.store._database.read(lambda db: db.execute("SELECT tasks, size FROM task_store").fetchall())
        assert whole == self.usage(None)


TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
