"""The subscriptions to events: who sees what of them, and how they are ended and tried again from the console."""

from __future__ import annotations

import asyncio
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

from dragoman import Service, serve
from dragoman.console.rows import SubscriptionRows
from dragoman.console.subscriptions import ROWS
from dragoman.console.views import merge_subscriptions
from dragoman.events.board import EventCounts, EventSubscription, KeptSubscriptions
from dragoman.mcp import Server
from dragoman.mcp.extensions.events.board import OutboxBoard
from dragoman.store.contract import StoreLost
from tests.mcp.extensions.events.receiving import SECRET, MovedClock, echo, receiving, reply
from tests.web.shipments import Shipments, failing, subscribe, subscriber

from .ends import Ends, with_console
from .test_opening import ends_of
from .test_replicas import machines

HTTP = "http://127.0.0.1:0"


async def listed(ends: Ends, query: str = "") -> list[dict[str, Any]]:
    found = await ends.get(f"/api/subscriptions{query}")
    return list(found["subscriptions"])


async def until_state(ends: Ends, state: str, behind: int | None = None, led: bool = False) -> dict[str, Any]:
    """The one subscription, once it is in this state, and so many events behind. `led`: and a process says that it
    delivers its events, which none does while a slow one renews its lease too late."""
    async with asyncio.timeout(20):
        while True:
            rows = await listed(ends, f"?state={state}")
            if rows and behind in (None, rows[0]["behind"]) and (rows[0].get("worker") or not led):
                (one,) = rows
                return one


async def test_it_is_seen_where_events_go_and_neither_urls_nor_secrets_are() -> None:
    shipments = Shipments()
    outer = Server("outer", version="1")
    outer.include(shipments.app, prefix="in")
    async with receiving() as receiver, with_console(outer, HTTP) as ends, subscriber(shipments, "ada") as ada:
        assert await listed(ends) == []
        id = await subscribe(ada, receiver, path="/key-t0psecret", carrier="DHL")
        await shipments.ship("1", "2")
        await shipments.until_delivered(2)
        await until_state(ends, "active", behind=0)
        answered = await ends.send(ends.request("/api/subscriptions"))
        (one,) = answered.json["subscriptions"]
        assert one.pop("delivered") > 1e9
        assert one.pop("expires") > 1e9
        assert answered.json["kept"] == {one.pop("store"): {"subscriptions": 1, "retrying": 0, "resting": 0}}
        assert one == {
            "id": id,
            "name": "orders.shipped",
            "server": "shop",
            "receiver": f"http://127.0.0.1:{receiver.port}",
            "principal": "ada",
            "issuer": "https://id.example.org",
            "state": "active",
            "position": 2,
            "behind": 0,
            "here": True,
        }
        assert answered.json["counts"] == {"emitted": 2, "delivered": 2, "failed": 0, "abandoned": 0, "streams": 0}
        for word in (SECRET, "t0psecret", "/hooks", "DHL"):
            assert word.encode() not in answered.body


@pytest.mark.parametrize("messages", [False, True])
async def test_what_chooses_among_events_is_shown_where_messages_are_and_secrets_nowhere(messages: bool) -> None:
    shipments = Shipments()
    async with (
        receiving() as receiver,
        with_console(shipments.app, HTTP, messages=messages) as ends,
        subscriber(shipments, "ada") as ada,
    ):
        await subscribe(ada, receiver, carrier="DHL", token="hunter2")
        await subscribe(ada, receiver, "orders.returned")
        returned, shipped = await listed(ends)
        assert shipped.get("arguments", "") == ('{"carrier":"DHL","token":"***"}' if messages else "")
        assert "arguments" not in returned


