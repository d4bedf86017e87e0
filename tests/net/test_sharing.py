from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

import pytest

from dragoman.net.sharing import OnState, Sharing


class Connection:
    """A connection that tells what was done to it."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.alive = False
        self.states: list[OnState] = []
        self.done: list[str] = []
        self._fault = fault

    async def open(self) -> None:
        self.done.append("open")
        await asyncio.sleep(0)
        if self._fault is not None:
            raise self._fault
        self.alive = True

    async def close(self) -> None:
        self.done.append("close")
        self.alive = False

    def lost(self) -> ConnectionError:
        return ConnectionError("it is away")


class Subscription:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def makes(fault: Exception | None = None) -> Callable[[], Connection]:
    return lambda: Connection(fault)


async def test_a_wire_and_a_bus_share_and_the_last_closes() -> None:
    sharing: Sharing[Connection] = Sharing()
    wire, bus = sharing.share("url", "wire", makes()), sharing.share("url", "bus", makes())
    assert wire.connection is bus.connection
    await asyncio.gather(wire.open(), bus.open())
    one = wire.keep(Subscription())
    states: list[str] = []
    wire.watch(lambda alive, why: states.append("unwatched"))
    wire.watch(lambda alive, why: states.append("wire"))
    bus.watch(lambda alive, why: states.append("bus"))
    for on_state in wire.connection.states:
        on_state(False, "")
    assert states == ["wire", "bus"]
    await wire.close()
    await wire.close()
    assert (wire.connection.done, one.closed) == (["open"], 1)
    assert len(bus.connection.states) == 1
    another = sharing.share("url", "wire", makes())
    assert another.connection is bus.connection
    await bus.close()
    assert bus.connection.done == ["open"]
    await another.close()
    assert bus.connection.done == ["open", "close"]
    assert sharing.share("url", "wire", makes()).connection is not bus.connection


@pytest.mark.parametrize(("key", "role"), [("url", "wire"), ("another", "bus")])
async def test_two_of_a_role_and_other_places_do_not_share(key: str, role: str) -> None:
    sharing: Sharing[Connection] = Sharing()
    first, second = sharing.share("url", "wire", makes()), sharing.share(key, role, makes())
    assert first.connection is not second.connection


async def test_a_connection_that_could_not_be_opened_is_not_shared() -> None:
    sharing: Sharing[Connection] = Sharing()
    wire = sharing.share("url", "wire", makes(ConnectionRefusedError("refused")))
    bus = sharing.share("url", "bus", makes())
    for part in (wire, bus):
        with pytest.raises(ConnectionRefusedError):
            await part.open()
    assert wire.connection.done == ["open"]
    anew = sharing.share("url", "wire", makes())
    assert anew.connection is not wire.connection
    await anew.open()
    anew.connection.alive = False
    with pytest.raises(ConnectionError, match="it is away"):
        await sharing.share("url", "bus", makes()).open()


async def test_a_part_holds_no_subscription_that_is_closed() -> None:
    """It lives as long as its program: a server's bus, with subscriptions for each session."""
    part = Sharing[Connection]().share("url", "bus", makes())
    gone = weakref.ref(part.keep(Subscription()))
    assert gone() is None


def test_each_event_loop_has_its_own() -> None:
    sharing: Sharing[Connection] = Sharing()

    async def one(role: str) -> Connection:
        return sharing.share("url", role, makes()).connection

    assert asyncio.run(one("wire")) is not asyncio.run(one("bus"))
