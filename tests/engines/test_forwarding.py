"""Events on the topics of brokers: what an `EventPublisher` forwards, and what takes it there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from dragoman import Service, serve
from dragoman.events import EventLimits, EventPublisher
from dragoman.events import forwarding as f
from dragoman.jsonrpc.errors import LocalError

from .brokers import Engine
from .wires import DURABLE, EVERY, MEMORY, PATIENCE, Wire, over, plus, until


class OrderShipped(Struct):
    """An order has left the house."""

    order: str


class OrderLost(Struct):
    order: str


def publisher(url: str, **options: Any) -> EventPublisher:
    events = EventPublisher(forward=url, **options)
    events.event(OrderShipped)
    events.event(OrderLost)
    return events


class Taker:
    """A service that takes events."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.api = Service("taker")

        @self.api.method("events.event", inline=True)
        def take(id: str, name: str, timestamp: float, data: dict[str, Any]) -> None:
            self.got.append((name, id, timestamp, data))

    @property
    def orders(self) -> list[str]:
        return [data["order"] for _, _, _, data in self.got]

    async def have(self, *orders: str) -> None:
        """Wait until it has these orders at least once, in this order; what is repeated is not compared."""
        await until(lambda: set(orders) <= set(self.orders))
        assert list(dict.fromkeys(self.orders)) == list(orders)


@EVERY
async def test_events_are_taken_in_order_behind_every_broker(url: str) -> None:
    taker = Taker()
    events = publisher(url)
    async with serve(taker.api, urls=url), events.open():
        orders = [str(number) for number in range(50)]
        ids = [await events.emit(OrderShipped(one), timestamp=float(one)) for one in orders]
        await taker.have(*orders)
        assert taker.got == [
            ("order_shipped", id, float(one), {"order": one}) for id, one in zip(ids, orders, strict=True)
        ]
        await events.emit(OrderLost("lost"))
        await taker.have(*orders, "lost")
        await until(lambda: events.measures()["event_forwards_total"] == 51)
        assert events.measures()["event_forwards_waiting"] == 0


@DURABLE
async def test_a_broker_that_is_away_loses_nothing(wire: Wire, engine: Engine, url: str, tmp_path: Path) -> None:
    engine.control()
    taker = Taker()
    events = publisher(plus(url, wire.quick), store=f"sqlite:{tmp_path}/events.db")
    async with serve(taker.api, urls=plus(url, wire.quick)), events.open():
        await events.emit(OrderShipped("0"))
        await taker.have("0")
        await engine.stop()
        for number in range(1, 20):
            await events.emit(OrderShipped(str(number)))  # it waits for no broker
        await engine.start()
        await taker.have(*map(str, range(20)))


@over(MEMORY)
async def test_what_nobody_takes_waits_for_who_does(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f, "PAUSES", (0.01, 0.05))
    taker = Taker()
    events = publisher(url)
    async with events.open():
        for one in "abc":
            await events.emit(OrderShipped(one))
        await until(lambda: events.measures()["event_forward_failures_total"] > 1)
        await until(lambda: events.measures()["event_forwards_waiting"] == 3)
        async with serve(taker.api, urls=url):
            await taker.have(*"abc")


@over(MEMORY)
async def test_a_topic_goes_on_where_it_was_and_one_process_forwards(url: str, tmp_path: Path) -> None:
    taker, store = Taker(), f"sqlite:{tmp_path}/events.db"
    first, second = publisher(url, store=store), publisher(url, store=store)
    await second.emit(OrderShipped("before"))  # before there was a topic
    async with serve(taker.api, urls=url):
        async with first.open():
            await first.emit(OrderShipped("1"))
            await taker.have("1")
            async with second.open():
                await second.emit(OrderShipped("2"))  # the other one forwards it
                await taker.have("1", "2")
                assert second.measures()["event_forwards_total"] == 0
        await first.emit(OrderShipped("3"))
        await first.close()
        async with second.open():
            await taker.have("1", "2", "3")
    assert taker.orders == ["1", "2", "3"]


@over(MEMORY)
async def test_what_is_too_long_or_not_kept_any_more_is_skipped(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f, "PAUSES", (0.01, 0.05))
    taker = Taker()
    url = plus(url, "limit=2000")
    events = publisher(url, limits=EventLimits(events=3))
    async with events.open():
        for number in range(10):
            await events.emit(OrderShipped(str(number)))
        await until(lambda: events.measures()["event_forward_failures_total"] > 1)
        async with serve(taker.api, urls=url):
            await taker.have("7", "8", "9")
            await events.emit(OrderShipped("x" * 3_000))
            await events.emit(OrderShipped("after"))
            await taker.have("7", "8", "9", "after")
        assert events.measures()["event_forwards_skipped_total"] == 8
    assert "has lost" in caplog.text  # once or more, as it came to look
    assert "takes 2000" in caplog.text


@over(MEMORY)
async def test_a_process_that_has_lost_the_lease_sets_nothing_back(url: str, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path}/events.db"
    late, leader = publisher(url, store=store), publisher(url, store=store)
    await leader.box().forwarded("topic")
    await leader.box().keep_forwarded("topic", "order_shipped", 7)
    await late.box().keep_forwarded("topic", "order_shipped", 3)
    assert (await leader.box().forwarded("topic"))["order_shipped"] == 7
    await late.close()
    await leader.close()


async def test_a_broker_that_is_never_there_costs_the_others_nothing(tmp_path: Path) -> None:
    events = publisher("redis://127.0.0.1:1/events", store=f"sqlite:{tmp_path}/events.db")
    definition = events.types["order_shipped"]
    async with events.open(), asyncio.timeout(PATIENCE):
        await until(lambda: events.measures()["event_forward_failures_total"] > 0)
        ids = [await events.emit(OrderShipped(str(number))) for number in range(100)]
        found = events.scan(definition, definition.arguments_of({}, 100), 0, 1_000)
        assert [one.id for one in found.events] == ids


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("http://127.0.0.1/events", "no topic of a broker"),
        ("events", "no topic of a broker"),
        ("kafka://user:secret@a/b?token=secret", "no topic of a broker"),
        (["mqtt://user:secret@a/b", 7], "forward is"),
        (["mqtt://a/b", "mqtt://user:secret@a/b"], "each once"),
        ([f"mqtt://a/{number}" for number in range(17)], "16 are allowed"),
        (7, "forward is"),
    ],
)
def test_what_is_no_topic(given: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words) as refused:
        EventPublisher(forward=given)
    assert "secret" not in str(refused.value)
