"""`amqp://` as a bus, against a RabbitMQ that does what a test says: what is made there, what goes out, and what is
told of an outage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pamqp.commands import Exchange, Queue

from dragoman.bus import BusLost, open_bus
from dragoman.engines.amqp import connection
from dragoman.engines.amqp.bus import AmqpBus
from dragoman.jsonrpc.errors import LocalError
from tests.bus import table

from .scripted import Link, Scripted, scripted

OWN = ("own", "dragoman.bus", "own")
"""The binding by which it looks whether the exchange still has its queue."""


class Ends:
    """A bus on a scripted server, and what it told."""

    def __init__(self, server: Scripted, bus: AmqpBus) -> None:
        self.server, self.bus = server, bus
        self.states: list[bool] = []
        self.heard: list[bytes] = []
        bus.on_state = self.state

    def state(self, alive: bool) -> None:
        assert self.bus.alive is alive
        self.states.append(alive)
        assert self.bus.measures()["bus_outages_total"] == self.states.count(False)
        self.server.changed.set()

    def take(self, message: bytes) -> None:
        self.heard.append(message)
        self.server.changed.set()

    @property
    def link(self) -> Link:
        return self.server.last

    def deliver(self, body: bytes) -> None:
        """A message at the topic `q`."""
        self.link.deliver(self.link.got("Basic.Consume")[-1].consumer_tag, 1, body)

    def keys(self, name: str) -> list[tuple[str, str, str]]:
        """The bindings of topics that were made or removed."""
        found = [(one.queue, one.exchange, one.routing_key) for one in self.link.got(name)]
        return [one for one in found if one != OWN]


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    async with scripted() as server:
        server.answers |= {
            "Exchange.Declare": lambda link, channel, one: link.send(channel, Exchange.DeclareOk()),
            "Queue.Unbind": lambda link, channel, one: link.send(channel, Queue.UnbindOk()),
        }
        async with table.opened(f"{server.url}/v", AmqpBus) as bus:
            yield Ends(server, bus)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(connection, "PAUSES", (0.0, 0.0))


BINDING = ("own", "dragoman.bus", "q")


async def test_what_is_made_and_what_goes_over_it() -> None:
    """A queue of our own, which ends with us and needs no acknowledgements; messages that no disk has to keep."""
    async with ends() as one:
        assert one.bus.url == f"{one.server.url}/v"
        (declared,) = one.link.got("Exchange.Declare")
        assert (declared.exchange, declared.exchange_type, declared.durable) == ("dragoman.bus", "direct", True)
        (queue,) = one.link.got("Queue.Declare")
        assert (queue.queue, queue.durable, queue.exclusive, queue.auto_delete) == ("", False, True, True)
        (consumed,) = one.link.got("Basic.Consume")
        assert (consumed.queue, consumed.no_ack) == ("own", True)
        assert [(own.queue, own.exchange, own.routing_key) for own in one.link.got("Queue.Bind")] == [OWN]
        first, second = [await one.bus.subscribe("q", one.take) for _ in range(2)]
        assert one.keys("Queue.Bind") == [BINDING] * 2
        one.deliver(b"m")
        await one.server.until(lambda: len(one.heard) == 2)
        del one.server.answers["Basic.Publish"]  # it confirms both later
        publishing = [asyncio.ensure_future(one.bus.publish("q", body)) for body in (b"1", b"2")]
        await one.server.until(lambda: len(one.link.published) == 2)
        for _ in publishing:
            one.link.confirm(one.link.channel)
        await asyncio.gather(*publishing)
        sent = one.link.published
        assert [(out.to.exchange, out.to.routing_key, out.body, out.about.delivery_mode) for out in sent] == [
            ("dragoman.bus", "q", b"1", 1),
            ("dragoman.bus", "q", b"2", 1),
        ]
        assert len({out.about.message_id for out in sent}) == 2
        assert one.bus.measures() == {
            "bus_connected": True,
            "bus_published_total": 2,
            "bus_received_total": 2,
            "bus_dropped_total": 0,
            "bus_outages_total": 0,
        }
        await first.close()
        assert one.keys("Queue.Unbind") == []
        await second.close()
        assert one.keys("Queue.Unbind") == [BINDING]


async def test_an_outage_is_told_and_what_was_subscribed_is_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.bus")
    async with ends() as one:
        left, _ = [await one.bus.subscribe(topic, one.take) for topic in ("left", "q")]
        declare = one.server.answers.pop("Exchange.Declare")  # it is not back before that
        one.link.cut()
        await one.server.until(lambda: one.states)
        for work in (one.bus.publish("q", b"m"), one.bus.subscribe("q", one.take)):
            with pytest.raises(BusLost, match=rf"^{one.bus.url}: not connected"):
                await work
        await left.close()
        await one.server.until(lambda: one.link.got("Exchange.Declare"))
        one.server.answers["Exchange.Declare"] = declare
        declare(one.link, one.link.channel, one.link.got("Exchange.Declare")[0])
        await one.server.until(lambda: one.bus.alive)
        assert one.states == [False, True]
        assert one.keys("Queue.Bind") == [BINDING]
        assert one.keys("Queue.Unbind") == []
        one.deliver(b"m")
        await one.server.until(lambda: one.heard)
        words = [record.message for record in caplog.records if record.message.startswith(one.bus.url)]
        assert [word.partition("RabbitMQ is ")[2].partition(":")[0] for word in words] == ["lost, coming back", "back"]
        one.bus.on_state = None  # nothing is told to anybody
        one.link.cut()
        await one.server.until(lambda: len(one.server.links) == 3 and one.link.got("Basic.Consume"))


@pytest.mark.parametrize("method", ["Basic.Publish", "Queue.Bind"])
async def test_what_is_on_its_way_when_it_is_lost(method: str) -> None:
    """And a subscription that was not confirmed hears nothing later."""
    async with ends() as one:
        usual = one.server.answers[method]
        one.server.answers[method] = lambda link, channel, frame: link.cut()
        work: Any = one.bus.publish("q", b"m") if method == "Basic.Publish" else one.bus.subscribe("q", one.take)
        with pytest.raises(BusLost, match=rf"^{one.bus.url}: "):
            await work
        one.server.answers[method] = usual
        await one.server.until(lambda: one.states == [False, True])
        assert one.keys("Queue.Bind") == []
        assert one.bus.measures()["bus_published_total"] == 0


async def test_a_subscription_that_was_cancelled_hears_nothing_later() -> None:
    async with ends() as one:
        bind = one.server.answers.pop("Queue.Bind")
        subscribing = asyncio.ensure_future(one.bus.subscribe("q", one.take))
        await one.server.until(lambda: one.keys("Queue.Bind"))
        one.server.answers["Queue.Bind"] = bind
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        await one.server.until(lambda: one.states == [False, True])  # the library gives up the channel
        assert one.keys("Queue.Bind").count(BINDING) == 1


async def test_a_binding_that_cannot_be_removed_is_no_fault_of_the_one_that_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.wire")
    async with ends() as one:
        subscription = await one.bus.subscribe("q", one.take)
        one.server.answers["Queue.Unbind"] = lambda link, channel, frame: link.cut()
        await subscription.close()
        await one.server.until(lambda: one.states == [False, True])
        assert one.keys("Queue.Bind") == []


async def test_the_end() -> None:
    async with ends() as one:
        await one.bus.close()
        await one.link.ended.wait()
        assert (one.states, one.bus.alive) == ([], False)
        assert one.link.names()[-2:] == ["Channel.Close", "Connection.Close"]


async def test_a_missing_far_end() -> None:
    with pytest.raises(BusLost, match=r"^amqp://127\.0\.0\.1:1/v: connection refused$"):
        await open_bus("amqp://user:secret@127.0.0.1:1/v/")
    with pytest.raises(LocalError, match=r"\?prefix= means nothing here; known are heartbeat"):
        await open_bus("amqp://127.0.0.1:1/?prefix=p")
