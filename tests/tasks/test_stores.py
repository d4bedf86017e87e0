"""What every store of tasks promises (`dragoman.tasks.contract`), for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from dragoman.jsonrpc.errors import LocalError
from dragoman.store.contract import StoreLost
from dragoman.tasks import TaskLimits, TaskRecord, TasksFull, rules
from tests.engines.brokers import Engine, name

from .table import InFile, InMemory, OnBus, Row, on_hub, record, until

QUESTION = {"q": Raw(b'{"method":"elicitation/create"}')}
ANSWER = {"q": Raw(b'{"action":"accept"}')}


@pytest.fixture(params=["memory", "file", "bus-memory", "bus-sealed", "bus-unix", "bus-redis", "bus-nats"])
async def row(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Row]:
    made: Row
    if request.param == "memory":
        made = InMemory()
    elif request.param == "file":
        made = InFile(tmp_path)
    elif request.param == "bus-memory":
        made = OnBus(f"memory:{name()}")
    elif request.param == "bus-sealed":
        made = OnBus(f"memory:{name()}", secrets=[b"a secret of the tests"])
    elif request.param == "bus-unix":
        made = await on_hub(tmp_path)
    else:
        kind = request.param.removeprefix("bus-")
        engine: Engine = request.getfixturevalue(kind)
        made = OnBus(f"{engine.url}?prefix={name('tasks')}{':' if kind == 'redis' else ''}")
    yield made
    await made.close()


def same(one: TaskRecord | None, other: TaskRecord | None) -> bool:
    """Whether two records say the same: Raw members have no equality."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def ids(records: list[TaskRecord]) -> list[str]:
    return [one.id for one in records]


async def test_a_task_is_read_as_it_was_created_by_whoever_shares_the_store(row: Row) -> None:
    one, other = await row.open(), await row.open()
    made = record(
        "t1",
        name="render",
        message="begun \N{SNOWMAN}",
        caller=Raw(b'{"subject":"ann"}'),
        revision="2026-07-28",
        progress=0.5,
        total=2.0,
        questions=QUESTION,
        answers={"z": Raw(b"[1, 2]")},
        idempotent=True,
        runs=2,
        runner="r1",
    )
    await one.create(made)
    assert same(await other.read("t1"), made)
    assert await other.read("t2") is None
    with pytest.raises(LocalError, match="there is a task t1 already"):
        await one.create(record("t1"))


async def test_a_change_is_seen_by_all_and_none_is_lost(row: Row) -> None:
    one, other = await row.open(), await row.open()
    await one.create(record("t1"))

    def count(found: TaskRecord) -> TaskRecord:
        return structs.replace(found, progress=(found.progress or 0) + 1)

    await asyncio.gather(*[store.change("t1", count) for store in (one, other) for _ in range(25)])
    found = await one.read("t1")
    assert found is not None
    assert found.progress == 50


async def test_a_change_returns_the_task_as_it_is_then(row: Row) -> None:
    store = await row.open()
    await store.create(record("t1"))
    asked = await store.change("t1", lambda found: rules.asked(found, 5.0, QUESTION, "which one?"))
    assert asked is not None
    assert (asked.status, asked.message, [*asked.questions]) == ("input_required", "which one?", ["q"])
    assert same(await store.change("t1", lambda found: None), asked)
    assert same(await store.read("t1"), asked)
    assert await store.change("t2", lambda found: pytest.fail("there is no such task")) is None


async def test_what_an_edit_raises_comes_back_and_changes_nothing(row: Row) -> None:
    store = await row.open()
    made = record("t1")
    await store.create(made)

    def fails(found: TaskRecord) -> TaskRecord:
        raise LookupError(found.id)

    with pytest.raises(LookupError, match="t1"):
        await store.change("t1", fails)
    with pytest.raises(LocalError, match="keeps its id, owner and server"):
        await store.change("t1", lambda found: structs.replace(found, owner="bob"))
    assert same(await store.read("t1"), made)


