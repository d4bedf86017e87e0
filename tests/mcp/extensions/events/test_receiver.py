"""The receiver of webhooks, over our HTTP server and uvicorn: what it accepts, what it refuses, and what is handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.bus import open_bus
from dragoman.jsonrpc.errors import BadAnswer, LocalError
from dragoman.mcp.extensions.events import receiver as receiving
from dragoman.mcp.extensions.events.received import ReceivedEnd, ReceivedEvent, ReceivedGap
from dragoman.mcp.extensions.events.receiver import EventReceiver
from dragoman.mcp.extensions.events.signing import InvalidSignature, sign_headers

from .posting import FACES, NOW, OTHER, PATH, SECRET, SUBSCRIPTION, Handled, Pairs, event, message, served

BIG = 256 * 1024


def receiver_of(handled: Handled, **options: Any) -> EventReceiver:
    """A receiver with one subscription."""
    receiver = EventReceiver(handled, clock=lambda: NOW, **options)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    return receiver


def change(pairs: Pairs, **changes: str | None) -> list[tuple[str, str]]:
    """Change the value of headers, or leave them out."""
    new = {name.replace("_", "-"): value for name, value in changes.items()}
    kept = [(name, new.get(name.lower(), value)) for name, value in pairs]
    return [(name, value) for name, value in kept if value is not None]


GOOD, TEXT = message(event())
LARGEST = message(event(data={"x": "a" * (BIG - len(message(event(data={"x": ""}))[1]))}))

# name: headers, body, the status, the events handled
Delivery = tuple[Pairs, bytes, int, int]
DELIVERIES: dict[str, Delivery] = {
    "right": (GOOD, TEXT, 204, 1),
    "in another order": (GOOD[::-1], TEXT, 204, 1),
    "names in capitals": ([(name.upper(), value) for name, value in GOOD], TEXT, 204, 1),
    "an id of its own for the message": (*message(event(), id="msg_9"), 204, 1),
    "signed by two secrets": (*message(event(), secret=[OTHER, SECRET]), 204, 1),
    "of ChatGPT's profile, without a cursor": (
        *message({"eventId": "e", "name": "n", "timestamp": "2026-09-21T10:00:00Z", "data": {}}),
        204,
        1,
    ),
    "a member that is not known": (*message(event(later=True)), 204, 1),
    "five minutes late": (*message(event(), at=NOW - 300), 204, 1),
    "the largest": (*LARGEST, 204, 1),
    "too late": (*message(event(), at=NOW - 301), 401, 0),
    "too early": (*message(event(), at=NOW + 301), 401, 0),
    "by another secret": (*message(event(), secret=OTHER), 401, 0),
    "another body": (GOOD, TEXT.replace(b"7", b"8"), 401, 0),
    "without an id": (change(GOOD, webhook_id=None), TEXT, 401, 0),
    "without a timestamp": (change(GOOD, webhook_timestamp=None), TEXT, 401, 0),
    "without a signature": (change(GOOD, webhook_signature=None), TEXT, 401, 0),
    "without a subscription": (change(GOOD, x_mcp_subscription_id=None), TEXT, 401, 0),
    "an id twice": ([*GOOD, ("webhook-id", "evt_1")], TEXT, 401, 0),
    "a timestamp twice": ([*GOOD, ("webhook-timestamp", str(NOW))], TEXT, 401, 0),
    "a signature twice": ([*GOOD, ("webhook-signature", dict(GOOD)["webhook-signature"])], TEXT, 401, 0),
    "a subscription twice": ([*GOOD, ("x-mcp-subscription-id", SUBSCRIPTION)], TEXT, 401, 0),
    "a long subscription": (change(GOOD, x_mcp_subscription_id="s" * 257), TEXT, 401, 0),
    "of a subscription that is not known": (change(GOOD, x_mcp_subscription_id="sub_0"), TEXT, 410, 0),
    "a challenge for a subscription that is not known": (
        *message({"type": "verification", "challenge": "c"}, subscription="sub_0", secret=OTHER),
        410,
        0,
    ),
    "huge": (*message(event(data={"x": "a" * BIG})), 413, 0),
    "no JSON": (*message(b"hello"), 400, 0),
    "no object": (*message(b"[]"), 400, 0),
    "not UTF-8": (*message(b'{"eventId":"e","name":"n","timestamp":"t","data":{"a":"\xff"}}'), 400, 0),
    "data that is no object": (*message(event(data=[1])), 400, 0),
    "no event": (*message({"eventId": "e"}), 400, 0),
    "a type that is no text": (*message(event(type=1)), 400, 0),
    "nested too deep": (*message(b'{"a":' * 20_000 + b"1" + b"}" * 20_000), 400, 0),
    "a challenge that is none": (*message({"type": "verification"}), 400, 0),
    "a challenge that is long": (*message({"type": "verification", "challenge": "c" * 1025}), 400, 0),
    "a kind that is not known": (*message({"type": "paused"}), 204, 0),
}


@pytest.mark.parametrize("face", FACES)
async def test_deliveries(face: str) -> None:
    for name, (headers, body, status, count) in DELIVERIES.items():
        handled = Handled()
        async with served(face, receiver_of(handled)) as poster:
            answer = await poster.send(headers, body)
        assert (answer.status, len(handled)) == (status, count), name
        assert answer.body == b"" or name == "huge", (name, answer.body)  # an address that is probed says nothing


@pytest.mark.parametrize("face", FACES)
async def test_an_event_as_it_is_handled(face: str) -> None:
    handled = Handled()
    async with served(face, receiver_of(handled)) as poster:
        await poster.post(event(_meta={"a": 1}))
    [one] = handled
    assert isinstance(one, ReceivedEvent)
    assert (one.id, one.name, one.timestamp) == ("evt_1", "orders.shipped", "2026-09-21T10:00:00Z")
    assert (one.data, one.read(dict[str, int]), one.cursor) == ({"order": 7}, {"order": 7}, "7")
    assert (one.subscription, one.truncated, one.meta) == (SUBSCRIPTION, False, {"a": 1})


@pytest.mark.parametrize("face", FACES)
async def test_other_methods_and_what_is_too_large_before_it_is_read(face: str) -> None:
    async with served(face, receiver_of(Handled())) as poster:
        answer = await poster.send([], b"", method="GET")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_body_without_a_length_is_cut_off() -> None:
    async with served("asgi", receiver_of(Handled())) as poster:
        reader, writer = await asyncio.open_connection("127.0.0.1", poster.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        for _ in range(20):
            writer.write(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        assert (await reader.readline()).split()[1] == b"413"
        writer.close()


async def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "BODY_TIME", 0.01)
    async with served("asgi", receiver_of(Handled())) as poster:
        reader, writer = await asyncio.open_connection("127.0.0.1", poster.port)
        writer.write(f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()


# -- once


@pytest.mark.parametrize("face", FACES)
async def test_an_event_that_comes_again_is_handled_once(face: str) -> None:
    handled = Handled()
    async with served(face, receiver_of(handled)) as poster:
        assert [(await poster.post(event(), at=NOW + late)).status for late in (0, 30, 120)] == [204, 204, 204]
        assert (await poster.post(event(), id="msg_of_its_own")).status == 204
        assert (await poster.post(event("evt_2"))).status == 204
        assert handled.ids == ["evt_1", "evt_2"]


async def test_an_event_that_two_subscriptions_have_is_handled_for_each() -> None:
    handled, others = Handled(), Handled()
    receiver = receiver_of(handled)
    receiver.begin(OTHER, handle=others).bind("sub_other")
    async with served("asgi", receiver) as poster:
        await poster.post(event())
        await poster.post(event(), subscription="sub_other", secret=OTHER)
    assert (handled.ids, others.ids) == (["evt_1"], ["evt_1"])
    assert others[0].subscription == "sub_other"


@pytest.mark.parametrize("face", FACES)
async def test_what_could_not_be_handled_comes_again(face: str, caplog: pytest.LogCaptureFixture) -> None:
    handled = Handled({"evt_1": RuntimeError("the disk is full"), "evt_2": TimeoutError("of the database")})
    async with served(face, receiver_of(handled)) as poster:
        with caplog.at_level(logging.ERROR, "dragoman.mcp"):
            failed = [await poster.post(event()), await poster.post(event("evt_2"))]
        assert [(one.status, one.body) for one in failed] == [(500, b""), (500, b"")]
        assert (await poster.post(event())).status == 204
        assert handled.ids == ["evt_1", "evt_2", "evt_1"]
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize("face", FACES)
async def test_a_function_that_is_cancelled_from_inside(face: str) -> None:
    handled = Handled({"evt_1": asyncio.CancelledError()})
    async with served(face, receiver_of(handled)) as poster:
        assert [(await poster.post(event())).status for _ in range(2)] == [500, 204]


async def test_two_attempts_at_once_are_one_run() -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    handled = Handled()

    async def slow(one: ReceivedEvent) -> None:
        begun.set()
        await go.wait()
        await handled(one)

    receiver = EventReceiver(slow, clock=lambda: NOW)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    async with served("asgi", receiver) as poster:
        tries = [asyncio.create_task(poster.post(event())) for _ in range(2)]
        await begun.wait()
        go.set()
        assert [(await one).status for one in tries] == [204, 204]
    assert handled.ids == ["evt_1"]


@pytest.mark.parametrize("face", FACES)
async def test_a_server_that_gives_up_waiting_finds_it_handled(face: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    handled = Handled()

    async def slow(one: ReceivedEvent) -> None:
        begun.set()
        await go.wait()
        await handled(one)

    receiver = EventReceiver(slow, clock=lambda: NOW)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    async with served(face, receiver) as poster:
        given_up = asyncio.create_task(poster.post(event()))
        await begun.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        again = asyncio.create_task(poster.post(event()))
        go.set()
        assert (await again).status == 204
    assert handled.ids == ["evt_1"]


async def test_what_takes_too_long_comes_again() -> None:
    handled = Handled()

    async def never(one: ReceivedEvent) -> None:
        await handled(one)
        await asyncio.Event().wait()

    receiver = EventReceiver(never, timeout=0.01, clock=lambda: NOW)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    async with served("asgi", receiver) as poster:
        for _ in range(2):
            answer = await poster.post(event())
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert handled.ids == ["evt_1", "evt_1"]


async def test_more_at_once_than_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "HANDLING", 1)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(one: ReceivedEvent) -> None:
        begun.set()
        await go.wait()

    receiver = EventReceiver(slow, clock=lambda: NOW)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    first = asyncio.create_task(receiver.answer(*message(event())))
    await begun.wait()
    assert (await receiver.answer(*message(event("evt_2")))).status == 503
    go.set()
    assert (await first).status == 204
    assert (await receiver.answer(*message(event("evt_2")))).status == 204


async def test_a_plain_function_runs_in_a_thread() -> None:
    import threading

    threads: list[str] = []
    receiver = EventReceiver(lambda one: threads.append(threading.current_thread().name), clock=lambda: NOW)
    receiver.begin(SECRET).bind(SUBSCRIPTION)
    assert (await receiver.answer(*message(event()))).status == 204
    assert threads != [threading.current_thread().name]


class Store:
    """What keeps which messages were handled."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, float | None]] = {}
        self.fails = False

    async def get(self, key: str) -> bytes | None:
        if self.fails:
            raise ConnectionError("the store is away")
        return self.values[key][0] if key in self.values else None

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self.values[key] = (value, ttl)


