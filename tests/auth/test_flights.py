"""What is asked of others: once for the same, a bounded number at once, and a share for each address."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.allowance import Owner
from dragoman.auth.errors import IssuerAway
from dragoman.auth.flights import Flights

FLOOD, HONEST, KNOWN = Owner("192.0.2.1"), Owner("192.0.2.2"), Owner("ada", known=True)


class Asked:
    """What is asked, and answered when the gate opens."""

    def __init__(self, most: int = 4) -> None:
        self.flights: Flights[str] = Flights(most, "four at once")
        self.gate = asyncio.Event()
        self.names: list[str] = []

    async def answer(self, name: str) -> str:
        self.names.append(name)
        await self.gate.wait()
        if name == "bad":
            raise OSError("no route")
        return name.upper()

    def ask(self, name: str, owner: Owner) -> asyncio.Task[str]:
        return asyncio.create_task(self.flights.join(name, owner, lambda: self.answer(name)))


async def outcome(task: asyncio.Task[str]) -> str:
    try:
        return await task
    except (IssuerAway, OSError) as error:
        return type(error).__name__


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_same_is_asked_once_and_told_to_all() -> None:
    asked = Asked()
    tasks = [asked.ask(name, FLOOD) for name in ("a", "a", "bad", "bad", "a")]
    await settled()
    tasks[0].cancel()  # one that leaves ends it for no other
    await settled()
    asked.gate.set()
    assert [await outcome(task) for task in tasks[1:]] == ["A", "OSError", "OSError", "A"]
    assert asked.names == ["a", "bad"]
    assert len(asked.flights) == 0
    assert await asked.ask("a", HONEST) == "A"
    assert asked.names == ["a", "bad", "a"], "nothing is kept"


async def test_a_flood_of_one_address_keeps_no_other_out() -> None:
    asked = Asked()
    flood = [asked.ask(f"f{number}", FLOOD) for number in range(9)]
    await settled()
    assert asked.names == ["f0", "f1", "f2", "f3"]
    honest = [asked.ask("h", HONEST), asked.ask("k", KNOWN)]
    await settled()
    assert [await outcome(task) for task in flood[:2] + flood[4:]] == ["IssuerAway"] * 7
    asked.gate.set()
    assert [await outcome(task) for task in (*honest, *flood[2:4])] == ["H", "K", "F2", "F3"]
    assert len(asked.flights) == 0


async def test_one_that_has_to_give_way_before_it_began_is_told_so() -> None:
    asked = Asked(1)
    flood, honest = asked.ask("f", FLOOD), asked.ask("h", HONEST)
    await asyncio.sleep(0)
    asked.gate.set()
    assert [await outcome(flood), await outcome(honest)] == ["IssuerAway", "H"]
    assert asked.names == ["h"]
    assert len(asked.flights) == 0


async def test_strangers_wait_for_no_place_of_the_known() -> None:
    asked = Asked(2)
    known = [asked.ask(f"{number}", Owner(f"{number}", known=True)) for number in range(2)]
    await settled()
    with pytest.raises(IssuerAway, match="four at once"):
        await asked.ask("f", FLOOD)
    asked.gate.set()
    assert [await outcome(task) for task in known] == ["0", "1"]
