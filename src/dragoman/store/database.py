"""A file of SQLite with one thread that writes: changes that are waiting together are committed together.

Rules:

- The file, and what SQLite keeps beside it, is readable by its owner alone. Several processes of one machine may share
  it; a path on a network file system may lose data (sqlite.org/wal.html).
- A write is on disk before it returns: after the end of this process by any means, and with `synchronous="FULL"` also
  after a loss of power.
- Writes that wait at the same time share a transaction. One that raises changes nothing, and the others are committed:
  if it has changed rows before it raised, all are rolled back, and each runs again in a transaction of its own.
- A file that was removed or replaced while it is open takes no more writes: nobody would find them.
- A read sees what was committed. It runs in the caller's thread, since it waits for no writer and takes microseconds.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ..jsonrpc.errors import LocalError
from ..private_files import open_private, tighten
from ..system.files import reason_of
from .contract import StoreLost

T = TypeVar("T")
Synchronous: TypeAlias = Literal["NORMAL", "FULL"]
Work: TypeAlias = Callable[[sqlite3.Connection], T]

IN_MEMORY: Final = ":memory:"
"""The path of a database that ends with this process."""
PATIENCE: Final = 5.0
"""Seconds to wait for another process that changes the file."""
GROUP: Final = 256
"""Writes that are committed together at most: an error of the disk makes each of them run again."""
MINIMUM: Final = 16
"""Pages that a file has at least room for."""
_BESIDE: Final = ("-wal", "-shm", "-journal")
_CLOSE: Final = object()


class DatabaseFull(Exception):
    """The file has no room for a write, by its own limit or on its disk."""


class Database:
    """A file of SQLite, for any event loop and thread. Raises LocalError for a file that cannot be opened or prepared.

    `prepare(connection)`: makes its tables, in a transaction. `size`: bytes that the file may have; None: any. `what`:
    begins the text of errors, such as "store sqlite:state.db".
    """

    def __init__(
        self,
        path: str,
        prepare: Work[object],
        *,
        what: str,
        size: int | None = None,
        synchronous: Synchronous = "NORMAL",
    ) -> None:
        if path.lower().startswith("file:"):
            raise LocalError(f"{what}: write the path of a file; a URI of SQLite is not taken (./{path} is a path)")
        self.path, self.what = path, what
        self._synchronous, self._size = synchronous, size
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._reading = threading.Lock()
        self._closed = False
        try:
            self._db = self._open(prepare)
            self._reader = self._db if path == IN_MEMORY else self._connect()
            self._file = self._find_file()
        except (sqlite3.Error, OSError) as error:
            raise LocalError(f"{what} cannot be opened: {_words(error)}") from error
        self._thread = threading.Thread(target=self._run, name="dragoman-store", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Database {self.path}>"

    def _connect(self) -> sqlite3.Connection:
        # an absolute path is never taken for a URI, whose query could name another file
        path = self.path if self.path == IN_MEMORY else os.path.abspath(self.path)
        return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)

    def _open(self, prepare: Work[object]) -> sqlite3.Connection:
        if self.path != IN_MEMORY:
            os.close(open_private(self.path))
            for beside in _BESIDE:  # those that SQLite makes have the permissions of the file
                tighten(self.path + beside)
        db = self._connect()
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._synchronous}")
            if self._size is not None:
                [(page,)] = db.execute("PRAGMA page_size")
                db.execute(f"PRAGMA max_page_count = {max(MINIMUM, self._size // page)}")
            db.execute("BEGIN IMMEDIATE")  # one of several processes prepares it
            prepare(db)
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db

    def _find_file(self) -> tuple[int, int] | None:
        """Return which file the path names now; None in memory. Raises OSError."""
        if self.path == IN_MEMORY:
            return None
        found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def _moved(self) -> bool:
        """Whether the path names the open file no more."""
        try:
            return self._find_file() != self._file
        except OSError:
            return True

    # -- its use

    def read(self, work: Work[T]) -> T:
        """Return `work(connection)`, which only reads. Raises StoreLost."""
        with self._reading:
            if self._closed:
                raise StoreLost(f"{self.what} is closed")
            try:
                return work(self._reader)
            except sqlite3.Error as error:
                raise self.error_for(error) from error

    async def write(self, work: Work[T]) -> T:
        """Run `work(connection)` in a transaction, perhaps with others, and return its result once that is committed.
        It may run more than once, after an error of the disk or of another one. Raises what `work` raises,
        DatabaseFull, StoreLost."""
        return await self._submit(work, True)

    async def run(self, work: Work[T]) -> T:
        """Run `work(connection)` on the writing thread, between transactions: it begins and ends those that it needs.
        Raises as `write` does."""
        return await self._submit(work, False)

    async def _submit(self, work: Work[T], grouped: bool) -> T:
        if self._closed:
            raise StoreLost(f"{self.what} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Waiting(work, grouped, loop, future))
        return await future

    async def close(self) -> None:
        """Close the file; what was begun is done first."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(_CLOSE)
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        except RuntimeError:  # the interpreter ends, and takes no more work for its threads
            self._thread.join()

    def error_for(self, error: sqlite3.Error) -> DatabaseFull | StoreLost:
        """Return the error to raise for an error of SQLite."""
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            return DatabaseFull(f"{self.what}: {error}")
        return StoreLost(f"{self.what}: {error}")

    # -- the thread that writes

    def _run(self) -> None:
        """Take what waits, until the database is closed."""
        while True:
            waiting = [self._queue.get()]
            try:
                while len(waiting) < GROUP:
                    waiting.append(self._queue.get_nowait())
            except Empty:
                pass
            ends = _CLOSE in waiting
            self._take([one for one in waiting if one is not _CLOSE])
            if ends and self._queue.empty():
                with self._reading:
                    self._reader.close()
                    self._db.close()
                return
            if ends:  # something was submitted at the same time, and goes first
                self._queue.put(_CLOSE)

    def _take(self, waiting: list[_Waiting]) -> None:
        """Do what waits, and tell those who wait."""
        if waiting and self._moved():
            for one in waiting:
                one.error = StoreLost(f"{self.what}: the file was removed or replaced")
        else:
            self._work(waiting)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        for one in waiting:
            by_loop.setdefault(one.loop, []).append(one)
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, settled)
            except RuntimeError:  # the loop is closed, and nobody waits any more
                pass

    def _work(self, waiting: list[_Waiting]) -> None:
        """Do what waits, in order, and what may share a transaction in one."""
        group: list[_Waiting] = []
        for one in waiting:
            if one.grouped:
                group.append(one)
            else:
                self._commit(group)
                group = []
                self._alone(one)
        self._commit(group)

    def _alone(self, one: _Waiting) -> None:
        """Run one work between transactions."""
        with self._in_use():
            try:
                one.result = one.work(self._db)
            except sqlite3.Error as error:
                one.error = self.error_for(error)
            except BaseException as error:
                one.error = error

    def _commit(self, group: list[_Waiting]) -> None:
        """Run a group in one transaction; each of it in its own, if the transaction fails."""
        if not group:
            return
        with self._in_use():
            if self._try(group) or len(group) == 1:
                return
            for one in group:
                one.error = None
                self._try([one])

    def _try(self, group: list[_Waiting]) -> bool:
        """Run a group in one transaction; return whether it was committed. Where a group of one is not, that has its
        error."""
        try:
            self._transact(group)
        except _HalfDone:
            return False
        except sqlite3.Error as error:
            if len(group) == 1:
                group[0].error = self.error_for(error)
            return False
        return True

    def _transact(self, group: list[_Waiting]) -> None:
        """Run a group in one transaction. Raises sqlite3.Error, or _HalfDone where one of it has changed rows and then
        raised, after everything is rolled back."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for one in group:
                before = db.total_changes  # a savepoint for each would cost as much as the write
                try:
                    one.result = one.work(db)
                except sqlite3.Error:
                    raise
                except BaseException as error:
                    one.error = error
                    if db.total_changes != before:
                        raise _HalfDone from None
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full file ends it by itself
                db.execute("ROLLBACK")
            raise

    def _in_use(self) -> Any:
        """A lock, while the connection is used, if readers use it too."""
        return self._reading if self._reader is self._db else _NO_LOCK


class _HalfDone(Exception):
    """A write has changed rows, and then raised."""


class _NoLock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


_NO_LOCK: Final = _NoLock()


class _Waiting:
    """A work that waits for the thread, and what came of it."""

    __slots__ = ("error", "future", "grouped", "loop", "result", "work")

    def __init__(
        self, work: Work[Any], grouped: bool, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
    ) -> None:
        self.work, self.grouped, self.loop, self.future = work, grouped, loop, future
        self.result: Any = None
        self.error: BaseException | None = None


def _settle(done: list[_Waiting]) -> None:
    """Give those who wait what came of it, on their loop."""
    for one in done:
        if one.future.done():
            continue
        if one.error is None:
            one.future.set_result(one.result)
        else:
            one.future.set_exception(one.error)


def _words(error: Exception) -> str:
    """Why a file cannot be opened, in words."""
    return (reason_of(error) if isinstance(error, OSError) else str(error)).lower()
