"""Subscriptions as async iterators, in both eras: basic/patterns/subscriptions; server/resources of older revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.mcp.client import subscriptions
from dragoman.mcp.client.client import Client
from dragoman.mcp.client.subscriptions import Changed

from ..scripted import META, Dies, Error, Message, Result, Scripted, legacy, modern, notification

ID = f"{META}subscriptionId"


def tagged(method: str, id: Any, **params: Any) -> Message:
    """A notification of a subscription."""
    return notification(method, _meta={ID: id}, **params)


def acknowledged(id: Any, **granted: Any) -> Message:
    return tagged("notifications/subscriptions/acknowledged", id, notifications=granted)


def listens(*then: Any, granted: Any = None) -> Scripted:
    """A stateless server that acknowledges what was asked for, or `granted`, and says more."""

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "subscriptions/listen":
            wanted = message["params"]["notifications"] if granted is None else granted
            yield acknowledged(message["id"], **wanted)
            for one in then:
                yield one(message["id"]) if callable(one) else one

    return modern(answers)


# -- the stateless era


async def test_a_subscription_is_a_call_whose_notifications_bear_its_id() -> None:
    """ "clients MUST use this field to correlate notifications with their originating subscription"."""
    updated = "notifications/resources/updated"
    server = listens(
        lambda id: tagged(updated, 999, uri="x:foreign"),
        lambda id: notification(updated, uri="x:untagged"),
        lambda id: tagged(updated, id, uri="x:a"),
        lambda id: tagged("notifications/tools/list_changed", id),
        lambda id: tagged(updated, id, uri="x:a"),
    )
    async with Client(server) as client:
        async with client.subscribe(["x:a", "x:a"], tools=True) as changes:
            assert changes.granted.tools_list_changed is True
            assert await anext(changes) == Changed("resource", "x:a")
            assert await anext(changes) == Changed("tools")
        await server.until("notifications/cancelled")
    (listen,) = server.of("subscriptions/listen")
    assert listen["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["x:a"]}
    assert listen["params"]["_meta"][f"{META}protocolVersion"] == "2026-07-28"
    # "The client cancels it: send `notifications/cancelled` referencing the `subscriptions/listen` request ID"
    assert server.heard[-1]["params"]["requestId"] == listen["id"]


async def test_every_task_that_waits_on_a_subscription_hears_its_end() -> None:
    async with Client(listens()) as client, client.subscribe(tools=True) as changes:
        readers = [asyncio.create_task(changes.__anext__()) for _ in range(2)]
        await asyncio.sleep(0)
        await changes.close()
        ends = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(end) for end in ends] == [StopAsyncIteration] * 2


async def test_what_the_server_does_not_grant_can_be_seen() -> None:
    """ "The client SHOULD check the acknowledged filter against what it requested"."""
    async with (
        Client(listens(granted={"promptsListChanged": True})) as client,
        client.subscribe(["x:a"], prompts=True, resources=True) as changes,
    ):
        assert changes.granted.prompts_list_changed is True
        assert not changes.granted.resources_list_changed
        assert not changes.granted.resource_subscriptions


async def test_several_subscriptions_are_told_apart() -> None:
    """ "A client MAY have multiple active subscriptions concurrently"."""
    server = listens()
    async with Client(server) as client, client.subscribe(["x:1"]) as one, client.subscribe(["x:2"]) as two:
        first, second = (message["id"] for message in server.of("subscriptions/listen"))
        server.say(tagged("notifications/resources/updated", second, uri="x:2"))
        server.say(tagged("notifications/resources/updated", first, uri="x:1"))
        assert await anext(two) == Changed("resource", "x:2")
        assert await anext(one) == Changed("resource", "x:1")


ENDS = pytest.mark.parametrize(
    "end",
    [
        lambda id: {"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "_meta": {ID: id}}},
        lambda id: notification("notifications/cancelled", requestId=id, reason="shutting down"),
    ],
    ids=["answered", "cancelled"],
)


@ENDS
async def test_the_server_ends_it(end: Any) -> None:
    """ "A client that receives this response knows the subscription closed cleanly"; basic/patterns/cancellation."""
    server = listens(lambda id: tagged("notifications/tools/list_changed", id), end)
    async with Client(server) as client, client.subscribe(tools=True) as changes:
        assert [one async for one in changes] == [Changed("tools")]


async def test_a_lost_subscription_raises() -> None:
    """ "a transport that closes without it indicates an unexpected disconnect"."""
    async with Client(listens(lambda id: Dies())) as client:
        with pytest.raises(ChannelError):
            async with client.subscribe(tools=True) as changes:
                await anext(changes)


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "refused"])
async def test_the_end_of_a_subscription_is_raised_anew_each_time(lost: bool) -> None:
    """One instance would keep the tracebacks of all readers, and the values of their frames."""
    server = listens()
    async with Client(server) as client, client.subscribe(tools=True) as changes:
        (listen,) = server.of("subscriptions/listen")
        error = {"code": -32603, "message": "no more"}
        server.say(Dies() if lost else {"jsonrpc": "2.0", "id": listen["id"], "error": error})
        ends = await asyncio.gather(*(anext(changes) for _ in range(3)), return_exceptions=True)
    assert {type(one) for one in ends} == {type(ends[0])}
    assert isinstance(ends[0], ChannelError if lost else RpcError)
    assert len({str(one) for one in ends}) == 1
    assert len(set(map(id, ends))) == 3


async def test_a_refused_subscription_raises() -> None:
    async with Client(modern(lambda message: [Error(-32601, "none here")])) as client:
        with pytest.raises(RpcError, match="none here"):
            await client.subscribe(tools=True).__aenter__()


async def test_a_subscription_that_is_not_acknowledged_raises() -> None:
    server = modern()
    async with Client(server, timeout=0.5) as client:
        with pytest.raises(CallTimeout, match="not acknowledged"):
            await client.subscribe(tools=True).__aenter__()
        await server.until("notifications/cancelled")


async def test_a_lost_subscription_is_asked_for_again() -> None:
    """ "if the connection is terminated and then re-established, the client MUST re-send `subscriptions/listen`"."""
    server = listens()
    async with Client(server, restart=True) as client, client.subscribe(tools=True, again=True) as changes:
        server.say(Dies())
        assert await anext(changes) == Changed("again")
        server.say(tagged("notifications/tools/list_changed", server.heard[-1]["id"]))
        assert await anext(changes) == Changed("tools")
    assert server.attached == 2
    assert len(server.of("subscriptions/listen")) == 2


@ENDS
async def test_a_subscription_that_the_server_ends_in_order_is_asked_for_again(end: Any) -> None:
    """As one does that drains, after which another takes its place at the same address."""
    server = listens()
    async with Client(server) as client, client.subscribe(tools=True, again=True) as changes:
        for number in (1, 2, 3):
            server.say(end(server.of("subscriptions/listen")[-1]["id"]))
            assert await anext(changes) == Changed("again")
            assert len(server.of("subscriptions/listen")) == number + 1
        server.say(tagged("notifications/tools/list_changed", server.of("subscriptions/listen")[-1]["id"]))
        assert await anext(changes) == Changed("tools")
    assert server.attached == 1


@ENDS
async def test_a_subscription_ends_in_order_where_the_channel_goes_after_it(end: Any) -> None:
    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "subscriptions/listen":
            yield acknowledged(message["id"], toolsListChanged=True)
            yield end(message["id"]) if len(server.of("subscriptions/listen")) == 1 else Dies()

    server = modern(answers)
    async with Client(server) as client, client.subscribe(tools=True, again=True) as changes:
        assert [one async for one in changes] == [Changed("again")]


async def test_a_subscription_refused_for_the_moment_is_asked_for_again() -> None:
    """At the first try and after a loss: the server, or the replica that a balancer chose, is closing."""
    refusals: list[Any] = [
        Error(-32603, "Draining", {"retry_after": 0.01}),
        None,
        Error(-32603, "Busy", {"retry_after": 0}),
    ]

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "subscriptions/listen":
            refusal = refusals.pop(0) if refusals else None
            yield refusal or acknowledged(message["id"], toolsListChanged=True)

    server = modern(answers)
    async with Client(server, restart=True) as client, client.subscribe(tools=True, again=True) as changes:
        server.say(tagged("notifications/tools/list_changed", server.of("subscriptions/listen")[-1]["id"]))
        assert await anext(changes) == Changed("tools")  # not "again": it had not begun before
        server.say(Dies())
        assert await anext(changes) == Changed("again")
    assert refusals == []
    assert len(server.of("subscriptions/listen")) == 4


@pytest.mark.parametrize("data", [None, {"retry_after": "1"}, {"retry_after": True}, {"limit": "uris"}, [1]])
async def test_a_subscription_refused_for_good_is_not_asked_for_again(data: Any) -> None:
    server = modern(lambda message: [Error(-32603, "no", data)])
    async with Client(server) as client:
        with pytest.raises(RpcError, match="no"):
            async with client.subscribe(tools=True, again=True):
                pass
    assert len(server.of("subscriptions/listen")) == 1


async def test_without_again_a_busy_server_is_an_error() -> None:
    async with Client(modern(lambda message: [Error(-32603, "Busy", {"retry_after": 0})])) as client:
        with pytest.raises(RpcError, match="Busy"):
            async with client.subscribe(tools=True):
                pass


async def test_a_server_that_stays_busy_is_named_when_the_time_is_over() -> None:
    async with Client(modern(lambda message: [Error(-32603, "Busy", {"retry_after": 1e300})]), timeout=0.5) as client:
        with pytest.raises(CallTimeout, match="Busy"):
            async with client.subscribe(tools=True, again=True):
                pass


async def test_a_list_change_reaches_the_cache() -> None:
    server = listens()
    async with Client(server) as client, client.subscribe(tools=True):
        server.script = lambda message: [
            Result({"resultType": "complete", "tools": [], "ttlMs": 60_000, "cacheScope": "public"})
        ]
        id = server.of("subscriptions/listen")[0]["id"]
        await client.list_tools()
        await client.list_tools()
        server.say(tagged("notifications/tools/list_changed", id))
        await client.call("x")
        await client.list_tools()
    assert len(server.of("tools/list")) == 2


# -- the stateful era

CAN: dict[str, Any] = {"resources": {"subscribe": True, "listChanged": True}, "tools": {"listChanged": True}}


async def test_resources_are_subscribed_to_one_by_one_and_once() -> None:
    """2025-11-25's server/resources, Subscriptions."""
    server = legacy(lambda message: [Result({})] if "id" in message else [], **CAN)
    async with Client(server) as client, client.subscribe(["x:a", "x:b"], tools=True, prompts=True) as one:
        assert one.granted.resource_subscriptions == ["x:a", "x:b"]
        assert one.granted.tools_list_changed is True
        assert not one.granted.prompts_list_changed  # not among the capabilities
        async with client.subscribe(["x:a"], resources=True) as two:
            server.say(notification("notifications/resources/updated", uri="x:a"))
            server.say(notification("notifications/resources/list_changed"))
            server.say(notification("notifications/tools/list_changed"))
            assert [await anext(one), await anext(one)] == [Changed("resource", "x:a"), Changed("tools")]
            assert [await anext(two), await anext(two)] == [Changed("resource", "x:a"), Changed("resources")]
        assert "resources/unsubscribe" not in server.methods()
    uris = [
        (one["method"].partition("/")[2], one["params"]["uri"])
        for one in server.heard
        if "uri" in one.get("params", {})
    ]
    assert uris == [("subscribe", "x:a"), ("subscribe", "x:b"), ("unsubscribe", "x:a"), ("unsubscribe", "x:b")]


