"""Sessions that live on several replicas at once: whichever is asked, it is the same (basic/transports, "Session
Management"; every stateful revision)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.bus import Bus, Subscription
from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2024_11, R2025_03, R2025_06, R2025_11, R2026_07, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import tools
from ..http_wire import ME, body, meta, named_by, standard
from ..replicas import Ring, accepted, ring, settled, text, with_files

STATEFUL = [R2024_11, R2025_03, R2025_06, R2025_11]
stateful = pytest.mark.parametrize("revision", STATEFUL, ids=lambda one: one.date)
ASKS: dict[str, Any] = {"elicitation": {}}


@pytest.fixture
async def three() -> AsyncIterator[Ring]:
    """Three replicas."""
    async with ring(3) as found:
        yield found


def error(raw: bytes) -> Any:
    return json.loads(raw)["error"]


# -- sessions -------------------------------------------------------------------------------------


@stateful
@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_a_session_is_known_everywhere(kind: str, revision: Revision) -> None:
    async with ring(3, kind=kind) as three:
        sitting = await three.begin(revision)
        for number in range(7):
            found = await sitting.post(sitting.tool("add", number, a=number, b=1))
            assert (found.status, text(json.loads(found.body))) == (200, str(number + 1))
        assert sorted(stage.runs for stage in three.stages) == [2, 2, 3]


@stateful
async def test_a_session_that_was_deleted_is_unknown_everywhere(three: Ring, revision: Revision) -> None:
    """ "Clients [...] SHOULD send an HTTP DELETE"; afterwards "it MUST respond [...] with HTTP 404 Not Found"."""
    sitting = await three.begin(revision)
    for _ in three.places:
        assert (await sitting.post(body("ping"))).status == 200
    assert (await three.ask(b"", sitting.headers, method="DELETE")).status == 204
    for _ in three.places:
        assert (await sitting.post(body("ping"))).status == 404
    await until(lambda: not any(behind(server).host.peers for server in three.servers))


async def test_a_delete_ends_calls_and_streams_elsewhere(three: Ring) -> None:
    sitting = await three.begin()
    call = asyncio.create_task(three.at(0, sitting).post(sitting.tool("slow")))
    async with three.at(1, sitting).get() as home:
        await three.stages[0].started.wait()
        assert (await three.places[2].ask(b"", sitting.headers, method="DELETE")).status == 204
        assert await home.message() is None
    ended = await call  # it ran: 404 would have the client begin again, and call once more
    assert (ended.status, json.loads(ended.body)["error"]["code"]) == (200, -32603)
    await three.stages[0].cancelled.wait()


async def test_an_unknown_session(three: Ring) -> None:
    for id in ("never-given", "x" * 500, "../../etc", "a b"):
        assert (await three.ask(body("ping"), {"Mcp-Session-Id": id})).status == 404
    assert (await three.ask(body("ping"), {})).status == 400


async def test_a_session_is_its_principals_alone_everywhere() -> None:
    async with ring(2, guard=named_by(b"x-user")) as two:
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        begun = await two.places[0].ask(body("initialize", params, 0), {"X-User": "ann"})
        id = begun.headers["mcp-session-id"]
        for place in (*two.places, *two.places):
            assert (await place.ask(body("ping"), {"Mcp-Session-Id": id, "X-User": "bob"})).status == 404
            assert (await place.ask(body("ping"), {"Mcp-Session-Id": id})).status == 404
            assert (await place.ask(body("ping"), {"Mcp-Session-Id": id, "X-User": "ann"})).status == 200


async def test_an_initialize_that_is_refused_makes_no_session(three: Ring) -> None:
    found = await three.ask(body("initialize", {}, 1))
    assert error(found.body)["code"] == -32602
    assert "mcp-session-id" not in found.headers
    assert not any(behind(server).host.peers for server in three.servers)


async def test_an_idle_session_ends_everywhere() -> None:
    async with ring(2, http=HttpOptions(session_idle=2.0)) as two:
        sitting = await two.begin()
        for _ in range(6):  # in use it lives on, whichever replica is asked
            await asyncio.sleep(0.5)
            assert (await sitting.post(body("ping"))).status == 200
        await asyncio.sleep(2.5)
        assert (await sitting.post(body("ping"))).status == 404
        assert (await sitting.post(body("ping"))).status == 404


# -- what a session has become --------------------------------------------------------------------


@stateful
async def test_the_log_level_holds_everywhere(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision)
    for level in ("error", "debug", "warning"):
        assert (await sitting.post(body("logging/setLevel", {"level": level}))).status == 200
        for _ in three.places:
            assert (await sitting.post(body("ping"))).status == 200
        peers = [next(iter(behind(server).host.peers)) for server in three.servers]
        assert [peer.state.log_level for peer in peers] == [level] * 3


async def test_a_log_level_reaches_calls_that_run(three: Ring) -> None:
    sitting = await three.begin()
    call = asyncio.create_task(three.at(0, sitting).post(sitting.tool("slow")))
    await three.stages[0].started.wait()
    await three.at(1, sitting).post(body("logging/setLevel", {"level": "error"}))
    peer = next(iter(behind(three.servers[0]).host.peers))
    await until(lambda: peer.state.log_level == "error")
    three.stages[0].go.set()
    assert (await call).status == 200


@stateful
async def test_subscriptions_hold_everywhere(revision: Revision) -> None:
    async with ring(3, make=with_files) as three:
        sitting = await three.begin(revision)
        async with three.at(2, sitting).get() as home:
            found = await three.at(0, sitting).post(body("resources/subscribe", {"uri": "file:///a"}))
            assert found.status == 200
            three.servers[1].notify_resource_updated("file:///a")
            told = await home.message()
            assert (told["method"], told["params"]) == ("notifications/resources/updated", {"uri": "file:///a"})
            await three.at(1, sitting).post(body("resources/unsubscribe", {"uri": "file:///a"}))
            three.servers[0].notify_resource_updated("file:///a")
            await settled()
            three.servers[2].remove_tool("add")
            assert (await home.message())["method"] == "notifications/tools/list_changed"


async def test_many_changes_of_one_session() -> None:
    """More than the log of a session keeps."""
    async with ring(2, make=with_files) as two:
        sitting = await two.begin()
        await sitting.post(body("resources/subscribe", {"uri": "file:///kept"}))
        for number in range(150):
            uri = {"uri": f"file:///{number % 3}"}
            assert (await sitting.post(body("resources/subscribe", uri))).status == 200
            assert (await sitting.post(body("resources/unsubscribe", uri))).status == 200
        await behind(two.servers[1]).stop()  # what it knew is gone
        await behind(two.servers[1]).join(two.buses[1])
        assert (await two.at(1, sitting).post(body("ping"))).status == 200
        peer = next(iter(behind(two.servers[1]).host.peers))
        assert peer.state.subscriptions == {"file:///kept"}
        assert peer.state.initialized


# -- questions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [R2025_06, R2025_11], ids=lambda one: one.date)
async def test_a_question_is_answered_through_another_replica(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision, ASKS)
    for asker, other in ((0, 1), (1, 2), (2, 0), (0, 0)):
        async with three.at(asker, sitting).stream(sitting.tool("ask", 5 + asker)) as events:
            question = await events.message()
            assert question["method"] == "elicitation/create"
            assert isinstance(question["id"], int)
            assert question["id"] < 2**53  # every JSON reader can hold it
            found = await three.at(other, sitting).post(accepted(question["id"], city="Ulm"))
            assert (found.status, found.body) == (202, b"")
            assert text(await events.message()) == "Ulm"
            assert await events.message() is None


@stateful
async def test_a_sampling_is_answered_through_another_replica(revision: Revision) -> None:
    async with ring(2, make=sampling) as two:
        sitting = await two.begin(revision, {"sampling": {}})
        async with two.at(0, sitting).stream(sitting.tool("sample")) as events:
            question = await events.message()
            said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "four"}}
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": said}
            assert (await two.at(1, sitting).post(json.dumps(answer).encode())).status == 202
            assert text(await events.message()) == "four"


def sampling(**more: Any) -> Any:
    server, stage = tools(**more)

    async def sample(ctx: Context) -> str:
        found = await ctx.sample("Two and two?", max_tokens=10)
        content: Any = found.content
        return str(content.text)

    server.add_tool(sample)
    return server, stage


async def test_ids_of_questions_differ(three: Ring) -> None:
    """ "The request ID MUST NOT have been previously used by the requestor within the same session" (basic/index)."""
    sitting = await three.begin(capabilities=ASKS)
    ids = []
    for number in range(9):
        async with sitting.stream(sitting.tool("ask", number)) as events:
            question = await events.message()
            ids.append(question["id"])
            await sitting.post(accepted(question["id"], city="Ulm"))
            assert text(await events.message()) == "Ulm"
        if number % 3 == 2:  # a replica that has forgotten the session goes on, and not anew
            for server in three.servers:
                for peer in tuple(behind(server).host.peers):
                    session: Any = peer._channel
                    session.end(ConnectionError("not used here"))
    assert len(set(ids)) == 9


async def test_an_error_and_a_senseless_answer_through_another_replica(three: Ring) -> None:
    sitting = await three.begin(capabilities=ASKS)
    for answer, expected in (
        ({"error": {"code": -1, "message": "no"}}, "The client could not answer"),
        ({"result": {"action": "accept"}, "error": 5}, "error"),
    ):
        async with three.at(0, sitting).stream(sitting.tool("ask")) as events:
            question = await events.message()
            raw = json.dumps({"jsonrpc": "2.0", "id": question["id"]} | answer).encode()
            await three.at(1, sitting).post(raw)
            found = await events.message()
            assert expected.lower() in json.dumps(found).lower()


async def test_an_answer_that_is_not_waited_for(three: Ring) -> None:
    sitting = await three.begin(capabilities=ASKS)
    for id in (1, 2**52, -1, 2**60, "a", 1.5):
        assert (await sitting.post(accepted(id, city="Ulm"))).status == 202


# -- cancelling -----------------------------------------------------------------------------------


@stateful
async def test_a_call_is_cancelled_through_another_replica(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision)
    call = asyncio.create_task(three.at(0, sitting).post(sitting.tool("slow", "mine")))
    await three.stages[0].started.wait()
    cancel = body("notifications/cancelled", {"requestId": "mine"}, None)
    assert (await three.at(1, sitting).post(cancel)).status == 202
    await three.stages[0].cancelled.wait()
    found = await call
    assert (found.status, found.body) == (200, b"")  # "MUST NOT send a response"


async def test_batches(three: Ring) -> None:
    sitting = await three.begin(R2025_03)
    for _ in three.places:
        raw = b"[%b,%b]" % (sitting.tool("add", 1, a=1, b=2), body("ping", id=2))
        found = await sitting.post(raw)
        assert sorted(one["id"] for one in json.loads(found.body)) == [1, 2]
    call = asyncio.create_task(three.at(0, sitting).post(sitting.tool("slow", 7)))
    await three.stages[0].started.wait()
    cancel = body("notifications/cancelled", {"requestId": 7}, None)
    assert (await three.at(1, sitting).post(b"[%b]" % cancel)).status == 202
    await three.stages[0].cancelled.wait()
    await call


# -- the stateless era ----------------------------------------------------------------------------


async def test_state_that_one_replica_sealed_is_opened_by_another(three: Ring) -> None:
    found = await three.places[0].call("ask", capabilities=ASKS)
    asked = json.loads(found.body)["result"]
    assert asked["resultType"] == "input_required"
    key = next(iter(asked["inputRequests"]))
    params = {
        "name": "ask",
        "arguments": {},
        "inputResponses": {key: {"action": "accept", "content": {"city": "Ulm"}}},
        "requestState": asked["requestState"],
        "_meta": meta(capabilities=ASKS),
    }
    found = await three.places[1].ask(body("tools/call", params), standard("tools/call", "ask"))
    assert text(json.loads(found.body)) == "Ulm"


async def test_a_state_is_used_once_on_all_replicas() -> None:
    """ "If the server's logic requires that [...] be processed at most once, [it] MUST enforce that invariant
    server-side" (basic/patterns/mrtr)."""
    async with ring(3, once=True) as three:
        found = await three.places[0].call("ask", capabilities=ASKS)
        asked = json.loads(found.body)["result"]
        key = next(iter(asked["inputRequests"]))
        params = {
            "name": "ask",
            "arguments": {},
            "inputResponses": {key: {"action": "accept", "content": {"city": "Ulm"}}},
            "requestState": asked["requestState"],
            "_meta": meta(capabilities=ASKS),
        }
        both = [three.ask(body("tools/call", params), standard("tools/call", "ask")) for _ in range(6)]
        answers = [json.loads(one.body) for one in await asyncio.gather(*both)]
        assert sum("result" in one for one in answers) == 1
        assert {one["error"]["data"]["reason"] for one in answers if "error" in one} == {"used"}


