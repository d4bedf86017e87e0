"""Streams that one replica writes and another one sends on (basic/transports, "Resumability and Redelivery"), and what
happens when a replica, or what they share, goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.session import shared
from tests.behind import behind
from tests.transports.ends import PATIENCE, until

from ..http_wire import ME, body, meta, standard
from ..replicas import Ring, accepted, ring, settled, text

STATEFUL = [R2024_11, R2025_03, R2025_06, R2025_11]
RESUMABLE = [R2025_03, R2025_06, R2025_11]
stateful = pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
resumable = pytest.mark.parametrize("revision", RESUMABLE, ids=lambda one: one.date)
ASKS: dict[str, Any] = {"elicitation": {}}
CHANGED = "notifications/tools/list_changed"


@pytest.fixture
async def three() -> AsyncIterator[Ring]:
    """Three replicas."""
    async with ring(3) as found:
        yield found


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that are dead soon."""
    monkeypatch.setattr(shared, "BEAT", 0.05)
    monkeypatch.setattr(shared, "ALIVE", 0.3)


# -- streams of calls -----------------------------------------------------------------------------


@resumable
@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_a_broken_stream_is_resumed_elsewhere(kind: str, revision: Revision) -> None:
    """ "replay messages that would have been sent after the last event ID, on the stream that was disconnected"."""
    async with ring(3, kind=kind) as three:
        sitting = await three.begin(revision)
        async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            assert (await events.message())["params"]["progress"] == 1
            last = events.parser.last_id
        three.stages[0].go.set()
        for number in (1, 2, 0):  # it can be taken up more than once, by anyone
            async with three.at(number, sitting).get(last) as again:
                second, answer = await again.rest()
                assert (second["params"]["progress"], text(answer)) == (2, "said")
                assert again.headers["content-type"] == "text/event-stream"
        for number in (1, 0):
            async with three.at(number, sitting).get(again.parser.last_id) as over:
                assert await over.rest() == []


@resumable
async def test_a_stream_goes_on_elsewhere(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision)
    async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    async with three.at(1, sitting).get(last) as again:
        await until(lambda: again.status == 200)
        three.stages[0].go.set()
        second, answer = await again.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")


async def test_a_new_reader_replaces_the_one_before(three: Ring) -> None:
    sitting = await three.begin()
    async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        async with three.at(1, sitting).get(events.parser.last_id) as second:
            assert await events.message() is None
            async with three.at(2, sitting).get(events.parser.last_id) as third:
                assert await second.message() is None
                async with three.at(0, sitting).get(events.parser.last_id) as fourth:
                    assert await third.message() is None
                    three.stages[0].go.set()
                    assert len(await fourth.rest()) == 2


async def test_a_reader_on_another_replica_gives_way_to_the_next_one_there(three: Ring) -> None:
    sitting = await three.begin()
    async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    async with three.at(1, sitting).get(last) as first:
        await until(lambda: first.status == 200)
        async with three.at(1, sitting).get(last) as second:
            async with asyncio.timeout(PATIENCE):
                assert await first.message() is None
            three.stages[0].go.set()
            assert len(await second.rest()) == 2