async def test_one_that_is_refused_says_why_and_is_tried_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    clock = MovedClock()
    shipments = Shipments(clock=clock, retries=[600])
    async with (
        receiving(failing()) as receiver,
        with_console(shipments.app, HTTP) as ends,
        subscriber(shipments, "ada") as ada,
    ):
        id = await subscribe(ada, receiver)
        none = await ends.post("/api/subscriptions/retry", id, "sub_none")
        assert "waits for no other try" in none[id]
        assert "no subscription sub_none exists" in none["sub_none"]
        await shipments.ship("1", "2", "3")
        one = await until_state(ends, "retrying")
        assert (one["attempts"], one["refusal"], one["behind"], one["position"]) == (1, "http_5xx", 3, 0)
        assert 500 < one["due"] - clock.now() < 700
        assert one["refused"] == clock.now()
        receiver.behave = echo
        assert await ends.post("/api/subscriptions/retry", id) == {id: ""}
        await receiver.have(4)
        one = await until_state(ends, "active", behind=0)
        assert "due" not in one
        assert "attempts" not in one
        lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        (line,) = lines
        assert line.startswith(
            f"retried subscription={id} service=shop event=orders.shipped receiver=http://127.0.0.1:"
        )
        assert "principal=ada by=the console's secret at 127.0.0.1:" in line
        assert "/hooks" not in line


async def test_one_that_rests_goes_on_when_the_operator_says_so() -> None:
    clock = MovedClock()
    shipments = Shipments(clock=clock, retries=[])
    async with (
        receiving(failing()) as receiver,
        with_console(shipments.app, HTTP) as ends,
        subscriber(shipments, "ada") as ada,
    ):
        id = await subscribe(ada, receiver)
        await shipments.ship("1", "2", "3")
        one = await until_state(ends, "resting")
        assert (one["refusal"], one["position"], one["behind"]) == ("http_5xx", 1, 2)
        found = await ends.get("/api/subscriptions")
        assert list(found["kept"].values()) == [{"subscriptions": 1, "retrying": 0, "resting": 1}]
        assert found["counts"]["abandoned"] == 1
        receiver.behave = echo
        assert await ends.post("/api/subscriptions/retry", id) == {id: ""}
        await shipments.until_delivered(2)
        await until_state(ends, "active", behind=0)


@pytest.mark.parametrize("declared", [True, False])
async def test_one_is_ended_once_and_its_receiver_is_told(caplog: pytest.LogCaptureFixture, declared: bool) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    shipments = Shipments(profile="both")
    async with (
        receiving() as receiver,
        with_console(shipments.app, HTTP) as ends,
        subscriber(shipments, "ada", declared=declared) as ada,
    ):
        id = await subscribe(ada, receiver)
        assert await ends.post("/api/subscriptions/end", id) == {id: ""}
        if declared:
            (told,) = await receiver.have(1)
            assert told.message["type"] == "terminated"
            assert told.message["error"]["data"] == {"reason": "ended by the operator of the server"}
            assert told.is_signed_by(SECRET)
            assert told.headers["x-mcp-subscription-id"] == id
        assert await listed(ends) == []
        assert "no subscription" in (await ends.post("/api/subscriptions/end", id))[id]
        other = await subscribe(ada, receiver, "orders.returned")
        await shipments.ship("1")
        await shipments.give_back("1")
        posted = await receiver.have(2 if declared else 1)
        assert [one.message["name"] for one in posted if "name" in one.message] == ["orders.returned"]
        (line,) = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        assert line.startswith(f"ended subscription={id} ")
        assert [one["id"] for one in await listed(ends)] == [other]


async def test_a_receiver_that_does_not_answer_holds_up_no_end() -> None:
    shipments = Shipments()
    async with (
        receiving() as receiver,
        with_console(shipments.app, HTTP) as ends,
        subscriber(shipments, "ada") as ada,
    ):
        id = await subscribe(ada, receiver)
        receiver.behave = lambda _: None
        assert await ends.post("/api/subscriptions/end", id) == {id: ""}
        await receiver.have(1)
        assert await listed(ends) == []


