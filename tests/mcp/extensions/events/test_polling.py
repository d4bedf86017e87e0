"""Polls and lists, as bytes at the edge: in memory and over HTTP, in both eras and both profiles."""

from __future__ import annotations

import asyncio
import functools
import json
import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from dragoman import serve
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import EventLimits, Events
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.protocol.revisions import R2025_03, R2025_06, R2025_11, R2026_07, Revision
from tests.mcp.calling import Calls, calling
from tests.mcp.http_wire import Place, body, meta, served, standard

from .receiving import MovedClock, OrderShipped, following, shop

DECLARED: dict[str, Any] = {"extensions": {m.NAME: {}}}
NAME = "order_shipped"
PAYLOAD = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "carrier": {"type": "string", "default": "DHL"}},
    "required": ["order"],
}
ARGUMENTS = {
    "type": "object",
    "properties": {"carrier": {"type": "string"}},
    "required": [],
    "additionalProperties": False,
}

every = pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)


@asynccontextmanager
async def called(app: Server, revision: Revision = R2026_07, **capabilities: Any) -> AsyncIterator[Calls]:
    """The bytes of a client in memory, while the server is served."""
    async with serve(app, urls="tcp://127.0.0.1:0"), calling(app, revision, **capabilities) as calls:
        yield calls


async def over_http(place: Place, method: str, params: dict[str, Any], capabilities: Any = None) -> dict[str, Any]:
    """The message that answers a stateless request."""
    raw = body(method, params | {"_meta": meta(capabilities=capabilities)})
    found = await place.ask(raw, standard(method))
    answer: dict[str, Any] = json.loads(found.body)
    return answer


# -- what is declared


@every
@pytest.mark.parametrize("profile", ["sep", "chatgpt", "both"])
async def test_what_a_server_declares(revision: Revision, profile: Any) -> None:
    app, _ = shop(profile=profile)
    async with called(app, revision) as calls:
        if revision.stateful:
            info = {"name": "test", "version": "1"}
            asked = {"protocolVersion": revision.date, "capabilities": {}, "clientInfo": info}
            found = await calls.unchecked("initialize", **asked)
        else:
            found = await calls.unchecked("server/discover")
        capabilities = found["result"]["capabilities"]
        assert capabilities.get("events") == (None if profile == "sep" else {})
        if revision is not R2025_03:
            assert capabilities["extensions"] == {m.NAME: {"listChanged": True}}


@every
@pytest.mark.parametrize("capabilities", [{}, DECLARED])
@pytest.mark.parametrize("profile", ["sep", "chatgpt"])
async def test_the_list_of_event_types(revision: Revision, capabilities: dict[str, Any], profile: Any) -> None:
    app, _ = shop(profile=profile)
    async with called(app, revision, **capabilities) as calls:
        result = (await calls.unchecked("events/list"))["result"]
        assert result["events"] == [
            {
                "name": NAME,
                "description": "An order has left the house.",
                "delivery": ["webhook"] if profile == "chatgpt" else ["poll", "push", "webhook"],
                "inputSchema": ARGUMENTS,
                "payloadSchema": PAYLOAD,
            }
        ]
        assert "nextCursor" not in result
        assert result.get("resultType") == (None if revision.stateful else "complete")


@pytest.mark.parametrize("method", ["events/poll", "events/stream"])
async def test_chatgpt_has_webhooks_alone(method: str) -> None:
    app, _ = shop(profile="chatgpt")
    async with called(app) as calls:
        assert (await calls.unchecked(method, name=NAME))["error"]["code"] == -32601


async def test_the_list_has_pages() -> None:
    app, events = shop()
    for number in range(150):
        events.event(f"t{number:03}")(type(f"T{number}", (Struct,), {"__annotations__": {"x": int}}))
    async with called(app) as calls:
        first = (await calls.unchecked("events/list"))["result"]
        second = (await calls.unchecked("events/list", cursor=first["nextCursor"]))["result"]
        names = [one["name"] for one in (*first["events"], *second["events"])]
        assert names == sorted([NAME, *(f"t{number:03}" for number in range(150))])
        assert "nextCursor" not in second