async def test_listeners_hear_of_changes_elsewhere(three: Ring) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
    raw, headers = body("subscriptions/listen", params, 9), standard("subscriptions/listen")
    async with three.places[0].stream(raw, headers) as here, three.places[1].stream(raw, headers) as there:
        for events in (here, there):
            assert (await events.message())["method"] == "notifications/subscriptions/acknowledged"
        three.servers[0].remove_tool("add")
        for events in (here, there):
            assert (await events.message())["method"] == "notifications/tools/list_changed"
        await settled()
        three.servers[2].remove_tool("talk")  # it has no listener
        for events in (here, there):
            assert (await events.message())["method"] == "notifications/tools/list_changed"
        await settled()
        for server in three.servers:
            await behind(server).subscriptions.close()
        for events in (here, there):  # nothing came twice
            assert [one.get("id") for one in await events.rest()] == [9]


# -- a bus, with a store and without ----------------------------------------------------------------


async def test_without_keys_there_is_no_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_SECRET", raising=False)
    bus = MemoryBus("keys")
    with pytest.raises(LocalError, match="DRAGOMAN_SECRET"):
        await behind(Server("alone")).join(bus)
    stateful_alone = Server("alone", revisions=[R2025_11])  # nothing of it is sealed
    await behind(stateful_alone).join(bus)
    await behind(stateful_alone).stop()
    monkeypatch.setenv("DRAGOMAN_SECRET", "a-secret-that-is-long-enough")
    server = Server("alone")
    await behind(server).join(bus)
    await behind(server).join(bus)
    other = MemoryBus("other")
    with pytest.raises(LocalError, match="already"):
        await behind(server).join(other)
    await behind(server).stop()
    await bus.close()
    await other.close()