async def test_they_are_sought_by_state_and_words_and_come_in_pages() -> None:
    shipments = Shipments()
    async with (
        receiving() as receiver,
        receiving(failing()) as other,
        with_console(shipments.app, HTTP) as ends,
        subscriber(shipments, "ada") as ada,
        subscriber(shipments, "Bob") as bob,
    ):
        for number in range(3):
            await subscribe(ada, receiver, path=f"/{number}")
            await subscribe(bob, receiver, "orders.returned", path=f"/{number}")
        failed = await subscribe(bob, other)
        await shipments.ship("1")
        await until_state(ends, "retrying")
        for query, count in (
            ("", 7),
            ("?state=active", 6),
            ("?state=retrying", 1),
            ("?state=resting", 0),
            ("?q=returned", 3),
            ("?q=BOB", 4),
            (f"?q=bob+:{other.port}", 1),
            (f"?q={failed[:20]}", 1),
            ("?q=hooks", 0),
            ("?q=%25", 0),
        ):
            assert len(await listed(ends, query)) == count, query
        seen: list[dict[str, Any]] = []
        after = ""
        while True:
            page = await ends.get(f"/api/subscriptions?limit=2{after}")
            seen += page["subscriptions"]
            if page["after"] is None:
                break
            after = f"&after={page['after'].replace(' ', '%20')}"
        assert seen == await listed(ends)
        assert [one["name"] for one in seen] == ["orders.returned"] * 3 + ["orders.shipped"] * 4
        for query in (
            "?state=done",
            "?limit=0",
            f"?limit={ROWS + 1}",
            f"?q={'+'.join('x' * 6)}",
            f"?after={'x' * 301}",
        ):
            assert (await ends.send(ends.request(f"/api/subscriptions{query}"))).status == 400, query
        assert await listed(ends, "?after=x%20") == []
        assert len(await listed(ends, "?after=%27+OR+1%3D1")) == 7  # before all


async def test_where_nothing_has_events_there_is_no_list() -> None:
    async with with_console(Service("none"), HTTP) as ends:
        found = await ends.send(ends.request("/api/subscriptions"))
        assert (found.status, found.json) == (
            404,
            {"error": "Nothing that is served here has subscriptions of webhooks"},
        )
        assert "no subscription x exists" in (await ends.post("/api/subscriptions/end", "x"))["x"]


async def test_a_store_that_is_away_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    shipments, other = Shipments(), Shipments()
    other.app = Server("other", version="1", extensions=[other.events])

    def away(self: OutboxBoard, *given: Any) -> Any:
        if self.server == "shop":
            raise StoreLost("the file is away")
        return found(self, *given)

    async with (
        receiving() as receiver,
        with_console({"/a": shipments.app, "/b": other.app}, HTTP) as ends,
        subscriber(shipments, "ada") as ada,
        subscriber(other, "ada") as there,
    ):
        id = await subscribe(ada, receiver)
        await subscribe(there, receiver, "orders.returned")
        for name in ("list_subscriptions", "find_subscription"):
            found = getattr(OutboxBoard, name)
            monkeypatch.setattr(OutboxBoard, name, away)
            if name == "list_subscriptions":
                page = await ends.get("/api/subscriptions")
                assert ([one["server"] for one in page["subscriptions"]], page["away"]) == (["other"], ["shop"])
        said = await ends.post("/api/subscriptions/end", id)
        assert said[id] == "the subscriptions of shop cannot be reached now"


def row(id: str, name: str, store: str = "s", **more: Any) -> EventSubscription:
    given = {"server": "shop", "receiver": "r", "principal": "p", "state": "active", "position": 1, "behind": 0}
    return EventSubscription(id=id, name=name, store=store, expires=1.0, **{**given, **more})


def page(after: str | None, *rows: EventSubscription, **more: Any) -> SubscriptionRows:
    return SubscriptionRows(subscriptions=list(rows), after=after, **more)