# -- polls


@every
@pytest.mark.parametrize("capabilities", [{}, DECLARED])
async def test_a_poll_begins_now_and_goes_on_from_its_cursor(revision: Revision, capabilities: dict[str, Any]) -> None:
    app, events = shop(clock=MovedClock())
    async with called(app, revision, **capabilities) as calls:
        await events.emit(OrderShipped("0"))
        first = (await calls.unchecked("events/poll", name=NAME))["result"]
        assert (first["events"], first["truncated"], first["hasMore"], first["nextPollMs"]) == (
            [],
            False,
            False,
            10_000,
        )
        id = await events.emit(OrderShipped("1"), timestamp=1_790_000_000.25)
        second = (await calls.unchecked("events/poll", name=NAME, cursor=first["cursor"]))["result"]
        assert second["events"] == [
            {
                "eventId": id,
                "name": NAME,
                "timestamp": "2026-09-21T14:13:20.250Z",
                "data": {"order": "1", "carrier": "DHL"},
            }
        ]
        assert second["cursor"] > first["cursor"]
        third = (await calls.unchecked("events/poll", name=NAME, cursor=second["cursor"]))["result"]
        assert (third["events"], third["cursor"]) == ([], second["cursor"])


@pytest.mark.parametrize("face", ["native", "asgi"])
@pytest.mark.parametrize("capabilities", [{}, DECLARED])
async def test_a_poll_over_http(face: str, capabilities: dict[str, Any]) -> None:
    app, events = shop()
    async with served(app, face) as place:
        first = await over_http(place, "events/poll", {"name": NAME, "cursor": None}, capabilities)
        id = await events.emit(OrderShipped("1"))
        params = {"name": NAME, "cursor": first["result"]["cursor"], "arguments": {"carrier": "DHL"}}
        second = await over_http(place, "events/poll", params, capabilities)
        assert [one["eventId"] for one in second["result"]["events"]] == [id]
        assert second["result"]["resultType"] == "complete"


async def test_a_poll_has_a_bounded_number_of_events_and_says_that_there_are_more() -> None:
    app, events = shop(limits=EventLimits(poll_events=10))
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        ids = [await events.emit(OrderShipped(str(number), "UPS" if number % 2 else "DHL")) for number in range(25)]
        got: list[str] = []
        more: list[bool] = []
        for asked in ({}, {"maxEvents": 3}, {"maxEvents": 1000}, {}):
            found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor, **asked))["result"]
            got += [one["eventId"] for one in found["events"]]
            more.append(found["hasMore"])
            cursor = found["cursor"]
        assert got == ids
        assert more == [True, True, True, False]


async def test_a_poll_has_bounded_bytes_but_at_least_one_event() -> None:
    app, events = shop(limits=EventLimits(poll_size=50_000))
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        ids = [await events.emit(OrderShipped("x" * size)) for size in (60_000, 20_000, 20_000, 20_000)]
        pages: list[list[str]] = []
        while len(functools.reduce(operator.iadd, pages, [])) < 4:
            found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
            pages.append([one["eventId"] for one in found["events"]])
            cursor = found["cursor"]
        assert pages == [ids[:1], ids[1:3], ids[3:]]


async def test_a_poll_that_finds_few_goes_on_behind_those_for_others() -> None:
    app, events = shop()
    async with called(app) as calls:
        params = {"name": NAME, "arguments": {"carrier": "UPS"}}
        cursor = (await calls.unchecked("events/poll", **params))["result"]["cursor"]
        await asyncio.gather(*[events.emit(OrderShipped(str(number))) for number in range(2_500)])
        last = await events.emit(OrderShipped("last", "UPS"))
        first = (await calls.unchecked("events/poll", **params, cursor=cursor))["result"]
        assert (first["events"], first["hasMore"]) == ([], True)
        second = (await calls.unchecked("events/poll", **params, cursor=first["cursor"]))["result"]
        assert [one["eventId"] for one in second["events"]] == [last]


