"""The file of SQLite with one thread that writes: groups, their errors, several processes."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.jsonrpc.errors import LocalError
from dragoman.store.contract import StoreLost
from dragoman.store.database import IN_MEMORY, Database, DatabaseFull


def table(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID")


def opened(path: str, size: int | None = None) -> Database:
    return Database(path, table, what=f"rows in {path}", size=size)


def names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM rows ORDER BY name")]


def put(name: str, value: bytes = b"") -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO rows VALUES (?, ?)", (name, value)).rowcount


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return IN_MEMORY if request.param == "memory" else str(tmp_path / "rows.db")


async def test_writes_that_wait_together_are_all_committed(path: str) -> None:
    one = opened(path)
    assert await asyncio.gather(*[one.write(put(f"{n:04}")) for n in range(1000)]) == [1] * 1000
    assert len(one.read(names)) == 1000
    await one.close()


async def test_a_write_that_raises_changes_nothing_and_the_others_are_committed(path: str) -> None:
    one = opened(path)

    def fails(db: sqlite3.Connection) -> None:
        put("half")(db)
        raise LookupError("no")

    def twice(db: sqlite3.Connection) -> None:
        put("same")(db)
        put("same")(db)

    found = await asyncio.gather(
        one.write(put("a")),
        one.write(fails),
        one.write(put("b")),
        one.write(twice),
        one.write(put("c")),
        return_exceptions=True,
    )
    assert [type(one) for one in found] == [int, LookupError, int, StoreLost, int]
    assert one.read(names) == ["a", "b", "c"]
    await one.close()


async def test_a_file_without_room_says_so_and_small_writes_go_on(path: str) -> None:
    one = opened(path, 16 * 4096)
    found = await asyncio.gather(
        one.write(put("a")),
        one.write(put("big", bytes(1 << 20))),
        one.write(put("b")),
        return_exceptions=True,
    )
    assert [type(one) for one in found] == [int, DatabaseFull, int]
    assert one.read(names) == ["a", "b"]
    await one.close()


async def test_what_was_begun_is_done_before_it_closes_and_nothing_after(path: str) -> None:
    one = opened(path)
    writing = [asyncio.ensure_future(one.write(put(f"{n:04}"))) for n in range(300)]
    await asyncio.sleep(0)
    await one.close()
    assert await asyncio.gather(*writing) == [1] * 300
    with pytest.raises(StoreLost, match="is closed"):
        await one.write(put("late"))
    with pytest.raises(StoreLost, match="is closed"):
        one.read(names)
    await one.close()


def test_a_file_of_something_else_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database at all" * 100)
    with pytest.raises(LocalError, match=r"rows in .*text cannot be opened: file is not a database"):
        opened(str(tmp_path / "text"))
    with pytest.raises(LocalError, match="cannot be opened: no such file or directory"):
        opened(str(tmp_path / "nowhere" / "file"))


async def test_a_file_that_was_removed_or_replaced_takes_no_writes(tmp_path: Path) -> None:
    path, aside = tmp_path / "rows.db", tmp_path / "aside.db"
    one = opened(str(path))
    await one.write(put("a"))
    path.rename(aside)
    for _ in range(2):
        with pytest.raises(StoreLost, match="the file was removed or replaced"):
            await one.write(put("lost"))
        with pytest.raises(StoreLost, match="the file was removed or replaced"):
            await one.run(put("lost"))
        path.write_bytes(b"")
    aside.replace(path)
    await one.write(put("b"))
    assert one.read(names) == ["a", "b"]
    await one.close()


WRITER = """
import asyncio, os, sys
from tests.store.test_database import opened, put
async def main():
    one = opened(sys.argv[1])
    for n in range(200):
        await one.write(put(f"{sys.argv[2]}{n:04}"))
        print(f"{sys.argv[2]}{n:04}", flush=True)
asyncio.run(main())
"""


def test_several_processes_write_and_a_kill_loses_nothing_that_was_said(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.db")
    asyncio.run(opened(path).close())
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, letter], stdout=subprocess.PIPE, text=True)
        for letter in "abc"
    ]
    assert writers[0].stdout is not None
    said = [writers[0].stdout.readline() for _ in range(20)]
    writers[0].kill()
    said += [line for one in writers for line in (one.communicate()[0] or "").splitlines(keepends=True)]
    one = opened(path)
    kept = set(one.read(names))
    assert len(said) >= 420
    assert {line.strip() for line in said if line.endswith("\n")} <= kept
    asyncio.run(one.close())
