"""What every engine of a store keeps, edit by edit; what each does when it is full, slow or broken."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragoman.allowance import Owner
from dragoman.bus.memory import MemoryBus
from dragoman.bus.store import MemoryBusStore as Values
from dragoman.store import StoreFull, StoreLost
from dragoman.store import database as database_module
from dragoman.store import shared as shared_module
from dragoman.store.contract import Change, Edit
from dragoman.store.memory import InMemoryStore
from dragoman.store.shared import SharedStore
from dragoman.store.sqlite import SqliteStore

from .test_store import EACH, opened


class Hands:
    """A clock that stands until it is moved."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def becomes(
    document: bytes | None, until: float | None = None, result: Any = None, *, stranger: Owner | None = None
) -> Change:
    return lambda old: Edit(document, until, result, stranger=stranger)


@EACH
async def test_an_edit_that_changes_nothing_leaves_what_was_and_has_a_result(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (engine, _):
        seen: list[bytes | None] = []

        def looks(old: bytes | None) -> Edit:
            seen.append(old)
            return Edit(b"never", 1.0, len(seen), changed=False)

        def leaves(old: bytes | None) -> Edit:
            seen.append(old)
            return Edit(None, None, "left", changed=False)

        assert await engine.change("a", looks) == 1
        assert await engine.read("a") is None
        assert await engine.change("a", becomes(b"1", result="one")) == "one"
        assert await engine.change("a", looks) == 2
        assert await engine.change("a", leaves) == "left"
        assert await engine.read("a") == b"1"
        assert await engine.change("a", becomes(b"2", result="two")) == "two"
        assert await engine.change("a", becomes(None, result="none")) == "none"
        assert await engine.read("a") is None
        assert seen == [None, b"1", b"1"]


@EACH
async def test_an_edit_that_fails_leaves_what_was_and_blocks_no_other(kind: str, tmp_path: Path) -> None:
    async with opened(kind, tmp_path) as (engine, _):

        def fails(old: bytes | None) -> Edit:
            raise StoreFull("a limit")

        await engine.change("a", becomes(b"1"))
        with pytest.raises(StoreFull, match="a limit"):
            await engine.change("a", fails)
        assert await engine.change("a", becomes(b"2", result=2)) == 2
        assert await engine.read("a") == b"2"


FLOOD, HONEST = Owner("192.0.2.1"), Owner("192.0.2.2")


def bounded(kind: str, folder: Path, owners: int, total: int) -> InMemoryStore | SqliteStore:
    """An engine that bounds what all owners have."""
    hands = Hands()
    if kind == "memory":
        return InMemoryStore(owners, total, hands)
    return SqliteStore(str(folder / "state.db"), owners, total, hands)


async def left(engine: InMemoryStore | SqliteStore, owners: str) -> str:
    """Those of these owners that have something stored."""
    return "".join([owner for owner in owners if await engine.read(owner) is not None])


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_strangers_give_way_and_who_is_known_does_not(kind: str, tmp_path: Path) -> None:
    engine = bounded(kind, tmp_path, 4, 1 << 20)
    await engine.change("a", becomes(b"1"))
    await engine.change("b", becomes(b"1", 2_000.0, stranger=HONEST))
    await engine.change("c", becomes(b"1", 2_001.0, stranger=FLOOD))
    await engine.change("d", becomes(b"1", 2_002.0, stranger=FLOOD))
    await engine.change("e", becomes(b"1", 2_003.0, stranger=FLOOD))
    assert await left(engine, "abcde") == "abde", "the oldest of the address that has most"
    await engine.change("f", becomes(b"1", 2_004.0, stranger=HONEST))
    assert await left(engine, "abdef") == "abef"
    for owner in "ghi":
        await engine.change(owner, becomes(b"1"))
    assert await left(engine, "abefghi") == "aghi", "what is known's stays"
    with pytest.raises(StoreFull, match="limit store_owners"):
        await engine.change("j", becomes(b"1", 2_005.0, stranger=HONEST))
    await engine.change("g", becomes(b"2", 2_006.0, stranger=HONEST))  # from now on a stranger's
    await engine.change("j", becomes(b"1"))
    assert await left(engine, "aghij") == "ahij"
    await engine.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_bytes_of_strangers_give_way_for_others_and_not_for_their_own(kind: str, tmp_path: Path) -> None:
    engine = bounded(kind, tmp_path, 1_000, 100_000)
    for number in range(40):
        await engine.change(f"{number:x}a", becomes(bytes(4_000), 2_000.0 + number, stranger=FLOOD))
    await engine.change("f", becomes(bytes(4_000), 3_000.0, stranger=HONEST))
    await engine.change("e", becomes(bytes(30_000)))
    assert await engine.read("f") is not None
    assert await engine.read("0a") is None
    assert await engine.read(f"{39:x}a") is not None
    with pytest.raises(StoreFull, match="limit store_total"):
        await engine.change("f", becomes(bytes(200_000), 3_000.0, stranger=HONEST))
    assert await engine.read("f") is not None
    await engine.change("d", becomes(bytes(40_000)))
    await engine.change("f", becomes(bytes(4_001), 3_000.0, stranger=HONEST))
    assert [len(await engine.read(owner) or b"") for owner in "def"] == [40_000, 30_000, 4_001]
    await engine.close()


async def test_what_is_too_large_leaves_a_stranger_s_what_it_was() -> None:
    engine = InMemoryStore(10, 100, Hands())
    await engine.change("a", becomes(bytes(60)))
    await engine.change("b", becomes(bytes(20), stranger=HONEST))
    with pytest.raises(StoreFull):
        await engine.change("b", becomes(bytes(50), stranger=HONEST))
    await engine.change("c", becomes(bytes(40)))
    assert [len(await engine.read(owner) or b"") for owner in "abc"] == [60, 0, 40]


async def test_a_file_of_an_earlier_version_is_widened(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as before:
        before.execute(
            "CREATE TABLE documents (owner TEXT PRIMARY KEY, document BLOB NOT NULL, until REAL) WITHOUT ROWID"
        )
        before.execute("INSERT INTO documents VALUES ('a', x'31', NULL)")
    before.close()
    for _ in range(2):
        engine = SqliteStore(str(path), 2, 1 << 20, Hands())
        assert await engine.read("a") == b"1"
        await engine.change("b", becomes(b"1", 2_000.0, stranger=FLOOD))
        await engine.change("c", becomes(b"1", 2_000.0, stranger=FLOOD))
        assert await left(engine, "abc") == "ac"
        await engine.close()


# -- in memory -----------------------------------------------------------------------------------------


async def test_bytes_are_counted_to_the_last_one() -> None:
    engine = InMemoryStore(10, 100)
    await engine.change("a", becomes(bytes(60)))
    await engine.change("a", becomes(bytes(80)))  # in place of the 60
    await engine.change("b", becomes(bytes(20)))
    for owner, size in (("b", 21), ("a", 81), ("c", 1)):
        with pytest.raises(StoreFull, match="all callers together may store 100 bytes"):
            await engine.change(owner, becomes(bytes(size)))
    await engine.change("a", becomes(bytes(10)))
    await engine.change("b", becomes(None))
    await engine.change("c", becomes(bytes(90)))
    assert [len(await engine.read(owner) or b"") for owner in "abc"] == [10, 0, 90]


async def test_owners_are_counted_to_the_last_one() -> None:
    hands = Hands()
    engine = InMemoryStore(2, 1_000, hands)
    await engine.change("a", becomes(b"1", until=1_001.0))
    await engine.change("b", becomes(b"1"))
    await engine.change("a", becomes(b"12", until=1_002.0))
    with pytest.raises(StoreFull, match="2 callers have something stored"):
        await engine.change("c", becomes(b"1"))
    hands.now = 1_001.9
    with pytest.raises(StoreFull, match="2 callers have something stored"):
        await engine.change("c", becomes(b"1"))
    hands.now = 1_002.0
    await engine.change("c", becomes(b"1"))
    assert [await engine.read(owner) for owner in "abc"] == [None, b"1", b"1"]


async def test_what_of_a_caller_has_expired_is_not_counted_twice() -> None:
    """Its old document goes in any case: what it leaves does not count as room beside that."""
    hands = Hands()
    engine = InMemoryStore(10, 100, hands)
    await engine.change("a", becomes(bytes(40), until=1_001.0))
    await engine.change("b", becomes(bytes(50)))
    hands.now += 2
    with pytest.raises(StoreFull, match="all callers together may store 100 bytes"):
        await engine.change("a", becomes(bytes(51)))
    await engine.change("a", becomes(bytes(50)))


# -- in a file -----------------------------------------------------------------------------------------


async def test_owners_of_a_file_are_counted_to_the_last_one(tmp_path: Path) -> None:
    hands = Hands()
    engine = SqliteStore(str(tmp_path / "state.db"), 2, 1 << 20, hands)
    await engine.change("a", becomes(b"1", until=1_001.0))
    await engine.change("b", becomes(b"1"))
    hands.now = 1_000.9
    with pytest.raises(StoreFull, match="2 callers have something stored"):
        await engine.change("c", becomes(b"1"))
    assert await engine.read("a") == b"1"
    hands.now = 1_001.0
    await engine.change("c", becomes(b"1"))
    assert [await engine.read(owner) for owner in "abc"] == [None, b"1", b"1"]
    with pytest.raises(StoreFull, match="2 callers have something stored"):
        await engine.change("d", becomes(b"1"))
    await engine.close()


async def test_a_file_that_another_process_changes_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "PATIENCE", 0.05)
    path = tmp_path / "state.db"
    engine = SqliteStore(str(path), 10, 1 << 20)
    asked: list[str] = []
    await engine._database.run(lambda db: db.set_trace_callback(asked.append))
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLost, match=re.escape(f"store sqlite:{path}: database is locked")):
            await engine.change("a", becomes(b"1"))
        other.execute("ROLLBACK")
    other.close()
    assert asked == ["BEGIN IMMEDIATE"], "it was asked once, and nothing is removed for room"
    assert await engine.change("a", becomes(b"1", result="done")) == "done"
    await engine.close()


