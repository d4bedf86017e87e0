"""Subscriptions of webhooks: their deliveries, retries and ends, with a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from msgspec import UNSET, Struct, UnsetType

from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp.extensions.events import EventLimits
from dragoman.mcp.extensions.events import model as m
from dragoman.mcp.extensions.events.delivery import JITTER, RETRIES
from dragoman.mcp.protocol.revisions import REVISIONS, Revision
from dragoman.mcp.protocol.times import from_iso

from .receiving import (
    OTHER,
    SECRET,
    MovedClock,
    OrderShipped,
    Posted,
    echo,
    following,
    receiving,
    reply,
    settle,
    shop,
    subscribe,
)
from .test_polling import called


def answers(*statuses: int) -> Any:
    """Answer events by these statuses, one after the other, the last for ever."""
    left = list(statuses)

    def behave(posted: Posted) -> bytes:
        return echo(posted) if posted.is_verification else reply(left.pop(0) if len(left) > 1 else left[0])

    return behave


async def test_events_are_posted_in_order_signed_once_each() -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        found = await subscribe(client, receiver)
        ids = [await events.emit(OrderShipped(str(number))) for number in range(20)]
        posted = await receiver.have(20)
        assert receiver.ids == ids
        assert all(one.is_signed_by(SECRET) for one in receiver.posted)
        assert {one.headers["x-mcp-subscription-id"] for one in receiver.posted} == {found.id}
        assert {one.headers["content-type"] for one in receiver.posted} == {"application/json"}
        assert all(a.message["cursor"] < b.message["cursor"] for a, b in pairwise(posted))
        assert receiver.posted[0].is_verification
        assert receiver.posted[0].headers["webhook-id"].startswith("msg_verification_")
        assert len({one.headers["webhook-id"] for one in receiver.posted}) == 21


async def test_only_what_a_filter_wants_is_posted() -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver, arguments={"carrier": "UPS"})
        wanted = []
        for number in range(30):
            id = await events.emit(OrderShipped(str(number), "UPS" if number % 10 == 9 else "DHL"))
            wanted += [id] if number % 10 == 9 else []
        await receiver.have(3)
        assert receiver.ids == wanted


@pytest.mark.parametrize("profile", ["sep", "chatgpt", "both"])
@pytest.mark.parametrize("declared", [True, False])
async def test_the_id_of_a_message_is_as_the_profile_wants_it(profile: Any, declared: bool) -> None:
    app, events = shop(profile=profile)
    async with receiving() as receiver, following(app, declared=declared) as client:
        await subscribe(client, receiver)
        id = await events.emit(OrderShipped("1"))
        [posted] = await receiver.have(1)
        own = profile == "sep" or (profile == "both" and declared)
        assert (posted.headers["webhook-id"] == id) is not own
        assert posted.message["eventId"] == id


async def test_the_retries_come_at_their_times_and_are_signed_anew() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with receiving(answers(500)) as receiver, following(app) as client:
        await subscribe(client, receiver, ttl_ms=None)
        id = await events.emit(OrderShipped("1"))
        await receiver.have(1)
        for number, pause in enumerate(RETRIES, 2):
            failed = number - 1
            await settle(lambda: events._deliveries.failed == failed)  # noqa: B023  (it is called here)
            clock.move(pause * (1 - JITTER) - 1)
            await asyncio.sleep(0.02)
            assert len(receiver.events) == number - 1  # not yet
            clock.move(pause * 2 * JITTER + 2)
            await receiver.have(number)
        assert receiver.ids == [id] * 7
        assert len({one.headers["webhook-id"] for one in receiver.events}) == 1
        times = [int(one.headers["webhook-timestamp"]) for one in receiver.events]
        assert times == sorted(set(times))
        assert all(one.is_signed_by(SECRET) for one in receiver.events)


async def test_after_the_last_retry_an_event_is_given_up_and_the_next_one_is_tried() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock, retries=[30])
    async with receiving(answers(500, 500, 204)) as receiver, following(app) as client:
        await subscribe(client, receiver)
        lost, second = await events.emit(OrderShipped("1")), await events.emit(OrderShipped("2"))
        await receiver.have(1)
        await settle(lambda: events._deliveries.failed == 1)
        clock.move(40)
        await receiver.have(3)
        assert receiver.ids == [lost, lost, second]
        await settle(lambda: events._deliveries.delivered == 1)
        assert events._deliveries.abandoned == 1


async def test_a_dead_receiver_rests_until_its_client_comes_back() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock, retries=[30])
    async with receiving(answers(503)) as receiver, following(app) as client:
        await subscribe(client, receiver)
        first, second = await events.emit(OrderShipped("1")), await events.emit(OrderShipped("2"))
        await receiver.have(1)
        await settle(lambda: events._deliveries.failed == 1)
        clock.move(40)
        await receiver.have(3)  # the first again, given up; the second, which fails too
        assert receiver.ids == [first, first, second]
        await settle(lambda: events._deliveries.failed == 3)
        await events.emit(OrderShipped("3"))
        clock.move(1000)
        await asyncio.sleep(0.05)
        assert len(receiver.events) == 3
        receiver.behave = echo
        status = (await subscribe(client, receiver)).delivery_status
        assert isinstance(status, m.DeliveryStatus)
        assert (status.active, status.last_error, status.last_delivery_at) == (False, "http_5xx", None)
        await receiver.have(5)
        assert receiver.ids[3] == second
        status = (await subscribe(client, receiver)).delivery_status
        assert isinstance(status, m.DeliveryStatus)
        assert status.active


@pytest.mark.parametrize("profile", ["sep", "chatgpt"])
async def test_410_ends_the_event_or_as_chatgpt_wants_it_the_subscription(profile: Any) -> None:
    app, events = shop(profile=profile)
    async with receiving(answers(410, 204)) as receiver, following(app) as client:
        await subscribe(client, receiver)
        await events.emit(OrderShipped("1"))
        await receiver.have(1)
        await settle(lambda: events._box().count() == (profile == "sep"))
        second = await events.emit(OrderShipped("2"))
        if profile == "sep":
            await receiver.have(2)
            assert receiver.ids[1] == second
        else:
            await asyncio.sleep(0.05)
            assert len(receiver.events) == 1


async def test_413_is_not_tried_again() -> None:
    app, events = shop()
    async with receiving(answers(413, 204)) as receiver, following(app) as client:
        await subscribe(client, receiver)
        ids = [await events.emit(OrderShipped(str(number))) for number in range(2)]
        await receiver.have(2)
        assert receiver.ids == ids


async def test_a_receiver_may_say_when_to_come_back() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)

    def busy(posted: Posted) -> bytes:
        return echo(posted) if posted.is_verification or len(receiver.events) else reply(429, b"", "Retry-After: 900")

    async with receiving(busy) as receiver, following(app) as client:
        await subscribe(client, receiver)
        await events.emit(OrderShipped("1"))
        await receiver.have(1)
        await settle(lambda: events._deliveries.failed == 1)
        clock.move(899)
        await asyncio.sleep(0.02)
        assert len(receiver.events) == 1
        clock.move(2)
        await receiver.have(2)


async def test_a_dead_receiver_costs_the_others_nothing() -> None:
    """One receiver never answers: its subscriptions take one connection, and the other gets its events."""
    app, events = shop(limits=EventLimits(connections=4, connections_each=2, verifications=50))
    async with receiving() as dead, receiving() as alive, following(app) as client:
        for number in range(20):
            await client.request(
                "events/subscribe",
                m.SubscribeEventsParams(
                    name="order_shipped", delivery=m.Delivery(url=f"{dead.url}/{number}", secret=SECRET)
                ),
            )
        await subscribe(client, alive)
        dead.behave = lambda posted: None
        dead.most_open = 0
        ids = [await events.emit(OrderShipped(str(number))) for number in range(5)]
        await alive.have(5)
        assert alive.ids == ids
        assert 1 <= dead.most_open <= 2
        dead.released.set()


async def test_a_refresh_is_the_same_subscription_and_asks_for_no_challenge() -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        found = [await subscribe(client, receiver) for _ in range(10)]
        found += await asyncio.gather(*[subscribe(client, receiver, arguments={"carrier": "UPS"}) for _ in range(10)])
        assert len({one.id for one in found}) == 2
        assert len(receiver.posted) == 1
        assert events._box().count() == 2


async def test_a_storm_of_first_subscriptions_asks_for_one_challenge() -> None:
    app, _ = shop()
    async with receiving() as receiver, following(app) as client:
        found = await asyncio.gather(*[subscribe(client, receiver) for _ in range(50)])
        assert len({one.id for one in found}) == 1
        assert len(receiver.posted) == 1


async def test_a_new_secret_signs_beside_the_old_one_for_five_minutes() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver)
        await subscribe(client, receiver, OTHER)
        await events.emit(OrderShipped("1"))
        assert (await receiver.have(1))[0].is_signed_by(OTHER, SECRET)
        await subscribe(client, receiver, OTHER)  # as it was
        clock.move(299)
        await events.emit(OrderShipped("2"))
        assert (await receiver.have(2))[1].is_signed_by(OTHER, SECRET)
        clock.move(2)
        await events.emit(OrderShipped("3"))
        assert (await receiver.have(3))[2].is_signed_by(OTHER)


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [(UNSET, 3600), (None, 86_400), (1, 60), (600_000, 600), (10**15, 86_400), (0, 60)],
)
async def test_how_long_a_subscription_lives(ttl: Any, seconds: int) -> None:
    clock = MovedClock()
    app, events = shop(clock=clock)
    async with receiving() as receiver, following(app) as client:
        found = await subscribe(client, receiver, ttl_ms=ttl)
        assert from_iso(str(found.refresh_before)) == clock.now() + seconds
        clock.move(seconds - 0.5)
        await events.emit(OrderShipped("1"))
        await receiver.have(1)
        clock.move(1)
        await events.emit(OrderShipped("2"))
        clock.move(100)
        await settle(lambda: events._box().count() == 0)
        assert len(receiver.events) == 1
        assert isinstance((await subscribe(client, receiver)).delivery_status, UnsetType)  # a new one


async def test_what_is_unsubscribed_gets_nothing_more() -> None:
    app, events = shop()
    async with receiving() as receiver, receiving() as other, following(app) as client:
        for one in (receiver, other):
            await subscribe(client, one)
        params = m.UnsubscribeEventsParams(name="order_shipped", delivery=m.Delivery(url=receiver.url))
        await client.request("events/unsubscribe", params)
        await events.emit(OrderShipped("1"))
        await other.have(1)
        assert receiver.events == []
        with pytest.raises(RpcError) as caught:
            await client.request("events/unsubscribe", params)
        assert (caught.value.code, caught.value.data) == (-32011, {"kind": "subscription"})


async def test_a_cursor_begins_where_another_delivery_ended() -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        before = await client.request("events/poll", m.PollEventsParams(name="order_shipped"))
        ids = [await events.emit(OrderShipped(str(number))) for number in range(3)]
        found = await subscribe(client, receiver, cursor=before.cursor)
        assert not found.truncated
        await receiver.have(3)
        assert receiver.ids == ids


async def test_events_that_are_not_kept_any_more_are_told_as_a_gap() -> None:
    clock = MovedClock()
    app, events = shop(clock=clock, limits=EventLimits(events=3))
    async with receiving(answers(500, 204)) as receiver, following(app) as client:
        await subscribe(client, receiver)
        await events.emit(OrderShipped("0"))
        await receiver.have(1)
        await settle(lambda: events._deliveries.failed == 1)
        ids = [await events.emit(OrderShipped(str(number))) for number in range(1, 6)]
        clock.move(40)
        posted = await receiver.have(5)
        assert posted[1].message["type"] == "gap"
        assert posted[1].headers["webhook-id"].startswith("msg_gap_")
        assert posted[1].message["cursor"] < posted[2].message["cursor"]
        assert receiver.ids[1:] == ids[2:]


async def test_the_same_id_is_one_event() -> None:
    app, events = shop()
    async with receiving() as receiver, following(app) as client:
        await subscribe(client, receiver)
        for _ in range(3):
            assert await events.emit(OrderShipped("1"), id="upstream-7") == "upstream-7"
        last = await events.emit(OrderShipped("2"))
        await receiver.have(2)
        assert receiver.ids == ["upstream-7", last]


async def test_who_may_not_follow_any_more_is_told_that_it_has_ended() -> None:
    allowed = True
    app, events = shop()

    @events.event("orders.cancelled", allow=lambda identity, arguments: allowed)
    class Cancelled(Struct):
        order: str

    async with receiving() as receiver, following(app) as client:
        params = m.SubscribeEventsParams(name="orders.cancelled", delivery=m.Delivery(url=receiver.url, secret=SECRET))
        await client.request("events/subscribe", params)
        await events.emit(Cancelled("1"))
        await receiver.have(1)
        allowed = False
        await events.emit(Cancelled("2"))
        posted = await receiver.have(2)
        assert posted[1].message["type"] == "terminated"
        assert posted[1].message["error"]["code"] == -32012
        assert events._box().count() == 0
        with pytest.raises(RpcError) as caught:
            await client.request("events/subscribe", params)
        assert caught.value.code == -32012


async def test_a_subscription_with_which_an_event_cannot_be_compared_costs_the_others_nothing() -> None:
    app, events = shop()

    class Least(Struct):
        ratio: float = 1.0

    @events.event("weighed", arguments=Least, match=lambda arguments, event: event.grams / arguments.ratio > 1)
    class Weighed(Struct):
        grams: float

    async with receiving() as receiver, following(app) as client:
        for ratio in (0.0, 1.0):  # the first one cannot be divided by
            params = m.SubscribeEventsParams(
                name="weighed", arguments={"ratio": ratio}, delivery=m.Delivery(url=receiver.url, secret=SECRET)
            )
            await client.request("events/subscribe", params)
        here = await client.request("events/poll", m.PollEventsParams(name="weighed"))
        ids = [await events.emit(Weighed(grams)) for grams in (2, 3)]
        await receiver.have(2)
        assert receiver.ids == ids
        for ratio, expected in ((0.0, []), (1.0, ids)):
            polled = await client.request(
                "events/poll", m.PollEventsParams(name="weighed", arguments={"ratio": ratio}, cursor=here.cursor)
            )
            assert [one.event_id for one in polled.events] == expected


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda one: one.date)
@pytest.mark.parametrize("profile", ["sep", "chatgpt"])
async def test_a_webhook_in_each_revision(revision: Revision, profile: Any) -> None:
    app, events = shop(profile=profile)
    params = {"name": "order_shipped", "arguments": {"carrier": "DHL"}}
    async with receiving() as receiver, called(app, revision) as calls:
        delivery = {"mode": "webhook", "url": receiver.url, "secret": SECRET}
        result = (await calls.unchecked("events/subscribe", **params, delivery=delivery, ttlMs=600_000))["result"]
        members = {"id", "refreshBefore", "cursor", "truncated"}
        assert result.keys() - {"_meta"} == (members if revision.stateful else members | {"resultType"})
        id = await events.emit(OrderShipped("1"))
        await receiver.have(1)
        assert receiver.ids == [id]
        ended = await calls.unchecked("events/unsubscribe", **params, delivery={"url": receiver.url})
        assert ended["result"].keys() - {"_meta"} == (set() if revision.stateful else {"resultType"})
