"""What holds of sessions over HTTP wherever they are kept: in this process, or in a store that replicas share."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dragoman.bus import BusLost
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.session import shared
from dragoman.rpc.middleware import Call, Next
from tests.behind import behind
from tests.transports.ends import until
from tests.transports.http.ends import wire

from ..http_wire import ME, Sitting, body, called, meta, named_by, standard
from ..replicas import KINDS, Ring, accepted, sessions, settled, text, with_files

ASKS: dict[str, Any] = {"elicitation": {}}


def error(raw: bytes) -> Any:
    return json.loads(raw)["error"]


# -- what is not taken on -------------------------------------------------------------------------


async def passing(call: Call, next: Next) -> Any:
    return await next(call)


@KINDS
@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
@pytest.mark.parametrize("json_only", [False, True])
async def test_busy_is_503_as_it_is_without_a_session(kind: str, json_only: bool, revision: Revision) -> None:
    """ "If the server cannot accept the input, it MUST return an HTTP error status code": a request that is not taken
    on is 503 in both eras, its body the error as JSON, and so is a notification."""
    async with sessions(kind, http=HttpOptions(json=json_only)) as place:
        server = place.places[0].server
        behind(server).restrict(server.limits.but(calls=1))
        here = place.at(0, await place.begin(revision))
        call = asyncio.create_task(here.post(here.tool("slow")))
        await place.stages[0].started.wait()
        alone, headers = called("slow", id=7)
        for found in (
            await here.post(here.tool("slow", 7)),
            await place.at(0, here).place.ask(alone, headers),
        ):
            assert (found.status, found.headers["retry-after"]) == (503, "1")
            assert found.headers["content-type"] == "application/json"
            said = json.loads(found.body)
            assert (said["id"], said["error"]["code"], said["error"]["data"]["limit"]) == (7, -32603, "calls")
        server.use(passing)  # what is answered in place takes no place; with middleware nothing is
        found = await here.post(body("notifications/roots/list_changed", id=None))
        assert (found.status, found.headers["retry-after"]) == (503, "1")
        assert error(found.body)["code"] == -32603
        assert json.loads(found.body).get("id", "none") == (None if revision.null_error_id else "none")
        note = body("notifications/heard/of", {"_meta": meta()}, None)
        found = await here.place.ask(note, standard("notifications/heard/of"))
        assert (found.status, found.headers["retry-after"], "id" in json.loads(found.body)) == (503, "1", False)
        place.stages[0].go.set()
        assert (await call).status == 200
        assert (await here.post(here.tool("add", 7, a=1, b=1))).status == 200


# -- what is not a message ---------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)
@pytest.mark.parametrize("id", [None, 1.5, True, [1], {}, 1e400])
async def test_an_id_that_is_none_is_a_400(kind: str, revision: Revision, id: Any) -> None:
    """ "Requests MUST include a string or integer ID [...] MUST NOT be null" (basic/index): it is not a notification,
    and "if the server cannot accept the input, it MUST return an HTTP error status code" (basic/transports)."""
    async with sessions(kind) as place:
        sitting = await place.begin(revision)
        raw = json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "add"}})
        found = await sitting.post(raw.replace("Infinity", "1e400").encode())
        assert (found.status, error(found.body)["code"]) in ((400, -32600), (400, -32700))
        assert found.headers["content-type"] == "application/json"
        assert sum(stage.runs for stage in place.stages) == 0
        assert (await sitting.post(sitting.tool("add", a=1, b=1))).status == 200


@KINDS
async def test_a_second_call_with_an_id_in_flight_is_a_400(kind: str) -> None:
    async with sessions(kind) as place:
        here = place.at(0, await place.begin())
        call = asyncio.create_task(here.post(here.tool("slow", 4)))
        await place.stages[0].started.wait()
        found = await here.post(here.tool("add", 4, a=1, b=1))
        assert (found.status, error(found.body)["data"]["id"]) == (400, 4)
        place.stages[0].go.set()
        assert text(json.loads((await call).body)) == "done"


@KINDS
@pytest.mark.parametrize("revision", [R2024_11, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_batch_where_there_are_none_is_a_400(kind: str, revision: Revision) -> None:
    async with sessions(kind) as place:
        sitting = await place.begin(revision)
        found = await sitting.post(b"[" + sitting.tool("add", a=1, b=1) + b"]")
        assert (found.status, error(found.body)["code"]) == (400, -32600)
        assert "no batches" in error(found.body)["message"]
        assert sum(stage.runs for stage in place.stages) == 0


@KINDS
async def test_a_batch_owes_an_answer_when_one_of_it_does(kind: str) -> None:
    """A notification beside a request: the POST waits, and where the request is cancelled it is not a 202."""
    async with sessions(kind) as place:
        here = place.at(0, await place.begin(R2025_03))
        note = body("notifications/roots/list_changed", id=None)
        for answered in (True, False):
            place.stages[0].started.clear()
            call = asyncio.create_task(here.post(b"[" + note + b"," + here.tool("slow", "s") + b"]"))
            await place.stages[0].started.wait()
            if answered:
                place.stages[0].go.set()
                assert [text(one) for one in json.loads((await call).body)] == ["done"]
                place.stages[0].go.clear()
            else:
                await here.post(body("notifications/cancelled", {"requestId": "s"}, None))
                found = await call
                assert (found.status, found.headers["content-type"], found.body) == (200, "text/event-stream", b"")


# -- bounds ---------------------------------------------------------------------------------------


async def opened(place: Any, who: str | None = None) -> Any:
    """An `initialize` and what came back."""
    asked = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
    return await place.ask(body("initialize", asked, 7), {"X-User": who})


async def used(place: Any, who: str | None = None) -> dict[str, str | None]:
    """A session that is in use, as the headers of its requests."""
    headers = {"Mcp-Session-Id": (await opened(place, who)).headers["mcp-session-id"], "X-User": who}
    assert (await place.ask(body("ping"), headers)).status == 200
    return headers


@KINDS
async def test_sessions_are_bounded(kind: str) -> None:
    """All that are used: the oldest of the one caller ends for a new one."""
    async with sessions(kind, http=HttpOptions(sessions=5)) as place:
        begun = [await used(place) for _ in range(60)]
        await until(
            lambda: all(len(behind(server).host.peers) <= 5 for server in place.servers)
        )  # nothing of the others is kept
        statuses = [(await place.ask(body("ping"), headers)).status for headers in begun]
        assert statuses == [404] * 55 + [200] * 5
        assert (await place.ask(headers=begun[-1], method="DELETE")).status == 204
        await used(place)
        assert (await place.ask(body("ping"), begun[-2])).status == 200


@KINDS
async def test_one_caller_takes_no_session_from_another(kind: str) -> None:
    """Who has more than a share gives way; strangers do for principals, and these not for strangers."""
    async with sessions(kind, http=HttpOptions(sessions=20), guard=named_by(b"x-user")) as place:
        ann = await used(place, "ann")
        for _ in range(30):
            await used(place)
        bob = [await used(place, "bob") for _ in range(2)]
        for _ in range(30):
            await used(place)
        assert [(await place.ask(body("ping"), one)).status for one in (ann, *bob)] == [200] * 3
        for number in range(20):
            await used(place, f"{number}")
        refused = await opened(place)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (json.loads(refused.body)["id"], error(refused.body)["code"]) == (7, -32603)


@KINDS
async def test_sessions_that_were_only_begun_give_way(kind: str) -> None:
    async with sessions(kind, http=HttpOptions(sessions=3)) as several:
        place: Any = several.places[0]  # the bound is that of each
        one = await used(place)
        begun = [(await opened(place)).headers["mcp-session-id"] for _ in range(10)]
        assert (await place.ask(body("ping"), one)).status == 200
        alive = [one for one in begun if (await place.ask(body("ping"), {"Mcp-Session-Id": one})).status == 200]
        assert len(alive) == 2
        assert begun[-1] in alive


@KINDS
async def test_no_other_message_makes_a_session_initialized(kind: str) -> None:
    """Before `notifications/initialized` the server tells nothing of its own (basic/lifecycle, "Initialization")."""
    async with sessions(kind) as place:
        here = place.at(0, Sitting(place.places[0], (await opened(place)).headers["mcp-session-id"], R2025_11))
        note = body("notifications/roots/list_changed", id=None)
        assert (await here.post(note)).status == 202
        assert (await here.post(body("ping"))).status == 200
        async with here.get() as home:
            await home.next()
            place.servers[0].add_tool(_another, name="early")
            await settled()
            assert (await here.post(body("notifications/initialized", id=None))).status == 202
            place.servers[0].add_tool(_another, name="late")
            await settled()
            assert (await place.ask(headers=here.headers, method="DELETE")).status == 204
            assert [one["method"] for one in await home.rest()] == ["notifications/tools/list_changed"]


# -- what may not be lost -------------------------------------------------------------------------


async def test_an_answer_that_cannot_be_handed_on_is_a_503() -> None:
    """A 202 says that it was accepted: the replica that asked has it, or will read it when it is back."""
    async with sessions("replica") as two:
        sitting = await two.begin(capabilities=ASKS)
        async with two.at(0, sitting).stream(sitting.tool("ask", 5)) as events:
            question = await events.message()
            bus: Any = two.buses[1]
            publish = bus.publish

            async def lost(topic: str, message: bytes) -> None:
                raise BusLost("the word did not leave")

            bus.publish = lost
            answer = accepted(question["id"], city="Ulm")
            found = await two.at(1, sitting).post(answer)
            bus.publish = publish
            assert (found.status, found.headers["retry-after"]) == (503, "1")
            assert (await two.at(1, sitting).post(answer)).status == 202
            async with asyncio.timeout(30):
                assert text(await events.message()) == "Ulm"


async def test_a_change_that_cannot_be_stored_is_a_503_and_is_made_when_it_is_asked_for_again() -> None:
    async with sessions("replica") as two:
        sitting = await two.begin()
        here = two.at(0, sitting)
        store: Any = two.buses[0].store
        append = store.append

        async def lost(*args: Any, **options: Any) -> Any:
            raise BusLost("not stored")

        change = body("logging/setLevel", {"level": "warning"}, 3)
        store.append = lost
        found = await here.post(change)
        store.append = append
        assert (found.status, found.headers["retry-after"], json.loads(found.body)["id"]) == (503, "1", 3)
        assert (await here.post(change)).status == 200


@KINDS
async def test_a_call_that_takes_too_long_is_answered_with_200(kind: str) -> None:
    """It was accepted: its error is not a refusal of HTTP."""
    async with sessions(kind) as place:
        for one in place.places:
            one.server.add_tool(_forever, name="forever", timeout=0.05)
        sitting = await place.begin()
        found = await sitting.post(sitting.tool("forever", 4))
        answer = json.loads(found.body)
        assert (found.status, answer["id"], "forever took longer than 0.05 s" in str(answer)) == (200, 4, True), answer


async def _forever() -> None:
    await asyncio.Event().wait()


async def test_changes_take_one_key_of_the_store() -> None:
    """However many lists and resources change while sessions live, and however many replicas hear of it."""
    async with sessions("replica") as two:
        sitting = await two.begin()
        for _ in range(4):  # each replica has a copy
            await sitting.post(body("ping"))
        store: Any = two.buses[0].store
        taken: set[str] = set()
        for name in ("get", "put", "put_new", "append"):
            watched(store, name, taken)
        async with two.at(0, sitting).get() as home:
            await home.next()
            for number in range(20):
                for server in two.servers:
                    server.add_tool(_another, name=f"another{number}")
                assert (await home.message())["method"] == "notifications/tools/list_changed"
                assert (await home.message())["method"] == "notifications/tools/list_changed"
        per_session = {key for key in taken if sitting.id in key}
        assert len(per_session) <= 6, per_session


async def test_a_change_costs_the_store_nothing_for_sessions_without_a_reader() -> None:
    """One operation and one broadcast; and two operations for each session that has a reader."""
    async with sessions("replica") as two:
        sittings = [await two.begin() for _ in range(6)]
        for sitting in sittings * 2:  # each replica has a copy
            await sitting.post(body("ping"))
        done: list[str] = []
        for bus in two.buses:
            for name in ("get", "put", "put_new", "append", "read", "touch", "delete"):
                counted(bus.store, name, done)
            counted(bus, "publish", done)
        two.servers[0].add_tool(_another, name="first")
        await settled()
        assert sorted(done) == ["append", "publish"]
        async with two.at(0, sittings[0]).get() as here, two.at(1, sittings[1]).get() as there:
            for home in (here, there):
                await home.next()  # it is primed
                assert (await home.message())["method"] == "notifications/tools/list_changed"
            await settled()
            done.clear()
            two.servers[0].add_tool(_another, name="second")
            for home in (here, there):
                assert (await home.message())["method"] == "notifications/tools/list_changed"
            await settled()
            assert sorted(done) == ["append"] * 3 + ["publish"] + ["put"] * 2


def counted(owner: Any, name: str, done: list[str]) -> None:
    """Note each use of a method."""
    real = getattr(owner, name)

    async def noting(*args: Any, **options: Any) -> Any:
        done.append(name)
        return await real(*args, **options)

    setattr(owner, name, noting)


async def test_changes_that_are_not_kept_any_more_are_any_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "EVENTS", 2)
    async with sessions("replica", make=with_files) as two:
        sitting = await two.begin()
        assert (await sitting.post(body("resources/subscribe", {"uri": "file:///a"}))).status == 200
        for name in "bcd":
            two.servers[0].notify_resource_updated(f"file:///{name}")
            await settled()
        async with two.at(1, sitting).get() as home:
            kinds = [(await home.message())["method"].split("/")[1] for _ in range(4)]
            assert kinds == ["tools", "prompts", "resources", "resources"]
            await settled()
            assert (await two.ask(headers=sitting.headers, method="DELETE")).status == 204
            assert await home.rest() == []


async def test_each_replica_has_the_bound_of_sessions_and_knows_which_are_used() -> None:
    async with sessions("replica", http=HttpOptions(sessions=2)) as two:
        first = await used(two.places[0])
        assert (await two.places[1].ask(body("ping"), first)).status == 200
        others = [await used(two.places[0]) for _ in range(2)]
        await settled()
        assert [(await two.places[1].ask(body("ping"), one)).status for one in (first, *others)] == [404, 200, 200]


def watched(store: Any, name: str, taken: set[str]) -> None:
    """Note the keys that a store is asked for."""
    real = getattr(store, name)

    async def noting(key: str, *args: Any, **options: Any) -> Any:
        taken.add(key)
        return await real(key, *args, **options)

    setattr(store, name, noting)


def _another() -> str:
    return ""


UPDATED = "notifications/resources/updated"


async def test_what_changed_while_no_replica_held_the_session() -> None:
    """All copies were dropped: the replica that takes the session up again says what was missed, once."""
    async with sessions("replica", make=with_files) as two:
        sitting = await two.begin()
        two.servers[0].notify_resource_updated("file:///late")
        await settled()  # it is nothing to a session that subscribes after it
        for uri in ("file:///late", "file:///a", "file:///tree"):
            assert (await sitting.post(body("resources/subscribe", {"uri": uri}))).status == 200
        two.servers[0].notify_resource_updated("file:///a")
        async with two.at(0, sitting).get() as home:
            assert (await home.message())["params"] == {"uri": "file:///a"}
        await settled()
        dropped(two)
        for uri in ("file:///a", "file:///other", "file:///tree/leaf", "file:///b"):
            two.servers[1].notify_resource_updated(uri)
        await settled()
        async with two.at(0, sitting).get() as home:
            told = [await home.message() for _ in range(2)]
            assert [one["method"] for one in told] == [UPDATED] * 2
            assert [one["params"]["uri"] for one in told] == ["file:///a", "file:///tree/leaf"]
            await settled()
            assert (await two.ask(headers=sitting.headers, method="DELETE")).status == 204
            assert await home.rest() == []


async def test_what_was_missed_is_told_by_the_replica_that_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica cannot read what was missed and refuses the stream: the next one has it. What holds is the oldest
    subscription that the change concerns."""
    async with sessions("replica", make=with_a_leaf) as two:
        sitting = await two.begin()
        assert (await sitting.post(body("resources/subscribe", {"uri": "file:///tree"}))).status == 200
        dropped(two)
        two.servers[1].notify_resource_updated("file:///tree/leaf")
        await settled()
        reading = Reading(two, monkeypatch)
        found = await two.at(1, sitting).post(body("resources/subscribe", {"uri": "file:///tree/leaf"}))
        assert json.loads(found.body)["result"] == {}
        assert (await two.places[1].ask(headers=sitting.headers, method="GET")).status == 503
        assert reading.failed == 1
        dropped(two)
        async with two.at(0, sitting).get() as home:
            told = await home.message()
            assert (told["method"], told["params"]) == (UPDATED, {"uri": "file:///tree/leaf"})


