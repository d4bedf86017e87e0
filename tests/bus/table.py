"""What every engine of a bus and a store keeps: one table of cases, run by each engine's tests.

    @pytest.mark.parametrize("case", table.BUS + table.STORE, ids=table.name)
    async def test_contract(case: table.Case) -> None:
        await case(lambda: open_bus(url))

A case gets a function that opens one more end of the same engine; it closes what it opened. Topics and keys are
new each time, so that engines that outlive a test can be shared. Times are whole seconds: some engines know no less.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import pytest

from dragoman.bus import Bus, BusLost, Store, open_bus
from dragoman.bus.contract import published_in, with_trace_context
from tests.engines.brokers import Engine

Open: TypeAlias = Callable[[], Awaitable[Bus]]
Case: TypeAlias = Callable[[Open], Awaitable[None]]
B = TypeVar("B")

PATIENCE = 20.0
LONG = 100.0
"""Seconds that no test lasts."""


def name(case: Case) -> str:
    """A case's name, for pytest's ids."""
    return str(getattr(case, "__name__", case))


def fresh(what: str) -> str:
    """A topic or a key that was never used."""
    return f"test.{what}.{uuid.uuid4().hex}"


@contextlib.asynccontextmanager
async def ends(open: Open, count: int) -> AsyncIterator[list[Bus]]:
    """So many ends of one engine, for the length of the block."""
    opened: list[Bus] = []
    try:
        for _ in range(count):
            opened.append(await open())
        yield opened
    finally:
        for bus in opened:
            await bus.close()


@contextlib.asynccontextmanager
async def opened(url: str, kind: type[B]) -> AsyncIterator[B]:
    """The bus at a URL, which is of this kind, for the length of the block."""
    async with ends(lambda: open_bus(url), 1) as (bus,):
        assert isinstance(bus, kind)
        yield bus


@contextlib.asynccontextmanager
async def store(open: Open) -> AsyncIterator[Store]:
    """A store."""
    async with ends(open, 1) as (bus,):
        assert bus.store is not None
        yield bus.store


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not await true():  # noqa: ASYNC110  (what is asked about is elsewhere)
            await asyncio.sleep(0.02)


async def take(heard: asyncio.Queue[bytes], count: int) -> list[bytes]:
    """The next messages."""
    async with asyncio.timeout(PATIENCE):
        return [await heard.get() for _ in range(count)]


# -- the bus --------------------------------------------------------------------------------------


async def the_context_of_a_message_stands_beside_it(open: Open) -> None:
    async with ends(open, 2) as (publisher, other):
        topic, heard = fresh("topic"), asyncio.Queue[bytes]()
        await other.subscribe(topic, lambda message: heard.put_nowait(message + b" in " + published_in.get().encode()))
        for message in (with_trace_context(b"one", "00-1"), b"two"):
            await publisher.publish(topic, message)
        assert await take(heard, 2) == [b"one in 00-1", b"two in "]


async def every_subscriber_hears_it_the_publisher_too(open: Open) -> None:
    async with ends(open, 3) as buses:
        topic, other = fresh("topic"), fresh("topic")
        queues: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in buses]
        for bus, queue in zip(buses, queues, strict=True):
            await bus.subscribe(topic, queue.put_nowait)
        await buses[0].publish(other, b"for no subscriber")
        await buses[0].publish(topic, b"\x00one\xff")
        assert [await take(queue, 1) for queue in queues] == [[b"\x00one\xff"]] * 3
        assert all(queue.empty() for queue in queues)


async def messages_come_in_the_order_of_their_publisher(open: Open) -> None:
    async with ends(open, 2) as (far, near):
        topic = fresh("topic")
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await near.subscribe(topic, heard.put_nowait)
        sent = [b"%d" % number for number in range(500)]
        for message in sent:
            await far.publish(topic, message)
        assert await take(heard, len(sent)) == sent


async def publishing_at_once_loses_nothing(open: Open) -> None:
    async with ends(open, 2) as (far, near):
        topic = fresh("topic")
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await near.subscribe(topic, heard.put_nowait)
        await asyncio.gather(*(far.publish(topic, b"%d" % number) for number in range(200)))
        assert sorted(int(message) for message in await take(heard, 200)) == list(range(200))


async def who_comes_later_has_missed_it(open: Open) -> None:
    async with ends(open, 2) as (far, near):
        topic = fresh("topic")
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await far.publish(topic, b"early")
        await near.subscribe(topic, heard.put_nowait)
        await far.publish(topic, b"late")
        assert await take(heard, 1) == [b"late"]


async def a_closed_subscription_hears_no_more(open: Open) -> None:
    async with ends(open, 1) as (bus,):
        topic = fresh("topic")
        first: asyncio.Queue[bytes] = asyncio.Queue()
        second: asyncio.Queue[bytes] = asyncio.Queue()
        leaving = await bus.subscribe(topic, first.put_nowait)
        await bus.subscribe(topic, second.put_nowait)
        await bus.publish(topic, b"both")
        assert (await take(first, 1), await take(second, 1)) == ([b"both"], [b"both"])
        await leaving.close()
        await leaving.close()  # once more does no harm
        await bus.publish(topic, b"one")
        assert await take(second, 1) == [b"one"]
        assert first.empty()


async def a_subscriber_that_raises_harms_nobody(open: Open) -> None:
    async with ends(open, 1) as (bus,):
        topic = fresh("topic")
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        def broken(message: bytes) -> None:
            raise ValueError("a subscriber's own fault")

        await bus.subscribe(topic, broken)
        await bus.subscribe(topic, heard.put_nowait)
        for message in (b"1", b"2"):
            await bus.publish(topic, message)
        assert await take(heard, 2) == [b"1", b"2"]


async def a_large_message_comes_whole(open: Open) -> None:
    async with ends(open, 2) as (far, near):
        topic = fresh("topic")
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await near.subscribe(topic, heard.put_nowait)
        large = bytes(range(256)) * 2_000
        await far.publish(topic, large)
        assert await take(heard, 1) == [large]


async def a_closed_end_says_so(open: Open) -> None:
    async with ends(open, 1) as (bus,):
        assert bus.alive
        states: list[bool] = []
        bus.on_state = states.append
        await bus.close()
        assert not bus.alive
        with pytest.raises(BusLost):
            await bus.publish(fresh("topic"), b"")
        with pytest.raises(BusLost):
            await bus.subscribe(fresh("topic"), print)
        if (it := bus.store) is not None:
            key = fresh("key")
            for call in (
                it.get(key),
                it.put(key, b""),
                it.put_new(key, b""),
                it.delete(key),
                it.touch(key, 1),
                it.append(key, b"", ttl=1),
                it.read(key),
            ):
                with pytest.raises(BusLost):
                    await call
        assert states == []


async def what_it_carries_is_counted(open: Open) -> None:
    async with ends(open, 2) as buses:
        topic, heard = fresh("topic"), asyncio.Queue[bytes]()
        for _ in range(2):
            await buses[1].subscribe(topic, heard.put_nowait)
        for message in (b"1", b"2", b"3"):
            await buses[0].publish(topic, message)
        await take(heard, 6)
        for bus, published, received in zip(buses, (3, 0), (0, 6), strict=True):
            counts: Any = bus
            assert counts.measures() == {
                "bus_connected": True,
                "bus_published_total": published,
                "bus_received_total": received,
                "bus_dropped_total": 0,
                "bus_outages_total": 0,
            }
            await bus.close()
            assert counts.measures()["bus_connected"] is False


BUS: list[Case] = [
    every_subscriber_hears_it_the_publisher_too,
    the_context_of_a_message_stands_beside_it,
    messages_come_in_the_order_of_their_publisher,
    publishing_at_once_loses_nothing,
    who_comes_later_has_missed_it,
    a_closed_subscription_hears_no_more,
    a_subscriber_that_raises_harms_nobody,
    a_large_message_comes_whole,
    a_closed_end_says_so,
    what_it_carries_is_counted,
]
"""Every bus."""


async def a_loss_and_a_return(open: Open, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Of an engine that the test may stop: calls raise while it is away, what was stored is there afterwards,
    subscriptions come back; the log tells of it once for each end."""
    engine.control()
    async with ends(open, 2) as (bus, far):
        states: asyncio.Queue[bool] = asyncio.Queue()
        far_states: asyncio.Queue[bool] = asyncio.Queue()
        bus.on_state, far.on_state = states.put_nowait, far_states.put_nowait
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        topic, log, it = fresh("topic"), fresh("log"), bus.store
        await bus.subscribe(topic, heard.put_nowait)
        if it is not None:
            assert await it.append(log, b"1", ttl=LONG) == 1
        await engine.kill()
        async with asyncio.timeout(PATIENCE):
            assert await states.get() is False
            assert await far_states.get() is False
        assert not bus.alive
        with pytest.raises(BusLost, match=bus.url):
            await bus.publish(topic, b"")
        with pytest.raises(BusLost, match=bus.url):
            await bus.subscribe(fresh("topic"), print)
        if it is not None:
            with pytest.raises(BusLost, match=bus.url):
                await it.read(log)
        await engine.start()
        async with asyncio.timeout(PATIENCE):
            assert await states.get() is True
            assert await far_states.get() is True
        await far.publish(topic, b"again")
        assert await take(heard, 1) == [b"again"]

        async def there() -> bool:
            try:
                return it is None or await it.read(log) == [(1, b"1")]
            except BusLost:  # JetStream comes a moment later
                return False

        await until(there)
        if it is not None:
            assert await it.append(log, b"2", ttl=LONG) == 2
            assert await it.delete(log) is True
        assert states.empty()
        assert far_states.empty()
    told = [record for record in caplog.records if "is lost, coming back: " in record.message]
    assert [record.levelname for record in told] == ["WARNING", "WARNING"]


