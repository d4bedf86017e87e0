"""Listening to events: by a stream and by polling, with losses, gaps, refusals and slow readers, in both eras."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import BadAnswer, LocalError, MethodNotFound, RpcError
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import listening as module
from dragoman.mcp.extensions.events import stream_call
from dragoman.mcp.extensions.events.client import EventsClient
from dragoman.mcp.extensions.events.listening import Listening
from dragoman.mcp.extensions.events.received import ReceivedEvent
from tests.mcp.scripted import Dies, Error, Message, Result, Scripted, discovered, legacy, modern, notification
from tests.mcp.scripted_http import Seen, Talk, scripted

from .posting import event

NAME = "orders.shipped"
ID = "io.modelcontextprotocol/subscriptionId"
ERAS: dict[str, Callable[[Callable[[Message], Iterable[Any]]], Scripted]] = {"stateless": modern, "stateful": legacy}
eras = pytest.mark.parametrize("era", ERAS)
Answers = Callable[[Message], Iterable[Any]]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.001, 0.01))


def types(*delivery: str) -> Result:
    """The answer to `events/list`."""
    one = {"name": NAME, "delivery": list(delivery), "inputSchema": {}, "payloadSchema": {}}
    return Result({"resultType": "complete", "events": [one]})


def polled(*ids: str, cursor: str | None = None, **members: Any) -> Result:
    """The answer to a poll."""
    found = [{name: value for name, value in event(id).items() if name != "cursor"} for id in ids]
    return Result({"resultType": "complete", "events": found, "cursor": cursor, "nextPollMs": 0, **members})


def poller(*answers: Any) -> Answers:
    """A server that answers one poll after the other, and lists the event type."""
    left = list(answers)

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "events/list":
            return [types("poll")]
        return [left.pop(0)] if message.get("method") == "events/poll" and left else []

    return script


def told(id: Any, kind: str, **params: Any) -> Message:
    """A notification of the stream of a call."""
    return notification(f"notifications/events/{kind}", **params, _meta={ID: id})


def streamer(*streams: Iterable[Any]) -> Answers:
    """A server that answers each stream by what it yields: (kind, params) are notifications of it."""
    left = [list(one) for one in streams]

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "events/list":
            return [types("push", "poll")]
        if message.get("method") != "events/stream" or not left:
            return []
        return [told(message["id"], one[0], **one[1]) if type(one) is tuple else one for one in left.pop(0)]

    return script


ENDS = Result({"resultType": "complete", "_meta": {}})
ACTIVE = ("active", {"cursor": "0"})


def happened(id: str, **members: Any) -> tuple[str, dict[str, Any]]:
    """The notification of an event."""
    return ("event", event(id, **{"cursor": id.removeprefix("evt_"), **members}))


async def take(found: Listening, count: int) -> list[ReceivedEvent]:
    """The next events."""
    async with asyncio.timeout(20):
        return [await anext(found) for _ in range(count)]


async def calls(server: Scripted, count: int) -> None:
    """Wait until so many streams were called."""
    async with asyncio.timeout(20):
        while len(server.of("events/stream")) < count:  # noqa: ASYNC110  (the server has no event for this)
            await asyncio.sleep(0)


def cursors(server: Scripted, method: str) -> list[Any]:
    """The positions that a server was asked for, one after the other."""
    return [one["params"].get("cursor") for one in server.of(method)]


# -- polling


@eras
async def test_polls(era: str) -> None:
    server = ERAS[era](
        poller(
            polled(cursor="1"),
            polled("evt_2", "evt_3", cursor="3", hasMore=True),
            polled("evt_3", "evt_4", cursor="4"),
            polled(cursor="9"),
            polled("evt_5"),
            polled("evt_6"),
        )
    )
    events = EventsClient(min_poll=0.001)
    async with (
        Client(server, extensions=[events]) as client,
        events.listen(NAME, {"carrier": "DHL"}, max_age=2.5) as found,
    ):
        assert repr(found) == "<Listening orders.shipped>"
        got = await take(found, 3)
        assert [f"{one.id} {one.cursor}" for one in got] == ["evt_2 None", "evt_3 3", "evt_4 4"]
        assert (found.mode, found.cursor) == ("poll", "3")  # the last one is not done with
        assert [one.id for one in await take(found, 2)] == ["evt_5", "evt_6"]
        assert found.cursor is None
        assert (found.gaps, client.revision.stateful) == (0, era == "stateful")
    assert cursors(server, "events/poll")[:6] == [None, "1", "3", "4", "9", None]
    params = server.of("events/poll")[0]["params"]
    assert {name: value for name, value in params.items() if name != "_meta"} == {
        "name": NAME,
        "arguments": {"carrier": "DHL"},
        "cursor": None,
        "maxAgeMs": 2500,
        "timeoutMs": 20000,
    }
    assert not any("maxAgeMs" in one["params"] for one in server.of("events/poll")[1:])


async def test_where_polling_begins_and_what_was_skipped() -> None:
    server = modern(poller(polled("evt_1", cursor="8", truncated=True), polled("evt_2", cursor="9")))
    events = EventsClient(min_poll=0.001)
    async with Client(server, extensions=[events]), events.listen(NAME, cursor="7", mode="poll") as found:
        got = await take(found, 2)
    assert [one.truncated for one in got] == [True, False]
    assert found.gaps == 1
    assert cursors(server, "events/poll")[:2] == ["7", "8"]
    assert server.of("events/list") == []


@pytest.mark.parametrize(
    ("said", "pause"),
    [
        ({"nextPollMs": 5000}, 5.0),
        ({"nextPollMs": 1}, 1.0),
        ({"nextPollMs": -5}, 1.0),
        ({"nextPollMs": 10**12}, 3600.0),
        ({"nextPollMs": None}, 30.0),
        ({"nextPollMs": 5000, "hasMore": True}, 5.0),  # more, but nothing: that would be a loop
    ],
)
async def test_the_pace_of_polls(said: dict[str, Any], pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {name: value for name, value in said.items() if value is not None}
    server = modern(lambda message: [Result({"resultType": "complete", "events": [], "cursor": "1", **members})])
    slept: list[float] = []
    come = asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        come.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME, mode="poll") as found:
        waiting = asyncio.ensure_future(anext(found))
        await come.wait()
        await found.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
    assert slept == [pause]


async def test_a_poll_that_is_refused_for_now_is_made_again() -> None:
    busy = Error(-32603, "Busy", {"retry_after": 0})
    server = modern(poller(polled(cursor="1"), busy, busy, polled("evt_1", cursor="2")))
    events = EventsClient(min_poll=0.001)
    async with Client(server, extensions=[events]), events.listen(NAME, mode="poll") as found:
        assert [one.id for one in await take(found, 1)] == ["evt_1"]
    assert cursors(server, "events/poll") == [None, "1", "1", "1"]


async def test_a_poll_of_a_server_that_fails_is_made_again_once_it_has_worked() -> None:
    fails = Error(-32603, "Draining")
    server = modern(poller(polled(cursor="1"), fails, fails, polled("evt_1", cursor="2"), Error(-32012)))
    events = EventsClient(min_poll=0.001)
    async with Client(server, extensions=[events]), events.listen(NAME, mode="poll") as found:
        assert [one.id for one in await take(found, 1)] == ["evt_1"]
        with pytest.raises(RpcError) as caught:
            await take(found, 1)
    assert caught.value.code == -32012


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "503 Service Unavailable"])
async def test_a_client_that_is_refused_over_http(status: str) -> None:
    answers: list[Any] = [discovered().value, polled(cursor="1").value, status, polled("evt_1", cursor="2").value]

    async def script(seen: Seen, talk: Talk) -> None:
        said = answers.pop(0)
        if isinstance(said, str):
            talk.say(None, said)
        else:
            talk.result(seen, said)

    events = EventsClient(min_poll=0.001)
    async with (
        scripted(script) as server,
        Client(server.url, extensions=[events]),
        events.listen(NAME, mode="poll") as found,
    ):
        if status.startswith("503"):
            assert [one.id for one in await take(found, 1)] == ["evt_1"]
            return
        with pytest.raises(ChannelError, match=status[:3]):
            await take(found, 1)


async def test_an_id_that_is_too_long() -> None:
    events = EventsClient()
    async with (
        Client(modern(poller(polled("e" * 1025))), extensions=[events]),
        events.listen(NAME, mode="poll") as found,
    ):
        with pytest.raises(BadAnswer, match="an id of more than 1024"):
            await take(found, 1)


async def test_polls_go_on_over_a_new_connection() -> None:
    server = modern(poller(polled("evt_1", cursor="1"), Dies(), polled("evt_1", "evt_2", cursor="2")))
    events = EventsClient(min_poll=0.001)
    async with Client(server, restart=True, extensions=[events]), events.listen(NAME, mode="poll") as found:
        assert [one.id for one in await take(found, 2)] == ["evt_1", "evt_2"]
    assert server.attached == 2


@pytest.mark.parametrize("code", [-32011, -32012, -32602, -32603])
async def test_a_refusal_is_raised(code: int) -> None:
    events = EventsClient()
    async with (
        Client(modern(poller(Error(code, "no"))), extensions=[events]),
        events.listen(NAME, mode="poll") as found,
    ):
        with pytest.raises(RpcError) as caught:
            await take(found, 1)
        with pytest.raises(StopAsyncIteration):
            await anext(found)
    assert caught.value.code == code


async def test_an_event_that_cannot_be_read() -> None:
    answer = Result({"resultType": "complete", "events": [{**event(), "data": [1]}]})
    events = EventsClient()
    async with Client(modern(poller(answer)), extensions=[events]), events.listen(NAME, mode="poll") as found:
        with pytest.raises(BadAnswer, match=r"orders\.shipped"):
            await take(found, 1)


# -- which mode


async def choose(*delivery: str) -> Listening:
    server = modern(lambda message: [types(*delivery)] if message.get("method") == "events/list" else [])
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        waiting = asyncio.ensure_future(anext(found))
        method = asyncio.ensure_future(server.until("events/stream" if "push" in delivery else "events/poll"))
        await asyncio.wait([waiting, method], return_when=asyncio.FIRST_COMPLETED)
        method.cancel()
        if waiting.done():
            waiting.result()
        await found.close()
        await asyncio.wait([waiting])
    return found


async def test_the_better_mode_is_taken() -> None:
    assert (await choose("poll", "webhook", "push")).mode == "push"
    assert (await choose("webhook", "poll", "carrier pigeon")).mode == "poll"
    with pytest.raises(LocalError, match="delivered by webhook alone: use subscribe"):
        await choose("webhook")


async def test_unknown_types_servers_without_events_and_wrong_uses() -> None:
    events = EventsClient()
    with pytest.raises(LocalError, match="within their client"):
        await events.list()
    async with Client(modern(poller()), extensions=[events]):
        async with events.listen("orders.shiped") as found:
            with pytest.raises(LocalError, match=r"no events 'orders.shiped'; there are orders\.shipped"):
                await take(found, 1)
        wrong: Any = "webhook"
        with pytest.raises(LocalError, match="mode is 'push', 'poll' or None"):
            events.listen(NAME, mode=wrong)
    with pytest.raises(LocalError, match="min_poll is a number of seconds above 0"):
        EventsClient(min_poll=0)
    events = EventsClient()
    async with Client(modern(lambda message: [Error(-32601)]), extensions=[events]):
        with pytest.raises(MethodNotFound):
            await events.list()


async def test_pages_without_an_end() -> None:
    page = Result({"resultType": "complete", "events": [], "nextCursor": "again"})
    events = EventsClient()
    async with Client(modern(lambda message: [page]), extensions=[events]):
        with pytest.raises(BadAnswer, match="the pages have no end"):
            await events.list()


@pytest.mark.parametrize("refusal", [Error(-32014), Error(-32026), Error(-32601)])
async def test_a_stream_that_the_server_has_not_is_polled(refusal: Error) -> None:
    stream, poll = streamer([refusal]), poller(polled("evt_1"))
    server = modern(lambda message: [*stream(message)] or [*poll(message)])
    events = EventsClient()
    async with Client(server, extensions=[events]):
        async with events.listen(NAME) as found:
            assert [one.id for one in await take(found, 1)] == ["evt_1"]
            assert found.mode == "poll"
        async with events.listen(NAME, mode="push") as found:
            server.script = modern(streamer([refusal])).script
            with pytest.raises(RpcError):
                await take(found, 1)


# -- by a stream


@eras
async def test_a_stream(era: str) -> None:
    server = ERAS[era](
        streamer(
            [
                ACTIVE,
                happened("evt_1"),
                happened("evt_1"),
                ("heartbeat", {"cursor": "5"}),
                ("error", {"error": {"code": -32603, "message": "upstream"}}),
                happened("evt_6"),
            ]
        )
    )
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME, {"carrier": "DHL"}) as found:
        [first] = await take(found, 1)
        position = found.cursor  # that of before
        assert (first.id, first.data, first.cursor, position) == ("evt_1", {"order": 7}, "1", "0")
        [second] = await take(found, 1)
        assert (second.id, found.cursor, found.mode) == ("evt_6", "5", "push")
        [call] = server.of("events/stream")
        assert call["params"]["arguments"] == {"carrier": "DHL"}
        await found.close()
        await server.until("notifications/cancelled")
        assert server.of("notifications/cancelled")[0]["params"]["requestId"] == call["id"]
        with pytest.raises(StopAsyncIteration):
            await anext(found)


async def test_two_streams_and_messages_of_none() -> None:
    server = modern(streamer([ACTIVE], [ACTIVE]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as one, events.listen(NAME) as two:
        waiting = [asyncio.ensure_future(take(each, 1)) for each in (one, two)]
        await calls(server, 2)
        ids = [call["id"] for call in server.of("events/stream")]
        server.say(notification("notifications/events/event", **event("evt_0")))
        server.say(told("1", "event", **event("evt_0")))
        server.say(told(999, "event", **event("evt_0")))
        server.say(told(True, "terminated", error={"code": 1, "message": "no"}))
        server.say(told(ids[1], "event", **event("evt_2")))
        server.say(told(ids[0], "event", **event("evt_1")))
        found = [(await each)[0].id for each in waiting]
    assert sorted(found) == ["evt_1", "evt_2"]


@pytest.mark.parametrize(
    "end", [ENDS, Dies(), Error(-32603, "Draining", {"retry_after": 0}), Error(-32603, "Draining")]
)
async def test_a_stream_that_ends_or_is_lost_goes_on(end: Any) -> None:
    events = EventsClient()
    first, second = (
        [ACTIVE, happened("evt_1"), happened("evt_2")],
        [("active", {}), happened("evt_2"), happened("evt_3")],
    )
    server = modern(streamer(first, second))
    async with Client(server, restart=True, extensions=[events]), events.listen(NAME, cursor="0") as found:
        got = await take(found, 2)
        server.say(end, server.of("events/stream")[0])
        got += await take(found, 1)
    assert [one.id for one in got] == ["evt_1", "evt_2", "evt_3"]
    assert (found.gaps, [one.truncated for one in got]) == (0, [False] * 3)
    assert cursors(server, "events/stream") == ["0", "2"]


async def test_a_stream_without_positions_that_is_lost_has_a_gap() -> None:
    first = [("active", {"cursor": None}), happened("evt_1", cursor=None), ENDS]
    server = modern(streamer(first, [("active", {}), happened("evt_2", cursor=None)]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        got = await take(found, 2)
    assert [(one.id, one.truncated) for one in got] == [("evt_1", False), ("evt_2", True)]
    assert cursors(server, "events/stream") == [None, None]
    assert found.gaps == 1


async def test_gaps_of_a_stream() -> None:
    skipped = ("active", {"cursor": "8", "truncated": True})
    server = modern(streamer([skipped, happened("evt_9"), happened("evt_10"), skipped, happened("evt_11")]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME, cursor="1") as found:
        got = await take(found, 3)
    assert [one.truncated for one in got] == [True, False, True]
    assert found.gaps == 2


async def test_a_stream_that_the_server_terminates() -> None:
    end = ("terminated", {"error": {"code": -32012, "message": "Forbidden", "data": {"reason": "revoked"}}})
    server = modern(streamer([ACTIVE, happened("evt_1"), end]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        assert [one.id for one in await take(found, 1)] == ["evt_1"]
        with pytest.raises(RpcError) as caught:
            await take(found, 1)
    assert (caught.value.code, caught.value.data) == (-32012, {"reason": "revoked"})


async def test_a_silent_stream_is_lost() -> None:
    server = modern(streamer([ACTIVE, happened("evt_1")], [ACTIVE, happened("evt_2")]))
    events = EventsClient(silence=0.05)
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        assert [one.id for one in await take(found, 2)] == ["evt_1", "evt_2"]
    assert cursors(server, "events/stream") == [None, "1"]


async def test_a_stream_that_lives_is_not_lost() -> None:
    server = modern(streamer([ACTIVE]))
    events = EventsClient(silence=0.2)
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        waiting = asyncio.ensure_future(take(found, 1))
        await server.until("events/stream")
        id = server.of("events/stream")[0]["id"]
        for beat in range(10):
            await asyncio.sleep(0.05)
            server.say(told(id, "heartbeat", cursor=str(beat)))
        server.say(told(id, *happened("evt_10")[:1], **happened("evt_10")[1]))
        assert (await waiting)[0].id == "evt_10"
    assert len(server.of("events/stream")) == 1


@pytest.mark.parametrize("bound", ["WAITING", "WAITING_SIZE"])
async def test_a_slow_reader_gives_the_stream_up_and_goes_on(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_call, bound, 3 if bound == "WAITING" else 40)

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "events/list":
            return [types("push")]
        if message.get("method") != "events/stream":
            return []
        after = int(message["params"].get("cursor") or 0)
        return [
            told(message["id"], *one[:1], **one[1]) for one in map(happened, (f"evt_{n}" for n in range(after + 1, 9)))
        ]

    server = modern(script)
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        got = await take(found, 8)
    assert [one.id for one in got] == [f"evt_{number}" for number in range(1, 9)]
    assert server.of("notifications/cancelled")
    first, *others = cursors(server, "events/stream")
    assert first is None
    assert others
    assert others == sorted(others)
    assert found.gaps == 0


async def test_a_server_that_does_not_come_back() -> None:
    server = modern(streamer([ACTIVE, happened("evt_1")]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        assert [one.id for one in await take(found, 1)] == ["evt_1"]
        server.say(Dies())
        with pytest.raises(ChannelError):
            await take(found, 1)


# -- reading


async def test_a_reader_that_gives_up_waiting_loses_nothing() -> None:
    server = modern(streamer([ACTIVE]))
    events = EventsClient()
    async with Client(server, extensions=[events]), events.listen(NAME) as found:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(found)
        await server.until("events/stream")
        id = server.of("events/stream")[0]["id"]
        server.say(told(id, "event", **event("evt_1")))
        assert [one.id for one in await take(found, 1)] == ["evt_1"]
    assert len(server.of("events/stream")) == 1


async def test_what_is_closed_ends_for_who_waits() -> None:
    server = modern(streamer([ACTIVE], [ACTIVE]))
    events = EventsClient()
    async with Client(server, extensions=[events]) as client:
        one, two = events.listen(NAME), events.listen(NAME)
        waiting = [asyncio.ensure_future(anext(each)) for each in (one, two)]
        await calls(server, 2)
        await one.close()
        with pytest.raises(StopAsyncIteration):
            await waiting[0]
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await waiting[1]


async def test_who_leaves_its_block_because_the_client_is_closed_closes_it_as_well() -> None:
    server = modern(streamer([ACTIVE]))
    events = EventsClient()
    async with Client(server, extensions=[events]):
        one = events.listen(NAME)
        waiting = asyncio.ensure_future(anext(one))
        await calls(server, 1)
        await asyncio.gather(one.close(), one.close())
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_what_is_dropped_is_cancelled() -> None:
    server = modern(streamer([ACTIVE, happened("evt_1")]))
    events = EventsClient()
    async with Client(server, extensions=[events]):
        async for one in events.listen(NAME):
            assert one.id == "evt_1"
            break
        gc.collect()
        await server.until("notifications/cancelled")


def test_how_they_show_themselves() -> None:
    events = EventsClient()
    assert repr(events) == "<EventsClient, io.modelcontextprotocol/events>"
    assert repr(events.listen(NAME, mode="poll")) == "<Listening orders.shipped, poll>"


# -- whatever a server does


@st.composite
def calls_of_a_server(draw: st.DrawFn) -> list[tuple[int, int, str]]:
    """What a server does in one call after the other: how many events it sends again, how many new ones it sends, and
    how it ends."""
    ends = st.sampled_from(["ends", "dies", "fails", "hangs up later"])
    return draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), ends), max_size=6))


@given(calls_of_a_server(), st.sampled_from(["push", "poll"]), st.integers(0, 3))
def test_each_event_comes_once_and_in_order_whatever_a_server_does(
    plan: list[tuple[int, int, str]], mode: Any, start: int
) -> None:
    most, left = 10, list(plan)
    endings: dict[str, list[Any]] = {"ends": [ENDS], "dies": [Dies()], "fails": [Error(-32603)], "hangs up later": []}

    def batch(message: Message) -> tuple[list[int], str]:
        after = int(message["params"]["cursor"])
        again, new, end = left.pop(0) if left else (0, most, "hangs up later")
        return [*range(max(after - again, start) + 1, min(after + new, most) + 1)], end

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "events/poll":
            numbers, end = batch(message)
            if end in ("dies", "fails"):
                return endings[end]
            cursor = str(max([int(message["params"]["cursor"]), *numbers]))
            return [polled(*[f"evt_{one}" for one in numbers], cursor=cursor, hasMore=end == "ends")]
        if message.get("method") != "events/stream":
            return []
        numbers, end = batch(message)
        active = told(message["id"], "active", cursor=message["params"]["cursor"])
        said = [told(message["id"], "event", **happened(f"evt_{one}")[1]) for one in numbers]
        return [active, *said, *endings[end]]

    async def listen() -> list[int]:
        events = EventsClient(min_poll=0.001, silence=0.05)
        server = modern(script)
        async with (
            Client(server, restart=True, extensions=[events]),
            events.listen(NAME, mode=mode, cursor=str(start)) as found,
        ):
            got = await take(found, most - start)
            assert found.gaps == 0
            return [int(one.id.removeprefix("evt_")) for one in got]

    while mode == "poll" and left and left[0][2] in ("dies", "fails"):
        left.pop(0)  # an error is raised where nothing has worked yet
    assert asyncio.run(listen()) == [*range(start + 1, most + 1)]


@pytest.mark.parametrize("mode", ["push", "poll"])
async def test_a_position_that_was_kept_misses_nothing(mode: Any) -> None:
    """A reader that dies and comes back with the last position has the event again that it was working on."""

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") not in ("events/poll", "events/stream"):
            return []
        after = int(message["params"]["cursor"])
        ids = [f"evt_{number}" for number in range(after + 1, min(after + 3, 9) + 1)]
        if message["method"] == "events/poll":
            return [polled(*ids, cursor=str(min(after + 3, 9)))]
        return [told(message["id"], "event", **happened(id)[1]) for id in ids]

    cursor: str | None = "0"
    got: list[str] = []
    for _ in range(40):
        events = EventsClient(min_poll=0.001)
        async with Client(modern(script), extensions=[events]), events.listen(NAME, mode=mode, cursor=cursor) as found:
            for _ in range(2 if mode == "push" else 4):
                if got[-1:] != ["evt_9"]:
                    got += [one.id for one in await take(found, 1)]
            cursor = found.cursor
        if got[-1] == "evt_9":
            break
    assert list(dict.fromkeys(got)) == [f"evt_{number}" for number in range(1, 10)]
    assert len(got) > 9
