"""Tasks in a file of SQLite, which processes of one machine may share; or in the memory of this process.

Rules:

- A record is one blob. What is searched for stands in columns beside it: the owner, the runner while the task has not
  ended, when it may be deleted.
- What each owner has, and all have, is counted in the transaction that changes it.
- Every runner of a task that has not ended has a row in `task_runners`, if only one whose time is over: so orphans are
  found by runners, of which there are few.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Final, TypeVar

from ..jsonrpc.errors import LocalError
from ..secret import SECRET
from ..store.database import IN_MEMORY, Database, DatabaseFull, Synchronous, Work
from . import rules
from .clock import Clock
from .contract import DEFAULTS, LIFE, ClaimedTask, Edit, TaskLimits, TasksFull
from .encoding import Encoding, Seal
from .record import TaskRecord, is_id
from .room import TaskCounts, Usage, check_record, check_room, counted

T = TypeVar("T")

FORM: Final = 1
"""The form of the tables; a file of another one is not opened."""
SPARE: Final = 1 << 20
"""Bytes that the file may have above twice `TaskLimits.total`: its tables and indexes, and pages that are half full."""
READ: Final = 4 << 20
"""Bytes of the records that `list_recent` reads at once, beside the first: it runs on the event loop."""

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS tasks (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, server TEXT NOT NULL, runner TEXT,
        calls INTEGER NOT NULL, created REAL NOT NULL, until REAL, size INTEGER NOT NULL, record BLOB NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS tasks_owned ON tasks (owner, number)",
    "CREATE INDEX IF NOT EXISTS tasks_served ON tasks (server, created)",
    "CREATE INDEX IF NOT EXISTS tasks_run ON tasks (runner, server) WHERE runner IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS tasks_calling ON tasks (runner) WHERE calls = 1",
    "CREATE INDEX IF NOT EXISTS tasks_ending ON tasks (until) WHERE until IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS task_runners (id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS task_owners (
        owner TEXT PRIMARY KEY, tasks INTEGER NOT NULL, size INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS task_store (
        form INTEGER NOT NULL, tasks INTEGER NOT NULL, size INTEGER NOT NULL, latest REAL NOT NULL,
        sealed BLOB
    )""",
)
_CREATE: Final = (
    "INSERT INTO tasks (id, owner, server, runner, calls, created, until, size, record) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
_CHANGE: Final = "UPDATE tasks SET runner = ?, calls = ?, until = ?, size = ?, record = ? WHERE number = ?"
_KNOW_RUNNER: Final = "INSERT INTO task_runners VALUES (?, 0) ON CONFLICT (id) DO NOTHING"
_BEAT: Final = "INSERT INTO task_runners VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET until = excluded.until"
_USAGE: Final = (
    "SELECT coalesce(o.tasks, 0), coalesce(o.size, 0), s.tasks, s.size FROM task_store s "
    "LEFT JOIN task_owners o ON o.owner = ?"
)
_COUNT_OWNER: Final = (
    "INSERT INTO task_owners VALUES (?, ?, ?) "
    "ON CONFLICT (owner) DO UPDATE SET tasks = tasks + excluded.tasks, size = size + excluded.size"
)
_COUNT: Final = "UPDATE task_store SET tasks = tasks + ?, size = size + ?"
_FIND: Final = "SELECT record FROM tasks WHERE id = ?"
_FIND_ROW: Final = "SELECT number, owner, size, record FROM tasks WHERE id = ?"
_NUMBER: Final = "SELECT number FROM tasks WHERE id = ? AND owner = ?"
_LIST: Final = (
    "SELECT id, record FROM tasks WHERE owner = ? AND number < ? AND (until IS NULL OR until > ?) "
    "ORDER BY number DESC LIMIT ?"
)
_RECENT: Final = (
    "SELECT number, size, created FROM tasks {} WHERE server = ? AND created < ? AND (until IS NULL OR until > ?) {} "
    "ORDER BY created DESC, number DESC LIMIT ?"
)
_RECENT_OF: Final = {
    None: _RECENT.format("", ""),
    True: _RECENT.format("", "AND runner IS NULL"),
    False: _RECENT.format("INDEXED BY tasks_run", "AND runner IS NOT NULL"),  # of all tasks, few have not ended
}
"""By whether they have ended."""
_RECORD: Final = "SELECT id, record FROM tasks WHERE number = ?"
_CALLING: Final = "SELECT id, record FROM tasks WHERE runner = ? AND calls = 1 AND (until IS NULL OR until > ?)"
_ORPHANS: Final = (
    "SELECT number, owner, size, id, record, runner FROM tasks WHERE runner IN "
    "(SELECT '' UNION ALL SELECT id FROM task_runners WHERE until <= ? AND id != ?) "
    "AND server = ? AND (until IS NULL OR until > ?) LIMIT ?"
)
_OVER: Final = "SELECT number, owner, size, id, record, runner FROM tasks WHERE until <= ? ORDER BY until LIMIT ?"
_FORGET_RUNNERS: Final = (
    "DELETE FROM task_runners WHERE until <= ? AND NOT EXISTS (SELECT 1 FROM tasks WHERE runner = task_runners.id)"
)
_NEWEST: Final = 1 << 62


class SqliteTasks:
    """A `TaskStore`. `path`: of the file; ":memory:" for one that ends with this process. `life`: seconds that a runner
    lives after a beat. `synchronous`: "FULL" keeps what was stored also after a loss of power. `seal`: encrypts the
    records. Raises LocalError for a file that cannot be opened or is not such a store."""

    def __init__(
        self,
        path: str,
        limits: TaskLimits = DEFAULTS,
        *,
        life: float = LIFE,
        synchronous: Synchronous = "NORMAL",
        seal: Seal | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        what = "tasks in memory:" if path == IN_MEMORY else f"tasks in sqlite:{path}"
        self.life: float = life
        self._what = what
        self._limits = limits
        self._clock = Clock(clock)
        self._counts = TaskCounts()
        self._seal = seal
        self._encoding = Encoding(what, seal)
        size = 2 * limits.total + SPARE
        self._database = Database(path, self._prepare, what=what, size=size, synchronous=synchronous)

    def __repr__(self) -> str:
        return f"<SqliteTasks {self._database.path}>"

    def _prepare(self, db: sqlite3.Connection) -> None:
        for table in _TABLES:
            db.execute(table)
        found = db.execute("SELECT form, latest, tasks, sealed FROM task_store").fetchone()
        if found is None:
            db.execute("INSERT INTO task_store VALUES (?, 0, 0, 0, NULL)", (FORM,))
        else:
            form, latest, tasks, sealed = found
            if form != FORM:
                raise LocalError(f"{self._what} were stored by another version of this library: give another file")
            self._clock.reach(latest)
            if tasks:
                self._check_keys(sealed)
        db.execute("UPDATE task_store SET sealed = ?", (None if self._seal is None else self._seal.seal("", b""),))

    def _check_keys(self, sealed: bytes | None) -> None:
        """Raise LocalError if the tasks in the file cannot be read with these keys. `sealed`: what the last one that
        opened it has sealed; None: nothing."""
        if sealed is None and self._seal is not None:
            text = (
                f"are not sealed, and there are keys (keys=, or {SECRET}): give another file, or keys=() until these "
                "tasks are deleted"
            )
        elif sealed is not None and self._seal is None:
            text = f"are sealed: give their key, in keys= or {SECRET}, or another file"
        elif sealed is not None and self._seal is not None and self._seal.open("", sealed) is None:
            text = (
                f"are sealed with another key: give it after the first one, in keys= or {SECRET}, or give another file"
            )
        else:
            return
        raise LocalError(f"{self._what} {text}")

    async def now(self) -> float:
        """The Unix time by the store's clock, which never goes back."""
        return self._clock.now()

    # -- one task

    async def create(self, record: TaskRecord) -> None:
        """Keep a new task. Raises TasksFull, LocalError for an id that another has."""
        written = self._encoding.encode(record)
        check_record(self._limits, record.id, written)
        await self._write(partial(self._create, record=record, written=written))
        self._counts.created += 1

    def _create(self, db: sqlite3.Connection, record: TaskRecord, written: bytes) -> None:
        size = counted(written)
        mine, all = _usage(db, record.owner)
        check_room(self._limits, record.owner, mine, all, new=True, more=size)
        runner = _runner_of(record)
        kept = (record.calls_runner, record.created, record.until, size, written)
        row = (record.id, record.owner, record.server, runner, *kept)
        if not db.execute(_CREATE, row).rowcount:
            raise LocalError(f"there is a task {record.id} already")
        if runner:
            db.execute(_KNOW_RUNNER, (runner,))
        _count(db, record.owner, 1, size)

    async def read(self, id: str) -> TaskRecord | None:
        """Return a task; None where there is none, or its time is over."""
        if not is_id(id):
            return None
        stored = self._database.read(lambda db: db.execute(_FIND, (id,)).fetchone())
        return None if stored is None else self._current(id, stored[0])

    async def change(self, id: str, edit: Edit) -> TaskRecord | None:
        """Change a task in one step, unless it has ended; return it as it is then. None where there is none. Raises
        TasksFull, and what `edit` raises."""
        return await self._write(partial(self._change, id=id, edit=edit)) if is_id(id) else None

    def _change(self, db: sqlite3.Connection, id: str, edit: Edit) -> TaskRecord | None:
        row = db.execute(_FIND_ROW, (id,)).fetchone()
        record = None if row is None else self._current(id, row[3])
        if record is None or record.ended:
            return record
        made = edit(record)
        if made is None:
            return record
        rules.check_same(record, made)
        number, owner, size, _ = row
        written = self._encoding.encode(made)
        check_record(self._limits, id, written)
        more = counted(written) - size
        if more > 0:
            mine, all = _usage(db, owner)
            check_room(self._limits, owner, mine, all, new=False, more=more)
        if made.runner and made.runner != record.runner:
            db.execute(_KNOW_RUNNER, (made.runner,))
        self._replace(db, number, owner, size, made, written)
        return made

    def _replace(
        self, db: sqlite3.Connection, number: int, owner: str, size: int, record: TaskRecord, written: bytes = b""
    ) -> None:
        """Store a task that was changed. `size`: what it counted until now; `written`: the record as it is stored."""
        written = written or self._encoding.encode(record)
        more = counted(written) - size
        if more:
            _count(db, owner, 0, more)
        db.execute(_CHANGE, (_runner_of(record), record.calls_runner, record.until, size + more, written, number))

    async def list_tasks(self, owner: str, after: str, limit: int) -> list[TaskRecord]:
        """Return tasks of an owner, the newest first, those that follow the task `after` ("": from the first). There
        are none where that is not there."""
        return self._database.read(partial(self._list, owner=owner, after=after, limit=limit))

    def _list(self, db: sqlite3.Connection, owner: str, after: str, limit: int) -> list[TaskRecord]:
        if after and not is_id(after):
            return []
        last = db.execute(_NUMBER, (after, owner)).fetchone() if after else (_NEWEST,)
        if last is None:
            return []
        rows = db.execute(_LIST, (owner, last[0], self._clock.now(), limit))
        return [record for id, stored in rows if (record := self._encoding.decode(id, stored)) is not None]

    async def list_recent(
        self, server: str, before: float | None, limit: int, *, ended: bool | None = None
    ) -> list[TaskRecord]:
        """Return the recent tasks of a server, of all owners; see `TaskStore`."""
        before = inf if before is None else before
        return self._database.read(partial(self._recent, server=server, before=before, limit=limit, ended=ended))

    def _recent(
        self, db: sqlite3.Connection, server: str, before: float, limit: int, ended: bool | None
    ) -> list[TaskRecord]:
        found: list[TaskRecord] = []
        read, now = 0, self._clock.now()
        while rows := db.execute(_RECENT_OF[ended], (server, before, now, limit)).fetchall():
            for number, size, _ in rows:
                read += size
                if found and read > READ:
                    return found
                row = db.execute(_RECORD, (number,)).fetchone()
                if row is not None and (record := self._encoding.decode(*row)) is not None:
                    found.append(record)
            if found:  # otherwise none of these can be read
                break
            before = rows[-1][2]
        return found

    def _current(self, id: str, stored: bytes) -> TaskRecord | None:
        """Return a stored record unless its time is over."""
        record = self._encoding.decode(id, stored)
        if record is None or record.keep is None or self._clock.now() < record.created + record.keep:
            return record
        return None

    # -- runners

    async def beat(self, runner: str) -> list[TaskRecord]:
        """Let a runner live for `life` seconds more; return those of its tasks that call it
        (`TaskRecord.calls_runner`)."""
        return await self._write(partial(self._beat, runner=runner))

    def _beat(self, db: sqlite3.Connection, runner: str) -> list[TaskRecord]:
        now = self._let_live(db, runner)
        rows = db.execute(_CALLING, (runner, now))
        return [record for id, stored in rows if (record := self._encoding.decode(id, stored)) is not None]

    def _let_live(self, db: sqlite3.Connection, runner: str) -> float:
        """Let a runner live from now on; return the time."""
        now = self._tick(db)
        db.execute(_BEAT, (runner, now + self.life))
        return now

    def _tick(self, db: sqlite3.Connection) -> float:
        """Return the time, which no process that shares the file has seen go by, and note it there."""
        [(latest,)] = db.execute("SELECT latest FROM task_store")
        now = self._clock.reach(latest)
        db.execute("UPDATE task_store SET latest = ?", (now,))
        return now

    async def leave(self, runner: str, handed_over: tuple[str, ...] = ()) -> None:
        """End a runner. These of its tasks wait for another one now; the others are orphans at once."""
        await self._write(partial(self._leave, runner=runner, handed_over=handed_over))

    def _leave(self, db: sqlite3.Connection, runner: str, handed_over: tuple[str, ...]) -> None:
        db.execute("UPDATE task_runners SET until = 0 WHERE id = ?", (runner,))
        for id in handed_over:
            row = db.execute(_FIND_ROW, (id,)).fetchone()
            record = None if row is None else self._encoding.decode(id, row[3])
            if record is not None and not record.ended and record.runner == runner:
                number, owner, size, _ = row
                self._replace(db, number, owner, size, rules.handed_over(record))

    async def claim(self, runner: str, server: str, limit: int) -> list[ClaimedTask]:
        """Give this runner orphans of its server, at most `limit`, and return them. It lives on as after a beat: its
        own tasks are never among them."""
        claimed = await self._write(partial(self._claim, runner=runner, server=server, limit=limit))
        self._counts.claimed += len(claimed)
        return claimed

    def _claim(self, db: sqlite3.Connection, runner: str, server: str, limit: int) -> list[ClaimedTask]:
        now = self._let_live(db, runner)
        claimed = []
        found = db.execute(_ORPHANS, (now, runner, server, now, limit)).fetchall()
        for number, owner, size, id, stored, before in found:
            record = self._encoding.decode(id, stored)
            if record is None:  # nobody can run it, and it is not to be found again and again
                db.execute("UPDATE tasks SET runner = NULL, calls = 0 WHERE number = ?", (number,))
                continue
            record = rules.claimed(record, runner)
            self._replace(db, number, owner, size, record)
            claimed.append(ClaimedTask(record, before))
        return claimed

    # -- what is over

    async def sweep(self, limit: int) -> int:
        """Delete tasks whose time is over, at most `limit`; return their number. One that still runs is failed, and
        deleted by a later sweep."""
        deleted = await self._write(partial(self._sweep, limit=limit))
        self._counts.deleted += deleted
        return deleted

    def _sweep(self, db: sqlite3.Connection, limit: int) -> int:
        now = self._tick(db)
        deleted = 0
        for number, owner, size, id, stored, runner in db.execute(_OVER, (now, limit)).fetchall():
            record = None if runner is None else self._encoding.decode(id, stored)
            if record is not None and not record.ended:
                self._replace(db, number, owner, size, rules.overdue(record, now))
                continue
            db.execute("DELETE FROM tasks WHERE number = ?", (number,))
            _count(db, owner, -1, -size)
            deleted += 1
        db.execute(_FORGET_RUNNERS, (now,))
        return deleted

    # -- the store

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics, by name."""
        return self._counts.measures()

    async def close(self) -> None:
        """Release what it holds."""
        await self._database.close()

    async def _write(self, work: Work[T]) -> T:
        try:
            return await self._database.write(work)
        except TasksFull:
            self._counts.refused += 1
            raise
        except DatabaseFull as error:
            self._counts.refused += 1
            raise TasksFull(
                f"{error}: the disk is full, or the file has twice what limit total allows", busy=True
            ) from error


def _runner_of(record: TaskRecord) -> str | None:
    """Return what stands in the column: None for a task that has ended."""
    return None if record.ended else record.runner


def _usage(db: sqlite3.Connection, owner: str) -> tuple[Usage, Usage]:
    """Return what an owner has, and what all have."""
    tasks, size, all_tasks, all_size = db.execute(_USAGE, (owner,)).fetchone()
    return Usage(tasks, size), Usage(all_tasks, all_size)


def _count(db: sqlite3.Connection, owner: str, tasks: int, size: int) -> None:
    """Count tasks and bytes more of an owner, or less."""
    db.execute(_COUNT_OWNER, (owner, tasks, size))
    db.execute(_COUNT, (tasks, size))
    if tasks < 0:
        db.execute("DELETE FROM task_owners WHERE owner = ? AND tasks = 0", (owner,))