# -- the store ------------------------------------------------------------------------------------


async def values_are_set_found_and_taken_away(open: Open) -> None:
    async with store(open) as it:
        key = fresh("key")
        assert await it.get(key) is None
        await it.put(key, b"\x00one\xff")
        assert await it.get(key) == b"\x00one\xff"
        await it.put(key, b"")
        assert await it.get(key) == b""
        assert await it.delete(key) is True
        assert await it.get(key) is None
        assert await it.delete(key) is False


async def every_end_sees_the_same_values(open: Open) -> None:
    async with ends(open, 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        key = fresh("key")
        await one.store.put(key, b"1", ttl=LONG)
        assert await other.store.get(key) == b"1"
        await one.close()
        assert await other.store.get(key) == b"1"
        await other.store.delete(key)


async def only_the_first_puts_a_new_value(open: Open) -> None:
    async with ends(open, 4) as buses:
        key = fresh("key")
        stores = [bus.store for bus in buses if bus.store is not None]
        won = await asyncio.gather(*(it.put_new(key, b"%d" % i, ttl=LONG) for i, it in enumerate(stores)))
        assert sum(won) == 1
        assert await stores[0].get(key) == b"%d" % won.index(True)
        assert await stores[1].put_new(key, b"again") is False
        assert await stores[0].delete(key)
        assert await stores[1].put_new(key, b"again", ttl=LONG) is True
        assert await stores[0].delete(key)


async def a_value_is_gone_after_its_time(open: Open) -> None:
    async with store(open) as it:
        short, kept, anew = fresh("key"), fresh("key"), fresh("key")
        await it.put(short, b"1", ttl=1)
        await it.put(kept, b"1", ttl=1)
        await it.put(kept, b"2")  # without a ttl it lives on
        await it.put(anew, b"1", ttl=1)
        await it.put(anew, b"2", ttl=LONG)

        async def gone() -> bool:
            return await it.get(short) is None

        await until(gone)
        assert await it.touch(short, LONG) is False
        assert await it.delete(short) is False
        assert await it.put_new(short, b"3", ttl=LONG) is True
        assert await it.get(short) == b"3"
        assert (await it.get(kept), await it.get(anew)) == (b"2", b"2")
        for key in (short, kept, anew):
            assert await it.delete(key) is True


async def touching_lets_live_on(open: Open) -> None:
    async with store(open) as it:
        value, log, witness, shortened = fresh("key"), fresh("log"), fresh("key"), fresh("key")
        await it.put(value, b"1", ttl=1)
        await it.append(log, b"1", ttl=1)
        await it.put(shortened, b"1", ttl=LONG)
        assert await it.touch(value, LONG) is True
        assert await it.touch(log, LONG) is True
        assert await it.touch(shortened, 1) is True
        assert await it.touch(fresh("key"), LONG) is False
        await it.put(witness, b"1", ttl=1)

        async def gone() -> bool:
            return await it.get(witness) is None and await it.get(shortened) is None

        await until(gone)
        assert await it.get(value) == b"1"
        assert await it.read(log) == [(1, b"1")]
        assert await it.delete(value) is True
        assert await it.delete(log) is True


async def a_log_is_numbered_from_one(open: Open) -> None:
    async with ends(open, 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        log = fresh("log")
        assert await other.store.read(log) == []
        numbers = [await one.store.append(log, b"\x00%d" % i, ttl=LONG) for i in range(5)]
        assert numbers == [1, 2, 3, 4, 5]
        assert await other.store.read(log) == [(i + 1, b"\x00%d" % i) for i in range(5)]
        assert await other.store.read(log, 3) == [(4, b"\x003"), (5, b"\x004")]
        assert await other.store.read(log, 5) == []
        assert await other.store.append(log, b"six", ttl=LONG) == 6
        assert await one.store.read(log, 5) == [(6, b"six")]
        assert await one.store.delete(log) is True
        assert await other.store.read(log) == []
        assert await other.store.delete(log) is False


async def a_message_has_the_number_that_it_is_for(open: Open) -> None:
    async with ends(open, 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        log = fresh("log")
        assert await one.store.append(log, b"no", ttl=LONG, number=2) == 1
        assert await other.store.read(log) == []
        assert await one.store.append(log, b"1", ttl=LONG, number=1) == 1
        for store, number in ((one.store, 1), (other.store, 1), (other.store, 3)):
            assert await store.append(log, b"no", ttl=LONG, number=number) == 2
        assert await other.store.append(log, b"2", ttl=LONG, number=2) == 2
        assert await one.store.append(log, b"3", ttl=LONG) == 3
        assert await one.store.read(log) == [(1, b"1"), (2, b"2"), (3, b"3")]
        for number in range(4, 8):  # each end takes turns with what the other has appended
            turn = (one, other)[number % 2].store
            assert turn is not None
            assert await turn.append(log, b"no", ttl=LONG, number=number + 1) == number
            assert await turn.append(log, b"%d" % number, ttl=LONG, number=number) == number
        assert await one.store.delete(log)
        assert await other.store.append(log, b"no", ttl=LONG, number=8) == 1


async def a_stranger_to_a_log_appends_the_number_that_it_has_read(open: Open) -> None:
    async with ends(open, 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        log = fresh("log")
        for number in range(1, 6):
            assert await one.store.append(log, b"%d" % number, ttl=LONG, messages=1) == number
        assert await other.store.read(log) == [(5, b"5")]
        assert await other.store.append(log, b"6", ttl=LONG, messages=1, number=6) == 6
        assert await one.store.append(log, b"7", ttl=LONG, messages=1, number=7) == 7
        assert await one.store.delete(log)


async def appending_at_once_gives_each_its_number(open: Open) -> None:
    async with ends(open, 3) as buses:
        log = fresh("log")
        stores = [bus.store for bus in buses if bus.store is not None]
        calls = [it.append(log, b"%d/%d" % (i, n), ttl=LONG) for n in range(20) for i, it in enumerate(stores)]
        numbers = await asyncio.gather(*calls)
        assert sorted(numbers) == list(range(1, 61))
        read = await stores[0].read(log)
        assert [number for number, _ in read] == list(range(1, 61))
        assert len({message for _, message in read}) == 60
        assert await stores[0].delete(log)


async def one_end_appends_many_at_once(open: Open) -> None:
    async with store(open) as it:
        log = fresh("log")
        async with asyncio.timeout(60):  # minutes, if each that is overtaken reads the log anew
            numbers = await asyncio.gather(*(it.append(log, b"%d" % n, ttl=LONG, messages=10) for n in range(1000)))
        assert sorted(numbers) == list(range(1, 1001))
        assert [number for number, _ in await it.read(log)] == list(range(991, 1001))
        assert await it.delete(log)


async def a_log_keeps_the_newest(open: Open) -> None:
    async with store(open) as it:
        log = fresh("log")
        for number in range(1, 11):
            assert await it.append(log, b"%d" % number, ttl=LONG, messages=3) == number
        assert await it.read(log) == [(8, b"8"), (9, b"9"), (10, b"10")]
        assert await it.read(log, 2) == [(8, b"8"), (9, b"9"), (10, b"10")]
        assert await it.append(log, b"x" * 100, ttl=LONG, size=101) == 11
        assert await it.read(log) == [(11, b"x" * 100)]
        assert await it.append(log, b"y" * 200, ttl=LONG, size=150) == 12  # the newest stays whatever its size
        assert await it.read(log, 10) == [(12, b"y" * 200)]
        assert await it.delete(log)


async def a_log_has_a_limit_where_none_is_given(open: Open) -> None:
    async with store(open) as it:
        long, large = fresh("log"), fresh("log")
        for number in range(1, 1_002):
            assert await it.append(long, b"%d" % number, ttl=LONG) == number
        assert await it.read(long) == [(number, b"%d" % number) for number in range(2, 1_002)]
        half = bytes(524_288)
        for number in (1, 2):
            assert await it.append(large, half, ttl=LONG) == number
        assert await it.read(large) == [(1, half), (2, half)], "a mebibyte fits exactly"
        assert await it.append(large, b"3", ttl=LONG) == 3
        assert await it.read(large) == [(2, half), (3, b"3")]
        for log in (long, large):
            assert await it.delete(log)


async def a_log_is_gone_after_its_time(open: Open) -> None:
    async with store(open) as it:
        log, kept = fresh("log"), fresh("log")
        await it.append(log, b"1", ttl=1)
        await it.append(kept, b"1", ttl=1)
        await it.append(kept, b"2", ttl=LONG)  # each message lets the whole log live anew

        async def gone() -> bool:
            return await it.read(log) == []

        await until(gone)
        assert await it.delete(log) is False
        assert await it.append(log, b"1", ttl=LONG) == 1
        assert await it.read(kept) == [(1, b"1"), (2, b"2")]
        assert await it.delete(log)
        assert await it.delete(kept)


STORE: list[Case] = [
    values_are_set_found_and_taken_away,
    every_end_sees_the_same_values,
    only_the_first_puts_a_new_value,
    a_value_is_gone_after_its_time,
    touching_lets_live_on,
    a_log_is_numbered_from_one,
    a_message_has_the_number_that_it_is_for,
    a_stranger_to_a_log_appends_the_number_that_it_has_read,
    appending_at_once_gives_each_its_number,
    one_end_appends_many_at_once,
    a_log_keeps_the_newest,
    a_log_has_a_limit_where_none_is_given,
    a_log_is_gone_after_its_time,
]
"""Every store."""
