"""What clients get when something changes (2026-07-28's basic/patterns/subscriptions; server/resources before it)."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dragoman.channel import Caller, Closed, Options
from dragoman.jsonrpc.codec import AnyAnswer, text_of
from dragoman.jsonrpc.limits import CLIENT
from dragoman.mcp.client.client import Client
from dragoman.mcp.protocol.revisions import R2024_11, R2025_11, R2026_07, Revision
from dragoman.mcp.server.server import Server
from dragoman.schemes import dial
from dragoman.serving import serve
from dragoman.transports.memory import pair
from tests.behind import behind

from ..asking_server import Stand, Wire, meta
from ..calling import calling
from ..http_tools import tools
from ..http_wire import body, named_by, standard
from ..http_wire import meta as http_meta
from ..http_wire import served as http_served

ID = "io.modelcontextprotocol/subscriptionId"
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["test://one", "file:///dir"],
}


def listen(id: Any = 1, **wanted: Any) -> dict[str, Any]:
    params = {"_meta": meta(), "notifications": wanted or EVERYTHING}
    return {"id": id, "method": "subscriptions/listen", "params": params}


async def opened(wire: Wire, id: Any = 1, **wanted: Any) -> Any:
    """Listen; gives what the server agreed to."""
    wire.send(listen(id, **wanted))
    first = await wire.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["_meta"] == {ID: id}
    return first["params"]["notifications"]


async def test_the_acknowledgment_comes_first_and_says_what_will_be_told() -> None:
    """ "Notification types the server does not support are omitted": this one has no prompts."""
    wire = Stand().wire()
    agreed = await opened(wire)
    assert agreed == {
        "toolsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["test://one", "file:///dir"],
    }


async def test_what_is_told_carries_the_id_of_its_subscription() -> None:
    stand = Stand()
    wire = stand.wire()
    await opened(wire, "sub-1")
    stand.subscriptions.changed("tools")
    assert await wire.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": {ID: "sub-1"}},
    }
    stand.subscriptions.updated("test://one")
    assert await wire.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/resources/updated",
        "params": {"_meta": {ID: "sub-1"}, "uri": "test://one"},
    }


async def test_nothing_is_told_that_was_not_asked_for() -> None:
    """ "The server MUST NOT send notification types the client has not explicitly requested."."""
    stand = Stand()
    wire = stand.wire()
    assert await opened(wire, resourcesListChanged=True, toolsListChanged=False) == {"resourcesListChanged": True}
    hub = stand.subscriptions
    hub.changed("tools")
    hub.changed("prompts")
    hub.updated("test://one")
    hub.changed("resources")
    assert (await wire.next())["method"] == "notifications/resources/list_changed"
    assert await wire.quiet()


async def test_an_empty_filter_is_a_subscription_to_nothing() -> None:
    stand = Stand()
    wire = stand.wire()
    wire.send({"id": 1, "method": "subscriptions/listen", "params": {"_meta": meta(), "notifications": {}}})
    assert (await wire.next())["params"]["notifications"] == {}
    stand.subscriptions.changed("tools")
    assert await wire.quiet()


async def test_several_subscriptions_on_one_channel() -> None:
    """ "A client MAY have multiple active subscriptions concurrently"."""
    stand = Stand()
    wire = stand.wire()
    await opened(wire, 1, toolsListChanged=True)
    await opened(wire, 2, toolsListChanged=True, resourceSubscriptions=["test://one"])
    stand.subscriptions.changed("tools")
    told = [await wire.next(), await wire.next()]
    assert {one["params"]["_meta"][ID] for one in told} == {1, 2}
    stand.subscriptions.updated("test://one")
    assert (await wire.next())["params"]["_meta"] == {ID: 2}


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("test://one", True),
        ("test://one/part", True),
        ("test://one/", True),
        ("test://one?part=2", True),
        ("test://one#part", True),
        ("test://onetwo", False),
        ("test://two", False),
        ("file:///dir/a/b.txt", True),
        ("file:///directory", False),
        ("file:///", False),
    ],
)
async def test_a_resource_below_one_that_was_subscribed_to(uri: str, told: bool) -> None:
    """The schema: "This might be a sub-resource of the one that the client actually subscribed to."."""
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    stand.subscriptions.updated(uri)
    stand.subscriptions.changed("tools")
    first = await wire.next()
    assert (first["params"].get("uri") == uri) is told


async def test_changes_of_one_turn_are_told_once() -> None:
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    for _ in range(100):
        stand.subscriptions.changed("tools")
        stand.subscriptions.updated("test://one")
    assert [(await wire.next())["method"].split("/")[1] for _ in range(2)] == ["tools", "resources"]
    assert await wire.quiet()


async def test_from_any_thread() -> None:
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    threads = [threading.Thread(target=stand.subscriptions.changed, args=("tools",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert (await wire.next())["method"] == "notifications/tools/list_changed"
    for thread in threads:
        thread.join()


def test_without_listeners_and_without_a_loop() -> None:
    hub = Stand().subscriptions
    hub.changed("tools")
    hub.updated("test://one")
    assert len(hub) == 0


async def test_the_client_cancels() -> None:
    """ "Not send a response for the cancelled request" (basic/patterns/cancellation)."""
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    wire.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert await wire.quiet()
    assert len(stand.subscriptions) == 0
    stand.subscriptions.changed("tools")
    assert await wire.quiet()


async def test_the_channel_ends() -> None:
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    await wire.channel.close()
    await until(lambda: not len(stand.subscriptions))


async def test_the_server_ends_it_with_a_result() -> None:
    """ "it SHOULD respond to the original `subscriptions/listen` request with a completion result", and on a shared
    channel "MUST send `notifications/cancelled`" (basic/patterns/cancellation)."""
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    await stand.subscriptions.close()
    assert await wire.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"_meta": {ID: 1}, "requestId": 1},
    }
    last = await wire.next()
    assert last["id"] == 1
    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][ID] == 1
    assert last["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "stand"
    await stand.subscriptions.close()


async def test_it_does_not_count_as_a_call_in_flight_and_has_no_time() -> None:
    stand = Stand()
    wire = stand.wire()
    await opened(wire)
    assert stand.host.call_limit.in_flight == 0
    await stand.subscriptions.close()
    await until(lambda: not stand.host.runs)
    assert stand.host.call_limit.in_flight == 0


async def test_there_is_a_limit() -> None:
    stand = Stand()
    stand.subscribe(limit=2, per_peer=1, uris=2)
    one, two, three = stand.wire(), stand.wire(), stand.wire()
    await opened(one)
    one.send(listen(2))
    busy = await one.next()
    assert busy["error"]["code"] == -32603
    assert busy["error"]["data"]["allowed"] == 1
    two.send(listen(1, resourceSubscriptions=["a:1", "a:2", "a:3"]))
    assert (await two.next())["error"]["code"] == -32602
    await opened(two)
    three.send(listen(1))
    assert (await three.next())["error"]["data"] == {"limit": "subscriptions", "allowed": 2, "retry_after": 60}


# -- over exchanges -------------------------------------------------------------------------------


class Post:
    """An exchange whose answer may be a stream: what an HTTP server makes of a POST."""

    def __init__(self, message: dict[str, Any], *, streams: bool = True) -> None:
        self.request = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self.caller = Caller(scheme="http")
        self.gone: Callable[[], None] | None = None
        self.sent: list[Any] = []
        self.takes = streams
        self.answered = asyncio.Event()

    def respond(self, answer: AnyAnswer) -> None:
        text = text_of(answer)
        self.sent.append(None if text is None else json.loads(text))
        self.answered.set()

    def stream(self, message: bytes) -> bool:
        if self.takes:
            self.sent.append(json.loads(message))
        return self.takes


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110  (what is waited for gives no sign)
            await asyncio.sleep(0.005)


async def test_over_http_the_stream_is_the_subscription() -> None:
    stand = Stand()
    post = Post(listen(7, toolsListChanged=True))
    stand.host.exchange(post)
    await until(lambda: post.sent)
    stand.subscriptions.changed("tools")
    await until(lambda: len(post.sent) == 2)
    assert [one["params"]["_meta"] for one in post.sent] == [{ID: 7}, {ID: 7}]
    await stand.subscriptions.close()
    assert post.sent[2]["result"]["_meta"][ID] == 7
    assert len(post.sent) == 3  # closing the stream is what cancels it there


async def test_the_client_closes_the_stream() -> None:
    """ "close the SSE stream (HTTP)"."""
    stand = Stand()
    post = Post(listen())
    stand.host.exchange(post)
    await until(lambda: post.sent)
    assert post.gone is not None
    post.gone()
    await until(lambda: not len(stand.subscriptions))


async def test_a_wire_without_streams_is_refused() -> None:
    stand = Stand()
    post = Post(listen(), streams=False)
    stand.host.exchange(post)
    await until(lambda: post.sent)
    assert post.sent[0]["error"]["code"] == -32603
    assert len(stand.subscriptions) == 0


async def test_a_slow_reader_hears_each_change_once() -> None:
    stand = Stand()
    hub = stand.subscriptions
    post = Post(listen())
    stand.host.exchange(post)
    await until(lambda: post.sent)
    post.takes = False
    for _ in range(3):
        hub.changed("tools")
        hub.updated("test://one")
        await asyncio.sleep(0)
    await until(lambda: hub.held)
    post.takes = True
    await until(lambda: len(post.sent) == 3)
    assert [one["method"] for one in post.sent[1:]] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert hub.held == 1
    assert hub.dropped == 0


async def test_what_waits_for_a_slow_reader_is_bounded() -> None:
    """However many resources below the one that it subscribed to change meanwhile."""
    stand = Stand()
    stand.subscribe(uris=2)
    hub = stand.subscriptions
    post = Post(listen())
    stand.host.exchange(post)
    await until(lambda: post.sent)
    post.takes = False
    for number in range(9):
        hub.updated(f"file:///dir/{number}")
        await until(lambda: not hub._awake)
    assert hub.measures()["subscriber_lag"] == 3
    post.takes = True
    await until(lambda: len(post.sent) == 4)
    told = [one["params"]["uri"] for one in post.sent[1:]]
    assert told == ["file:///dir/0", "file:///dir/1", "file:///dir"]


# -- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [R2024_11, R2025_11])
async def test_a_session_hears_of_changed_lists(revision: Any) -> None:
    stand = Stand()
    wire = stand.wire(revision)
    stand.subscriptions.changed("tools")
    assert await wire.next() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    stand.subscriptions.changed("prompts")
    stand.subscriptions.changed("resources")
    assert (await wire.next())["method"] == "notifications/prompts/list_changed"
    assert (await wire.next())["method"] == "notifications/resources/list_changed"


async def test_a_session_hears_nothing_before_it_is_initialized() -> None:
    """basic/lifecycle: "The server SHOULD NOT send requests other than pings and logging before"."""
    stand = Stand()
    wire = stand.wire()
    params = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    wire.send({"id": 0, "method": "initialize", "params": params})
    assert (await wire.next())["result"]["protocolVersion"] == R2025_11.date
    stand.subscriptions.changed("tools")
    assert await wire.quiet()
    wire.send({"method": "notifications/initialized"})
    assert await wire.quiet()
    stand.subscriptions.changed("tools")
    assert (await wire.next())["method"] == "notifications/tools/list_changed"


async def test_a_session_hears_of_the_resources_it_subscribed_to() -> None:
    """ "This should only be sent if the client previously sent a resources/subscribe request."."""
    stand = Stand()
    wire, other = stand.wire(R2025_11), stand.wire(R2025_11)
    wire.send({"id": 1, "method": "resources/subscribe", "params": {"uri": "test://one"}})
    assert (await wire.next())["result"] == {}
    stand.subscriptions.updated("test://two")
    stand.subscriptions.updated("test://one")
    told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test://one"}}
    assert await wire.next() == told
    assert await other.quiet()
    wire.send({"id": 2, "method": "resources/unsubscribe", "params": {"uri": "test://one"}})
    assert (await wire.next())["result"] == {}
    stand.subscriptions.updated("test://one")
    assert await wire.quiet()
    wire.send({"id": 3, "method": "resources/unsubscribe", "params": {"uri": "test://never"}})
    assert (await wire.next())["result"] == {}


async def test_a_session_subscribes_to_what_there_is() -> None:
    wire = Stand().wire(R2025_11)
    wire.send({"id": 1, "method": "resources/subscribe", "params": {"uri": "test://nothing"}})
    assert (await wire.next())["error"]["data"] == {"uri": "test://nothing"}


async def test_a_session_subscribes_to_so_many() -> None:
    stand = Stand()
    stand.subscribe(uris=1)
    wire = stand.wire(R2025_11)
    for uri, answered in (("test://one", "result"), ("test://one", "result"), ("test://two", "error")):
        wire.send({"id": 1, "method": "resources/subscribe", "params": {"uri": uri}})
        assert answered in await wire.next()


async def test_what_sessions_subscribe_to_is_a_part_of_what_is_kept() -> None:
    """A client may have many sessions, and each its URIs."""
    server = Server("kept")
    server.add_resource(lambda path: path, "x:///{+path}", name="any")
    served = behind(server)
    budget = served.call_limit.budget
    budget.most, budget.share = 400_000, 40_000
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(calling(server, R2025_11)) for _ in range(3)]
        for client in clients[:2]:
            before = budget.used
            await client.result("resources/subscribe", uri="x:///little")
            assert budget.used == before
            await client.result("resources/subscribe", uri="x:///" + "a" * 15_000)
        kept = budget.used
        assert kept >= 30_000
        refused = await clients[2].error("resources/subscribe", uri="x:///" + "a" * 15_000)
        assert refused["data"] == {"limit": "kept_bytes", "allowed": 40_000, "retry_after": 1}
        for uri in ("x:///" + "a" * 15_000, "x:///little"):
            await clients[0].result("resources/unsubscribe", uri=uri)
        assert budget.used < kept - 15_000
        await clients[2].result("resources/subscribe", uri="x:///" + "a" * 15_000)
    del clients, client
    gc.collect()
    assert budget.used == 0


async def test_the_uris_of_a_session_are_bounded_in_size() -> None:
    """Each is kept for as long as the session lives."""
    stand = Stand()
    stand.subscribe(size=12)
    wire = stand.wire(R2025_11)
    for uri, answered in (("test://one", "result"), ("test://one", "result"), ("test://two", "error")):
        wire.send({"id": 1, "method": "resources/subscribe", "params": {"uri": uri}})
        answer = await wire.next()
        assert answered in answer
    assert answer["error"]["data"] == {"limit": "subscription_size", "allowed": 12, "received": 20}
    wire.send({"id": 2, "method": "resources/unsubscribe", "params": {"uri": "test://one"}})
    await wire.next()
    wire.send({"id": 3, "method": "resources/subscribe", "params": {"uri": "test://two"}})
    assert "result" in await wire.next()


async def test_a_session_that_is_over_is_forgotten() -> None:
    stand = Stand()
    hub = stand.subscriptions
    wire = stand.wire(R2025_11)
    wire.send({"id": 1, "method": "resources/subscribe", "params": {"uri": "test://one"}})
    await wire.next()
    peer = stand.peers.pop()
    await wire.channel.close()
    await until(lambda: peer.closed)
    hub.changed("tools")
    await until(lambda: not len(hub))
    assert not hub._by_uri


async def test_a_session_that_leaves_hears_no_more() -> None:
    stand = Stand()
    wire = stand.wire(R2025_11)
    stand.subscriptions.leave(stand.peers[0])
    stand.subscriptions.changed("tools")
    assert await wire.quiet()


async def test_the_hub_keeps_no_peer_alive() -> None:
    stand = Stand()
    wire = stand.wire(R2025_11)
    await wire.channel.close()
    await until(lambda: stand.peers[0].closed)
    stand.peers.clear()
    del wire
    gc.collect()
    assert len(stand.subscriptions) == 0
    assert not any(stand.subscriptions._by_kind.values())


async def test_a_server_tells_what_changes() -> None:
    """server/tools, "List Changed Notification"."""
    server = Server("s", version="1")

    @server.tool
    async def one() -> str:
        return ""

    near, far = pair(CLIENT)
    behind(server).attach(near)
    wire = Wire(far)
    assert await opened(wire) == {"toolsListChanged": True}
    server.add_tool(one, name="two")
    assert (await wire.next())["method"] == "notifications/tools/list_changed"
    server.disable("tool", "two")
    assert (await wire.next())["method"] == "notifications/tools/list_changed"
    await behind(server).drain(5)
    assert (await wire.next())["method"] == "notifications/cancelled"
    assert (await wire.next())["result"]["resultType"] == "complete"


# -- floods ---------------------------------------------------------------------------------------


async def flooded(send: Callable[[dict[str, Any]], None], wire: Wire, count: int) -> tuple[int, list[Any]]:
    """How many of so many requests to listen were agreed to, and the refusals' data."""
    for id in range(count):
        send(listen(id, toolsListChanged=True))
    agreed, refused = 0, []
    for _ in range(count):
        found = await wire.next()
        if "error" in found:
            refused.append(found["error"]["data"])
        else:
            assert found["method"] == "notifications/subscriptions/acknowledged"
            agreed += 1
    return agreed, refused


