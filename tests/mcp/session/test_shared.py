"""What replicas tell one another of changes, and how they show that they live: also where words and the store fail."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import Bus, BusLost
from dragoman.bus.memory import MemoryBus
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.session import shared
from tests.behind import behind
from tests.transports.ends import PATIENCE, until

from ..http_wire import Events, Place, body, meta, standard
from ..replicas import Ring, accepted, ring, settled, text, with_files

ASKS: dict[str, Any] = {"elicitation": {}}
URIS = [f"file:///{name}" for name in "abcdef"]
_names = itertools.count()


@asynccontextmanager
async def listening(place: Place) -> AsyncIterator[Events]:
    """A subscription of the stateless era to these resources, that has been acknowledged."""
    params = {"notifications": {"resourceSubscriptions": URIS}, "_meta": meta()}
    async with place.stream(body("subscriptions/listen", params, 9), standard("subscriptions/listen")) as events:
        await events.message()
        yield events


async def told(events: Events) -> str:
    """The letter of the resource that changed."""
    found: str = (await events.message())["params"]["uri"]
    return found[-1]


def update(two: Ring, number: int, letter: str) -> None:
    """A resource changes at one replica."""
    two.servers[number].notify_resource_updated(f"file:///{letter}")


def of(two: Ring, number: int) -> shared.Replica:
    """What a replica shares."""
    found = behind(two.servers[number]).shared
    assert found is not None
    return found


class Words:
    """A replica's words, which are lost while `lost` is set."""

    def __init__(self, bus: Any) -> None:
        self.lost = False
        self._publish = bus.publish
        bus.publish = self

    async def __call__(self, topic: str, message: bytes) -> None:
        if not self.lost:
            await self._publish(topic, message)


# -- changes ----------------------------------------------------------------------------------------


async def test_a_change_whose_word_was_lost_is_told_before_the_next_one_as_often_as_that_happens() -> None:
    async with ring(2, make=with_files) as two, listening(two.places[1]) as events:
        words = Words(two.buses[0])
        for lost, next_one in ("ab", "cd"):
            words.lost = True
            update(two, 0, lost)
            await settled()
            words.lost = False
            update(two, 0, next_one)
            assert [await told(events), await told(events)] == [lost, next_one]
        update(two, 0, "e")
        assert await told(events) == "e"


async def test_changes_are_told_when_the_log_of_changes_is_a_new_one() -> None:
    """It ends some time after its last change, and the next one has the number 1."""
    async with ring(2, make=with_files) as two, listening(two.places[1]) as events:
        for letter in "abc":
            update(two, 0, letter)
            assert await told(events) == letter
        for server in range(2):
            await of(two, server).delete(of(two, server).key("events"))
        for letter in "def":
            update(two, 0, letter)
            assert await told(events) == letter


async def test_a_replica_that_joins_later_is_told_of_later_changes_only() -> None:
    async with ring(2, make=with_files) as two:
        server = behind(two.servers[1])
        await server.stop()
        for letter in "abc":
            update(two, 0, letter)
            await settled()
        await server.join(two.buses[1])
        async with listening(two.places[1]) as events:
            update(two, 0, "d")
            assert await told(events) == "d"


async def test_a_replica_that_is_back_looks_for_what_it_missed_and_reports_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "BEAT", 600.0)
    now, name = 0.0, f"back{next(_names)}"

    async def join() -> Bus:
        return MemoryBus(name, clock=lambda: now)

    async with ring(2, join=join, make=with_files) as two, listening(two.places[0]) as events:
        engine: Any = two.buses[0]
        engine.disconnect()
        update(two, 1, "a")
        await settled()
        now += shared.ALIVE * 1.1
        engine.connect_again()
        assert await told(events) == "a"
        assert await of(two, 1).lives(of(two, 0).number, of(two, 0).name)


async def test_changes_that_cannot_be_stored_wait_and_are_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with ring(2, make=with_files) as two, listening(two.places[1]) as events:
        store: Any = two.buses[0].store
        append, failed = store.append, 0

        async def lost(*args: Any, **options: Any) -> Any:
            nonlocal failed
            failed += 1
            raise BusLost("away")

        store.append = lost
        with caplog.at_level(logging.WARNING):
            update(two, 0, "a")
            await until(lambda: failed)
            await settled()
            store.append = append
            update(two, 0, "b")
            assert [await told(events), await told(events)] == ["a", "b"]
        assert caplog.records == []


