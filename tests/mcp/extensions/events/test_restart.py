"""The outbox in a file: what is kept after a kill -9, several processes on one file, secrets at rest."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from dragoman.events.outbox import LEASE, Outbox
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events import model as m
from dragoman.store.database import DatabaseFull
from dragoman.system.files import is_private

from .receiving import (
    OTHER,
    PATIENCE,
    SECRET,
    MovedClock,
    OrderShipped,
    Posted,
    echo,
    following,
    receiving,
    settle,
    shop,
    subscribe,
)

NAME = "order_shipped"
KEYS = ["the-first-key-of-a-shop", "the-second-key-of-a-shop"]


class Shop:
    """A process of `shop_program`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.readline()).decode().strip()

    async def emit(self, count: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n".encode())
        await self.process.stdin.drain()

    async def ids(self) -> list[str]:
        """The ids that it prints until all of what it emits is kept, or it ends."""
        found = []
        while (line := await self.line()) not in ("", "done"):
            found.append(line)
        return found

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def shop_process(path: Path, url: str = "", ahead: float = 0) -> AsyncIterator[Shop]:
    arguments = "-m", "tests.mcp.extensions.events.shop_program", str(path), url, str(ahead)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    found = Shop(process)
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).strip() == b"ready"  # a start takes what it takes
        yield found
    finally:
        if process.returncode is None:
            await found.kill()


async def test_a_kill_in_the_middle_of_a_delivery_loses_nothing_and_repeats_nothing_accepted(tmp_path: Path) -> None:
    path, hanging = tmp_path / "shop.db", asyncio.Event()

    def behave(posted: Posted) -> bytes | None:
        if posted.is_verification or len(receiver.events) < 10:
            return echo(posted)
        hanging.set()
        return None

    async with receiving(behave) as receiver:
        async with shop_process(path, receiver.url) as first:
            await first.emit(50)
            ids = await first.ids()
            async with asyncio.timeout(PATIENCE):
                await hanging.wait()
            await first.kill()
        assert len(ids) == 50
        receiver.behave = echo
        receiver.released.set()
        async with shop_process(path, ahead=LEASE + 1):
            await receiver.have(51)
            await asyncio.sleep(0.1)
        assert sorted(set(receiver.ids)) == sorted(ids)
        assert receiver.ids[10] == receiver.ids[11]  # it was not answered
        assert len(receiver.ids) == 51


async def test_what_was_emitted_is_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with shop_process(path) as one:
        await one.emit(20_000)
        ids = [await one.line() for _ in range(200)]
        await one.kill()
        ids += [line for line in await one.ids() if line]
    outbox = Outbox(f"sqlite:{path}", EventLimits(events=1_000_000))
    kept: set[str] = set()
    number = 0
    while page := outbox.read(NAME, number):
        kept |= {one.id for one in page}
        assert [one.number for one in page] == list(range(number + 1, number + 1 + len(page)))
        number = page[-1].number
    await outbox.close()
    assert kept >= {one for one in ids if len(one) == len(ids[0])}


async def test_of_two_processes_one_delivers_and_the_other_takes_over(tmp_path: Path) -> None:
    clock = MovedClock()
    options: dict[str, Any] = {"store": f"sqlite:{tmp_path / 'shop.db'}", "clock": clock}
    (first, its), (second, others) = shop(**options), shop(**options)
    async with receiving() as receiver, following(second) as client:
        ids = []
        async with following(first):
            await subscribe(client, receiver)
            for number in range(10):
                ids.append(await (its, others)[number % 2].emit(OrderShipped(str(number))))
            await receiver.have(10)
        clock.move(LEASE)  # the second looks again
        ids.append(await others.emit(OrderShipped("last")))
        await receiver.have(11)
        assert receiver.ids == ids
        await settle(lambda: its._deliveries.delivered + others._deliveries.delivered == 11)
        assert its._deliveries.delivered in (0, 10)


async def test_a_poll_that_waits_gets_what_another_process_emits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"store": f"sqlite:{tmp_path / 'shop.db'}"}
    (first, its), (_, others) = shop(**options), shop(**options)
    async with following(first) as client:
        waiting = asyncio.create_task(client.request("events/poll", m.PollEventsParams(name=NAME, timeout_ms=20_000)))
        await settle(lambda: bool(its.publisher.streams))
        id = await others.emit(OrderShipped("1"))
        assert [one.event_id for one in (await waiting).events] == [id]
        await others.close()


async def test_cursors_and_subscriptions_outlive_a_restart(tmp_path: Path) -> None:
    clock = MovedClock()
    options: dict[str, Any] = {"store": f"sqlite:{tmp_path / 'shop.db'}", "clock": clock}
    async with receiving() as receiver:
        app, events = shop(**options)
        async with following(app) as client:
            found = await subscribe(client, receiver)
            cursor = (await client.request("events/poll", m.PollEventsParams(name=NAME))).cursor
            await events.emit(OrderShipped("1"))
            await receiver.have(1)
        app, events = shop(**options)
        id = await events.emit(OrderShipped("2"))
        async with following(app) as client:
            await receiver.have(2)
            polled = await client.request("events/poll", m.PollEventsParams(name=NAME, cursor=cursor))
            assert (len(polled.events), polled.truncated) == (2, False)
            again = await subscribe(client, receiver)
            assert again.id == found.id
        assert receiver.ids[1:] == [id]
        assert len(receiver.posted) == 3  # one challenge


