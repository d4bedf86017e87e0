"""Documents in a file of SQLite: they outlive the process, and processes of one machine may share the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .contract import Change, full
from .database import IN_MEMORY, Database, DatabaseFull

_TABLE = (
    "CREATE TABLE IF NOT EXISTS documents "
    "(owner TEXT PRIMARY KEY, document BLOB NOT NULL, until REAL, stranger TEXT) WITHOUT ROWID"
)
_COLUMN = "ALTER TABLE documents ADD COLUMN stranger TEXT"
_INDEX = "CREATE INDEX IF NOT EXISTS strangers ON documents (stranger, until) WHERE stranger IS NOT NULL"
_PUT = (
    "INSERT INTO documents (owner, document, until, stranger) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (owner) DO UPDATE SET document = excluded.document, until = excluded.until, stranger = excluded.stranger"
)
_YIELDS = (
    "DELETE FROM documents WHERE owner = (SELECT owner FROM documents WHERE owner != ? AND stranger = ("
    "SELECT stranger FROM documents WHERE stranger IS NOT NULL AND owner != ? GROUP BY stranger "
    "ORDER BY count(*) DESC LIMIT 1) ORDER BY until LIMIT 1)"
)
"""Deletes the document that expires first of the stranger that has most, but not the one that is being replaced."""
GIVE_WAY = 64
"""The most documents of strangers that are deleted for one change of a full file: the change waits for that."""


class SqliteStore:
    """An `Engine`. `owners`: documents at once; `total`: bytes of the file. Documents of strangers give way, first
    those of the one that has most. Raises LocalError for a file that cannot be opened or is not such a store."""

    def __init__(self, path: str, owners: int, total: int, clock: Callable[[], float] = time.time) -> None:
        self._owners, self._total = owners, total
        self._clock = clock
        path = f"./{path}" if path == IN_MEMORY else path  # a file of that name, as for any other
        self._database = Database(path, _prepare, what=f"store sqlite:{path}", size=total)

    async def read(self, owner: str) -> bytes | None:
        return await self._database.run(partial(_read, owner=owner))

    async def change(self, owner: str, edit: Change) -> Any:
        try:
            return await self._database.run(partial(self._change, owner=owner, edit=edit))
        except DatabaseFull as error:
            raise full(True, self._owners, self._total) from error

    def _change(self, db: sqlite3.Connection, owner: str, edit: Change) -> Any:
        try:
            return self._transact(db, owner, edit)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
        self._purge(db)
        for _ in range(GIVE_WAY):
            try:
                return self._transact(db, owner, edit)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not _yield(db, owner):
                    raise
        return self._transact(db, owner, edit)

    def _transact(self, db: sqlite3.Connection, owner: str, edit: Change) -> Any:
        db.execute("BEGIN IMMEDIATE")
        try:
            found = _read(db, owner)
            made = edit(found)
            if made.changed and made.document is None:
                db.execute("DELETE FROM documents WHERE owner = ?", (owner,))
            elif made.changed:
                if found is None:
                    self._make_room(db, owner)
                stranger = None if made.stranger is None else made.stranger.name
                db.execute(_PUT, (owner, made.document, made.until, stranger))
        except BaseException:
            if db.in_transaction:  # a full file ends it by itself
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return made.result

    def _make_room(self, db: sqlite3.Connection, owner: str) -> None:
        [(count,)] = db.execute("SELECT count(*) FROM documents")
        if count < self._owners or count - self._purge(db) < self._owners or _yield(db, owner):
            return
        raise full(False, self._owners, self._total)

    def _purge(self, db: sqlite3.Connection) -> int:
        """Delete expired documents; return their number."""
        return db.execute("DELETE FROM documents WHERE until <= ?", (self._clock(),)).rowcount

    async def close(self) -> None:
        """Close the file; what was begun is done first."""
        await self._database.close()


def _prepare(db: sqlite3.Connection) -> None:
    """Make the table, and what a file of an earlier version lacks of it."""
    db.execute(_TABLE)
    db.execute("SELECT owner, document, until FROM documents LIMIT 1")
    if "stranger" not in {row[1] for row in db.execute("PRAGMA table_info (documents)")}:
        db.execute(_COLUMN)
    db.execute(_INDEX)


def _read(db: sqlite3.Connection, owner: str) -> bytes | None:
    row = db.execute("SELECT document FROM documents WHERE owner = ?", (owner,)).fetchone()
    return None if row is None else row[0]


def _yield(db: sqlite3.Connection, owner: str) -> int:
    """Delete a stranger's document to make room for this owner; return how many were deleted, 0 or 1."""
    return db.execute(_YIELDS, (owner, owner)).rowcount