async def test_a_fault_in_a_replicas_work_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with ring(2, make=with_files) as two:
        store: Any = two.buses[0].store

        async def broken(*args: Any, **options: Any) -> Any:
            raise ValueError("this store is broken")

        store.append = broken
        update(two, 0, "a")
        await until(lambda: caplog.records)
        [record] = caplog.records
        assert record.name == "dragoman.mcp"
        assert "this store is broken" in str(record.exc_info)


# -- life -------------------------------------------------------------------------------------------


async def test_a_replica_that_reports_lives_and_one_that_does_not_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BEAT", 0.01)
    now, name = 0.0, f"life{next(_names)}"

    async def join() -> Bus:
        return MemoryBus(name, clock=lambda: now)

    async with ring(2, join=join) as two:
        one, other = of(two, 0), of(two, 1)
        store: Any = two.buses[0].store
        touch, reports = store.touch, list[str]()

        async def counted(key: str, ttl: float) -> Any:
            found = await touch(key, ttl)
            reports.append(key)
            return found

        async def reported() -> None:
            before = len(reports)
            await until(lambda: len(reports) > before)

        store.touch = counted
        for _ in range(3):
            now += shared.ALIVE * 0.6
            await reported()
            assert await other.lives(one.number, one.name)
        engine: Any = two.buses[0]
        engine.disconnect()
        now += shared.ALIVE * 1.1
        assert not await other.lives(one.number, one.name)
        engine.connect_again()
        await reported()
        assert await other.lives(one.number, one.name)


async def test_a_replica_goes_on_reporting_after_the_store_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BEAT", 0.01)
    monkeypatch.setattr(shared, "KEPT", 0.0)  # the log of changes is to be kept at every report
    async with ring(1) as one:
        store: Any = one.buses[0].store
        touch, failed, kept = store.touch, 0, 0

        async def lost(key: str, ttl: float) -> Any:
            nonlocal failed, kept
            if not key.endswith("/events"):
                return await touch(key, ttl)
            failed += 1
            if failed < 3:
                raise BusLost("away")
            kept += 1
            return True

        store.touch = lost
        await until(lambda: kept > 1)


async def test_an_answer_is_read_at_a_later_report_if_the_store_failed_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "BEAT", 0.01)
    async with ring(2) as two:
        sitting = await two.begin(capabilities=ASKS)
        async with two.at(0, sitting).stream(sitting.tool("ask", 5)) as events:
            question = await events.message()
            store: Any = two.buses[0].store
            read, failed = store.read, 0

            async def lost(log: str, after: int = 0) -> Any:
                nonlocal failed
                if log.endswith("/inbox"):
                    failed += 1
                    raise BusLost("away")
                return await read(log, after)

            store.read = lost
            Words(two.buses[1]).lost = True
            assert (await two.at(1, sitting).post(accepted(question["id"], city="Ulm"))).status == 202
            await until(lambda: failed > 1)
            store.read = read
            assert text(await events.message()) == "Ulm"


async def test_nothing_waits_longer_than_the_patience_for_a_store_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ring(2) as two:
        sitting = await two.begin()
        monkeypatch.setattr(shared, "PATIENCE", 0.05)
        store: Any = two.buses[0].store
        read = store.read

        async def silent(*args: Any) -> Any:
            await asyncio.Event().wait()

        store.read = silent
        async with asyncio.timeout(PATIENCE):
            found = await two.at(0, sitting).post(body("ping", id=7))
        store.read = read
        assert (found.status, found.headers["retry-after"], json.loads(found.body)["id"]) == (503, "1", 7)


async def test_an_answer_is_given_up_when_no_reader_came_and_the_store_did_not_return() -> None:
    async with ring(2, http=HttpOptions(resume=0.05)) as two:
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            await events.message()
        (peer,) = behind(two.servers[0]).host.peers
        session: Any = peer._channel
        await until(lambda: not session.readers)
        engine: Any = two.buses[0]
        engine.disconnect()
        two.stages[0].go.set()
        await until(lambda: not session.streams)
        assert session.unstored == 0


@pytest.mark.parametrize("id", [-1, 2**52, 2**60, "a", None])
async def test_an_answer_to_no_question_of_a_replica_is_told_to_none(id: Any) -> None:
    """The numbers of replicas are 16 bits, and each has 2**36 ids: 2**52 belongs to none."""
    async with ring(1) as one:
        assert of(one, 0).owner(id) is None
        assert of(one, 0).owner(2**52 - 1) == 2**16 - 1
