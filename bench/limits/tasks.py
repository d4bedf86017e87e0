"""The limit of a store of tasks: `sqlite3` by hand, one table with a key and a blob, 32 rows a transaction."""

from __future__ import annotations

import sqlite3
import tempfile
from itertools import count

from bench.worker import offer

AT_ONCE = 32
BLOB = b"19" + b"x" * 600
DONE = b"19" + b"y" * 700


def main() -> None:
    """Until end of file."""
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(f"{folder}/tasks.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("CREATE TABLE tasks (number INTEGER PRIMARY KEY, id TEXT UNIQUE, record BLOB)")
        numbers = count()

        def insert() -> list[str]:
            ids = [f"{next(numbers):032x}" for _ in range(AT_ONCE)]
            db.execute("BEGIN IMMEDIATE")
            for id in ids:
                db.execute("INSERT INTO tasks (id, record) VALUES (?, ?)", (id, BLOB))
            db.execute("COMMIT")
            return ids

        def stored(id: str) -> bytes:
            found: bytes = db.execute("SELECT record FROM tasks WHERE id = ?", (id,)).fetchone()[0]
            return found

        def create() -> object:
            insert()
            return BLOB

        def complete() -> object:
            ids = insert()
            db.execute("BEGIN IMMEDIATE")
            for id in ids:
                stored(id)
                db.execute("UPDATE tasks SET record = ? WHERE id = ?", (DONE, id))
            db.execute("COMMIT")
            return DONE

        def read() -> object:
            return stored(f"{0:032x}")

        insert()
        offer({"create": create, "complete": complete, "read": read})
        db.close()


if __name__ == "__main__":
    main()
