"""What is wrong with the file of events, or with the clock: each caller gets a clear error, nothing is half done, and
what was accepted is not posted again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.events.outbox import LEASE, Outbox
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.extensions.events.delivery import RETRIES, WORK
from dragoman.store import database
from dragoman.store.contract import StoreLost
from dragoman.store.database import DatabaseFull
from tests.tasks.test_sqlite import as_nobody

from .receiving import MovedClock, OrderShipped, Receiver, echo, following, receiving, reply, settle, shop, subscribe

NAME = "order_shipped"


# -- faults of the file while it is open


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process changes it, and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def removed(path: Path) -> Iterator[None]:
    away = path.with_suffix(".away")
    os.rename(path, away)
    yield
    os.rename(away, path)


@contextmanager
def replaced(path: Path) -> Iterator[None]:
    away = path.with_suffix(".away")
    os.rename(path, away)
    sqlite3.connect(path).close()
    path.touch()
    yield
    os.rename(away, path)


@contextmanager
def stripped(path: Path) -> Iterator[None]:
    """Tables are gone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        for table in ("events", "subscriptions", "event_types"):
            other.execute(f"ALTER TABLE {table} RENAME TO away_{table}")
        yield
        for table in ("events", "subscriptions", "event_types"):
            other.execute(f"ALTER TABLE away_{table} RENAME TO {table}")