async def test_a_flood_on_one_channel_does_not_harm_the_others() -> None:
    stand = Stand()
    mine, other = stand.wire(), stand.wire()
    await opened(other, "other", toolsListChanged=True)
    agreed, refused = await flooded(mine.send, mine, 3_000)
    assert agreed == stand.subscriptions.per_peer
    assert all(one == {"limit": "subscriptions", "allowed": agreed, "retry_after": 60} for one in refused)
    assert len(stand.subscriptions) == agreed + 1
    assert not stand.host.call_limit.in_flight
    stand.subscriptions.changed("tools")
    assert (await other.next())["params"]["_meta"] == {ID: "other"}
    await opened(other, "more", toolsListChanged=True)
    mine.channel.abort(Closed("enough"))
    await until(lambda: len(stand.subscriptions) == 2)
    assert len(stand.host.runs) == 2


async def test_a_flood_over_tcp() -> None:
    server = Server("told")
    server.add_tool(lambda: "here", name="first")
    async with serve(server, urls=["tcp://127.0.0.1:0"]) as running:
        async with Client(running.urls[0]) as other, other.subscribe(tools=True) as changes:
            channel = await dial(running.urls[0], Options())
            wire = Wire(channel)
            agreed, refused = await flooded(wire.send, wire, 2_000)
            assert agreed == behind(server).subscriptions.per_peer
            assert {one["limit"] for one in refused} == {"subscriptions"}
            assert (await other.call_tool("first")).text == "here"
            server.add_tool(lambda: "there", name="second")
            async with asyncio.timeout(30):
                await anext(changes)
            await channel.close()
        await until(lambda: not len(behind(server).subscriptions))