async def test_a_stream_is_resumed_in_its_own_session_alone(three: Ring) -> None:
    """ "The server MUST NOT replay messages that would have been delivered on a different stream"."""
    mine, other = await three.begin(), await three.begin()
    async with three.at(0, mine).stream(mine.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    for number in range(3):
        found = await three.places[number].ask(b"", other.headers | {"Last-Event-ID": last}, method="GET")
        assert found.status == 400
    name, _, position = last.rpartition("-")
    for bad in ("x", f"{name}-999", f"{name}", "-1", f"{name}x-{position}", "f" * 100, f"0.{'0' * 12}.1-1"):
        found = await three.places[1].ask(b"", mine.headers | {"Last-Event-ID": bad}, method="GET")
        assert found.status == 400, bad


async def test_a_primed_stream_is_taken_up_before_it_said_anything(three: Ring) -> None:
    """ "The server SHOULD immediately send an SSE event consisting of an event ID and an empty `data` field"."""
    sitting = await three.begin()
    async with three.at(0, sitting).stream(sitting.tool("slow", 3), {"Accept": "text/event-stream"}) as events:
        first = await events.next()
        assert first.data == b""
    async with three.at(1, sitting).get(first.id) as again:
        three.stages[0].go.set()
        assert [text(one) for one in await again.rest()] == ["done"]


async def test_a_stream_that_was_closed_on_its_client_is_polled_elsewhere(three: Ring) -> None:
    """ "The server MAY close the connection [...] at any time [...] after sending an event with an ID"."""
    sitting = await three.begin()
    async with three.at(0, sitting).stream(sitting.tool("poll", 3)) as events:
        assert await events.message() is None  # the connection ends, the stream does not
        last, retry = events.parser.last_id, events.parser.retry
    assert last
    assert retry == 1000
    three.stages[0].go.set()
    async with three.at(2, sitting).get(last) as again:
        assert [text(one) for one in await again.rest()] == ["closed: True"]


async def test_a_question_on_a_resumed_stream(three: Ring) -> None:
    """Asked at A, seen at B, answered through C."""
    sitting = await three.begin(capabilities=ASKS)
    async with three.at(0, sitting).stream(sitting.tool("ask", 3)) as events:
        first = await events.next()
        assert first.data == b""
    async with three.at(1, sitting).get(first.id) as again:
        question = await again.message()
        assert (await three.at(2, sitting).post(accepted(question["id"], city="Ulm"))).status == 202
        assert text(await again.message()) == "Ulm"
        assert await again.message() is None


async def test_an_answer_that_cannot_be_read_fails_its_question_wherever_it_comes(three: Ring) -> None:
    sitting = await three.begin(capabilities=ASKS)
    async with three.at(0, sitting).stream(sitting.tool("ask", 3)) as events:
        id = (await events.message())["id"]
        refused = await three.at(1, sitting).post(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, b"9" * 400))
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, -32700)
        answer = await events.message()
        assert (answer["id"], answer["result"]["isError"]) == (3, True)


async def test_an_answer_whose_id_is_written_otherwise_finds_its_question_wherever_it_comes(three: Ring) -> None:
    sitting = await three.begin(capabilities=ASKS)
    async with three.at(0, sitting).stream(sitting.tool("ask", 3)) as events:
        id = (await events.message())["id"]
        answer = accepted(id, city="Ulm").replace(b'"id": %d' % id, b'"id": %d.0' % id)
        assert (await three.at(1, sitting).post(answer)).status == 202
        assert text(await events.message()) == "Ulm"


async def test_ids_of_events_are_unique(three: Ring) -> None:
    """ "the ID MUST be globally unique across all streams within that session"."""
    sitting = await three.begin()
    ids: list[str] = []
    for number in range(6):
        async with sitting.stream(sitting.tool("talk", number, "t")) as events:
            while (event := await events.next()) is not None:
                ids.append(event.id)
    for number in range(3):
        async with three.at(number, sitting).get() as home:
            ids.append((await home.next()).id)
            behind(three.servers[number]).catalog.remove("tool", ("add", "talk", "poll")[number])
            ids.append((await home.next()).id)
    assert all(ids)
    assert len(set(ids)) == len(ids) == 6 * 5 + 6


# -- the home stream ------------------------------------------------------------------------------


@stateful
async def test_the_home_stream_hears_of_changes_everywhere_once(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision)
    for _ in three.places:  # all of them know the session
        await sitting.post(body("ping"))
    async with three.at(1, sitting).get() as home:
        for number, tool in enumerate(("add", "talk", "poll")):
            three.servers[number].remove_tool(tool)
            assert (await home.message())["method"] == CHANGED
            await settled()
        await three.ask(b"", sitting.headers, method="DELETE")
        assert await home.rest() == []