ENDINGS = {
    "completed": lambda found: rules.completed(found, 9.0, Raw(b'{"content":[]}')),
    "completed-null": lambda found: rules.completed(found, 9.0, Raw(b"null")),
    "failed": lambda found: rules.failed(found, 9.0, Raw(b'{"code":-32603,"message":"no"}'), "no"),
    "cancelled": lambda found: rules.cancelled(found, 9.0, "by its caller"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_task_that_has_ended_is_never_changed(row: Row, ending: str) -> None:
    one, other = await row.open(), await row.open()
    await one.create(record("t1", runner="r1", questions=QUESTION))
    ended = await one.change("t1", ENDINGS[ending])
    assert ended is not None
    assert ended.status == ending.partition("-")[0]
    again = await other.change("t1", lambda found: pytest.fail("it has ended"))
    assert same(again, ended)
    assert same(await other.read("t1"), ended)


async def test_of_two_endings_at_once_one_counts(row: Row) -> None:
    one, other = await row.open(), await row.open()
    for n in range(10):
        id = f"t{n}"
        await one.create(record(id))
        done, gone = await asyncio.gather(
            one.change(id, lambda found: rules.completed(found, 9.0, Raw(b"1"))),
            other.change(id, lambda found: rules.cancelled(found, 9.0, "no")),
        )
        assert same(done, gone)
        assert same(done, await one.read(id))


async def test_tasks_of_an_owner_are_listed_newest_first(row: Row) -> None:
    one, other = await row.open(), await row.open()
    for n in range(7):
        await one.create(record(f"ann{n}"))
        await other.create(record(f"bob{n}", owner="bob"))
    assert ids(await other.list_tasks("ann", "", 3)) == ["ann6", "ann5", "ann4"]
    assert ids(await one.list_tasks("ann", "ann4", 3)) == ["ann3", "ann2", "ann1"]
    assert ids(await one.list_tasks("ann", "ann1", 3)) == ["ann0"]
    assert await one.list_tasks("ann", "ann0", 3) == []
    assert await one.list_tasks("ann", "bob3", 3) == []
    assert await one.list_tasks("eve", "", 3) == []


async def test_recent_tasks_of_a_server_are_those_of_all_owners_newest_first(row: Row) -> None:
    one, other = await row.open(), await row.open()
    now = await one.now()
    for n, owner in enumerate(("ann", "", "bob", "ann", "eve")):
        await one.create(record(f"t{n}", owner=owner, created=now + n, updated=now + n, keep=None, runner="r1"))
    await one.create(record("mail", server="mail", created=now + 9, keep=None))
    await one.create(record("over", created=now - 50, keep=10.0))
    await one.change("t1", lambda found: rules.completed(found, now, Raw(b"1")))
    await one.change("t3", lambda found: rules.handed_over(found))

    async def recent(before: float | None, limit: int, ended: bool | None = None) -> list[str]:
        return ids(await other.list_recent("reports", before, limit, ended=ended))

    assert await recent(None, 10) == ["t4", "t3", "t2", "t1", "t0"]
    assert await recent(None, 2) == ["t4", "t3"]
    assert await recent(now + 3, 2) == ["t2", "t1"]
    assert await recent(now, 2) == []
    assert await recent(None, 10, True) == ["t1"]
    assert await recent(None, 3, False) == ["t4", "t3", "t2"]
    assert await recent(now + 2, 3, False) == ["t0"]
    assert await other.list_recent("nothing", None, 9) == []


async def test_large_tasks_come_a_few_at_a_time_and_none_is_left_out(row: Row) -> None:
    store = await row.open()
    now = await store.now()
    large = Raw(b'"' + b"x" * 900_000 + b'"')  # NATS takes a MiB
    for n in range(7):
        await store.create(record(f"t{n}", created=now + n, keep=None, params=large))
    seen: list[str] = []
    before = None
    while found := await store.list_recent("reports", before, 9):
        assert len(found) < 7
        seen += ids(found)
        before = found[-1].created
    assert seen == ["t6", "t5", "t4", "t3", "t2", "t1", "t0"]


# -- runners --------------------------------------------------------------------------------------


async def test_a_beat_returns_the_tasks_that_call_their_runner(row: Row) -> None:
    one, other = await row.open(), await row.open()
    assert await one.beat("r1") == []
    for n in range(4):
        await one.create(record(f"t{n}", runner="r1"))
    await one.create(record("t9", runner="r2"))
    for id in ("t1", "t9"):
        await other.change(id, rules.cancel_requested)
    await other.change("t2", lambda found: rules.asked(found, 1.0, QUESTION, ""))
    await other.change("t2", lambda found: rules.answered(found, 1.0, ANSWER))
    await other.change("t3", rules.cancel_requested)
    await other.change("t3", lambda found: rules.cancelled(found, 1.0, ""))
    assert sorted(ids(await one.beat("r1"))) == ["t1", "t2"]
    assert sorted(ids(await one.beat("r1"))) == ["t1", "t2"]
    await one.change("t2", lambda found: rules.taken(found, frozenset({"q"})))
    assert ids(await one.beat("r1")) == ["t1"]


async def test_tasks_of_a_runner_that_lives_are_nobodys_to_claim(row: Row) -> None:
    one, other = await row.open(), await row.open()
    await one.beat("r1")
    await one.create(record("t1", runner="r1"))
    assert await other.claim("r2", "reports", 10) == []
    assert await one.claim("r1", "reports", 10) == []


async def test_tasks_of_a_runner_that_lives_no_more_are_claimed_once(row: Row) -> None:
    one, other = await row.open(life=0.5), await row.open(life=0.5)
    await one.beat("r1")
    for n in range(12):
        await one.create(record(f"t{n}", runner="r1", server="reports" if n % 2 else "mail"))
    await one.change("t1", lambda found: rules.completed(found, 9.0, Raw(b"1")))
    await row.pass_time(1.0)
    found = await until(lambda: other.claim("r2", "reports", 2))
    assert {(one.before, one.record.runner) for one in found} == {("r1", "r2")}
    more = await asyncio.gather(one.claim("r3", "reports", 2), other.claim("r2", "reports", 9))
    got = sorted(task.record.id for some in [found, *more] for task in some)
    assert got == ["t11", "t3", "t5", "t7", "t9"]
    read = await one.read(found[0].record.id)
    assert read is not None
    assert read.runner == "r2"


async def test_the_last_beat_counts(row: Row) -> None:
    one, other = await row.open(life=30.0), await row.open(life=30.0)
    await one.beat("r1")
    await one.create(record("t1", runner="r1"))
    await row.pass_time(20.0)
    await one.beat("r1")
    await row.pass_time(20.0)
    assert await other.claim("r2", "reports", 10) == []


async def test_a_task_of_a_runner_that_never_lived_is_an_orphan(row: Row) -> None:
    store = await row.open()
    await store.create(record("t1", runner="r1"))
    await store.create(record("t2"))
    found = await store.claim("r2", "reports", 10)
    assert sorted((one.record.id, one.before) for one in found) == [("t1", "r1"), ("t2", "")]


async def test_a_runner_that_leaves_hands_its_tasks_over(row: Row) -> None:
    one, other = await row.open(), await row.open()
    for runner in ("r1", "r2"):
        await one.beat(runner)
    for id, runner in [("t1", "r1"), ("t2", "r1"), ("t3", "r1"), ("t4", "r2")]:
        await one.create(record(id, runner=runner))
    await one.change("t3", lambda found: rules.completed(found, 9.0, Raw(b"1")))
    await one.leave("r1", ("t1", "t3", "t4", "t5"))
    found = await other.claim("r3", "reports", 10)
    assert sorted((one.record.id, one.before) for one in found) == [("t1", ""), ("t2", "r1")]
    await one.beat("r1")
    assert await other.claim("r3", "reports", 10) == []


async def test_two_that_claim_at_once_share_no_task(row: Row) -> None:
    one, other = await row.open(), await row.open()
    for n in range(40):
        await one.create(record(f"t{n}"))
    got: list[str] = []

    async def claim(store: int, runner: str) -> None:
        while found := await (one, other)[store].claim(runner, "reports", 3):
            assert {task.record.runner for task in found} == {runner}
            got.extend(task.record.id for task in found)

    await asyncio.gather(*[claim(n % 2, f"r{n}") for n in range(6)])
    assert sorted(got) == sorted(f"t{n}" for n in range(40))


# -- its end --------------------------------------------------------------------------------------


async def test_a_task_is_not_deleted_before_its_time_and_is_gone_after_it(row: Row) -> None:
    store = await row.open()
    now = await store.now()
    await store.create(record("short", now=now, keep=50.0))
    await store.create(record("long", now=now, keep=500.0))
    await store.create(record("ever", now=now, keep=None))
    for id in ("short", "long", "ever"):
        await store.change(id, lambda found: rules.completed(found, now, Raw(b"1")))
    assert await store.sweep(10) == 0
    assert len(await store.list_tasks("ann", "", 10)) == 3
    await row.pass_time(100.0)
    assert await store.read("short") is None
    assert await store.change("short", lambda found: pytest.fail("its time is over")) is None
    assert ids(await store.list_tasks("ann", "", 10)) == ["ever", "long"]
    assert await until(lambda: store.sweep(10)) == 1
    await row.pass_time(1_000.0)
    assert await until(lambda: store.sweep(10)) == 1
    assert ids(await store.list_tasks("ann", "", 10)) == ["ever"]


async def test_a_task_that_still_runs_at_its_end_is_failed_and_then_deleted(row: Row) -> None:
    store = await row.open()
    await store.beat("r1")
    now = await store.now()
    await store.create(record("t1", now=now, keep=50.0, runner="r1"))
    await store.change("t1", rules.cancel_requested)
    await row.pass_time(100.0)
    assert await store.read("t1") is None
    assert await store.beat("r1") == []
    assert await store.claim("r2", "reports", 10) == []
    assert await until(lambda: store.sweep(10)) == 1
    assert await store.sweep(10) == 0


async def test_a_sweep_is_bounded(row: Row) -> None:
    store = await row.open()
    now = await store.now()
    for n in range(10):
        await store.create(record(f"t{n}", now=now, keep=50.0))
        await store.change(f"t{n}", lambda found: rules.completed(found, now, Raw(b"1")))
    await row.pass_time(100.0)
    swept = [0]
    async with asyncio.timeout(20):
        while sum(swept) < 10:
            swept.append(await store.sweep(4))
    assert max(swept) == 4
    assert await store.list_tasks("ann", "", 10) == []


async def test_the_time_never_goes_back(row: Row) -> None:
    one = await row.open()
    await row.pass_time(1_000.0)
    before = await one.now()
    row.clock.ahead = 0.0
    assert await one.now() >= before


# -- limits ---------------------------------------------------------------------------------------

BIG = Raw(b'"' + b"x" * 10_000 + b'"')
LIMITS = TaskLimits(tasks=10, tasks_each=4, record_size=30_000, total=100_000, total_each=25_000)


async def test_tasks_of_one_owner_and_in_all_are_bounded_in_number(row: Row) -> None:
    store = await row.open(LIMITS)
    for n in range(4):
        await store.create(record(f"ann{n}"))
        await store.create(record(f"bob{n}", owner="bob"))
    with pytest.raises(TasksFull, match="this caller has 4 tasks; limit tasks_each allows 4") as full:
        await store.create(record("ann5"))
    assert full.value.refusal.kind == "too_large"
    await store.create(record("cid0", owner="cid"))
    await store.create(record("cid1", owner="cid"))
    with pytest.raises(TasksFull, match="there are 10 tasks in all; limit tasks allows 10") as full:
        await store.create(record("cid2", owner="cid"))
    assert full.value.refusal.kind == "busy"
    assert await store.read("ann5") is None
    assert await store.read("cid2") is None


async def test_tasks_without_an_owner_may_be_half_of_all(row: Row) -> None:
    store = await row.open(LIMITS)
    for n in range(5):
        await store.create(record(f"t{n}", owner=""))
    with pytest.raises(TasksFull, match="have 5 tasks; limit tasks allows them 5, half of all"):
        await store.create(record("t5", owner=""))
    await store.create(record("ann"))


async def test_bytes_are_bounded_for_one_task_one_owner_and_in_all(row: Row) -> None:
    store = await row.open(LIMITS)
    with pytest.raises(TasksFull, match="limit record_size allows 30000"):
        await store.create(record("huge", params=Raw(b'"' + b"x" * 30_000 + b'"')))
    for owner in ("a", "b", "c", "d"):
        for n in range(2):
            await store.create(record(f"{owner}{n}", owner=owner, params=BIG))
    with pytest.raises(
        TasksFull, match="the tasks of this caller would have above 25000 bytes, which limit total_each"
    ):
        await store.create(record("a3", owner="a", params=BIG))
    await store.create(record("e0", owner="e", params=BIG))
    with pytest.raises(TasksFull, match="all tasks together would have above 100000 bytes, which limit total allows"):
        await store.create(record("e1", owner="e", params=BIG))
    with pytest.raises(TasksFull, match="total_each"):
        await store.change("a0", lambda found: rules.completed(found, 1.0, Raw(b'"' + b"x" * 15_000 + b'"')))
    found = await store.read("a0")
    assert found is not None
    assert found.status == "working"


async def test_a_record_that_the_engine_does_not_take_is_refused(nats: Engine) -> None:
    row = OnBus(f"{nats.url}?prefix={name('tasks')}")
    store = await row.open()
    large = Raw(b'"' + b"x" * (2 << 20) + b'"')
    with pytest.raises(TasksFull, match="the bus takes no record of"):
        await store.create(record("t1", params=large))
    await store.create(record("t1"))
    with pytest.raises(TasksFull, match="the bus takes no record of"):
        await store.change("t1", lambda found: rules.completed(found, 1.0, large))
    assert ids(await store.list_tasks("ann", "", 10)) == ["t1"]
    await row.close()


async def test_a_full_store_has_room_for_short_endings(row: Row) -> None:
    limits = TaskLimits(tasks=10, tasks_each=10, total=10 * 4096, total_each=10 * 4096)
    store = await row.open(limits)
    for n in range(10):
        await store.create(record(f"t{n}"))
    error = Raw(msgspec.json.encode({"code": -32603, "message": "x" * 1_000}))
    for n in range(10):
        ended = await store.change(f"t{n}", lambda found: rules.failed(found, 1.0, error, "y" * 1_000))
        assert ended is not None
        assert ended.status == "failed"


async def test_deleted_tasks_make_room(row: Row) -> None:
    store = await row.open(TaskLimits(tasks=4, tasks_each=4, total=50_000, total_each=50_000))
    for turn in range(3):
        now = await store.now()
        for n in range(4):
            await store.create(record(f"t{turn}{n}", now=now, keep=50.0, params=BIG))
        for n in range(4):
            await store.change(f"t{turn}{n}", lambda found: rules.cancelled(found, found.updated, ""))
        await row.pass_time(100.0)
        swept = 0
        while swept < 4:
            swept += await store.sweep(10)


async def test_a_closed_store_says_so(row: Row) -> None:
    store = await row.open()
    await store.create(record("t1"))
    await store.close()
    for call in (
        store.create(record("t2")),
        store.read("t1"),
        store.change("t1", rules.cancel_requested),
        store.list_tasks("ann", "", 1),
        store.list_recent("reports", None, 1),
        store.beat("r1"),
        store.leave("r1"),
        store.claim("r1", "reports", 1),
        store.sweep(1),
    ):
        with pytest.raises(StoreLost, match="closed"):
            await call


async def test_it_counts_what_it_does(row: Row) -> None:
    one, other = await row.open(TaskLimits(tasks_each=2)), await row.open(TaskLimits(tasks_each=2))
    now = await one.now()
    for n in range(2):
        await one.create(record(f"t{n}", now=now, keep=50.0))
    with pytest.raises(TasksFull):
        await one.create(record("t2"))
    assert len(await other.claim("r1", "reports", 10)) == 2
    for n in range(2):
        await one.change(f"t{n}", lambda found: rules.cancelled(found, now, ""))
    await row.pass_time(100.0)
    await until(lambda: other.sweep(10))
    assert {name: one.measures()[f"task_store_{name}_total"] for name in ("created", "refused")} == {
        "created": 2,
        "refused": 1,
    }
    assert {name: other.measures()[f"task_store_{name}_total"] for name in ("claimed", "deleted")} == {
        "claimed": 2,
        "deleted": 2,
    }