class Storeless:
    """A bus without a store."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.url, self.store, self.alive, self.on_state = "amqp://somewhere", None, True, None

    async def publish(self, topic: str, message: bytes) -> None:
        await self._bus.publish(topic, message)

    async def subscribe(self, topic: str, take: Any) -> Subscription:
        return await self._bus.subscribe(topic, take)

    async def close(self) -> None:
        await self._bus.close()


async def storeless() -> Bus:
    found: Any = Storeless(MemoryBus("storeless"))
    return found  # type: ignore[no-any-return]


async def test_a_bus_that_keeps_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with ring(2, join=storeless) as two:
        assert "no sessions over HTTP" in caplog.text
        params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        found = await two.ask(body("initialize", params, 0))
        said = error(found.body)
        assert (found.status, said["code"]) == (400, -32022)
        assert "nowhere to keep a session" in said["message"]
        assert said["data"]["supported"] == [R2026_07.date]
        found = await two.ask(b"", {"Mcp-Session-Id": "x"}, method="GET")
        assert (found.status, found.headers["allow"]) == (405, "POST")
        assert text(json.loads((await two.next().call("add", {"a": 1, "b": 2})).body)) == "3"
        params = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
        async with two.places[0].stream(
            body("subscriptions/listen", params, 9), standard("subscriptions/listen")
        ) as events:
            await events.message()
            two.servers[1].remove_tool("add")
            assert (await events.message())["method"] == "notifications/tools/list_changed"