async def test_closing_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    before = {*threading.enumerate()}
    engine = SqliteStore(str(path), 10, 1 << 20)
    await engine.change("a", becomes(b"1"))
    assert "dragoman-store" in {one.name for one in {*threading.enumerate()} - before}
    assert str(path) in open_files()
    await engine.close()
    assert "dragoman-store" not in {one.name for one in {*threading.enumerate()} - before}
    assert str(path) not in open_files()
    assert not path.with_name("state.db-wal").exists(), "what was changed is in the file itself"


def open_files() -> set[str]:
    return {one.path for one in psutil.Process().open_files()}


# -- on the bus ----------------------------------------------------------------------------------------


class Steps:
    """Values of which every step waits until it may go, and is noted."""

    def __init__(self, clock: Any = None) -> None:
        self.values = Values(clock or Hands())
        self.went: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    async def _step(self, name: str) -> None:
        self.went.append(name)
        if name in self.gates:
            await self.gates[name].wait()

    async def until(self, name: str, count: int) -> None:
        """Wait until a step was begun so often."""
        async with asyncio.timeout(20):
            while self.went.count(name) < count:  # noqa: ASYNC110  (each turn of the loop is one step)
                await asyncio.sleep(0)

    async def get(self, key: str) -> bytes | None:
        await self._step(f"get {key.rpartition('.')[2]}")
        return self.values.get(key)

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._step(f"put {value.decode()} for {ttl and round(ttl, 3)}")
        self.values.put(key, value, ttl)

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        await self._step(f"lock for {ttl}")
        return self.values.put_new(key, value, ttl)

    async def delete(self, key: str) -> bool:
        await self._step(f"delete {key.rpartition('.')[2]}")
        return self.values.delete(key)


