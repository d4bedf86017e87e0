"""The slots of sessions that replicas share: each is one session's, until that is over or its time has passed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from dragoman.allowance import Owner
from dragoman.bus import Bus
from dragoman.bus.memory import MemoryBus
from dragoman.mcp.session.slots import PROBES, Slots
from tests.behind import behind

from ..replicas import ring

_names = itertools.count()
HERE, THERE = Owner("192.0.2.1"), Owner("192.0.2.2")


class Room:
    """Slots in a store whose time is moved by hand, and the sessions that had to give way."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gone: list[str] = []
        self.slots: Slots

    async def take(self, session: str, ttl: float = 100.0, *, owner: Owner | None = None) -> int | None:
        """`owner`: None: a principal of the same name."""
        return await self.slots.take(session, owner or Owner(session, known=True), ttl, self.evict)

    async def evict(self, session: str, slot: int) -> None:
        self.gone.append(session)
        await self.slots.free(slot, session)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    """Three slots."""
    found, name = Room(), f"slots{next(_names)}"

    async def join() -> Bus:
        return MemoryBus(name, clock=lambda: found.now)

    async with ring(1, join=join) as one:
        shared = behind(one.servers[0]).shared
        assert shared is not None
        found.slots = Slots(shared, 3)
        yield found


async def test_each_session_has_a_slot_of_its_own_until_it_is_over(room: Room) -> None:
    taken = {name: await room.take(name) for name in "abc"}
    assert sorted(taken.values()) == [0, 1, 2]  # type: ignore[type-var]
    for name, slot in taken.items():
        assert slot is not None
        await room.slots.use(slot, name, 100.0)
    assert await room.take("d", owner=HERE) is None
    for name, slot in taken.items():
        assert slot is not None
        await room.slots.free(slot, "another")
        assert await room.take("d", owner=HERE) is None
        await room.slots.free(slot, name)
        assert await room.take(name.upper()) == slot
        await room.slots.use(slot, name.upper(), 100.0)
    assert room.gone == []


async def test_of_those_that_were_not_used_the_oldest_gives_way(room: Room) -> None:
    taken = {name: await room.take(name) for name in "abc"}
    used = taken["a"]
    assert used is not None
    await room.slots.use(used, "a", 100.0)
    for slot in taken.values():  # of no session that has it
        assert slot is not None
        await room.slots.use(slot, "another", 100.0)
    assert [await room.take(name) for name in "de"] == [taken["b"], taken["c"]]
    assert room.gone == ["b", "c"]


async def test_who_has_most_gives_way_and_loses_what_it_began_first(room: Room) -> None:
    slots = Slots(room.slots._shared, 4)
    room.slots = slots
    for name, owner in (("x", THERE), ("a", HERE), ("b", HERE), ("c", HERE)):
        slot = await room.take(name, owner=owner)
        assert slot is not None
        await slots.use(slot, name, 100.0)
    for name, owner in (("y", THERE), ("ada", Owner("ada", known=True)), ("d", HERE)):
        slot = await room.take(name, owner=owner)
        assert slot is not None
        await slots.use(slot, name, 100.0)
    assert room.gone == ["a", "b", "x"], "at last the two addresses had equally much"


async def test_a_slot_has_the_time_of_its_sessions_last_use(room: Room) -> None:
    for name in "abc":
        slot = await room.take(name, 10.0)
        assert slot is not None
        await room.slots.use(slot, name, 10.0 if name == "b" else 1000.0)
    room.now = 20.0
    free = await room.take("d")
    assert free is not None
    await room.slots.use(free, "d", 1000.0)
    assert await room.take("e", owner=HERE) is None
    assert room.gone == []


async def test_a_slot_that_has_gone_and_none_at_all(room: Room) -> None:
    for slot in (2, -1):
        await room.slots.use(slot, "a", 10.0)
        await room.slots.free(slot, "a")
    assert [await room.take(name) is not None for name in "abc"] == [True] * 3


async def test_of_many_slots_some_are_tried(room: Room) -> None:
    many = Slots(room.slots._shared, 10 * PROBES)
    slots = {await many.take(f"{number}", HERE, 10.0, room.evict) for number in range(PROBES)}
    assert len(slots) == PROBES
    assert room.gone == []