def with_a_leaf(**more: Any) -> Any:
    server, stage = with_files(**more)
    server.add_resource(_another, "file:///tree/leaf", name="leaf")
    return server, stage


class Reading:
    """The second replica cannot read the changes."""

    def __init__(self, two: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed = 0
        monkeypatch.setattr(behind(two.servers[1]).shared, "past_events", self)

    async def __call__(self, after: int) -> Any:
        self.failed += 1
        raise BusLost("away")


def dropped(two: Ring) -> None:
    """No replica holds a session any more."""
    for server in two.servers:
        for peer in tuple(behind(server).host.peers):
            held: Any = peer._channel
            held.end(ConnectionError("not used here"))


def deaf(two: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second replica's words are lost: it has given them to its bus, and no other hears them."""

    async def lost(topic: str, message: bytes) -> None:
        pass

    monkeypatch.setattr(two.buses[1], "publish", lost)


def reconnected(two: Ring) -> None:
    """The first replica was cut off, and is back."""
    bus: Any = two.buses[0]
    bus.disconnect()
    bus.connect_again()


@pytest.mark.parametrize("by", ["back", "beat"])
async def test_an_answer_whose_bus_message_was_lost_is_read(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was accepted, so it is in the store: the replica that asked reads it when it is back, and at its next beat."""
    monkeypatch.setattr(shared, "BEAT", 0.05 if by == "beat" else 600.0)
    async with sessions("replica") as two:
        sitting = await two.begin(capabilities=ASKS)
        async with two.at(0, sitting).stream(sitting.tool("ask", 5)) as events:
            question = await events.message()
            deaf(two, monkeypatch)
            assert (await two.at(1, sitting).post(accepted(question["id"], city="Ulm"))).status == 202
            if by == "back":
                reconnected(two)
            assert text(await events.message()) == "Ulm"


@pytest.mark.parametrize("at", [0, 1], ids=["where it runs", "elsewhere"])
async def test_a_cancel_is_taken_once(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word about it is lost; and what a replica handed on itself is nothing new to it."""
    async with sessions("replica") as two:
        sitting = await two.begin()
        call = asyncio.create_task(two.at(0, sitting).post(sitting.tool("slow", "mine")))
        stage = two.stages[0]
        await stage.started.wait()
        deaf(two, monkeypatch)
        cancel = body("notifications/cancelled", {"requestId": "mine"}, None)
        assert (await two.at(at, sitting).post(cancel)).status == 202
        if at == 1:
            assert not stage.cancelled.is_set()
            reconnected(two)
        await asyncio.wait_for(stage.cancelled.wait(), 20)
        assert (await call).body == b""
        # the same id again is another call, which that cancel does not concern
        stage.started.clear()
        again = asyncio.create_task(two.at(0, sitting).post(sitting.tool("slow", "mine")))
        await stage.started.wait()
        reconnected(two)
        await settled()
        stage.go.set()
        assert text(json.loads((await again).body)) == "done"


@KINDS
async def test_nothing_of_a_message_with_the_engine_away_is_accepted(kind: str) -> None:
    """503 for what needs the store, whatever it is; without a store there is no such thing."""
    async with sessions(kind) as place:
        sitting = await place.begin(R2025_03, ASKS)
        here = place.at(0, sitting)
        for bus in place.buses[:1]:
            engine: Any = bus
            engine.disconnect()
        sent = [
            here.tool("add", 1, a=1, b=1),
            body("notifications/initialized", id=None),
            body("notifications/cancelled", {"requestId": 9}, None),
            accepted(1, city="Ulm"),
            b"[" + accepted(1, city="Ulm") + b"]",
        ]
        statuses = [(await here.post(raw)).status for raw in sent]
        assert statuses == ([503] * 5 if kind == "replica" else [200, 202, 202, 202, 202])
        assert sum(stage.runs for stage in place.stages) == (kind == "memory")


# -- streams --------------------------------------------------------------------------------------

CHANGED = "notifications/tools/list_changed"


@KINDS
async def test_a_home_that_comes_back_gets_the_rest_of_its_own_and_nothing_of_another(kind: str) -> None:
    """ "The server MUST NOT replay messages that would have been delivered on a different stream"
    (basic/transports)."""
    async with sessions(kind) as place:
        sitting = await place.begin()
        server = place.servers[0]
        for name in ("a", "b", "c", "d"):
            server.add_tool(_another, name=name)
        await settled()
        async with sitting.get() as first:
            await first.next()
            begun = first.parser.last_id
            assert (await first.message())["method"] == CHANGED  # the four above are one
            server.remove_tool("a")
            assert (await first.message())["method"] == CHANGED
            async with sitting.get() as second:
                assert (await second.next()).data == b""
                server.remove_tool("b")
                assert (await second.message())["method"] == CHANGED
                await settled()
        ids = []
        async with sitting.get(begun) as again:
            for _ in range(2):  # what the first one had, and not what the second one had
                event = await again.next()
                assert event is not None
                ids.append(event.id)
            server.remove_tool("c")
            event = await again.next()
            assert event is not None
            ids.append(event.id)
        assert [int(id.partition("-")[2].partition(".")[0]) for id in ids] == [1, 2, 4]
        async with sitting.get() as fresh:  # and nothing is told again
            await fresh.next()
            server.remove_tool("d")
            assert (await fresh.message())["method"] == CHANGED
            await settled()
            assert (await place.ask(headers=sitting.headers, method="DELETE")).status == 204
            assert await fresh.rest() == []


@KINDS
async def test_streams_that_wait_are_bounded(kind: str) -> None:
    async with sessions(kind, http=HttpOptions(streams=4)) as place:
        sitting = await place.begin()
        ids = []
        for number in range(10):
            async with place.at(0, sitting).stream(sitting.tool("talk", number, "t")) as events:
                await events.rest()
                ids.append(events.parser.last_id)
        await settled()
        found = [(await place.ask(headers=sitting.headers | {"Last-Event-ID": id}, method="GET")).status for id in ids]
        assert found == [400] * 6 + [200] * 4


@KINDS
async def test_a_stream_that_is_not_resumed_is_forgotten(kind: str) -> None:
    async with sessions(kind, http=HttpOptions(resume=0.05)) as place:
        sitting = await place.begin()
        async with sitting.stream(sitting.tool("talk", 3, "t")) as events:
            await events.rest()
            headers = sitting.headers | {"Last-Event-ID": events.parser.last_id}
        async with asyncio.timeout(20):
            while (await place.ask(headers=headers, method="GET")).status != 400:
                pass


@KINDS
async def test_a_caller_that_left_before_its_stream_began_comes_back_for_it(kind: str) -> None:
    """The stream is not held for a reader that is gone, and the session is idle when the call is over."""
    async with sessions(kind, http=HttpOptions(session_idle=0.2)) as place:
        here, stage = place.at(0, await place.begin()), place.stages[0]
        raw = here.tool("slow_then_talk", 3, "t")

        @place.servers[0].tool
        async def slow_then_talk(ctx: Context) -> str:
            stage.started.set()
            await stage.go.wait()
            await ctx.progress(1)
            return "said"

        async with wire(here.place.port) as (_, writer):
            writer.write(here.place.head(here.headers, len(raw)) + raw)
            await stage.started.wait()
            writer.transport.abort()
        assert (await here.post(body("ping"))).status == 200
        stage.go.set()
        await until(lambda: not behind(place.servers[0]).call_limit.in_flight)
        session: Any = next(iter(behind(place.servers[0]).host.peers))._channel
        await until(lambda: not session.busy)


# -- draining -------------------------------------------------------------------------------------


@KINDS
async def test_a_server_that_drains_takes_nothing_new(kind: str) -> None:
    """503 and Retry-After, so that a balancer tries another; what it asked already is answered to the end."""
    async with sessions(kind) as place:
        here, stage = place.at(0, await place.begin(R2025_03, ASKS)), place.stages[0]
        later = place.at(0, await place.begin(R2025_11, ASKS))
        async with (
            later.stream(later.tool("ask", 5)) as asking,
            here.stream(here.tool("talk_and_wait", 3, "t")) as events,
        ):
            question = await asking.message()
            assert (await events.message())["params"]["progress"] == 1
            draining = asyncio.create_task(behind(place.servers[0]).drain(20))
            await until(lambda: behind(place.servers[0]).call_limit.draining)
            refused = [await here.post(one) for one in (body("ping", id=7), here.tool("add", 7, a=1, b=1))]
            refused.append(await here.post(b"[" + body("ping") + b"]"))
            asked = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
            refused.append(await here.place.ask(body("initialize", asked, 7)))
            refused.append(await here.place.ask(headers=here.headers, method="GET"))
            for found in refused:
                assert (found.status, found.headers["retry-after"]) == (503, "1")
                assert "Draining" in error(found.body)["message"]
            assert [json.loads(found.body).get("id") for found in refused] == [7, 7, None, 7, None]
            assert (await later.post(accepted(question["id"], city="Ulm"))).status == 202
            assert text(await asking.message()) == "Ulm"
            stage.go.set()
            assert [text(one) for one in (await events.rest())[1:]] == ["said"]
            await draining