async def test_with_a_store_a_restart_forgets_nothing() -> None:
    store, handled = Store(), Handled()
    for _ in range(2):
        answer = await receiver_of(handled, seen=store).answer(*message(event()))
        assert answer.status == 204
    assert handled.ids == ["evt_1"]
    [(key, (_, ttl))] = store.values.items()
    assert (len(key), ttl) == (74, 86400)
    assert SUBSCRIPTION not in key
    assert "evt" not in key.removeprefix("mcp-event")
    store.fails = True
    assert (await receiver_of(handled, seen=store).answer(*message(event("evt_2")))).status == 500
    assert handled.ids == ["evt_1"]


async def test_the_store_of_a_bus_is_a_store_for_several_processes() -> None:
    bus, handled = await open_bus("memory:receivers"), Handled()
    assert bus.store is not None
    for id in ("evt_1", "evt_1", "evt_2"):
        assert (await receiver_of(handled, seen=bus.store).answer(*message(event(id)))).status == 204
    assert handled.ids == ["evt_1", "evt_2"]
    await bus.close()


async def test_the_memory_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "SEEN", 2)
    handled = Handled()
    receiver = receiver_of(handled)
    for id in ("evt_1", "evt_2", "evt_3", "evt_3", "evt_1"):
        assert (await receiver.answer(*message(event(id)))).status == 204
    assert handled.ids == ["evt_1", "evt_2", "evt_3", "evt_1"]