async def test_what_comes_while_no_stream_is_open_waits(three: Ring) -> None:
    sitting = await three.begin()
    three.servers[0].remove_tool("add")
    await settled()
    async with three.at(2, sitting).get() as home:
        assert (await home.message())["method"] == CHANGED
        await settled()
    async with three.at(1, sitting).get() as home:  # it is not told again
        three.servers[0].add_tool(_another)
        three.servers[0].remove_tool("_another")
        await settled()
        await three.ask(b"", sitting.headers, method="DELETE")
        assert [one["method"] for one in await home.rest()] == [CHANGED]


def _another() -> str:
    return ""


async def test_what_comes_while_no_replica_has_the_session(three: Ring) -> None:
    """They were all restarted, one after the other."""
    sitting = await three.begin()
    for server in three.servers:
        for peer in tuple(behind(server).host.peers):
            session: Any = peer._channel
            session.end(ConnectionError("not used here"))
    three.servers[0].remove_tool("add")
    await settled()
    async with three.at(1, sitting).get() as home, three.at(2, sitting).get() as newer:
        await settled()
        await three.ask(b"", sitting.headers, method="DELETE")
        told = [one["method"] for one in (*await home.rest(), *await newer.rest())]
        assert told == [CHANGED]


@resumable
async def test_a_home_stream_is_resumed_elsewhere(three: Ring, revision: Revision) -> None:
    """ "This mechanism applies regardless of how the original stream was initiated (via POST or GET)"."""
    sitting = await three.begin(revision)
    async with three.at(0, sitting).get() as home:
        three.servers[2].remove_tool("add")
        assert (await home.message())["method"] == CHANGED
        last = home.parser.last_id
        three.servers[1].remove_tool("talk")
        assert (await home.message())["method"] == CHANGED
    async with three.at(1, sitting).get(last) as again:
        assert (await again.message())["method"] == CHANGED  # the second, again
        three.servers[0].remove_tool("poll")
        assert (await again.message())["method"] == CHANGED
        await three.ask(b"", sitting.headers, method="DELETE")
        assert await again.rest() == []


async def test_each_message_on_one_stream_only(three: Ring) -> None:
    """ "The server MUST send each of its JSON-RPC messages on only one of the connected streams"."""
    sitting = await three.begin()
    async with three.at(0, sitting).get() as older:
        await older.next()
        async with three.at(1, sitting).get() as newer:
            await newer.next()
            await settled()
            three.servers[2].remove_tool("add")
            assert (await newer.message())["method"] == CHANGED
        await until(lambda: not any(_homes(three, 1)))
        await settled()
        three.servers[2].remove_tool("talk")  # the older one has its turn again, and is not told the first
        assert (await older.message())["method"] == CHANGED
        await settled()
        await three.ask(b"", sitting.headers, method="DELETE")
        assert await older.rest() == []


def _homes(three: Ring, number: int) -> list[Any]:
    sessions: list[Any] = [peer._channel for peer in behind(three.servers[number]).host.peers]
    return [one for session in sessions for one in session.home.cursors]


# -- replicas come and go -------------------------------------------------------------------------


async def test_a_replica_that_drains(three: Ring) -> None:
    sitting = await three.begin()
    going = three.servers[0]
    async with (
        three.at(0, sitting).get() as home,
        three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events,
    ):
        await events.message()
        draining = asyncio.create_task(behind(going).drain(10))
        await until(lambda: behind(going).call_limit.draining)
        for raw in (body("ping"), sitting.tool("add", a=1, b=2)):
            refused = await three.at(0, sitting).post(raw)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        assert (await three.places[0].ask(body("initialize", params, 0))).status == 503
        three.stages[0].go.set()
        second, answer = await events.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")
        await draining
        assert await home.message() is None
        last = home.parser.last_id
    async with three.at(1, sitting).get(last) as again:
        three.servers[2].remove_tool("add")
        assert (await again.message())["method"] == CHANGED
    assert (await three.at(2, sitting).post(body("ping"))).status == 200


