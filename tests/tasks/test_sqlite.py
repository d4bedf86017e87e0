"""Tasks in a file of SQLite: what is wrong with the file, processes that end at once, and a model of it all."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from dragoman.jsonrpc.errors import LocalError
from dragoman.store import database
from dragoman.store.contract import StoreLost
from dragoman.tasks import SqliteTasks, TaskLimits, TaskRecord, TasksFull, rules
from dragoman.tasks import sqlite as sqlite_tasks

from .table import record

SMALL = TaskLimits(total=64 * 1024, total_each=64 * 1024)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tasks.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SqliteTasks]:
    made = SqliteTasks(path, SMALL)
    yield made
    await made.close()


def counts(path: str) -> tuple[int, int]:
    """Return how many tasks are in the file by its own count, and how many there are."""
    with closing(sqlite3.connect(path)) as other:
        [(counted,)] = other.execute("SELECT tasks FROM task_store")
        [(there,)] = other.execute("SELECT count(*) FROM tasks")
    return counted, there


CALLS: dict[str, Callable[[SqliteTasks], Awaitable[Any]]] = {
    "create": lambda store: store.create(record("new")),
    "change": lambda store: store.change("t1", rules.cancel_requested),
    "beat": lambda store: store.beat("r1"),
    "claim": lambda store: store.claim("r1", "reports", 1),
    "leave": lambda store: store.leave("r1"),
    "sweep": lambda store: store.sweep(1),
}


async def test_a_full_disk_is_an_error_and_leaves_no_half_state(path: str, store: SqliteTasks) -> None:
    await store.create(record("t1"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE filler (bytes BLOB)")
        other.execute("INSERT INTO filler VALUES (zeroblob(1150000))")
        other.commit()
    made = [record(f"big{n}", params=Raw(b'"' + b"x" * 7_000 + b'"')) for n in range(8)]
    found = await asyncio.gather(*[store.create(one) for one in made], return_exceptions=True)
    kept = [one for one, error in zip(made, found, strict=True) if error is None]
    full = [error for error in found if error is not None]
    assert full
    for error in full:
        assert isinstance(error, TasksFull)
        assert error.refusal.kind == "busy"
        assert "full" in str(error)
    assert counts(path) == (1 + len(kept), 1 + len(kept))
    assert len(await store.list_tasks("ann", "", 20)) == 1 + len(kept)
    await store.beat("r1")
    ended = await store.change("t1", lambda found: rules.completed(found, 1.0, Raw(b"1")))
    assert ended is not None
    assert ended.status == "completed"
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE filler")
        other.commit()
    await store.create(record("later"))


@pytest.mark.parametrize("call", CALLS)
async def test_a_file_that_another_holds_is_lost(path: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    store = SqliteTasks(path)
    await store.create(record("t1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLost, match="database is locked"):
            await CALLS[call](store)
        assert await store.read("t1") is not None
        other.execute("ROLLBACK")
    await CALLS[call](store)
    await store.close()


@pytest.mark.parametrize("call", CALLS)
async def test_a_file_that_was_removed_is_lost(path: str, store: SqliteTasks, call: str) -> None:
    await store.create(record("t1"))
    os.unlink(path)
    with pytest.raises(StoreLost, match="the file was removed or replaced"):
        await CALLS[call](store)


def damage(path: Path) -> None:
    """Write over every page but the first."""
    page, content = 4096, path.read_bytes()
    path.write_bytes(content[:page] + b"\xff" * (len(content) - page))


async def test_a_damaged_file_is_not_opened(path: str) -> None:
    store = SqliteTasks(path)
    await store.create(record("t1"))
    await store.close()
    damage(Path(path))
    with pytest.raises(LocalError, match="malformed"):
        SqliteTasks(path)


async def test_a_record_that_is_damaged_counts_as_missing(
    path: str, store: SqliteTasks, caplog: pytest.LogCaptureFixture
) -> None:
    now = await store.now()
    for n in range(3):
        await store.create(record(f"t{n}", now=now, runner="gone", keep=0.2))
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE tasks SET record = ? WHERE id = 't0'", (b'{"id":',))
        other.execute("UPDATE tasks SET record = (SELECT record FROM tasks WHERE id = 't2') WHERE id = 't1'")
        other.commit()
    for id in ("t0", "t1"):
        assert await store.read(id) is None
        assert await store.change(id, lambda found: pytest.fail("it cannot be read")) is None
    assert "is damaged, or sealed with another key" in caplog.text


OPENED = {
    "text": "file is not a database",
    "later": "were stored by another version of this library",
    "folder": "is a directory",
    "nowhere": "no such file or directory",
    "strange": "no such column|has no column",
}


@pytest.mark.parametrize("kind", OPENED)
async def test_a_file_that_is_no_such_store_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "text":
        path.write_text("this is no database at all" * 100)
    elif kind == "later":
        await SqliteTasks(str(path)).close()
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE task_store SET form = 99")
            other.commit()
    elif kind == "folder":
        path.mkdir()
    elif kind == "strange":
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE tasks (id TEXT)")
    else:
        path = path / "tasks.db"
    with pytest.raises(LocalError, match=OPENED[kind]):
        SqliteTasks(str(path))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Go on as a user that may not write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_file_that_may_not_be_written_is_not_opened() -> None:
    with as_nobody(), tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/tasks.db"
        asyncio.run(SqliteTasks(path).close())
        os.chmod(path, 0o400)
        with pytest.raises(LocalError, match="cannot be opened: permission denied"):
            SqliteTasks(path)


async def test_what_was_stored_is_there_when_it_is_opened_again(path: str) -> None:
    one = SqliteTasks(path, synchronous="FULL")
    await one.create(record("t1"))
    await one.close()
    other = SqliteTasks(path)
    found = await other.read("t1")
    assert isinstance(found, TaskRecord)
    assert counts(path) == (1, 1)
    await other.close()


async def test_the_time_goes_on_from_what_the_file_has_seen(path: str) -> None:
    ahead, behind = SqliteTasks(path, clock=lambda: 5_000_000_000.0), SqliteTasks(path, clock=lambda: 1.0)
    assert await behind.now() < 1_000.0
    await ahead.beat("r1")
    await ahead.create(record("t1", now=await ahead.now(), runner="r1", keep=None))
    assert await behind.claim("r2", "reports", 1) == []  # it sees the time there, by which r1 lives
    assert await behind.now() >= 5_000_000_000.0
    for store in (ahead, behind):
        await store.close()
    later = SqliteTasks(path, clock=lambda: 1.0)
    assert await later.now() >= 5_000_000_000.0
    await later.close()


STATEMENTS = {
    name: text
    for name, text in vars(sqlite_tasks).items()
    if isinstance(text, str) and "tasks" in text.split("WHERE")[0] and "{}" not in text
} | {f"_RECENT_OF {ended}": text for ended, text in sqlite_tasks._RECENT_OF.items()}


@pytest.mark.parametrize(
    "name", [name for name in STATEMENTS if STATEMENTS[name].startswith(("SELECT", "UPDATE", "DELETE"))]
)
def test_no_statement_goes_through_all_tasks(path: str, name: str) -> None:
    asyncio.run(SqliteTasks(path).close())
    text = STATEMENTS[name]
    numbered = [int(number) for number in re.findall(r"\?(\d)", text)]
    values = [None] * (max(numbered) if numbered else text.count("?"))
    with closing(sqlite3.connect(path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert plan
    assert not [step for step in plan if step.startswith("SCAN tasks")]
    if name != "_RECENT_OF False":  # of all tasks, few have not ended
        assert not [step for step in plan if "TEMP B-TREE" in step]
