"""`memory:`: the contract, and its times by a clock of the test's own."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from dragoman.bus import Bus, BusLost, Store, open_bus
from dragoman.bus.memory import MemoryBus
from dragoman.bus.store import MemoryBusStore

from . import table


@pytest.mark.parametrize("case", table.BUS + table.STORE, ids=table.name)
async def test_contract(case: table.Case) -> None:
    url = f"memory:{uuid.uuid4()}"
    await case(lambda: open_bus(url))


async def test_what_it_is() -> None:
    bus = await open_bus("memory:known")
    assert isinstance(bus, Bus)
    assert isinstance(bus.store, Store)
    assert bus.url == "memory:known"
    await bus.close()


async def test_names_are_apart_and_end_with_their_last_end() -> None:
    one, other = MemoryBus("one"), MemoryBus("other")
    assert one.store is not None
    assert other.store is not None
    await one.store.put("key", b"1")
    assert await other.store.get("key") is None
    await one.close()
    again = MemoryBus("one")
    assert again.store is not None
    assert await again.store.get("key") is None
    for bus in (one, other, again):
        await bus.close()


async def test_an_engine_that_is_away() -> None:
    bus = MemoryBus("away")
    states: list[bool] = []
    bus.on_state = states.append
    bus.disconnect()
    bus.disconnect()
    with pytest.raises(BusLost, match=r"^memory:away: disconnected$"):
        await bus.publish("topic", b"")
    assert states == [False], "once for one outage"
    bus.connect_again()
    bus.connect_again()
    await bus.publish("topic", b"")
    assert states == [False, True]
    assert bus.measures()["bus_outages_total"] == 1
    await bus.close()
    for change in (bus.connect_again, bus.disconnect):
        change()
        assert not bus.alive
    with pytest.raises(BusLost, match=r"^memory:away: this end is closed$"):
        await bus.publish("topic", b"")
    assert states == [False, True]
    assert bus.measures()["bus_outages_total"] == 1


async def test_an_end_that_is_closed_twice_is_one_end() -> None:
    one, other = MemoryBus("twice"), MemoryBus("twice")
    assert other.store is not None
    await other.store.put("key", b"1")
    await one.close()
    await one.close()
    third = MemoryBus("twice")
    assert third.store is not None
    assert await third.store.get("key") == b"1"
    for bus in (other, third):
        await bus.close()


async def test_what_is_said_meanwhile_does_not_reach_a_user_that_is_away() -> None:
    near, far = MemoryBus("parted"), MemoryBus("parted")
    heard: list[bytes] = []
    await far.subscribe("topic", heard.append)
    for message in (b"before", b"meanwhile", b"after"):
        far.disconnect() if message == b"meanwhile" else far.connect_again()
        await near.publish("topic", message)
        await asyncio.sleep(0)
    assert heard == [b"before", b"after"]
    for bus in (near, far):
        await bus.close()


class Hands:
    """A clock that stands until it is moved."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_times_to_the_moment() -> None:
    hands = Hands()
    shelves = MemoryBusStore(hands)
    shelves.put("key", b"1", 5)
    assert shelves.append("log", b"1", 5) == 1
    hands.now += 4.9
    assert shelves.get("key") == b"1"
    assert shelves.touch("key", 5)
    hands.now += 0.2
    assert shelves.read("log") == []
    assert shelves.get("key") == b"1"
    hands.now += 4.7
    assert shelves.get("key") == b"1"
    hands.now += 0.2
    assert shelves.get("key") is None


def test_what_is_over_gives_its_room_back_without_being_asked_for() -> None:
    hands = Hands()
    shelves = MemoryBusStore(hands)
    for number in range(1_000):
        shelves.put(f"old {number}", b"1", 10)
        shelves.touch(f"old {number}", 20)  # found out when the heap looks at it at 10
    hands.now += 30
    for number in range(300):
        shelves.put(f"new {number}", b"1", 10)
    assert len(shelves) == 300


def test_a_key_that_is_put_again_and_again_takes_one_place() -> None:
    hands = Hands()
    shelves = MemoryBusStore(hands)
    for _ in range(1_000):
        shelves.put("key", b"1", 10)
        hands.now += 0.5
    assert shelves.get("key") == b"1"
    assert len(shelves) == 1
    assert len(shelves._heap) <= 2