async def test_a_call_that_does_not_end_while_draining(three: Ring) -> None:
    """A client that comes back for its answer elsewhere is told."""
    sitting = await three.begin()
    async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
        await events.message()
        last = events.parser.last_id
    await behind(three.servers[0]).drain(0.05)
    async with three.at(1, sitting).get(last) as again:
        [answer] = await again.rest()
        assert answer["id"] == 3
        assert "draining" in answer["error"]["message"].lower()


async def test_a_replica_that_dies(hasty: None) -> None:
    """What it ran is over, and a client that asks for the rest of it is told."""
    async with ring(2) as two:
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", "mine", "t")) as events:
            await events.message()
            last = events.parser.last_id
            bus = two.buses[0]
            assert isinstance(bus, MemoryBus)
            bus.disconnect()  # for the others it is as good as dead
            async with two.at(1, sitting).get(last) as again:
                [answer] = await again.rest()
                assert (answer["id"], answer["error"]["code"]) == ("mine", -32603)
                assert "gone" in answer["error"]["message"]
            assert (await two.at(1, sitting).post(body("ping"))).status == 200


async def test_what_a_dead_replica_had_ended_is_told_once_by_all_others(hasty: None) -> None:
    """However many ask for the rest of it: what was answered stays answered, what was not fails once."""
    async with ring(3) as three:
        sitting = await three.begin()
        cut: list[str] = []
        for tool in ("talk", "talk_and_wait"):
            async with three.at(0, sitting).stream(sitting.tool(tool, tool, "t")) as events:
                await events.message()
                cut.append(events.parser.last_id)
                if tool == "talk":
                    await events.rest()
        bus = three.buses[0]
        assert isinstance(bus, MemoryBus)
        bus.disconnect()
        for last, error in zip(cut, (None, -32603), strict=True):
            for _ in range(2):
                for number in (1, 2):
                    async with three.at(number, sitting).get(last) as again:
                        rest = await again.rest()
                        said = [one.get("error", {}).get("code") for one in rest if "id" in one]
                        assert said == [error], (number, rest)


# -- what they share is away ------------------------------------------------------------------------


async def test_the_store_is_away(three: Ring) -> None:
    """Stateless calls go on; what needs the store is refused, and nothing hangs."""
    sitting = await three.begin()
    bus = three.buses[0]
    assert isinstance(bus, MemoryBus)
    here = three.at(0, sitting)
    running = asyncio.create_task(here.post(sitting.tool("slow", 8)))
    await three.stages[0].started.wait()
    async with here.stream(sitting.tool("talk_and_wait", 3, "t")) as events, here.get() as home:
        await events.message()
        await home.next()
        bus.disconnect()
        assert text(json.loads((await three.places[0].call("add", {"a": 1, "b": 2})).body)) == "3"
        for raw in (body("ping"), sitting.tool("add", a=1, b=2), body("notifications/initialized", id=None)):
            refused = await here.post(raw)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            error = json.loads(refused.body)["error"]
            assert (error["code"], error["data"]) == (-32603, {"retry_after": 1})
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        refused = await three.places[0].ask(body("initialize", params, 7))
        assert (refused.status, json.loads(refused.body)["id"]) == (503, 7)
        for method in ("GET", "DELETE"):
            assert (await three.places[0].ask(b"", sitting.headers, method=method)).status == 503
        three.servers[0].remove_tool("add")
        three.stages[0].go.set()
        assert [text(one) for one in (await events.rest())[1:]] == [
            "said"
        ]  # the reader on this replica has it all the same
        assert (await running).status == 200
        bus.connect_again()
        assert (await home.message())["method"] == CHANGED
        assert (await here.post(body("ping"))).status == 200
        await three.ask(b"", sitting.headers, method="DELETE")
        assert await home.rest() == []