# -- subscriptions


@pytest.mark.parametrize("face", FACES)
async def test_challenges(face: str) -> None:
    challenge = {"type": "verification", "challenge": "n0nce"}
    receiver = EventReceiver(clock=lambda: NOW)
    async with served(face, receiver) as poster:
        assert (await poster.post(challenge)).status == 410
        one = receiver.begin(SECRET)  # the server challenges before it answers the subscription
        answer = await poster.post(challenge)
        assert (answer.status, answer.body) == (200, b'{"challenge":"n0nce"}')
        assert answer.headers["content-type"].startswith("application/json")
        assert (await poster.post(challenge, secret=OTHER)).status == 503
        one.bind(SUBSCRIPTION)
        assert (await poster.post(challenge)).body == b'{"challenge":"n0nce"}'
        assert (await poster.post(challenge, secret=OTHER)).status == 401
        assert (await poster.post(challenge, subscription="sub_other")).status == 410
        one.end()
        assert (await poster.post(challenge)).status == 410


async def test_an_event_before_the_id_of_its_subscription_is_known() -> None:
    handled = Handled()
    receiver = EventReceiver(handled, clock=lambda: NOW)
    one = receiver.begin(SECRET)
    assert (await receiver.answer(*message(event()))).status == 204
    one.bind(SUBSCRIPTION)
    assert (await receiver.answer(*message(event()))).status == 204
    assert handled.ids == ["evt_1"]