TAKE, LET = "lock for 5.0", ["get lock", "delete lock"]


async def test_a_change_step_by_step() -> None:
    steps, hands = Steps(), Hands()
    engine = SharedStore(steps, hands)
    for edit, what in (
        (becomes(b"1"), ["put 1 for None"]),
        (becomes(b"2", until=hands.now + 7), ["put 2 for 7.0"]),
        (becomes(b"3", until=hands.now - 7), ["put 3 for 0.001"]),
        (becomes(None), ["delete a"]),
        (lambda old: Edit(b"4", None, changed=False), []),
        (lambda old: Edit(None, None, changed=False), []),
    ):
        await engine.change("a", edit)
        assert steps.went == [TAKE, "get a", *what, *LET]
        steps.went.clear()
    assert steps.values.get("dragoman.state.a") is None


async def test_within_a_process_one_change_after_the_other_and_the_lock_is_not_fought_for() -> None:
    steps = Steps()
    engine = SharedStore(steps)
    steps.gates["get a"] = asyncio.Event()
    several = [asyncio.ensure_future(engine.change("a", becomes(b"%d" % n, result=n))) for n in range(3)]
    other = asyncio.ensure_future(engine.change("b", becomes(b"9", result=9)))
    assert await other == 9, "the others do not wait for it"
    assert steps.went.count(TAKE) == 2
    steps.gates.pop("get a").set()
    assert await several[0] == 0
    fourth = asyncio.ensure_future(engine.change("a", becomes(b"3", result=3)))
    assert await asyncio.gather(*several, fourth) == [0, 1, 2, 3]
    assert steps.went.count(TAKE) == 5, "none asked for it twice"
    assert [one for one in steps.went if one.startswith("put")] == [f"put {n} for None" for n in (9, 0, 1, 2, 3)]
    assert engine._locks == {}, "nothing is kept of callers for whom nothing is done"