async def test_what_happened_while_one_was_cut_off(three: Ring) -> None:
    sitting = await three.begin()
    for _ in three.places:
        await sitting.post(body("ping"))
    bus = three.buses[0]
    assert isinstance(bus, MemoryBus)
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
    raw, headers = body("subscriptions/listen", params, 9), standard("subscriptions/listen")
    async with three.places[0].stream(raw, headers) as listener, three.at(1, sitting).get() as home:
        await listener.message()
        bus.disconnect()
        three.servers[1].remove_tool("add")
        assert (await home.message())["method"] == CHANGED
        three.servers[0].remove_tool("talk")  # its own listeners hear of it immediately
        assert (await listener.message())["method"] == CHANGED
        bus.connect_again()
        assert (await listener.message())["method"] == CHANGED
        assert (await home.message())["method"] == CHANGED


async def test_a_session_whose_end_was_missed(three: Ring) -> None:
    sitting = await three.begin()
    call = asyncio.create_task(three.at(0, sitting).post(sitting.tool("slow")))
    await three.stages[0].started.wait()
    bus = three.buses[0]
    assert isinstance(bus, MemoryBus)
    bus.disconnect()
    assert (await three.places[1].ask(b"", sitting.headers, method="DELETE")).status == 204
    bus.connect_again()
    ended = await call
    assert (ended.status, json.loads(ended.body)["error"]["code"]) == (200, -32603)


async def test_an_answer_that_cannot_be_kept_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica that runs the call is cut off, so it does not hear where its stream is read: a report there reads."""
    monkeypatch.setattr(shared, "BEAT", 0.05)
    async with ring(2, http=HttpOptions()) as two:
        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("talk_and_wait", 3, "t")) as events:
            await events.message()
            last = events.parser.last_id
        session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
        await until(lambda: all(stream.cursor is None for stream in session.streams.values()))
        bus = two.buses[0]
        assert isinstance(bus, MemoryBus)
        bus.disconnect()
        two.stages[0].go.set()
        await until(lambda: not behind(two.servers[0]).call_limit.in_flight)
        async with two.at(1, sitting).get(last) as again:
            bus.connect_again()
            assert [text(one) for one in (await again.rest())[1:]] == ["said"]


async def test_an_answer_that_the_store_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader on the replica that says it has it; a client that resumes for it is told why it is not there."""
    most = 5_000

    async def append(self: Any, log: str, message: bytes, *args: Any, **options: Any) -> int:
        if len(message) > most:
            raise LocalError(f"{len(message)} bytes are too many for this bus; {most} may go at once")
        return await whole(self, log, message, *args, **options)

    async with ring(2, http=HttpOptions()) as two:
        whole = shared.Replica.append
        monkeypatch.setattr(shared.Replica, "append", append)

        @two.servers[0].tool
        async def long(ctx: Context) -> str:
            await ctx.progress(1)
            await two.stages[0].go.wait()
            return "x" * most

        sitting = await two.begin()
        async with two.at(0, sitting).stream(sitting.tool("long", 2, "t")) as here:
            await here.message()
            async with two.at(0, sitting).stream(sitting.tool("long", 3, "t")) as events:
                await events.message()
                last = events.parser.last_id
            session: Any = next(iter(behind(two.servers[0]).host.peers))._channel
            await until(lambda: sum(stream.cursor is None for stream in session.streams.values()) == 1)
            async with two.at(1, sitting).get(last) as there:
                two.stages[0].go.set()
                (answer,) = await there.rest()
                assert (answer["id"], answer["error"]["data"]["limit"]) == (3, "bus")
                assert "5000 may go at once" in answer["error"]["message"]
            (answer,) = await here.rest()
            assert text(answer) == "x" * most
        await until(lambda: not session.streams)
