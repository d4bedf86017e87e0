"""Documents in a file of SQLite: they outlive the process, and processes of one machine may share the file.

A thread of its own does all that waits for the disk. The file, and what SQLite keeps beside it, is readable by its
owner alone.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from ..jsonrpc.errors import LocalError
from ..private_files import open_private, tighten
from .contract import Change, StoreLost, full

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds to wait for another process that changes the file."""
MINIMUM = 16
"""Pages that a file has at least room for."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS documents "
    "(owner TEXT PRIMARY KEY, document BLOB NOT NULL, until REAL, stranger TEXT) WITHOUT ROWID"
)
_COLUMN = "ALTER TABLE documents ADD COLUMN stranger TEXT"
_INDEX = "CREATE INDEX IF NOT EXISTS strangers ON documents (stranger, until) WHERE stranger IS NOT NULL"
_PUT = (
    "INSERT INTO documents (owner, document, until, stranger) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (owner) DO UPDATE SET document = ?2, until = ?3, stranger = ?4"
)
_YIELDS = (
    "DELETE FROM documents WHERE owner = (SELECT owner FROM documents WHERE owner != ?1 AND stranger = ("
    "SELECT stranger FROM documents WHERE stranger IS NOT NULL AND owner != ?1 GROUP BY stranger "
    "ORDER BY count(*) DESC LIMIT 1) ORDER BY until LIMIT 1)"
)
"""Deletes the document that expires first of the stranger that has most, but not the one that is being replaced."""
GIVE_WAY = 64
"""The most documents of strangers that are deleted for one change of a full file: the change waits for that."""


class SqliteStore:
    """An `Engine`. `owners`: documents at once; `total`: bytes of the file. Documents of strangers give way, first
    those of the one that has most. Raises LocalError for a file that cannot be opened or is not such a store."""

    def __init__(self, path: str, owners: int, total: int, clock: Callable[[], float] = time.time) -> None:
        if path.lower().startswith("file:"):
            raise LocalError(
                f"store sqlite:{path}: write the path of a file; a URI of SQLite is not taken (./{path} is a path)"
            )
        self.path = path
        self._owners, self._total = owners, total
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "dragoman-store")
        try:
            self._db = self._thread.submit(self._open).result()
        except (sqlite3.Error, OSError) as error:
            self._thread.shutdown()
            raise LocalError(f"store sqlite:{path} cannot be opened: {_words(error)}") from error

    def _open(self) -> sqlite3.Connection:
        os.close(open_private(self.path))
        for beside in ("-wal", "-shm", "-journal"):  # those that it makes have the permissions of the file
            tighten(self.path + beside)
        # an absolute path is never taken for a URI, whose query could name another file
        db = sqlite3.connect(os.path.abspath(self.path), timeout=PATIENCE, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            [(page,)] = db.execute("PRAGMA page_size")
            db.execute(f"PRAGMA max_page_count = {max(MINIMUM, self._total // page)}")
            db.execute(_TABLE)
            db.execute("SELECT owner, document, until FROM documents LIMIT 1")
            self._upgrade(db)
        except BaseException:
            db.close()
            raise
        return db

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Add the columns and indexes that a file of an earlier version lacks."""
        db.execute("BEGIN IMMEDIATE")  # one of several processes does so
        if "stranger" not in {row[1] for row in db.execute("PRAGMA table_info (documents)")}:
            db.execute(_COLUMN)
        db.execute(_INDEX)
        db.execute("COMMIT")

    async def read(self, owner: str) -> bytes | None:
        return await self._run(self._read, owner)

    async def change(self, owner: str, edit: Change) -> Any:
        return await self._run(self._change, owner, edit)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
                raise full(True, self._owners, self._total) from error
            raise StoreLost(f"store sqlite:{self.path}: {error}") from error
        except RuntimeError as error:  # the thread has ended
            raise StoreLost(f"store sqlite:{self.path} is closed") from error

    def _read(self, owner: str) -> bytes | None:
        row = self._db.execute("SELECT document FROM documents WHERE owner = ?", (owner,)).fetchone()
        return None if row is None else row[0]

    def _change(self, owner: str, edit: Change) -> Any:
        try:
            return self._transact(owner, edit)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
        self._purge()
        for _ in range(GIVE_WAY):
            try:
                return self._transact(owner, edit)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not self._yield(owner):
                    raise
        return self._transact(owner, edit)

    def _transact(self, owner: str, edit: Change) -> Any:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            found = self._read(owner)
            made = edit(found)
            if made.changed and made.document is None:
                db.execute("DELETE FROM documents WHERE owner = ?", (owner,))
            elif made.changed:
                if found is None:
                    self._make_room(owner)
                stranger = None if made.stranger is None else made.stranger.name
                db.execute(_PUT, (owner, made.document, made.until, stranger))
        except BaseException:
            if db.in_transaction:  # a full file ends it by itself
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return made.result

    def _make_room(self, owner: str) -> None:
        [(count,)] = self._db.execute("SELECT count(*) FROM documents")
        if count < self._owners or count - self._purge() < self._owners or self._yield(owner):
            return
        raise full(False, self._owners, self._total)

    def _yield(self, owner: str) -> int:
        """Delete a stranger's document to make room for this owner; return how many were deleted, 0 or 1."""
        return self._db.execute(_YIELDS, (owner,)).rowcount

    def _purge(self) -> int:
        """Delete expired documents; return their number."""
        return self._db.execute("DELETE FROM documents WHERE until <= ?", (self._clock(),)).rowcount

    async def close(self) -> None:
        """Close the file; what was begun is done first."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()


def _words(error: Exception) -> str:
    """Why a file cannot be opened, in words."""
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