@pytest.mark.parametrize("bound", [{"events": 3}, {"events_size": 2_000, "event_size": 1_024}])
async def test_who_is_behind_what_is_kept_is_told_so(bound: dict[str, Any]) -> None:
    app, events = shop(limits=EventLimits(**bound))
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        ids = [await events.emit(OrderShipped("x" * 500)) for _ in range(8)]
        found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert found["truncated"] is True
        assert [one["eventId"] for one in found["events"]] == ids[-3:]
        again = (await calls.unchecked("events/poll", name=NAME, cursor=found["cursor"]))["result"]
        assert again["truncated"] is False


async def test_events_are_kept_for_their_age() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock, limits=EventLimits(events_age=100))
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        await events.emit(OrderShipped("1"))
        clock.move(60)
        second = await events.emit(OrderShipped("2"))
        clock.move(60)
        third = await events.emit(OrderShipped("3"))
        found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert (found["truncated"], [one["eventId"] for one in found["events"]]) == (True, [second, third])


async def test_a_poll_may_leave_old_events_out() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        await events.emit(OrderShipped("1"))
        clock.move(60)
        second = await events.emit(OrderShipped("2"))
        params = {"name": NAME, "cursor": cursor}
        found = (await calls.unchecked("events/poll", **params, maxAgeMs=30_000))["result"]
        assert (found["truncated"], [one["eventId"] for one in found["events"]]) == (True, [second])
        found = (await calls.unchecked("events/poll", **params, maxAgeMs=90_000))["result"]
        assert (found["truncated"], len(found["events"])) == (False, 2)


@pytest.mark.parametrize("cursor", ["", "x", "0" * 12 + ".0000000000000", "no such cursor", "\u0000", "1" * 5_000])
async def test_a_cursor_that_is_not_known_begins_now_and_says_so(cursor: str) -> None:
    app, events = shop()
    async with called(app) as calls:
        await events.emit(OrderShipped("1"))
        found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert (found["truncated"], found["events"]) == (True, [])


async def test_a_cursor_is_of_its_event_type() -> None:
    app, events = shop()
    events.event("other")(type("Other", (Struct,), {"__annotations__": {"x": int}}))
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name="other"))["result"]["cursor"]
        found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert found["truncated"] is True


async def test_a_poll_waits_for_an_event_if_it_may() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        params = {"name": NAME, "cursor": cursor, "arguments": {"carrier": "UPS"}, "timeoutMs": 20_000}
        waiting = asyncio.create_task(calls.unchecked("events/poll", **params))
        async with asyncio.timeout(20):
            while not events.publisher.streams:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.002)
        await events.emit(OrderShipped("1", "DHL"))
        id = await events.emit(OrderShipped("2", "UPS"))
        found = (await waiting)["result"]
        assert [one["eventId"] for one in found["events"]] == [id]
        waiting = asyncio.create_task(calls.unchecked("events/poll", **params | {"cursor": found["cursor"]}))
        async with asyncio.timeout(20):
            while not events.publisher.streams:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.002)
        clock.move(20)
        assert (await waiting)["result"]["events"] == []
        assert not events.publisher.streams


# -- what is refused


@pytest.mark.parametrize(
    ("params", "code", "data"),
    [
        ({"name": "none"}, -32011, {"kind": "event"}),
        ({"name": "pushed"}, -32014, {"feature": "deliveryMode", "value": "poll"}),
        ({"name": NAME, "arguments": {"order": "1"}}, -32602, None),
        ({"name": NAME, "arguments": {"carrier": 1}}, -32602, None),
        ({"name": NAME, "arguments": {"carrier": None}}, -32602, None),
        ({"name": NAME, "arguments": []}, -32602, None),
        ({"name": NAME, "arguments": {"carrier": "x" * 20_000}}, -32602, None),
        ({"name": NAME, "cursor": 1}, -32602, None),
        ({"name": NAME, "maxEvents": 0}, -32602, None),
        ({"name": NAME, "maxAgeMs": -1}, -32602, None),
        ({"name": NAME, "timeoutMs": "1"}, -32602, None),
        ({}, -32602, None),
        ({"name": "secret"}, -32012, {"error": "insufficient_scope", "scopes": ["orders"]}),
    ],
)
async def test_what_a_poll_refuses(params: dict[str, Any], code: int, data: Any) -> None:
    app, events = shop()
    events.event("pushed", modes=["push"])(type("Pushed", (Struct,), {"__annotations__": {"x": int}}))
    events.event("secret", scopes="orders")(type("Secret", (Struct,), {"__annotations__": {"x": int}}))
    async with served(app) as place:
        answer = await over_http(place, "events/poll", params)
        assert answer["error"]["code"] == code, answer
        if data is not None:
            assert answer["error"]["data"] == data


