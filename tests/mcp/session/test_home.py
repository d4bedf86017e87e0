"""The turns of a home stream's readers, here and elsewhere, and what happens to them while the store is away."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dragoman.bus import Bus, BusLost
from dragoman.bus.memory import MemoryBus
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_03, R2025_06, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.session import session as session_room
from dragoman.mcp.session import stream
from tests.behind import behind
from tests.transports.ends import until

from ..http_wire import Events
from ..replicas import KINDS, Ring, ring, sessions, settled

CHANGED = "notifications/tools/list_changed"
PROGRESS = "notifications/progress"
_names = itertools.count()


def number_of(id: str) -> int:
    """The number of an event of the home stream."""
    return int(id.partition("-")[2].partition(".")[0])


def leg_of(id: str) -> int:
    """The leg of such an event."""
    return int(id.rpartition(".")[2])


def change(place: Ring) -> None:
    """A list changes."""
    place.servers[0].add_tool(_another, name=f"another{next(_names)}")


def _another() -> str:
    return ""


async def changed(place: Ring, home: Events) -> str:
    """A list changes, and this reader is told; the id of the event."""
    change(place)
    event = await home.next()
    assert event is not None
    assert json.loads(event.data)["method"] == CHANGED
    return event.id or ""


async def homes(place: Ring, number: int, readers: int) -> None:
    """Wait until so many readers of home streams are at this replica."""

    def found() -> list[Any]:
        held: list[Any] = [peer._channel for peer in behind(place.servers[number]).host.peers]
        return [one for session in held for one in session.home.cursors]

    await until(lambda: len(found()) == readers)
    await settled()


@KINDS
async def test_each_turn_is_a_leg_and_only_the_reader_whose_turn_it_is_has_one(kind: str) -> None:
    async with sessions(kind) as place:
        here = place.at(0, await place.begin())
        async with here.get() as older:
            first = leg_of((await older.next()).id)
            async with here.get() as newer:
                second = leg_of((await newer.next()).id)
                assert second > first
                async with AsyncExitStack() as leaving:
                    third = await leaving.enter_async_context(here.get())
                    await third.next()
                    async with here.get() as fourth:
                        last = leg_of((await fourth.next()).id)
                        await leaving.aclose()  # it leaves while another has the turn, which goes on as it was
                        await homes(place, 0, 3)
                        assert leg_of(await changed(place, fourth)) == last
                await homes(place, 0, 2)
                again = await changed(
                    place, newer
                )  # it has the turn again, as a new leg, and nothing that the fourth had
                assert leg_of(again) > last
                assert number_of(again) == 2
            await homes(place, 0, 1)
            oldest = await changed(place, older)
            assert leg_of(oldest) > leg_of(again)
            assert number_of(oldest) == 3


@KINDS
@pytest.mark.parametrize("revision", [R2025_03, R2025_06], ids=lambda one: one.date)
async def test_a_home_begins_with_its_first_message_where_streams_are_not_primed(kind: str, revision: Revision) -> None:
    async with sessions(kind) as place:
        sitting = await place.begin(revision)
        change(place)
        async with sitting.get() as home:
            event = await home.next()
            assert json.loads(event.data)["method"] == CHANGED


@KINDS
async def test_a_home_that_is_resumed_is_not_primed_again(kind: str) -> None:
    """Its client has an id to return to."""
    async with sessions(kind) as place:
        sitting = await place.begin()
        async with sitting.get() as home:
            begun = (await home.next()).id
            await changed(place, home)
        async with sitting.get(begun) as again:
            event = await again.next()
            assert json.loads(event.data)["method"] == CHANGED
            assert number_of(event.id) == number_of(begun) + 1


@KINDS
async def test_a_leg_that_is_too_old_to_be_known_gets_new_messages_only(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_room, "TURNS", 2)
    async with sessions(kind, http=HttpOptions(log_messages=2)) as place:
        here = place.at(0, await place.begin())
        async with here.get() as home:
            old = (await home.next()).id
            await changed(place, home)
        for _ in range(3):
            await homes(place, 0, 0)
            async with here.get() as home:
                await home.next()
        await homes(place, 0, 0)
        async with here.get(old) as again:
            assert number_of(await changed(place, again)) == 2


@KINDS
async def test_a_leg_that_never_was_is_that_of_a_new_reader(kind: str) -> None:
    async with sessions(kind) as place:
        here = place.at(0, await place.begin())
        async with here.get("h-0.99") as home:
            assert home.status == 200
            assert number_of(await changed(place, home)) == 1


async def test_legs_go_on_for_as_long_as_the_session_lives() -> None:
    now, name = 0.0, f"legs{next(_names)}"

    async def join() -> Bus:
        return MemoryBus(name, clock=lambda: now)

    async with ring(1, join=join, http=HttpOptions(resume=5.0)) as one:
        here = one.at(0, await one.begin())
        for expected in (1, 2):
            async with here.get() as home:
                assert leg_of((await home.next()).id) == expected
            await homes(one, 0, 0)
            now += 10.0


# -- without the store ------------------------------------------------------------------------------


async def test_a_turn_that_cannot_be_taken_is_a_503() -> None:
    async with sessions("replica") as two:
        here = two.at(0, await two.begin())
        store: Any = two.buses[0].store
        append = store.append

        async def lost(log: str, *args: Any, **options: Any) -> Any:
            if log.endswith("/turn"):
                raise BusLost("not stored")
            return await append(log, *args, **options)

        store.append = lost
        refused = await two.places[0].ask(headers=here.headers, method="GET")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        store.append = append
        async with here.get() as home:
            assert leg_of((await home.next()).id) == 1


async def test_what_was_sent_is_remembered_when_the_store_takes_it_again(caplog: pytest.LogCaptureFixture) -> None:
    async with sessions("replica") as two:
        sitting = await two.begin()
        store: Any = two.buses[0].store
        put, failed = store.put, 0

        async def lost(key: str, *args: Any, **options: Any) -> Any:
            nonlocal failed
            if key.endswith("/had"):
                failed += 1
                raise BusLost("not stored")
            return await put(key, *args, **options)

        with caplog.at_level(logging.WARNING):
            async with two.at(0, sitting).get() as home:
                await home.next()
                store.put = lost
                await changed(two, home)
                await until(lambda: failed)
                store.put = put
                await changed(two, home)
                await settled()
        assert caplog.records == []
        async with two.at(1, sitting).get() as fresh:
            await fresh.next()
            assert number_of(await changed(two, fresh)) == 3


async def test_what_is_said_while_the_store_is_away_waits_for_a_reader() -> None:
    async with sessions("replica") as two:
        here, engine = two.at(0, await two.begin()), cut(two)
        call = asyncio.create_task(here.post(here.tool("talk_and_wait", 3, "t"), {"Accept": "application/json"}))
        await two.stages[0].started.wait()
        engine.disconnect()
        two.stages[0].go.set()
        assert (await call).status == 200
        engine.connect_again()
        async with here.get() as home:
            told = [await home.message() for _ in range(2)]
        assert [(one["method"], one["params"]["progress"]) for one in told] == [(PROGRESS, 1), (PROGRESS, 2)]


async def test_of_what_waits_for_the_store_notifications_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEADROOM", 3)
    async with sessions("replica") as two:

        @two.servers[0].tool
        async def wait_and_talk(ctx: Context) -> str:
            two.stages[0].started.set()
            await two.stages[0].go.wait()
            for step in range(10):
                await ctx.progress(step + 1)
            return "said"

        here, engine = two.at(0, await two.begin()), cut(two)
        call = asyncio.create_task(here.post(here.tool("wait_and_talk", 3, "t"), {"Accept": "application/json"}))
        await two.stages[0].started.wait()
        engine.disconnect()
        two.stages[0].go.set()
        assert (await call).status == 200
        engine.connect_again()
        (peer,) = behind(two.servers[0]).host.peers
        session: Any = peer._channel
        await until(lambda: not session.unstored)
        async with here.get() as home:
            said = [(await home.message())["params"]["progress"] for _ in range(3)]
            assert (await two.ask(headers=here.headers, method="DELETE")).status == 204
            assert await home.rest() == []
        assert said == [1, 2, 3]


async def test_an_older_reader_goes_on_while_the_store_is_away() -> None:
    async with sessions("replica") as two:
        here, engine = two.at(0, await two.begin()), cut(two)
        async with here.get() as older:
            await older.next()
            call = asyncio.create_task(here.post(here.tool("talk_and_wait", 3, "t"), {"Accept": "application/json"}))
            assert (await older.message())["method"] == PROGRESS
            async with here.get() as newer:
                await newer.next()
                engine.disconnect()
            await homes(two, 0, 1)
            two.stages[0].go.set()
            told = await older.message()
            assert (told["method"], told["params"]["progress"]) == (PROGRESS, 2)
            assert (await call).status == 200


def cut(two: Ring) -> Any:
    """The bus of the first replica, which can be cut off."""
    return two.buses[0]