async def test_a_flood_over_http() -> None:
    server, _ = tools()
    behind(server).subscriptions.limit = 5
    async with http_served(server) as place, AsyncExitStack() as stack:
        headers = standard("subscriptions/listen")
        params = {"notifications": {"toolsListChanged": True}, "_meta": http_meta()}
        streams = [
            await stack.enter_async_context(place.stream(body("subscriptions/listen", params, id), headers))
            for id in range(5)
        ]
        for one in streams:
            assert (await one.message())["method"] == "notifications/subscriptions/acknowledged"
        for id in range(100):
            refused = await place.ask(body("subscriptions/listen", params, id), headers)
            found = json.loads(refused.body)
            assert (found["id"], found["error"]["data"]["limit"]) == (id, "subscriptions")
        assert len(behind(server).subscriptions) == 5
        assert b"now" in (await place.call("at_once")).body
        server.add_tool(lambda: "new", name="new")
        for one in streams:
            assert (await one.message())["method"] == "notifications/tools/list_changed"


async def test_what_a_listener_asks_for_is_bounded() -> None:
    """It is kept for as long as the listener listens."""
    stand = Stand()
    wire = stand.wire()
    wire.send(listen(1, resourceSubscriptions=["test://" + "x" * stand.subscriptions.size]))
    refused = (await wire.next())["error"]
    assert (refused["code"], refused["data"]["limit"]) == (-32600, "subscription_size")
    assert not len(stand.subscriptions)


