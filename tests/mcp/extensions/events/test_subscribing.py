"""Webhook subscriptions of a client: how they begin, are refreshed, lose events, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dragoman.jsonrpc.errors import BadAnswer, LocalError, RpcError
from dragoman.mcp import Client
from dragoman.mcp.extensions.events import subscribing
from dragoman.mcp.extensions.events.client import EventsClient
from dragoman.mcp.extensions.events.received import ReceivedEnd, ReceivedGap
from dragoman.mcp.extensions.events.receiver import EventReceiver
from dragoman.mcp.extensions.events.subscribing import WebhookSubscription
from dragoman.mcp.protocol.times import to_iso
from tests.mcp.scripted import Dies, Error, Message, Result, Scripted, legacy, modern

from .posting import NOW, OTHER, SECRET, SUBSCRIPTION, Handled, event, message

NAME = "orders.shipped"
URL = "https://hooks.example.org/orders"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "PAUSES", (0.001, 0.01))
    monkeypatch.setattr(subscribing, "MIN_REFRESH", 0.001)


def granted(seconds: float | None = 3600, **members: Any) -> Result:
    """The answer to `events/subscribe`: it lives for so many seconds, None: for ever."""
    before = None if seconds is None else to_iso(NOW + seconds)
    found = {"id": SUBSCRIPTION, "refreshBefore": before, "cursor": None, "truncated": False}
    return Result({"resultType": "complete", **found, **members})


def grants(*answers: Any) -> Callable[[Message], Iterable[Any]]:
    """A server that answers one subscription after the other, and every end."""
    left = list(answers)

    def script(said: Message) -> Iterable[Any]:
        if said.get("method") == "events/unsubscribe":
            return [Result({"resultType": "complete"})]
        return [left.pop(0)] if said.get("method") == "events/subscribe" and left else []

    return script


def client_of(*answers: Any, era: Any = modern, **options: Any) -> tuple[Scripted, EventsClient, Client]:
    server, events = era(grants(*answers)), EventsClient(clock=lambda: NOW)
    return server, events, Client(server, extensions=[events], **options)


def sent(server: Scripted, method: str = "events/subscribe") -> list[dict[str, Any]]:
    """The params of the calls of a method, without `_meta`."""
    return [{name: value for name, value in one["params"].items() if name != "_meta"} for one in server.of(method)]


async def called(server: Scripted, count: int) -> None:
    """Wait until so many subscriptions were requested."""
    async with asyncio.timeout(20):
        while len(server.of("events/subscribe")) < count:  # noqa: ASYNC110  (the server has no event for this)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("era", [modern, legacy])
async def test_what_is_sent(era: Any) -> None:
    status = {"active": True, "lastDeliveryAt": None, "lastError": None, "throttled": True, "retryAfterMs": 60_000}
    server, events, client = client_of(granted(cursor="3", deliveryStatus=status), era=era)
    receiver = EventReceiver(clock=lambda: NOW)
    async with client:
        async with await events.subscribe(
            NAME, {"carrier": "DHL"}, url=URL, receiver=receiver, secret=SECRET, ttl=600, cursor="1", max_age=60
        ) as found:
            assert (found.id, found.cursor, found.refresh_before) == (SUBSCRIPTION, "3", NOW + 3600)
            assert found.status is not None
            assert (found.status.active, found.gaps) == (True, 0)
            assert (found.status.throttled, found.status.retry_after_ms) == (True, 60_000)
            assert repr(receiver) == "<EventReceiver of 1 subscriptions>"
        assert found.ended.is_set()
        await found.unsubscribe()
        with pytest.raises(LocalError, match="has ended: subscribe again"):
            await found.refresh()
    assert sent(server) == [
        {
            "name": NAME,
            "arguments": {"carrier": "DHL"},
            "delivery": {"mode": "webhook", "url": URL, "secret": SECRET},
            "cursor": "1",
            "maxAgeMs": 60_000,
            "ttlMs": 600_000,
        }
    ]
    delivery = {"mode": "webhook", "url": URL}
    assert sent(server, "events/unsubscribe") == [{"name": NAME, "arguments": {"carrier": "DHL"}, "delivery": delivery}]
    assert repr(receiver) == "<EventReceiver of 0 subscriptions>"
    assert SECRET not in repr(found)


@pytest.mark.parametrize(("ttl", "sends"), [({}, {}), ({"ttl": None}, {"ttlMs": None}), ({"ttl": 0.5}, {"ttlMs": 500})])
async def test_how_long_it_should_live(ttl: dict[str, Any], sends: dict[str, Any]) -> None:
    server, events, client = client_of(granted(None))
    async with client:
        found = await events.subscribe(NAME, url=URL, secret=SECRET, **ttl)
    assert found.refresh_before is None
    assert {name: value for name, value in sent(server)[0].items() if name == "ttlMs"} == sends


@pytest.mark.parametrize(
    ("life", "ttl", "least", "most"),
    [
        (3600, None, 1800, 2880),
        (None, None, 43200, 69120),
        (30 * 86400, None, 86400, 86400),
        (3600, 60, 30, 48),  # the server's clock is ahead of ours
        (-100, None, 5, 5),
    ],
)
async def test_when_it_is_refreshed(
    life: float | None, ttl: float | None, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribing, "MIN_REFRESH", 5.0)
    _, events, client = client_of(granted(life))
    async with client:
        given: dict[str, Any] = {} if ttl is None else {"ttl": ttl}
        found = await events.subscribe(NAME, url=URL, secret=SECRET, **given)
        pauses = [found._pause() for _ in range(100)]
    assert least <= min(pauses) <= max(pauses) <= most
    assert len(set(pauses)) > 50 or least == most  # many clients do not come at once


async def test_it_is_refreshed_with_its_position_over_a_new_connection() -> None:
    server, events, client = client_of(
        granted(0), Dies(), Error(-32603), Error(-32015), granted(0, cursor="5"), granted(0), restart=True
    )
    async with client:
        found = await events.subscribe(NAME, url=URL, secret=SECRET, cursor="1")
        await called(server, 6)
        assert found.cursor == "5"
        assert not found.ended.is_set()
    assert [one["cursor"] for one in sent(server)[:6]] == ["1", "1", "1", "1", "1", "5"]
    count = len(sent(server))
    await asyncio.sleep(0.02)
    assert len(sent(server)) == count  # without its client it is refreshed no more


async def test_a_refresh_that_is_refused_ends_it() -> None:
    ends = Handled()
    receiver = EventReceiver(clock=lambda: NOW)
    _, events, client = client_of(granted(0), Error(-32012, "Forbidden"))
    async with client:
        found = await events.subscribe(NAME, url=URL, receiver=receiver, secret=SECRET, on_end=ends)
        async with asyncio.timeout(20):
            await found.ended.wait()
        assert isinstance(found.error, RpcError)
        await found.unsubscribe()
        await asyncio.sleep(0)
    assert [(type(one), one.subscription, one.error.code) for one in ends] == [(ReceivedEnd, SUBSCRIPTION, -32012)]
    assert (await receiver.answer(*message(event()))).status == 410


async def test_a_refresh_that_tells_of_a_gap() -> None:
    come = asyncio.Event()
    gaps: list[ReceivedGap] = []

    def on_gap(gap: ReceivedGap) -> None:
        gaps.append(gap)
        loop.call_soon_threadsafe(come.set)
        raise RuntimeError("a gap is no reason to stop")

    loop = asyncio.get_running_loop()
    server, events, client = client_of(granted(0, cursor="1"), granted(0, cursor="9", truncated=True), granted(0))
    async with client:
        found = await events.subscribe(NAME, url=URL, secret=SECRET, on_gap=on_gap)
        async with asyncio.timeout(20):
            await come.wait()
        await called(server, 3)
        assert (gaps, found.gaps) == ([ReceivedGap(subscription=SUBSCRIPTION, cursor="9")], 1)


async def begun(receiver: EventReceiver, **options: Any) -> tuple[Client, WebhookSubscription]:
    """A subscription in a client, which is left open."""
    _, events, client = client_of(granted(), granted(), granted())
    await client.__aenter__()
    return client, await events.subscribe(NAME, url=URL, receiver=receiver, secret=SECRET, **options)


async def test_its_receiver_moves_it_on_and_ends_it() -> None:
    handled, gaps, ends = Handled({"evt_2": RuntimeError("no")}), Handled(), Handled()
    receiver = EventReceiver(handled, on_gap=gaps, on_end=ends, clock=lambda: NOW)
    client, found = await begun(receiver)
    assert (await receiver.answer(*message(event(cursor="7")))).status == 204
    assert found.cursor == "7"
    assert (await receiver.answer(*message(event("evt_2", cursor="8")))).status == 500
    assert (await receiver.answer(*message(event("evt_3", cursor=None)))).status == 204
    assert found.cursor == "7"
    assert (await receiver.answer(*message({"type": "gap", "cursor": "9"}, id="msg_gap_1"))).status == 204
    assert (found.cursor, found.gaps, len(gaps)) == ("9", 1, 1)
    end = {"type": "terminated", "error": {"code": -32012, "message": "Forbidden"}}
    assert (await receiver.answer(*message(end, id="msg_end_1"))).status == 204
    assert found.ended.is_set()
    assert isinstance(found.error, RpcError)
    assert len(ends) == 1
    assert (await receiver.answer(*message(event("evt_4")))).status == 410
    await client.close()


async def test_functions_of_its_own() -> None:
    handled, own = Handled(), Handled()
    receiver = EventReceiver(handled, clock=lambda: NOW)
    client, _ = await begun(receiver, handle=own)
    assert (await receiver.answer(*message(event()))).status == 204
    assert (handled.ids, own.ids) == ([], ["evt_1"])
    await client.close()


async def test_a_new_secret() -> None:
    handled = Handled()
    receiver = EventReceiver(handled, clock=lambda: NOW)
    client, found = await begun(receiver)
    await found.refresh(secret=OTHER)
    for secret, id in ((SECRET, "evt_1"), (OTHER, "evt_2")):
        assert (await receiver.answer(*message(event(id), secret=secret))).status == 204
    await found.replace_secret()
    assert (await receiver.answer(*message(event("evt_3"), secret=SECRET))).status == 401
    assert (await receiver.answer(*message(event("evt_3"), secret=OTHER))).status == 204
    with pytest.raises(LocalError, match="whsec_"):
        await found.refresh(secret="secret")
    await client.close()


async def test_a_new_secret_that_the_server_may_not_have_is_sent_again() -> None:
    server, events, client = client_of(granted(), Dies(), granted(), restart=True)
    handled = Handled()
    receiver = EventReceiver(handled, clock=lambda: NOW)
    async with client:
        found = await events.subscribe(NAME, url=URL, receiver=receiver, secret=SECRET)
        with pytest.raises(Exception, match="broke"):
            await found.refresh(secret=OTHER)
        for secret, id in ((SECRET, "evt_1"), (OTHER, "evt_2")):
            assert (await receiver.answer(*message(event(id), secret=secret))).status == 204
        await called(server, 3)
    assert [one["delivery"]["secret"] for one in sent(server)] == [SECRET, OTHER, OTHER]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Error(-32015, "CallbackEndpointError", {"reason": "challenge_failed"}), RpcError),
        (granted(refreshBefore="soon"), BadAnswer),
        (granted(id="a b"), BadAnswer),
        (granted(id=7), BadAnswer),
    ],
)
async def test_one_that_does_not_begin(answer: Any, error: type[Exception]) -> None:
    receiver = EventReceiver(clock=lambda: NOW)
    _, events, client = client_of(answer)
    async with client:
        with pytest.raises(error):
            await events.subscribe(NAME, url=URL, receiver=receiver)
    assert (await receiver.answer(*message(event()))).status == 410
    assert repr(receiver) == "<EventReceiver of 0 subscriptions>"


@pytest.mark.parametrize("code", [-32011, -32023])
async def test_one_that_the_server_has_forgotten_is_unsubscribed(code: int) -> None:
    server, events, client = client_of(granted())
    async with client:
        found = await events.subscribe(NAME, url=URL, secret=SECRET)
        server.script = modern(lambda message: [Error(code)]).script
        await found.unsubscribe()
        found.ended.clear()
        server.script = modern(lambda message: [Error(-32603)]).script
        with pytest.raises(RpcError):
            await found.unsubscribe()


async def test_wrong_uses() -> None:
    _, events, client = client_of(granted(), granted())
    async with client:
        with pytest.raises(LocalError, match="give the receiver"):
            await events.subscribe(NAME, url=URL)
        with pytest.raises(LocalError, match="handle needs a receiver"):
            await events.subscribe(NAME, url=URL, secret=SECRET, handle=Handled())
        with pytest.raises(LocalError, match="whsec_"):
            await events.subscribe(NAME, url=URL, secret="secret")
        one = await events.subscribe(NAME, {"a": 1}, url=URL, secret=SECRET)
        with pytest.raises(LocalError, match="there is this subscription"):
            await events.subscribe(NAME, {"a": 1}, url=URL, secret=OTHER)
        await one.unsubscribe()
        await events.subscribe(NAME, {"a": 1}, url=URL, secret=OTHER)
