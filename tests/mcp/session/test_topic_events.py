"""Topics of extensions on replicas: a notification reaches its subscribers at each of them, once."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.bus import Bus, BusLost, open_bus
from dragoman.bus.hub import open_hub
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Caller
from dragoman.mcp import Server
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, Revision
from dragoman.mcp.server.extending.extension import TopicGrant
from dragoman.mcp.session import shared
from dragoman.mcp.session.changes import ChangeEvent
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import Stage
from ..http_wire import Events, Place, body, standard
from ..replicas import Ring, ring, settled
from ..server.test_subscriptions import ID
from ..server.test_topics import DECLARED, METHOD, Jobs, home_of
from ..server.test_topics import listen as listen_call

stateful = pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
CHANGED = "notifications/tools/list_changed"
_names = itertools.count()


def with_jobs(**options: Any) -> tuple[Server, Stage]:
    return Server("jobs", extensions=[Jobs()], **options), Stage()


class SlowJobs(Jobs):
    """A session's keys are known only later."""

    def grant(self, topic: str, caller: Caller, value: Any) -> Any:
        async def later() -> TopicGrant:
            await settled()
            return TopicGrant(None, frozenset({"mine"}))

        return later() if value is None else super().grant(topic, caller, value)


def with_slow_jobs(**options: Any) -> tuple[Server, Stage]:
    return Server("jobs", extensions=[SlowJobs()], **options), Stage()


@pytest.fixture(params=["memory", "unix"])
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ring]:
    """Two replicas, each with an end of its own."""
    async with AsyncExitStack() as stack:
        join: Callable[[], Awaitable[Bus]] | None = None
        if request.param == "unix":
            hub = await open_hub(str(tmp_path / "bus"))
            stack.push_async_callback(hub.close)
            join = lambda: open_bus(f"unix:{tmp_path}/bus")  # noqa: E731
        yield await stack.enter_async_context(ring(2, join=join, make=with_jobs))


def notify(two: Ring, at: int, number: int, key: str = "mine") -> None:
    home_of(two.servers[at]).notify("jobs", key, {"number": number})


@asynccontextmanager
async def listening(place: Place) -> AsyncIterator[Events]:
    params = listen_call(9, jobIds=["mine"])["params"]
    async with place.stream(body("subscriptions/listen", params, 9), standard("subscriptions/listen")) as events:
        assert (await events.message())["params"]["notifications"] == {"jobIds": ["mine"]}
        yield events


async def numbers(events: Events, count: int) -> list[int]:
    """The numbers of the next notifications."""
    found = [await events.message() for _ in range(count)]
    assert {one["method"] for one in found} == {METHOD}
    return [one["params"]["number"] for one in found]


async def read_here(two: Ring, at: int) -> None:
    """Wait until a home stream has its reader at this replica."""

    def found() -> list[Any]:
        held: list[Any] = [peer._channel for peer in behind(two.servers[at]).host.peers]
        return [session for session in held if session.home.has_turn]

    await until(found)


async def test_subscribers_at_every_replica_are_notified_once(two: Ring) -> None:
    async with listening(two.places[0]) as here, listening(two.places[1]) as there:
        for events in (here, there):
            notify(two, 0, 1)
            notify(two, 0, 1)
            notify(two, 0, 0, "other")
            two.servers[0].add_tool(lambda: "", name=f"tool{next(_names)}")
            notify(two, 0, 2)
            assert await numbers(here, 3) == [1, 1, 2]
            first = await there.message()
            assert first["params"] == {"number": 1, "_meta": {ID: 9}}
            assert await numbers(there, 2) == [1, 2]
            notify(two, 1, 3)
            assert await numbers(here, 1) == await numbers(there, 1) == [3], events


@stateful
async def test_a_session_is_notified_wherever_its_reader_is(two: Ring, revision: Revision) -> None:
    sitting = await two.begin(revision, DECLARED)
    for at in (0, 1, 1, 0):
        async with two.at(at, sitting).get() as home:
            if revision.primed:
                await home.next()
            await read_here(two, at)
            for number in (1, 1, 2):
                notify(two, 0, number)
            assert await numbers(home, 3) == [1, 1, 2]
            notify(two, 1, 3)
            assert await numbers(home, 1) == [3]
    assert (await two.ask(headers=sitting.headers, method="DELETE")).status == 204


