"""Streams of events and topics, as bytes: in memory and over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client
from dragoman.mcp.client.extending import ClientExtension
from dragoman.mcp.extensions.events import EventLimits
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.mcp.http_wire import Events as SseEvents
from tests.mcp.http_wire import body, meta, served, standard

from .receiving import PATIENCE, MovedClock, OrderShipped, following, settle, shop
from .test_polling import NAME, called

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
both = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)


def stream_request(id: Any = 7, **params: Any) -> tuple[bytes, dict[str, str | None]]:
    """A request of `events/stream`, and its headers."""
    raw = body("events/stream", {"name": NAME, **params, "_meta": meta()}, id)
    return raw, standard("events/stream")


async def next_of(stream: SseEvents, method: str) -> dict[str, Any]:
    message = await stream.message()
    assert message["method"] == method, message
    params: dict[str, Any] = message["params"]
    return params


@pytest.mark.parametrize("face", ["native", "asgi"])
async def test_a_stream_over_http(face: str) -> None:
    app, events = shop()
    async with served(app, face) as place, place.stream(*stream_request(arguments={"carrier": "UPS"})) as stream:
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        active = await next_of(stream, m.ACTIVE)
        assert active["truncated"] is False
        await events.emit(OrderShipped("1", "DHL"))
        id = await events.emit(OrderShipped("2", "UPS"), timestamp=0)
        found = await next_of(stream, m.EVENT)
        assert found["cursor"] > active["cursor"]
        assert {**found, "cursor": 0} == {
            "eventId": id,
            "name": NAME,
            "timestamp": "1970-01-01T00:00:00.000Z",
            "data": {"order": "2", "carrier": "UPS"},
            "cursor": 0,
            "_meta": {SUBSCRIPTION: 7},
        }
    await settle(lambda: not events.publisher.streams)


async def test_a_stream_goes_on_where_another_one_broke() -> None:
    app, events = shop()
    async with served(app) as place:
        async with place.stream(*stream_request()) as stream:
            await next_of(stream, m.ACTIVE)
            await events.emit(OrderShipped("1"))
            cursor = (await next_of(stream, m.EVENT))["cursor"]
        ids = [await events.emit(OrderShipped(str(number))) for number in range(250)]
        async with place.stream(*stream_request(cursor=cursor)) as stream:
            await next_of(stream, m.ACTIVE)
            assert [(await next_of(stream, m.EVENT))["eventId"] for _ in ids] == ids


async def test_a_stream_beats_and_its_cursor_goes_on() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with served(app) as place, place.stream(*stream_request(arguments={"carrier": "UPS"})) as stream:
        active = await next_of(stream, m.ACTIVE)
        for _ in range(3):
            await events.emit(OrderShipped("1", "DHL"))
            await asyncio.sleep(0.01)
            clock.move(25)
            beat = await next_of(stream, m.HEARTBEAT)
            assert beat["_meta"] == {SUBSCRIPTION: 7}
            assert beat["cursor"] > active["cursor"]
            active = beat


async def test_a_stream_whose_client_reads_slowly_loses_nothing_that_is_kept() -> None:
    app, events = shop()
    async with served(app) as place, place.stream(*stream_request()) as stream:
        await next_of(stream, m.ACTIVE)
        ids = [await events.emit(OrderShipped("x" * 100_000)) for _ in range(100)]
        assert [(await next_of(stream, m.EVENT))["eventId"] for _ in ids] == ids


async def test_a_stream_that_is_too_far_behind_is_told_so() -> None:
    app, events = shop(limits=EventLimits(events=5))
    async with served(app) as place, place.stream(*stream_request()) as stream:
        await next_of(stream, m.ACTIVE)
        site = events.publisher.sites[0]
        waiting, site.waiting = site.waiting, set()  # it is not woken until more has happened than is kept
        ids = [await events.emit(OrderShipped(str(number))) for number in range(20)]
        site.waiting = waiting
        site.wake_here()
        again = await next_of(stream, m.ACTIVE)
        assert again["truncated"] is True
        got = [await next_of(stream, m.EVENT) for _ in range(5)]
        assert [one["eventId"] for one in got] == ids[-5:]
        assert again["cursor"] < got[0]["cursor"]


@both
async def test_streams_on_one_channel_are_told_apart_and_cancelled(revision: Revision) -> None:
    app, events = shop()
    async with called(app, revision) as calls:
        asking = [
            asyncio.create_task(calls.unchecked("events/stream", name=NAME, arguments={"carrier": one}))
            for one in ("DHL", "UPS")
        ]

        async def told(count: int) -> list[dict[str, Any]]:
            await settle(lambda: len(calls.told) >= count)
            return calls.told

        await told(2)
        assert {one["method"] for one in calls.told} == {m.ACTIVE}
        await events.emit(OrderShipped("1", "UPS"))
        await events.emit(OrderShipped("2", "DHL"))
        await told(4)
        streams = {one["params"]["data"]["carrier"]: one["params"]["_meta"][SUBSCRIPTION] for one in calls.told[2:]}
        assert len(set(streams.values())) == 2
        cancel = {"requestId": streams["UPS"]}
        calls.channel.send(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}).encode()
        )
        await settle(lambda: events.publisher.streams.total() == 1)
        await events.emit(OrderShipped("3", "UPS"))
        await events.emit(OrderShipped("4", "DHL"))
        await told(5)
        assert calls.told[4]["params"]["data"]["order"] == "4"
        for one in asking:
            one.cancel()


async def test_streams_do_not_count_among_the_calls_in_flight_but_are_bounded() -> None:
    app, _events = shop(limits=EventLimits(streams_each=40))
    async with called(app) as calls:
        asking = [asyncio.create_task(calls.unchecked("events/stream", name=NAME)) for _ in range(41)]
        await settle(lambda: len(calls.told) == 40 and any(one.done() for one in asking))
        [refused] = [one.result() for one in asking if one.done()]
        assert refused["error"]["code"] == -32013
        assert refused["error"]["data"] == {"limit": "streams_each", "max": 40}
        assert (await calls.unchecked("events/list"))["result"]["events"]
        for one in asking:
            one.cancel()


async def test_a_stream_ends_for_a_caller_that_may_not_follow_it_any_more() -> None:
    allowed = True
    app, events = shop()

    @events.event("orders.cancelled", allow=lambda identity, arguments: allowed)
    class Cancelled(Struct):
        order: str

    async with called(app) as calls:
        asking = asyncio.create_task(calls.unchecked("events/stream", name="orders.cancelled"))
        await settle(lambda: len(calls.told) == 1)
        await events.emit(Cancelled("1"))
        await settle(lambda: len(calls.told) == 2)
        allowed = False
        await events.emit(Cancelled("2"))
        answer = await asking
        assert calls.told[2]["method"] == m.TERMINATED
        assert calls.told[2]["params"]["error"] == {
            "code": -32012,
            "message": "Forbidden",
            "data": {"error": "access_denied"},
        }
        assert answer["result"]["_meta"][SUBSCRIPTION] == calls.told[2]["params"]["_meta"][SUBSCRIPTION]


@pytest.mark.parametrize(
    ("params", "code"),
    [({"name": "none"}, -32011), ({"name": NAME, "arguments": {"x": 1}}, -32602), ({"name": "polled"}, -32014)],
)
async def test_a_stream_that_is_refused_is_not_begun(params: dict[str, Any], code: int) -> None:
    app, events = shop()
    events.event("polled", modes=["poll"])(type("Polled", (Struct,), {"__annotations__": {"x": int}}))
    async with served(app) as place:
        raw, headers = stream_request(**params)
        answer = await place.ask(raw, headers)
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.body)["error"]["code"] == code


async def test_a_stream_ends_when_the_server_does() -> None:
    app, _ = shop()
    async with following(app) as client:
        asking = asyncio.create_task(client.request("events/stream", m.StreamEventsParams(name=NAME)))
        await asyncio.sleep(0.05)
    with pytest.raises((RpcError, ConnectionError)):
        await asking


# -- topics


class Listener(ClientExtension):
    """A client that keeps the notifications of topics."""

    declares = m.DECLARED

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []

    @property
    def heard(self) -> Any:
        def keep(method: str) -> Callable[[Any, Any], None]:
            return lambda params, client: self.got.append((method, params))

        return {method: keep(method) for method in (m.EVENT, m.LIST_CHANGED)}


async def test_a_subscriber_of_the_topic_gets_the_types_that_it_names() -> None:
    app, events = shop()

    @events.event("orders.cancelled")
    class Cancelled(Struct):
        order: str

    @events.event("orders.secret", allow=lambda identity, arguments: False)
    class Secret(Struct):
        order: str

    listener = Listener()
    wanted = {"events": [NAME, "orders.secret", "none", 7], "eventsListChanged": True}
    async with Client(app, extensions=[listener]) as client, client.subscribe(topics=wanted) as subscription:
        assert subscription.granted_topics == {"events": [NAME], "eventsListChanged": True}
        await events.emit(Cancelled("1"))
        await events.emit(Secret("1"))
        id = await events.emit(OrderShipped("2"))
        events.event("late")(type("Late", (Struct,), {"__annotations__": {"x": int}}))
        async with asyncio.timeout(PATIENCE):
            await settle(lambda: len(listener.got) == 2)
        assert [method for method, _ in listener.got] == [m.EVENT, m.LIST_CHANGED]
        found = listener.got[0][1]
        assert (found["eventId"] if isinstance(found, dict) else found.event_id) == id


@pytest.mark.parametrize("declared", [True, False])
async def test_a_session_gets_all_events_if_its_client_has_declared_the_extension(declared: bool) -> None:
    app, events = shop()
    capabilities: dict[str, Any] = {"extensions": {m.NAME: {}}} if declared else {}
    async with called(app, R2025_11, **capabilities) as calls:
        await calls.unchecked("ping")
        await asyncio.sleep(0.02)
        await events.emit(OrderShipped("1"))
        await calls.unchecked("ping")
        await asyncio.sleep(0.02)
        assert [one["method"] for one in calls.told] == ([m.EVENT] if declared else [])


@pytest.mark.parametrize("value", [False, 1, "yes", {}])
async def test_what_is_no_request_of_a_topic_is_granted_nothing(value: Any) -> None:
    app, _ = shop()
    async with (
        Client(app, extensions=[Listener()]) as client,
        client.subscribe(topics={"eventsListChanged": value, "events": value}) as subscription,
    ):
        assert subscription.granted_topics == {}