@pytest.mark.parametrize(
    ("pages", "limit", "ids", "after"),
    [
        ([], 9, "", None),
        ([page(None, row("1:b", "x"), row("1:a", "y")), page(None, row("2:c", "x"))], 9, "1:b 2:c 1:a", None),
        ([page(None, row("1:b", "x"), row("1:a", "y")), page(None, row("2:c", "x"))], 2, "1:b 2:c", "x c"),
        ([page(None, row("1:a", "x")), page(None, row("2:a", "x"))], 9, "1:a", None),
        # the same id in another store is another subscription, also at the end of a page
        ([page(None, row("1:a", "x")), page(None, row("2:a", "x", "t"))], 1, "1:a 2:a", "x a"),
        # others follow on the first page, so what the second has behind them waits for the next look
        ([page("x b", row("1:a", "x"), row("1:b", "x")), page(None, row("2:c", "x"))], 9, "1:a 1:b", "x b"),
    ],
)
def test_pages_of_several_are_one(pages: list[SubscriptionRows], limit: int, ids: str, after: str | None) -> None:
    found = merge_subscriptions(pages, limit)
    assert (" ".join(one.id for one in found.subscriptions), found.after) == (ids, after)


def test_counts_of_processes_are_added_and_those_of_a_store_are_not() -> None:
    kept = {"s": KeptSubscriptions(subscriptions=3, retrying=1)}
    there = [page(None, kept=kept, counts=EventCounts(emitted=2, streams=1)), page(None, kept=kept, away=["x"])]
    found = merge_subscriptions(there, 9)
    assert (found.kept, found.counts, found.away) == (kept, EventCounts(emitted=2, streams=1), ["x"])


async def test_replicas_that_share_a_store_list_each_once_and_orders_find_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "dragoman.audit")
    monkeypatch.setenv("DRAGOMAN_SECRET", f"{uuid.uuid4()}")
    url = f"sqlite:{tmp_path / 'events.db'}"
    one, other = (Shipments(store=url, retries=[600]) for _ in range(2))
    bus = f"memory:{uuid.uuid4()}"

    def behave(posted: Any) -> bytes:
        return echo(posted) if posted.is_verification or refused["no"] else reply(503)

    refused = {"no": False}
    async with (
        receiving(behave) as receiver,
        serve(one.app, urls=HTTP, bus=bus, console=0) as first,
        serve(other.app, urls=HTTP, bus=bus, console=0) as second,
        subscriber(other, "ada") as there,
    ):
        assert first.console is not None
        assert second.console is not None
        ends, far = ends_of(first.console), ends_of(second.console)
        keys = [found["key"] for found in await machines(ends, 2)]
        await subscribe(there, receiver)
        await one.ship("1")
        await other.ship("2")
        for each in (ends, far):
            waiting = await until_state(each, "retrying", led=True)
            assert waiting["id"].partition(":")[0] == waiting["worker"]  # the process that delivers lists it
            assert waiting["worker"] in keys
            page = await each.get("/api/subscriptions")
            assert (len(page["subscriptions"]), page["counts"]["emitted"]) == (1, 2)
            assert [kept["retrying"] for kept in page["kept"].values()] == [1]
        refused["no"] = True
        assert await far.post("/api/subscriptions/retry", waiting["id"]) == {waiting["id"]: ""}
        await receiver.have(3)
        lost = await ends.post("/api/subscriptions/end", f"{keys[0]}:sub_none", "nobody:x", "x", ":x", "x:")
        assert all("no subscription" in said for said in lost.values()), lost
        last = (await until_state(ends, "active"))["id"]
        idle = f"{next(key for key in keys if key != last.partition(':')[0])}:{last.partition(':')[2]}"
        assert await ends.post("/api/subscriptions/end", idle) == {idle: ""}  # any of them reaches the store
        assert await listed(far) == []
        lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.audit"]
        assert [line.split()[0] for line in lines] == ["retried", "ended"]
        assert f"in the console of {keys[1]}" in lines[0]