@stateful
@pytest.mark.parametrize("make", [with_jobs, with_slow_jobs])
async def test_a_session_that_moves_gets_each_that_it_missed(make: Any, revision: Revision) -> None:
    """Also equal ones, in order, and none of before it was initialized."""
    async with ring(2, make=make) as two:
        notify(two, 0, 0)
        await settled()
        sitting = await two.begin(revision, DECLARED)
        await settled()
        for number in (1, 1, 2):
            notify(two, number % 2, number)
            await settled()
        two.servers[0].add_tool(lambda: "", name="a")
        two.servers[0].add_tool(lambda: "", name="b")
        await settled()
        for server in two.servers:
            await behind(server).stop()  # the copies go
            await behind(server).join(two.buses[two.servers.index(server)])
        async with two.at(1, sitting).get() as home:
            assert await numbers(home, 3) == [1, 1, 2]
            assert (await home.message())["method"] == CHANGED
        async with two.at(0, sitting).get() as home:
            await read_here(two, 0)
            notify(two, 1, 3)
            assert await numbers(home, 1) == [3]
            assert (await two.ask(headers=sitting.headers, method="DELETE")).status == 204
            assert await home.rest() == []


async def test_where_the_log_is_incomplete_the_rest_of_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "EVENTS", 2)
    async with ring(2, make=with_jobs) as two:
        sitting = await two.begin(R2025_06, DECLARED)
        for number in range(4):
            notify(two, 0, number)
            await settled()
        async with two.at(1, sitting).get() as home:
            lists = [(await home.message())["method"] for _ in range(3)]
            assert lists[0] == CHANGED
            assert await numbers(home, 2) == [2, 3]


# -- the log ----------------------------------------------------------------------------------------


OLD = [
    (["a" * 12, "tools", ""], ChangeEvent("tools")),
    (["a" * 12, "updated", "x:a", []], ChangeEvent("updated", "x:a")),
    (["a" * 12, "prompts", "", [["prompt", "p", "1"]]], ChangeEvent("prompts", "", (("prompt", "p", "1"),))),
]


@pytest.mark.parametrize(("entry", "event"), OLD)
def test_entries_of_older_servers_are_read_and_theirs_by_older_servers(entry: list[Any], event: ChangeEvent) -> None:
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=shared.LoggedChange)
    assert (read.event, read.serial) == (event, 0)
    written = msgspec.msgpack.decode(msgspec.msgpack.encode(shared.LoggedChange.of(event, "a" * 12, 7)))
    assert written[: len(entry)] == entry


async def test_what_the_store_has_though_it_did_not_answer_is_sent_once() -> None:
    async with ring(2, make=with_jobs) as two, listening(two.places[0]) as here, listening(two.places[1]) as there:
        store: Any = two.buses[0].store
        append = store.append

        async def unanswered(*args: Any, **options: Any) -> Any:
            await append(*args, **options)
            store.append = append
            raise BusLost("no answer")

        for number in range(3):
            store.append = unanswered
            notify(two, 0, number)
            await until(lambda: store.append is append)
        notify(two, 0, 3)
        assert await numbers(here, 4) == [0, 1, 2, 3]
        assert await numbers(there, 4) == [0, 1, 2, 3]


async def test_the_first_message_that_comes_late_is_no_new_log() -> None:
    async with ring(3, make=with_jobs) as three, listening(three.places[2]) as events:
        bus: Any = three.buses[0]
        publish, late = bus.publish, list[tuple[str, bytes]]()

        async def hold(topic: str, message: bytes) -> None:
            late.append((topic, message))

        bus.publish = hold
        notify(three, 0, 1)
        await until(lambda: late)
        notify(three, 1, 2)
        assert await numbers(events, 2) == [1, 2]
        for topic, message in late:
            await publish(topic, message)
        bus.publish = publish
        await settled()
        notify(three, 0, 3)
        assert await numbers(events, 1) == [3]


async def test_what_waits_for_the_engine_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "EVENTS_SIZE", 10_000)
    name = f"topics{next(_names)}"

    async def join() -> Bus:
        return MemoryBus(name)

    async with ring(2, join=join, make=with_jobs) as two, listening(two.places[1]) as events:
        engine: Any = two.buses[0]
        engine.disconnect()
        for number in range(5):
            home_of(two.servers[0]).notify("jobs", "mine", {"number": number, "text": "x" * 3_000})
        two.servers[0].add_tool(lambda: "", name="kept")
        await until(lambda: behind(two.servers[0]).subscriptions.dropped)
        assert behind(two.servers[0]).subscriptions.dropped == 2
        engine.connect_again()
        assert await numbers(events, 3) == [2, 3, 4]


async def test_a_topic_that_a_replica_does_not_know_is_passed_over() -> None:
    """As while servers are replaced by newer ones."""
    extensions = iter([[Jobs()], []])

    def make(**options: Any) -> tuple[Server, Stage]:
        return Server("jobs", extensions=next(extensions), **options), Stage()

    async with ring(2, make=make) as two:
        sitting = await two.begin(R2025_11, DECLARED)
        async with two.at(1, sitting).get() as home:
            await home.next()
            notify(two, 0, 1)
            await settled()
            two.servers[1].add_tool(lambda: "", name="new")
            assert (await home.message())["method"] == CHANGED