async def test_a_retry_comes_at_its_time_after_a_restart(tmp_path: Path) -> None:
    clock = MovedClock()
    options: dict[str, Any] = {"store": f"sqlite:{tmp_path / 'shop.db'}", "clock": clock}
    async with receiving() as receiver:
        app, events = shop(**options)
        async with following(app) as client:
            await subscribe(client, receiver)
            receiver.behave = lambda posted: b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
            await events.emit(OrderShipped("1"))
            await settle(lambda: events._deliveries.failed == 1)
        receiver.behave = echo
        app, events = shop(**options)
        async with following(app):
            clock.move(20)
            await asyncio.sleep(0.05)
            assert len(receiver.events) == 1
            clock.move(20)
            await receiver.have(2)


async def test_a_secret_is_sealed_where_there_are_keys(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with receiving() as receiver:
        for keys, sealed in ((None, False), (KEYS[0], True)):
            app, _ = shop(store=f"sqlite:{path}", keys=keys)
            async with following(app) as client:
                await subscribe(client, receiver, OTHER if sealed else SECRET)
            with closing(sqlite3.connect(path)) as db:
                [(secret,)] = db.execute("SELECT secret FROM subscriptions").fetchall()
            assert (secret.startswith(b"0whsec_"), sealed) in ((True, False), (False, True))
        app, events = shop(store=f"sqlite:{path}", keys=[KEYS[1], KEYS[0]])
        async with following(app):  # a new key seals, the old one still opens
            await events.emit(OrderShipped("1"))
            assert (await receiver.have(1))[0].is_signed_by(OTHER, SECRET)
    assert is_private(path.stat())
    assert OTHER.encode() not in path.read_bytes()


async def test_what_cannot_be_opened_rests_until_its_client_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with receiving() as receiver:
        app, _ = shop(store=f"sqlite:{path}", keys=KEYS[0])
        async with following(app) as client:
            await subscribe(client, receiver)
        app, events = shop(store=f"sqlite:{path}", keys=KEYS[1])
        async with following(app) as client:
            id = await events.emit(OrderShipped("1"))
            await settle(lambda: not _active(path))
            await subscribe(client, receiver)
            assert (await receiver.have(1))[0].is_signed_by(SECRET)
            assert receiver.ids == [id]


def _active(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as db:
        return bool(db.execute("SELECT active FROM subscriptions").fetchone()[0])


@pytest.mark.parametrize("store", ["", "sqlite:", "memory", "redis://x"])
def test_what_is_no_store(store: str) -> None:
    with pytest.raises(LocalError, match="there is no store"):
        Events(store=store)


async def test_what_is_no_outbox_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(b"something else, and long enough to be no empty file" * 100)
    events = Events(store=f"sqlite:{path}")
    events.event(OrderShipped)
    with pytest.raises(LocalError, match="events in sqlite:"):
        await events.emit(OrderShipped("1"))


async def test_emitting_at_the_same_time_is_committed_together(tmp_path: Path) -> None:
    _, events = shop(store=f"sqlite:{tmp_path / 'shop.db'}")
    ids = await asyncio.gather(*[events.emit(OrderShipped(str(number))) for number in range(1_000)])
    state = events._box().state(NAME)
    assert (len(set(ids)), state.head, state.gone) == (1_000, 1_000, 0)
    assert [one.id for one in events._box().read(NAME, 0, 1_000)] == ids
    await events.close()


async def test_a_file_that_is_full_refuses_what_is_new_and_still_answers() -> None:
    app, events = shop(limits=EventLimits(file_size=300_000))
    async with receiving() as receiver, following(app) as client:
        here = await client.request("events/poll", m.PollEventsParams(name=NAME))
        kept: list[str] = []

        async def fill() -> None:
            for number in range(1_000):
                kept.append(await events.emit(OrderShipped(f"{number}{'x' * 5_000}")))

        async def fill_up() -> None:
            for number in range(100):
                await subscribe(client, receiver, arguments={"carrier": f"{number}{'x' * 10_000}"})

        with pytest.raises(DatabaseFull):
            await fill()
        polled = await client.request("events/poll", m.PollEventsParams(name=NAME, cursor=here.cursor))
        assert [one.event_id for one in polled.events] == kept
        with pytest.raises(RpcError) as caught:
            await fill_up()
        assert (caught.value.code, caught.value.data) == (-32013, {"limit": "file_size", "max": 300_000})


async def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    app, events = shop(store=f"sqlite:{tmp_path / 'shop.db'}")
    async with receiving() as receiver, following(app) as client:
        found = await subscribe(client, receiver)
        shown = [repr(events._box().subscription(found.id)), repr(m.Delivery(url=receiver.url, secret=SECRET))]
        for text in shown:
            assert SECRET not in text
            assert SECRET[6:] not in text
            assert receiver.url not in text