async def test_a_server_that_made_the_id_of_another_ones_subscription() -> None:
    """Ids are chosen by servers: one of them can neither speak for another, nor make its messages look handled."""
    handled, others = Handled(), Handled()
    receiver = receiver_of(handled)
    receiver.begin(OTHER, handle=others).bind(SUBSCRIPTION)
    assert (await receiver.answer(*message(event(), secret=OTHER))).status == 204
    assert (await receiver.answer(*message(event()))).status == 204
    assert (handled.ids, others.ids) == (["evt_1"], ["evt_1"])
    ended = message({"type": "terminated", "error": {"code": -32012, "message": "Forbidden"}}, secret=OTHER)
    assert (await receiver.answer(*ended)).status == 204
    assert (await receiver.answer(*message(event("evt_2"), secret=OTHER))).status == 401
    assert (await receiver.answer(*message(event("evt_2")))).status == 204


async def test_a_secret_that_is_replaced() -> None:
    handled, now = Handled(), [float(NOW)]
    receiver = EventReceiver(handled, clock=lambda: now[0])
    one = receiver.begin(SECRET)
    one.bind(SUBSCRIPTION)
    assert (await receiver.answer(*message(event()))).status == 204
    one.replace(OTHER)
    now[0] += 300  # the server does not have it yet
    assert (await receiver.answer(*message(event("evt_0"), at=NOW + 300))).status == 204
    now[0] = NOW
    one.confirm()
    assert (await receiver.answer(*message(event(), secret=OTHER))).status == 204  # the same event
    assert (await receiver.answer(*message(event("evt_2")))).status == 204
    now[0] += 300
    assert (await receiver.answer(*message(event("evt_3"), at=NOW + 300))).status == 401
    assert (await receiver.answer(*message(event("evt_3"), secret=OTHER, at=NOW + 300))).status == 204
    assert handled.ids == ["evt_1", "evt_0", "evt_2", "evt_3"]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_secrets_from_a_function(kind: str) -> None:
    handled, asked = Handled(), list[str]()
    known: dict[str, str | Sequence[str]] = {SUBSCRIPTION: SECRET, "sub_two": [OTHER, SECRET]}

    def plain(id: str) -> str | Sequence[str] | None:
        asked.append(id)
        return known.get(id)

    async def later(id: str) -> str | Sequence[str] | None:
        return plain(id)

    receiver = EventReceiver(handled, secret_for=plain if kind == "plain" else later, clock=lambda: NOW)
    assert (await receiver.answer(*message(event()))).status == 204
    assert (await receiver.answer(*message(event(), subscription="sub_two"))).status == 204
    assert (await receiver.answer(*message(event(), secret=OTHER))).status == 401
    assert (await receiver.answer(*message(event(), subscription="sub_three"))).status == 410
    assert [one.subscription for one in handled] == [SUBSCRIPTION, "sub_two"]
    assert asked == [SUBSCRIPTION, "sub_two", SUBSCRIPTION, "sub_three"]
    await receiver.answer(*message(event(), at=NOW - 301))
    await receiver.answer(change(GOOD, webhook_signature="none"), TEXT)
    assert len(asked) == 4  # what is no message at all is not looked up