async def test_a_subscription_hears_of_what_is_below_it_and_of_no_neighbour() -> None:
    """A `notifications/resources/updated` of a session says no subscription; the URI decides, at its separators."""
    server = legacy(lambda message: [Result({})] if "id" in message else [], **CAN)
    async with (
        Client(server) as client,
        client.subscribe(["g://rose", "file:///a/"]) as one,
        client.subscribe(["g://rosemary"]) as two,
    ):
        for uri in (
            "g://rosemary",
            "g://ros",
            "file:///ab",
            "g://rose/thorn",
            "g://rose?old",
            "file:///a/b",
            "g://rose",
        ):
            server.say(notification("notifications/resources/updated", uri=uri))
        for uri in ("g://rose/thorn", "g://rose?old", "file:///a/b", "g://rose"):
            assert await anext(one) == Changed("resource", uri)
        assert await anext(two) == Changed("resource", "g://rosemary")


@pytest.mark.parametrize("server", [listens, lambda: legacy(lambda message: [Result({})], **CAN)], ids=["new", "old"])
async def test_a_slow_reader_is_told_that_anything_may_have_changed(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is below a resource has names without end, and a server that tells of them all fills no memory."""
    monkeypatch.setattr(subscriptions, "MOST_NEWS", 3)
    target = server()
    async with Client(target) as client, client.subscribe(["x:a"]) as changes:
        id = {"_meta": {ID: target.heard[-1]["id"]}}
        for n in range(5):
            target.say(notification("notifications/resources/updated", uri=f"x:a/{n}", **id))
        await client.ping()
        assert [await anext(changes) for _ in range(2)] == [Changed("again"), Changed("resource", "x:a/4")]


async def test_without_the_capability_nothing_is_subscribed_to() -> None:
    """2025-11-25's basic/lifecycle: "Only use capabilities that were successfully negotiated"."""
    server = legacy(resources={})
    async with Client(server) as client, client.subscribe(["x:a"]) as changes:
        assert not changes.granted.resource_subscriptions
    assert "resources/subscribe" not in server.methods()


async def test_a_failed_subscription_leaves_nothing_behind() -> None:
    def answers(message: Message) -> Iterable[Any]:
        if message["method"] == "resources/subscribe" and message["params"]["uri"] == "x:b":
            return [Error(-32002, "no x:b")]
        return [Result({})]

    server = legacy(answers, **CAN)
    async with Client(server) as client:
        with pytest.raises(RpcError, match="no x:b"):
            await client.subscribe(["x:a", "x:b"]).__aenter__()
    assert server.of("resources/unsubscribe")[0]["params"]["uri"] == "x:a"


async def test_who_shares_a_subscription_shares_its_refusal() -> None:
    """The second would hear of nothing, and not know it."""

    def answers(message: Message) -> Iterable[Any]:
        if message["method"] != "resources/subscribe":
            return [Result({})]
        return [] if len(server.of("resources/subscribe")) == 1 else [Error(-32603, "still not")]

    server = legacy(answers, **CAN)
    async with Client(server) as client:
        subscriptions = [client.subscribe(["x:a"]) for _ in range(2)]
        entering = asyncio.gather(*(one.__aenter__() for one in subscriptions), return_exceptions=True)
        await server.until("resources/subscribe")
        await asyncio.sleep(0)
        server.say(Error(-32603, "not now"), server.of("resources/subscribe")[0])
        assert [str(one) for one in await entering] == ["not now (-32603)", "still not (-32603)"]


@pytest.mark.parametrize("server", [listens, lambda: legacy(lambda message: [Result({})], **CAN)], ids=["new", "old"])
async def test_a_server_that_does_not_come_back_ends_every_subscription(server: Any) -> None:
    """Without `restart` there is no other server for one that is to last."""
    target = server()
    async with Client(target) as client, client.subscribe(["x:a"], again=True) as changes:
        target.say(Dies())
        with pytest.raises(ChannelError):
            async with asyncio.timeout(20):
                await anext(changes)


async def test_a_restarted_server_is_subscribed_to_again() -> None:
    server = legacy(lambda message: [Result({})] if "id" in message else [], **CAN)
    async with Client(server, restart=True) as client:
        await client.set_log_level("error")
        async with client.subscribe(["x:a"], again=True) as changes, client.subscribe(["x:b"]) as other:
            server.say(Dies())
            assert await anext(changes) == Changed("again")
            server.say(notification("notifications/resources/updated", uri="x:a"))
            assert await anext(changes) == Changed("resource", "x:a")
            with pytest.raises(ChannelError):
                await anext(other)
    assert server.attached == 2
    second = server.heard[server.methods().index("notifications/initialized", 4) :]
    assert [one["method"] for one in second][:3] == [
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
    ]


@pytest.mark.parametrize("turns", range(4))
async def test_a_server_that_is_lost_again_as_soon_as_it_is_back_is_subscribed_to_again(turns: int) -> None:
    """In whichever turn of the loop after the answer that made the subscription whole."""
    tries: list[Message] = []

    def dies(turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(dies, turns - 1)
        else:
            server.say(Dies())

    def answers(message: Message) -> Iterable[Any]:
        if "id" in message:
            yield Result({})
        if message["method"] == "resources/subscribe":
            tries.append(message)
            if len(tries) == 2:
                dies(turns)

    server = legacy(answers, **CAN)
    async with Client(server, restart=True) as client, client.subscribe(["x:a"], again=True) as changes:
        server.say(Dies())
        async with asyncio.timeout(20):
            while len(tries) < 3:
                assert await anext(changes) == Changed("again")


async def test_closing_the_client_ends_its_subscriptions() -> None:
    for server in (listens(), legacy(lambda message: [Result({})], **CAN)):
        client = Client(server)
        await client.__aenter__()
        changes = await client.subscribe(["x:a"], tools=True).__aenter__()
        waiting = asyncio.ensure_future(anext(changes, None))
        await asyncio.sleep(0)
        await client.close()
        assert await waiting is None
        await changes.close()


async def test_a_subscription_is_to_something() -> None:
    async with Client(modern()) as client:
        with pytest.raises(LocalError, match="subscribe to something"):
            client.subscribe()