@contextmanager
def full(path: Path) -> Iterator[None]:
    """It has no room for another page."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE filler (bytes BLOB)")
        other.execute("PRAGMA max_page_count = 60")
        with contextlib.suppress(sqlite3.OperationalError):
            while True:
                other.execute("INSERT INTO filler VALUES (zeroblob(3000))")
        yield
        other.execute("DROP TABLE filler")


FAULTS: dict[str, tuple[Callable[[Path], Any], str, bool]] = {
    "locked": (locked, "database is locked", True),
    "removed": (removed, "the file was removed or replaced", True),
    "replaced": (replaced, "the file was removed or replaced", True),
    "stripped": (stripped, "no such table", False),
}
"""What makes the fault, the words for who emits, and whether events are read as before."""


async def poll(client: Client, receiver: Receiver) -> Any:
    return await client.request("events/poll", m.PollEventsParams(name=NAME))


async def stream(client: Client, receiver: Receiver) -> Any:
    return await client.request("events/stream", m.StreamEventsParams(name=NAME))


async def subscribe_more(client: Client, receiver: Receiver) -> Any:
    return await subscribe(client, receiver, arguments={"carrier": "UPS"})


async def unsubscribe(client: Client, receiver: Receiver) -> Any:
    params = m.UnsubscribeEventsParams(name=NAME, delivery=m.Delivery(url=receiver.url))
    return await client.request("events/unsubscribe", params)


READS: dict[str, Callable[[Client, Receiver], Awaitable[Any]]] = {"poll": poll, "stream": stream}
WRITES: dict[str, Callable[[Client, Receiver], Awaitable[Any]]] = {
    "subscribe": subscribe_more,
    "unsubscribe": unsubscribe,
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_who_cannot_be_served_is_told_so_and_nothing_is_half_done(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    make, words, reads = FAULTS[fault]
    path = tmp_path / "shop.db"
    app, events = shop(store=f"sqlite:{path}")
    async with receiving() as receiver, following(app) as client:
        found = await subscribe(client, receiver)
        before = await events.emit(OrderShipped("0"))
        await receiver.have(1)
        await settle(lambda: events._box().subscription(found.id).position == 1)  # type: ignore[union-attr]
        with make(path):
            with pytest.raises(StoreLost, match=words):
                await events.emit(OrderShipped("1"))
            for call in (*WRITES.values(), *(() if reads else READS.values())):
                with pytest.raises(RpcError, match="Busy: events cannot be read or kept now") as caught:
                    await call(client, receiver)
                assert caught.value.data == {"retry_after": 1}
            if reads:
                assert (await poll(client, receiver)).events == []
        after = await events.emit(OrderShipped("2"))
        polled = await client.request(
            "events/poll", m.PollEventsParams(name=NAME, cursor=events._box().cursor(NAME, 0))
        )
        assert [one.event_id for one in polled.events] == [before, after]
        assert events._box().count() == 1
        assert (await subscribe(client, receiver)).id == found.id


async def fill(events: Events, kept: list[str]) -> None:
    """Emit until there is no room."""
    for number in range(100):
        kept.append(await events.emit(OrderShipped(f"{number}{'x' * 3_000}")))


async def test_a_full_disk_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    app, events = shop(store=f"sqlite:{path}", limits=EventLimits(file_size=60 * 4096))
    async with following(app) as client, receiving() as receiver:
        kept = [await events.emit(OrderShipped("0"))]
        with full(path):
            with pytest.raises(DatabaseFull, match="full"):
                await fill(events, kept)
            polled = await client.request(
                "events/poll", m.PollEventsParams(name=NAME, cursor=events._box().cursor(NAME, 0))
            )
            assert [one.event_id for one in polled.events] == kept
        kept.append(await events.emit(OrderShipped("later")))
        await subscribe(client, receiver)
        assert events._box().state(NAME).head == len(kept)


# -- faults of a file that is opened


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("text", "file is not a database"),
        ("folder", "is a directory"),
        ("nowhere", "no such file or directory"),
        ("strange", "no such column|has no column"),
        ("damaged", "malformed"),
    ],
)
async def test_a_file_that_is_no_such_store_is_not_opened(kind: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "text":
        path.write_text("this is no database at all" * 100)
    elif kind == "folder":
        path.mkdir()
    elif kind == "nowhere":
        path = path / "shop.db"
    elif kind == "strange":
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE events (id TEXT)")
    else:
        _, events = shop(store=f"sqlite:{path}")
        await events.emit(OrderShipped("1"))
        await events.close()
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    _, events = shop(store=f"sqlite:{path}")
    for _ in range(2):
        with pytest.raises(LocalError, match=f"events in sqlite:.* cannot be opened: .*({words})"):
            await events.emit(OrderShipped("1"))


def test_a_file_that_may_not_be_written_is_not_opened() -> None:
    with as_nobody(), tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/shop.db"
        asyncio.run(Outbox(f"sqlite:{path}", EventLimits()).close())
        os.chmod(path, 0o400)
        with pytest.raises(LocalError, match="cannot be opened: permission denied"):
            Outbox(f"sqlite:{path}", EventLimits())


# -- what was accepted


async def test_what_was_accepted_while_the_file_was_locked_is_not_posted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    path, clock = tmp_path / "shop.db", MovedClock()
    options: dict[str, Any] = {"store": f"sqlite:{path}", "clock": clock}
    app, events = shop(**options)
    lock = sqlite3.connect(path, isolation_level=None)

    def behave(posted: Any) -> bytes:
        if not posted.is_verification and not receiver.events:
            lock.execute("BEGIN IMMEDIATE")
        return echo(posted)

    async with receiving(behave) as receiver:
        async with following(app) as client:
            await subscribe(client, receiver)
            ids = [await events.emit(OrderShipped("1"))]
            await receiver.have(1)
            await settle(lambda: events._deliveries.delivered == 1)
            with pytest.raises(StoreLost, match="database is locked"):  # as the note of the delivery, before it
                await events.emit(OrderShipped("lost"))
            lock.execute("ROLLBACK")
            lock.close()
            clock.move(LEASE)
            ids.append(await events.emit(OrderShipped("2")))
            await receiver.have(2)
        app, events = shop(**options)
        async with following(app):  # nor after a restart
            ids.append(await events.emit(OrderShipped("3")))
            await receiver.have(3)
            assert receiver.ids == ids


# -- a clock that is set back

DAY = 86_400.0


async def test_events_are_delivered_though_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = MovedClock()
    async with receiving() as receiver:
        app, events = shop(store=f"sqlite:{tmp_path / 'shop.db'}", clock=clock)
        async with following(app) as client:
            await subscribe(client, receiver, ttl_ms=None)
            ids = []
            for number in range(3):
                ids.append(await events.emit(OrderShipped(str(number))))
                await receiver.have(number + 1)
                clock.set_back(DAY)
        assert receiver.ids == ids


async def test_a_process_takes_over_though_the_clock_was_set_back_after_another_was_killed(tmp_path: Path) -> None:
    clock, path = MovedClock(), tmp_path / "shop.db"
    async with receiving() as receiver:
        for number in range(2):
            app, events = shop(store=f"sqlite:{path}", clock=clock)
            async with following(app) as client:
                await subscribe(client, receiver, ttl_ms=None)
                await events.emit(OrderShipped(str(number)))
                for _ in range(4):  # its lease ends as one that is written now
                    clock.move(LEASE / 2)
                    await settle(lambda: clock.at_rest)
                await receiver.have(number + 1)
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("INSERT OR REPLACE INTO leases VALUES (?, 'killed', ?)", (WORK, clock.now() + LEASE))
            clock.set_back(DAY)


async def test_a_retry_comes_though_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = MovedClock()
    async with receiving() as receiver:
        app, events = shop(store=f"sqlite:{tmp_path / 'shop.db'}", clock=clock)
        async with following(app) as client:
            found = await subscribe(client, receiver, ttl_ms=None)
            receiver.behave = lambda posted: reply(500)
            await events.emit(OrderShipped("1"))
            await settle(lambda: events._box().subscription(found.id).attempts == 1)  # type: ignore[union-attr]
            receiver.behave = echo
            await settle(lambda: clock.at_rest)
            clock.set_back(DAY)
            for seconds in (LEASE, 1.1 * max(RETRIES), LEASE):  # the longest pause at most
                clock.move(seconds)
                await settle(lambda: clock.at_rest)
            await receiver.have(2)
