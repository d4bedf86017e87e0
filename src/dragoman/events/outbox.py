"""Keeps events and subscriptions in a file of SQLite, or in memory.

Rules:

- The events of a type are numbered from 1. A cursor is the number of the last event that a client has, as opaque text
  in their order; one of another outbox or type is unknown here.
- The newest events of each type are kept, bounded in number, bytes and age; who is behind the oldest has lost some.
- A subscription is a position among the events of its type: all events up to it are delivered, or given up. So an event
  is written once, however many follow it, and each subscription gets its events in order.
- What `emit` and `change` have returned for is kept, also after a `kill -9`; what waits at the same time is committed
  together (`store.database`).
- Of the processes that share a file, the one that holds the lease of some work does it: delivers to webhooks, forwards
  to a topic.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

from ..jsonrpc.errors import LocalError
from ..store.contract import StoreLost
from ..store.database import IN_MEMORY, Database
from .board import KeptSubscriptions, SubscriptionState
from .limits import EventLimits

LEASE: Final = 15.0
"""Seconds for which a process delivers without renewing its lease: after that another one may begin."""
LOOK: Final = 0.25
"""Seconds between two looks whether another process has changed the file."""
PAGE: Final = 200
"""Events that are read at once."""
PAGE_SIZE: Final = 1024 * 1024
"""Bytes of their payloads, unless the first alone has more: what is read for one who takes a few costs little."""


class KeptEvent(Struct, frozen=True):
    """An event as it is kept. `timestamp`: when it happened, in Unix seconds."""

    number: int
    id: str
    timestamp: float
    data: bytes


class TypeState(Struct, frozen=True):
    """The events of a type. `head`: the number of the newest one; `gone`: that of the newest one that was dropped."""

    head: int = 0
    gone: int = 0


class SubscriptionRecord(Struct, frozen=True, kw_only=True):
    """A subscription of a webhook. Times are Unix seconds."""

    id: str
    account: str
    """By whom it is counted."""
    principal: str
    name: str
    arguments: bytes
    """In one spelling, as JSON."""
    url: str
    origin: str
    """Scheme, host and port of the URL: its receiver."""
    declared: bool
    """Whether its client speaks the profile of the SEP."""
    secret: bytes
    """Sealed."""
    old_secret: bytes = b""
    """The one before, sealed; b"": there is none."""
    old_until: float = 0.0
    """Until when that one signs, too."""
    identity: bytes
    """The caller, sealed: who may follow the type is asked again with each event."""
    expires: float
    position: int
    """The number of the last event that is settled."""
    attempts: int = 0
    """How often the event after it was sent in vain."""
    due: float = 0.0
    """When it is sent next."""
    active: bool = True
    """False: it is not tried any more until its client refreshes it."""
    abandoned: int = 0
    """Events that were given up since the receiver last accepted one."""
    delivered: float | None = None
    """When the receiver last accepted an event."""
    failed: float | None = None
    """Since when it has not."""
    error: str | None = None
    """Why the last attempt failed."""
    changed: int = 0
    """Grows with each change by a client, or by the operator."""

    @property
    def state(self) -> SubscriptionState:
        """What becomes of its next event."""
        return "resting" if not self.active else "retrying" if self.attempts else "active"

    def __repr__(self) -> str:
        return f"<subscription {self.id} to {self.name}>"  # URL, secrets and identity are not for logs


Edit: TypeAlias = Callable[[SubscriptionRecord | None], SubscriptionRecord | None]
"""Returns what becomes of a subscription; None: it is removed, or is not made."""

_FIELDS: Final = SubscriptionRecord.__struct_fields__
_COLUMNS: Final = ", ".join(_FIELDS)
_PUT: Final = f"INSERT OR REPLACE INTO subscriptions ({_COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"
_GET: Final = f"SELECT {_COLUMNS} FROM subscriptions"
_STATES: Final[dict[SubscriptionState, str]] = {
    "active": "active AND NOT attempts",
    "retrying": "active AND attempts",
    "resting": "NOT active",
}
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS event_types "
        "(name TEXT PRIMARY KEY, head INTEGER NOT NULL, gone INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS events (name TEXT NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, "
        "at REAL NOT NULL, timestamp REAL NOT NULL, data BLOB NOT NULL)"
    ),
    "CREATE UNIQUE INDEX IF NOT EXISTS event_numbers ON events (name, number)",
    "CREATE UNIQUE INDEX IF NOT EXISTS event_ids ON events (name, id)",
    "CREATE INDEX IF NOT EXISTS event_times ON events (name, at)",
    (
        "CREATE TABLE IF NOT EXISTS subscriptions (id TEXT PRIMARY KEY, account TEXT NOT NULL, principal TEXT NOT NULL, "
        "name TEXT NOT NULL, arguments BLOB NOT NULL, url TEXT NOT NULL, origin TEXT NOT NULL, declared INTEGER NOT NULL, "
        "secret BLOB NOT NULL, old_secret BLOB NOT NULL, old_until REAL NOT NULL, identity BLOB NOT NULL, "
        "expires REAL NOT NULL, position INTEGER NOT NULL, attempts INTEGER NOT NULL, due REAL NOT NULL, "
        "active INTEGER NOT NULL, abandoned INTEGER NOT NULL, delivered REAL, failed REAL, error TEXT, "
        "changed INTEGER NOT NULL)"
    ),
    "CREATE INDEX IF NOT EXISTS subscription_accounts ON subscriptions (account)",
    "CREATE INDEX IF NOT EXISTS subscription_changes ON subscriptions (changed)",
    (
        "CREATE TABLE IF NOT EXISTS verified (principal TEXT NOT NULL, url TEXT NOT NULL, at REAL NOT NULL, "
        "PRIMARY KEY (principal, url)) WITHOUT ROWID"
    ),
    "CREATE INDEX IF NOT EXISTS verified_times ON verified (at)",
    (
        "CREATE TABLE IF NOT EXISTS leases "
        "(work TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS forwards (topic TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, "
        "PRIMARY KEY (topic, name)) WITHOUT ROWID"
    ),
)


class TooManySubscriptions(Exception):
    """A subscription is above a limit: `limit` names it, `most` is its value."""

    def __init__(self, limit: str, most: int) -> None:
        super().__init__(f"{limit}: {most} are allowed")
        self.limit: str = limit
        self.most: int = most


def path_of(url: str) -> str:
    """Return the path of the database that a URL names, `sqlite:PATH` or `memory:`. Raises LocalError for another."""
    if url in ("memory:", ":memory:"):
        return IN_MEMORY
    kind, _, path = url.partition(":")
    path = path.removeprefix("//")
    if kind != "sqlite" or not path:
        raise LocalError(f"there is no store {url!r} for events: one of memory: (this process) or sqlite:PATH (a file)")
    return path


class Outbox:
    """The events and subscriptions of one publisher. `url`: `sqlite:PATH`, or `memory:` until `close`. Every method
    raises StoreLost while the file cannot be read or written, and DatabaseFull if it has no room. Raises LocalError for
    another URL, and for a file that cannot be opened."""

    def __init__(self, url: str, limits: EventLimits) -> None:
        self._path = path_of(url)
        self._limits = limits
        self._db = Database(self._path, _prepare, what=f"events in {url}", size=limits.file_size)
        self.epoch: str = self._db.read(
            lambda db: db.execute("SELECT value FROM about WHERE key = 'epoch'").fetchone()
        )[0]
        """What no other outbox has."""
        self._marks: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Outbox {self._path}>"

    async def close(self) -> None:
        """Close the file; what was begun is done first."""
        await self._db.close()

    # -- events

    async def emit(self, name: str, event: KeptEvent, now: float) -> bool:
        """Keep an event, and number it; False if one with its id is kept already."""
        return await self._db.write(partial(self._emit, name=name, event=event, now=now))

    def _emit(self, db: sqlite3.Connection, *, name: str, event: KeptEvent, now: float) -> bool:
        if db.execute("SELECT 1 FROM events WHERE name = ? AND id = ?", (name, event.id)).fetchone() is not None:
            return False
        row = db.execute("SELECT head, gone, size FROM event_types WHERE name = ?", (name,)).fetchone()
        head, gone, size = row or (0, 0, 0)
        head += 1
        db.execute(
            "INSERT INTO events (name, number, id, at, timestamp, data) VALUES (?, ?, ?, ?, ?, ?)",
            (name, head, event.id, now, event.timestamp, event.data),
        )
        gone, size = self._trim(db, name, head, gone, size + len(event.data), now)
        db.execute(
            "INSERT OR REPLACE INTO event_types (name, head, gone, size) VALUES (?, ?, ?, ?)", (name, head, gone, size)
        )
        return True

    def _trim(self, db: sqlite3.Connection, name: str, head: int, gone: int, size: int, now: float) -> tuple[int, int]:
        """Drop the events of a type that are beyond the bounds; return what `gone` and `size` are then."""
        limits, upto = self._limits, gone
        old = db.execute("SELECT max(number) FROM events WHERE name = ? AND at < ?", (name, now - limits.events_age))
        upto = max(upto, head - limits.events, old.fetchone()[0] or 0)
        left = size - _size(db, name, gone, upto)
        oldest = db.execute(
            "SELECT number, length(data) FROM events WHERE name = ? AND number > ? ORDER BY number", (name, upto)
        )
        while left > limits.events_size:
            upto, length = oldest.fetchone()
            left -= length
        if upto > gone:
            db.execute("DELETE FROM events WHERE name = ? AND number <= ?", (name, upto))
        return upto, left

    def state(self, name: str) -> TypeState:
        """Return which events of a type are kept."""
        row = self._db.read(
            lambda db: db.execute("SELECT head, gone FROM event_types WHERE name = ?", (name,)).fetchone()
        )
        return TypeState() if row is None else TypeState(*row)

    def heads(self) -> dict[str, int]:
        """Return the number of the newest event of each type."""
        return dict(self._db.read(lambda db: db.execute("SELECT name, head FROM event_types").fetchall()))

    def read(self, name: str, after: int, most: int = PAGE) -> list[KeptEvent]:
        """Return events of a type after a number, in order: `most`, or as many as have `PAGE_SIZE` bytes."""

        def read(db: sqlite3.Connection) -> list[KeptEvent]:
            found: list[KeptEvent] = []
            size = 0
            rows = db.execute(
                "SELECT number, id, timestamp, data FROM events WHERE name = ? AND number > ? ORDER BY number LIMIT ?",
                (name, after, most),
            )
            with closing(rows):
                for row in rows:
                    event = KeptEvent(*row)
                    size += len(event.data)
                    if found and size > PAGE_SIZE:
                        break
                    found.append(event)
            return found

        return self._db.read(read)

    def number_at(self, name: str, since: float) -> int:
        """Return the number of the last event of a type that was kept before a time; 0: none."""
        row = self._db.read(
            lambda db: db.execute("SELECT max(number) FROM events WHERE name = ? AND at < ?", (name, since)).fetchone()
        )
        return row[0] or 0

    # -- cursors

    def cursor(self, name: str, number: int) -> str:
        """Return the cursor of a client that has all events up to this one."""
        mark = self._marks.get(name)
        if mark is None:
            mark = self._marks[name] = sha256(f"{self.epoch} {name}".encode()).hexdigest()[:12]
        return f"{mark}.{number:013x}"

    def number_of(self, name: str, cursor: str) -> int | None:
        """Return the number of a cursor; None: it is none of this type and outbox."""
        mark, _, number = cursor.partition(".")
        if re.fullmatch("[0-9a-f]{13}", number) is None or self.cursor(name, 0).partition(".")[0] != mark:
            return None
        return int(number, 16)

    # -- subscriptions

    def subscription(self, id: str) -> SubscriptionRecord | None:
        """Return a subscription; None: there is none."""
        row = self._db.read(lambda db: db.execute(f"{_GET} WHERE id = ?", (id,)).fetchone())
        return None if row is None else _record(row)

    def changed_since(self, changed: int) -> Iterator[SubscriptionRecord]:
        """Yield the subscriptions that clients have made or refreshed since a change, in the order of changes."""
        while True:
            rows = self._db.read(
                lambda db, after=changed: db.execute(  # type: ignore[misc]
                    f"{_GET} WHERE changed > ? ORDER BY changed LIMIT ?", (after, PAGE)
                ).fetchall()
            )
            yield from map(_record, rows)
            if len(rows) < PAGE:
                return
            changed = _record(rows[-1]).changed

    async def put(self, id: str, account: str, edit: Edit, now: float) -> SubscriptionRecord | None:
        """Make or refresh a subscription in one step. Raises TooManySubscriptions for a new one, and what `edit`
        raises."""

        def work(db: sqlite3.Connection) -> SubscriptionRecord | None:
            found = _found(db, id)
            if found is None:
                self._check_room(db, account, now)
            record = edit(found)
            if record is not None:
                record = _put_anew(db, record)
            return record

        return await self._db.write(work)

    def check_room(self, account: str, now: float) -> None:
        """Raise TooManySubscriptions if there is no room for another subscription of an account."""
        self._db.read(partial(self._check_room, account=account, now=now))

    def _check_room(self, db: sqlite3.Connection, account: str, now: float) -> None:
        limits = self._limits
        for limit, most, where, values in (
            ("subscriptions_each", limits.subscriptions_each, "account = ?", (account,)),
            ("subscriptions", limits.subscriptions, "1", ()),
        ):
            count = f"SELECT count(*) FROM subscriptions WHERE {where}"
            if db.execute(count, values).fetchone()[0] < most:
                continue
            if db.execute(f"{count} AND expires > ?", (*values, now)).fetchone()[0] >= most:
                raise TooManySubscriptions(limit, most)

    async def change(self, id: str, edit: Edit) -> SubscriptionRecord | None:
        """Change a subscription in one step; None: there is none."""

        def work(db: sqlite3.Connection) -> SubscriptionRecord | None:
            found = _found(db, id)
            record = None if found is None else edit(found)
            if record is not None:
                db.execute(_PUT, astuple(record))
            elif found is not None:
                db.execute("DELETE FROM subscriptions WHERE id = ?", (id,))
            return record

        return await self._db.write(work)

    async def retry(self, id: str, now: float) -> bool:
        """Let the event that a receiver did not accept be due now, also of a subscription that rests; False if there is
        no such event."""

        def work(db: sqlite3.Connection) -> bool:
            found = _found(db, id)
            if found is None or found.expires <= now or (found.active and not found.attempts):
                return False
            if found.active:
                _put_anew(db, replace(found, due=now))
            else:
                _put_anew(db, replace(found, active=True, attempts=0, abandoned=0, due=0.0))
            return True

        return await self._db.write(work)

    async def remove(self, id: str) -> bool:
        """End a subscription; False if there is none."""
        return await self._db.write(lambda db: db.execute("DELETE FROM subscriptions WHERE id = ?", (id,)).rowcount > 0)

    async def advance(self, positions: dict[str, int]) -> None:
        """Move subscriptions forward over events that they do not get."""
        rows = [(position, id, position) for id, position in positions.items()]
        await self._db.write(
            lambda db: db.executemany("UPDATE subscriptions SET position = ? WHERE id = ? AND position < ?", rows)
        )

    def count(self) -> int:
        """Return the number of subscriptions."""
        return int(self._db.read(lambda db: db.execute("SELECT count(*) FROM subscriptions").fetchone())[0])

    def list_subscriptions(
        self, state: SubscriptionState | None, words: Sequence[str], after: tuple[str, str], limit: int, now: float
    ) -> list[SubscriptionRecord]:
        """Return subscriptions in the order of their types and ids, those that follow this type and id. `words`: each
        is in the id, the type, the receiver or the account, in upper or lower case."""
        held = "lower(id || char(10) || name || char(10) || origin || char(10) || account)"
        where = " AND ".join(
            [
                "expires > ?",
                "(name, id) > (?, ?)",
                *([_STATES[state]] if state else []),
                *[f"instr({held}, ?)"] * len(words),
            ]
        )
        values = (now, *after, *(word.lower() for word in words), limit)
        rows = self._db.read(
            lambda db: db.execute(f"{_GET} WHERE {where} ORDER BY name, id LIMIT ?", values).fetchall()
        )
        return [_record(row) for row in rows]

    def count_states(self, now: float) -> KeptSubscriptions:
        """Return how many subscriptions there are, and how many of them are in trouble."""
        states = ", ".join(f"count(CASE WHEN {_STATES[one]} THEN 1 END)" for one in ("retrying", "resting"))
        count, retrying, resting = self._db.read(
            lambda db: db.execute(f"SELECT count(*), {states} FROM subscriptions WHERE expires > ?", (now,)).fetchone()
        )
        return KeptSubscriptions(subscriptions=count, retrying=retrying, resting=resting)

    def ids(self) -> set[str]:
        """Return the ids of all subscriptions."""
        return {id for (id,) in self._db.read(lambda db: db.execute("SELECT id FROM subscriptions").fetchall())}

    # -- receivers

    def is_verified(self, principal: str, url: str, now: float) -> bool:
        """Return whether a receiver has proved to a caller, not long ago, that it wants its events."""
        row = self._db.read(
            lambda db: db.execute(
                "SELECT at FROM verified WHERE principal = ? AND url = ?", (principal, url)
            ).fetchone()
        )
        return row is not None and now - row[0] < self._limits.verified

    async def keep_verified(self, principal: str, url: str, now: float) -> None:
        """Remember that a receiver has proved itself; forget the oldest proofs beyond two for each subscription."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO verified (principal, url, at) VALUES (?, ?, ?)", (principal, url, now))
            db.execute(
                "DELETE FROM verified WHERE at < (SELECT at FROM verified ORDER BY at DESC LIMIT 1 OFFSET ?)",
                (2 * self._limits.subscriptions,),
            )

        await self._db.write(work)

    # -- what lasts

    def _expire(self, db: sqlite3.Connection, now: float) -> int:
        return db.execute("DELETE FROM subscriptions WHERE expires <= ?", (now,)).rowcount

    async def sweep(self, now: float) -> None:
        """Drop what is over: subscriptions, proofs of receivers, and events beyond their age."""

        def work(db: sqlite3.Connection) -> None:
            self._expire(db, now)
            db.execute("DELETE FROM verified WHERE at <= ?", (now - self._limits.verified,))
            for name, head, gone, size in db.execute("SELECT name, head, gone, size FROM event_types").fetchall():
                kept = self._trim(db, name, head, gone, size, now)
                db.execute("UPDATE event_types SET gone = ?, size = ? WHERE name = ?", (*kept, name))

        await self._db.write(work)

    async def lead(self, work: str, owner: str, now: float) -> bool:
        """Take or renew the lease of the process that does some work; False: another one has it. A lease that ends
        later than any may was written before the clock was set back: it ends as one does that is written now."""

        def take(db: sqlite3.Connection) -> bool:
            until = now + LEASE
            db.execute("UPDATE leases SET until = ? WHERE work = ? AND until > ?", (until, work, until))
            taken = db.execute(
                "INSERT INTO leases (work, owner, until) VALUES (?, ?, ?) ON CONFLICT (work) "
                "DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE owner = excluded.owner OR until <= ?",
                (work, owner, until, now),
            )
            return taken.rowcount > 0

        return await self._db.write(take)

    async def give_up(self, work: str, owner: str) -> None:
        """Give a lease up, so that another process may do the work at once."""
        await self._db.write(lambda db: db.execute("DELETE FROM leases WHERE work = ? AND owner = ?", (work, owner)))

    # -- topics of brokers

    async def forwarded(self, topic: str) -> dict[str, int]:
        """Return the number of the last event of each type that was forwarded to a topic. A topic that is new here
        begins after what is kept already."""

        def begin(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO forwards (topic, name, position) VALUES (?, '', 0)", (topic,))
            db.execute("INSERT INTO forwards (topic, name, position) SELECT ?, name, head FROM event_types", (topic,))

        found = self._forwards(topic)
        if not found:
            await self._db.write(begin)
            found = self._forwards(topic)
        return found

    def _forwards(self, topic: str) -> dict[str, int]:
        return dict(
            self._db.read(
                lambda db: db.execute("SELECT name, position FROM forwards WHERE topic = ?", (topic,)).fetchall()
            )
        )

    async def keep_forwarded(self, topic: str, name: str, position: int) -> None:
        """Keep the number of the last event of a type that was forwarded to a topic. A process that was late, and has
        lost the lease meanwhile, does not set it back."""
        await self._db.write(
            lambda db: db.execute(
                "INSERT INTO forwards (topic, name, position) VALUES (?, ?, ?) ON CONFLICT (topic, name) "
                "DO UPDATE SET position = max(position, excluded.position)",
                (topic, name, position),
            )
        )

    # -- other processes

    async def watch(self, changed: Callable[[], object]) -> None:
        """Call `changed` whenever another process has changed the file, until this is cancelled."""
        if self._path == IN_MEMORY:
            return
        before = None
        while True:
            try:
                version = self._db.read(lambda db: db.execute("PRAGMA data_version").fetchone())
            except StoreLost:  # those who need it report that
                version = before
            if version != before and before is not None:
                changed()
            before = version
            await asyncio.sleep(LOOK)


def _prepare(db: sqlite3.Connection) -> None:
    for table in _TABLES:
        db.execute(table)
    db.execute("INSERT OR IGNORE INTO about (key, value) VALUES ('epoch', ?)", (os.urandom(8).hex(),))
    db.execute("INSERT OR IGNORE INTO about (key, value) VALUES ('changed', '0')")


def _size(db: sqlite3.Connection, name: str, after: int, upto: int) -> int:
    if upto <= after:
        return 0
    found: int = db.execute(
        "SELECT COALESCE(SUM(length(data)), 0) FROM events WHERE name = ? AND number > ? AND number <= ?",
        (name, after, upto),
    ).fetchone()[0]
    return found


def _put_anew(db: sqlite3.Connection, record: SubscriptionRecord) -> SubscriptionRecord:
    """Keep a subscription so that the process which delivers looks at it anew; return it as it is then."""
    [(changed,)] = db.execute(
        "UPDATE about SET value = value + 1 WHERE key = 'changed' RETURNING CAST(value AS INTEGER)"
    ).fetchall()
    record = replace(record, changed=changed)
    db.execute(_PUT, astuple(record))
    return record


def _found(db: sqlite3.Connection, id: str) -> SubscriptionRecord | None:
    row = db.execute(f"{_GET} WHERE id = ?", (id,)).fetchone()
    return None if row is None else _record(row)


def _record(row: tuple[Any, ...]) -> SubscriptionRecord:
    found = SubscriptionRecord(**dict(zip(_FIELDS, row, strict=True)))
    return replace(found, declared=bool(found.declared), active=bool(found.active))