@pytest.mark.parametrize("wrong", [LookupError("the database is away"), "no secret"])
async def test_a_function_for_secrets_that_fails(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    def secret_for(id: str) -> str:
        if isinstance(wrong, Exception):
            raise wrong
        return str(wrong)

    receiver = EventReceiver(Handled(), secret_for=secret_for, clock=lambda: NOW)
    assert (await receiver.answer(*message(event()))).status == 503
    assert "could not be found" in caplog.text


# -- what is told of a subscription


@pytest.mark.parametrize("face", FACES)
async def test_gaps_and_the_end(face: str) -> None:
    handled, gaps, ends = Handled(), Handled(), Handled()
    receiver = receiver_of(handled, on_gap=gaps, on_end=ends)
    error = {"code": -32012, "message": "Forbidden", "data": {"reason": "revoked"}}
    async with served(face, receiver) as poster:
        for _ in range(2):
            assert (await poster.post({"type": "gap", "cursor": "9"}, id="msg_gap_1")).status == 204
        assert (await poster.post({"type": "gap"}, id="msg_gap_2")).status == 204
        ends.fails = {"": RuntimeError("not now")}
        assert (await poster.post({"type": "terminated", "error": error}, id="msg_end")).status == 500
        assert (await poster.post({"type": "terminated", "error": error}, id="msg_end")).status == 204
        assert (await poster.post(event())).status == 410
    assert gaps == [
        ReceivedGap(subscription=SUBSCRIPTION, cursor="9"),
        ReceivedGap(subscription=SUBSCRIPTION, cursor=None),
    ]
    assert [type(one) for one in ends] == [ReceivedEnd, ReceivedEnd]
    assert (ends[1].subscription, ends[1].error.code, ends[1].error.data) == (SUBSCRIPTION, -32012, error["data"])
    assert not handled


async def test_an_end_without_a_reason() -> None:
    ends = Handled()
    receiver = receiver_of(Handled(), on_end=ends)
    assert (await receiver.answer(*message({"type": "terminated"}))).status == 204
    assert ends[0].error.message == "the server has ended the subscription"


# -- wrong uses


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"handle": 1}, "handle is a function"),
        ({"secret_for": "whsec_"}, "secret_for is a function"),
        ({"timeout": 0}, "timeout is a number of seconds above 0"),
        ({"tolerance": -1}, "tolerance is a number of seconds"),
        ({"max_body": 0}, "max_body is a whole number"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=text):
        EventReceiver(**options)


