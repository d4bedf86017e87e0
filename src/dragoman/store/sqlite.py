"""Documents in a file of SQLite: they outlive the process, and processes of one machine may share the file.

A thread of its own does all that waits for the disk. The file is readable by its owner alone.
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
from .contract import Change, StoreLost, full

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds to wait for another process that changes the file."""
MINIMUM = 16
"""Pages that a file has at least room for."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS documents (owner TEXT PRIMARY KEY, document BLOB NOT NULL, until REAL) WITHOUT ROWID"
)
_PUT = "INSERT INTO documents VALUES (?, ?, ?) ON CONFLICT (owner) DO UPDATE SET document = ?2, until = ?3"


class SqliteStore:
    """An `Engine`. `owners`: documents at once; `total`: bytes of the file. Raises LocalError for a file that cannot be
    opened or is of something else."""

    def __init__(self, path: str, owners: int, total: int, clock: Callable[[], float] = time.time) -> None:
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
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            [(page,)] = db.execute("PRAGMA page_size")
            db.execute(f"PRAGMA max_page_count = {max(MINIMUM, self._total // page)}")
            db.execute(_TABLE)
            db.execute("SELECT owner, document, until FROM documents LIMIT 1")
        except BaseException:
            db.close()
            raise
        return db

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
                    self._make_room()
                db.execute(_PUT, (owner, made.document, made.until))
        except BaseException:
            if db.in_transaction:  # a full file ends it by itself
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return made.result

    def _make_room(self) -> None:
        [(count,)] = self._db.execute("SELECT count(*) FROM documents")
        if count < self._owners:
            return
        if count - self._purge() >= self._owners:
            raise full(False, self._owners, self._total)

    def _purge(self) -> int:
        """Remove what has expired; how many documents that were."""
        return self._db.execute("DELETE FROM documents WHERE until <= ?", (self._clock(),)).rowcount

    async def close(self) -> None:
        """Close the file; what was begun is done first."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()


def _words(error: Exception) -> str:
    """Why a file cannot be opened, in words."""
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