def owned(caller: Caller) -> bool:
    if caller.identity is not None and caller.identity.subject == "eve":
        raise RuntimeError("what decides may fail")
    return caller.identity is not None and caller.identity.subject == "ada"


@pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
async def test_only_those_who_may_see_a_resource_are_told_of_it(revision: Revision) -> None:
    """Also of one below a URI that they subscribed to."""
    app = Server("private")
    app.add_resource(lambda: "all", "note://all")
    app.add_resource(lambda: "hers", "note://all/hers", visible=owned)
    app.add_resource(lambda who: "theirs", "note://all/{who}/theirs", visible=owned)
    told: dict[str, list[str | None]] = {"ada": [], "bob": [], "eve": []}
    guard = named_by(b"x-user")
    async with serve(app, urls=["http://127.0.0.1:0/mcp"], guard=guard) as serving, AsyncExitStack() as stack:
        streams = {}
        for who in told:
            client = await stack.enter_async_context(
                Client(serving.urls[0], headers={"x-user": who}, revision=revision)
            )
            streams[who] = await stack.enter_async_context(client.subscribe(["note://all"]))
            if who == "ada":
                hers = await stack.enter_async_context(client.subscribe(["note://all/hers"]))
        app.notify_resource_updated("note://all/hers")
        app.notify_resource_updated("note://all/x/theirs")
        app.notify_resource_updated("note://all")
        for who, stream in streams.items():
            while not told[who] or told[who][-1] != "note://all":
                told[who].append((await anext(stream)).uri)
        assert (await anext(hers)).uri == "note://all/hers"
    assert told["bob"] == told["eve"] == ["note://all"]
    assert sorted(map(str, told["ada"])) == ["note://all", "note://all/hers", "note://all/x/theirs"]


async def test_a_resource_that_is_for_others_is_not_listened_to() -> None:
    app = Server("private")
    app.add_resource(lambda: "all", "note://all")
    app.add_resource(lambda: "hers", "note://hers", visible=owned)
    async with serve(app, urls=["http://127.0.0.1:0/mcp"], guard=named_by(b"x-user")) as serving:
        for who, agreed in (("ada", ["note://all", "note://hers"]), ("bob", ["note://all"]), ("eve", ["note://all"])):
            client = Client(serving.urls[0], headers={"x-user": who}, revision=R2026_07)
            async with client, client.subscribe(["note://all", "note://hers"]) as stream:
                app.notify_resource_updated("note://hers")
                app.notify_resource_updated("note://all")
                found = [(await anext(stream)).uri for _ in agreed]
            assert sorted(map(str, found)) == agreed