def test_wrong_secrets_and_ids() -> None:
    receiver = EventReceiver()
    with pytest.raises(LocalError, match="whsec_"):
        receiver.begin("secret")
    one = receiver.begin(SECRET)
    with pytest.raises(LocalError, match="visible ASCII"):
        one.bind("a b")
    with pytest.raises(LocalError, match="whsec_"):
        one.replace("secret")
    assert SECRET not in repr([receiver, one])
    assert InvalidSignature("wrong", "x").reason == "wrong"
    assert sign_headers(SECRET, "a", 1, b"")["webhook-timestamp"] == "1"


# -- whatever comes


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x-mcp-subscription-id", "x"]),
            st.one_of(st.text(), st.sampled_from([value for _, value in GOOD])),
        ),
        max_size=6,
    ),
    st.one_of(st.binary(max_size=64), st.just(TEXT)),
)
def test_what_is_not_signed_is_not_handled(headers: Pairs, body: bytes) -> None:
    handled = Handled()
    answer = asyncio.run(receiver_of(handled).answer(headers, body))
    if body != TEXT or {*headers} != {pair for pair in GOOD if pair[0] != "Content-Type"}:
        assert answer.status in (401, 410)
        assert not handled


@given(st.data())
def test_a_message_that_was_changed_is_not_handled(data: st.DataObject) -> None:
    handled = Handled()
    place = data.draw(st.integers(0, len(TEXT) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != TEXT[place]))
    changed = TEXT[:place] + bytes([other]) + TEXT[place + 1 :]
    assert asyncio.run(receiver_of(handled).answer(GOOD, changed)).status == 401
    assert not handled


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(["type", "challenge", "cursor", "error", "eventId", "name", "timestamp", "data", "_meta", "x"])
_kinds = st.sampled_from(["verification", "gap", "terminated", "event"])


@given(st.dictionaries(_names, _json, max_size=8), st.none() | _kinds)
def test_whatever_a_server_signs_gets_an_answer(members: dict[str, Any], kind: str | None) -> None:
    handled = Handled()
    body = {**members, **({} if kind is None else {"type": kind})}
    answer = asyncio.run(receiver_of(handled, on_gap=handled, on_end=handled).answer(*message(body, id="msg_1")))
    assert answer.status in (200, 204, 400)
    assert len(handled) <= 1
    assert not (handled and answer.status != 204)


async def test_a_body_that_is_too_large_for_any_framework() -> None:
    handled = Handled()
    headers, body = message(event(data={"x": "a" * BIG}))
    assert (await receiver_of(handled).answer(headers, body)).status == 413
    assert (await receiver_of(handled, max_body=10 * BIG).answer(headers, body)).status == 204


async def test_a_payload_that_does_not_fit_its_type() -> None:
    handled = Handled()
    await receiver_of(handled).answer(*message(event()))
    with pytest.raises(BadAnswer, match=r"the event orders\.shipped does not fit"):
        handled[0].read(list[int])


async def asgi_of(receiver: EventReceiver, scope: dict[str, Any], *come: dict[str, Any]) -> list[Any]:
    """What an ASGI application sends to what comes."""
    left, sent = list(come), list[Any]()

    async def receive() -> Any:
        return left.pop(0)

    async def send(said: Any) -> None:
        sent.append(said)

    await receiver(scope, receive, send)
    return sent


async def test_what_else_an_asgi_server_does() -> None:
    receiver = EventReceiver()
    started, stopped = ({"type": f"lifespan.{one}"} for one in ("startup", "shutdown"))
    assert await asgi_of(receiver, {"type": "lifespan"}, started, stopped) == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.complete"},
    ]
    assert await asgi_of(receiver, {"type": "websocket"}) == [{"type": "websocket.close", "code": 1008}]
    part = {"type": "http.request", "body": b"{", "more_body": True}
    post = {"type": "http", "method": "POST", "headers": []}
    assert await asgi_of(receiver, post, part, {"type": "http.disconnect"}) == []
    assert await asgi_of(receiver, {"type": "later"}) == []