async def test_polls_that_wait_are_bounded() -> None:
    app, events = shop(limits=EventLimits(streams_each=3))
    async with following(app) as client:
        params = m.PollEventsParams(name=NAME, timeout_ms=25_000)
        waiting = [asyncio.create_task(client.request("events/poll", params)) for _ in range(3)]
        async with asyncio.timeout(20):
            while events.publisher.streams.total() < 3:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.002)
        with pytest.raises(RpcError) as caught:
            await client.request("events/poll", params)
        assert (caught.value.code, caught.value.data) == (-32013, {"limit": "streams_each", "max": 3})
        await events.emit(OrderShipped("1"))
        await asyncio.gather(*waiting)
        assert not events.publisher.streams


# -- emitting


async def test_what_cannot_be_emitted() -> None:
    _, events = shop(limits=EventLimits(event_size=2_000, events_size=10_000))

    class Other(Struct):
        x: int

    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (Other(1), {}, "no event type"),
        (OrderShipped("x" * 2_000), {}, "2000 may be sent"),
        (OrderShipped(1), {}, "Expected `str`"),  # type: ignore[arg-type]
        (OrderShipped("1"), {"id": ""}, "an id has"),
        (OrderShipped("1"), {"id": "a b"}, "an id has"),
        (OrderShipped("1"), {"id": "x" * 201}, "an id has"),
        (OrderShipped("1"), {"id": "x\r\ny"}, "an id has"),
        (OrderShipped("\ud800"), {}, "order_shipped"),
    ]
    for event, more, words in wrong:
        with pytest.raises(LocalError, match=words):
            await events.emit(event, **more)
        with pytest.raises(LocalError, match=words):
            events.emit_soon(event, **more)
    with pytest.raises(LocalError, match="not served"):
        events.emit_soon(OrderShipped("1"))
    await events.close()


async def test_a_thread_emits() -> None:
    app, events = shop()

    def emit() -> str:
        return events.emit_soon(OrderShipped("of a thread")).result(20)

    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        ids = await asyncio.gather(
            *[asyncio.to_thread(events.emit_soon(OrderShipped(str(number))).result, 20) for number in range(10)],
            *[asyncio.to_thread(emit) for _ in range(10)],
        )
        found = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert {one["eventId"] for one in found["events"]} == set(ids)


async def test_a_tool_emits() -> None:
    app, events = shop()

    @app.tool
    async def ship(order: str) -> str:
        return await events.emit(OrderShipped(order))

    async with called(app) as calls:
        cursor = (await calls.unchecked("events/poll", name=NAME))["result"]["cursor"]
        found = await calls.call("ship", {"order": "7"})
        polled = (await calls.unchecked("events/poll", name=NAME, cursor=cursor))["result"]
        assert polled["events"][0]["eventId"] == found["content"][0]["text"]
        assert polled["events"][0]["data"]["order"] == "7"


async def test_what_was_emitted_before_the_serving_is_there() -> None:
    app, events = shop()
    await events.emit(OrderShipped("1"))
    async with called(app) as calls:
        assert events._box().state(NAME).head == 1
        assert (await calls.unchecked("events/poll", name=NAME))["result"]["events"] == []


async def test_an_events_object_is_that_of_one_server() -> None:
    app, events = shop()
    async with following(app):
        with pytest.raises(LocalError, match="that of one server"):
            async with following(Server("another", extensions=[events])):
                pass


def test_an_events_object_says_what_it_is() -> None:
    assert "io.modelcontextprotocol/events" in repr(Events())