async def test_who_comes_while_others_wait_waits_with_them() -> None:
    """The second is at work and nothing waits behind it when the third comes."""
    steps = Steps()
    engine = SharedStore(steps)
    gate = steps.gates["get a"] = asyncio.Event()
    first, second = (asyncio.ensure_future(engine.change("a", becomes(b"%d" % n))) for n in range(2))
    await steps.until("get a", 1)
    steps.gates["get a"] = asyncio.Event()  # for the second
    gate.set()
    await first
    await steps.until("get a", 2)
    third = asyncio.ensure_future(engine.change("a", becomes(b"2")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert steps.went.count(TAKE) == 2, "the third has not asked for it"
    steps.gates.pop("get a").set()
    await asyncio.gather(second, third)
    assert steps.values.get("dragoman.state.a") == b"2"
    assert engine._locks == {}


async def test_a_change_that_takes_too_long_is_given_up_and_the_lock_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "HELD", 0.02)
    steps = Steps()
    engine = SharedStore(steps)
    steps.gates["get a"] = asyncio.Event()
    async with asyncio.timeout(20):
        with pytest.raises(StoreLost, match="the store of the bus is too slow for a change"):
            await engine.change("a", becomes(b"1"))
    assert steps.went == ["lock for 0.02", "get a", *LET]
    assert steps.values.get("dragoman.state.a") is None
    assert steps.values.get("dragoman.state.a.lock") is None


async def test_a_lock_is_asked_for_again_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    hands, pauses = Hands(), list[float]()
    steps = Steps(hands)
    steps.values.put("dragoman.state.a.lock", b"another's", 0.4)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        hands.now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await SharedStore(steps).change("a", becomes(b"1"))
    monkeypatch.undo()
    assert pauses[:6] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.05]
    assert set(pauses[5:]) == {0.05}
    assert 0.4 <= sum(pauses) < 0.45
    assert steps.went.count(TAKE) == len(pauses) + 1


async def test_a_lock_that_ended_meanwhile_belongs_to_another() -> None:
    hands = Hands()
    steps = Steps(hands)
    engine = SharedStore(steps, hands)

    def slow(old: bytes | None) -> Edit:
        hands.now += 6
        steps.values.put("dragoman.state.a.lock", b"another's")
        return Edit(b"1", None)

    await engine.change("a", slow)
    assert steps.values.get("dragoman.state.a.lock") == b"another's"


async def test_an_edit_raises_what_it_raises_and_a_bus_that_goes_is_told() -> None:
    bus = MemoryBus("goes")
    assert bus.store is not None
    engine = SharedStore(bus.store)

    def goes(old: bytes | None) -> Edit:
        bus.disconnect()
        return Edit(b"1", None)

    with pytest.raises(StoreLost, match="memory:goes: disconnected"):
        await engine.change("a", goes)
    bus.connect_again()
    assert await engine.read("a") is None
    await bus.close()
