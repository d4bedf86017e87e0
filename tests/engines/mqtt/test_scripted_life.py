"""`mqtt://` against a broker that does what a test says: how it connects, what an outage leaves, and how
the end goes."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Options
from dragoman.engines.mqtt import wire
from dragoman.engines.mqtt.wire import MqttAdapter
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import NotTaken, Refused, Unroutable
from tests.engines.wires import PATIENCE

from .scripted import (
    CONNECT,
    CONTROL,
    DISCONNECT,
    MESSAGE,
    PLAIN,
    PUBACK,
    PUBLISH,
    WILLS,
    Ends,
    Link,
    Packet,
    ends,
    own,
    scripted,
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(wire, "PAUSES", (0.0, 0.0))


# -- connecting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "serving"), [("", False), ("?client=me", True), ("?client=me&v=3.1.1", True)])
async def test_a_client_without_a_will_removes_none(query: str, serving: bool) -> None:
    """A broker that retains nothing would close the connection for it (MQTT 5.0, 3.2.2.3.5), and so again each time."""
    async with ends(query, serving=serving) as one:
        assert one.link.connect.will is None
        await one.back()
        await one.adapter.receive_control(one.heard.append)
        assert one.link.got(PUBLISH) == []


async def test_where_only_311_is_spoken_there_are_no_wills() -> None:
    """They say how long they wait and are kept, which 3.1.1 cannot."""
    async with scripted() as broker:

        def answer(link: Link, packet: Packet) -> None:
            link.connack(code=0x84 if link.five else 0)

        broker.answers[CONNECT] = answer
        one = Ends(broker, MqttAdapter(parse(f"{broker.url}/q"), Options(), serving=True))
        await one.adapter.open()
        await one.work()
        assert (one.link.five, one.link.connect.will, one.link.connect.connect_flags) == (False, None, 2)
        assert set(one.link.filters) == {*PLAIN, *CONTROL}
        await one.back()
        assert one.link.got(PUBLISH) == []
        await one.adapter.close()


async def test_a_broker_that_retains_nothing_gets_a_will_that_it_does_not_keep() -> None:
    """MQTT 5.0, 3.2.2.3.5: 0x9A for a will that it should retain; what else it says is final."""
    async with scripted() as broker:

        def answer(link: Link, packet: Packet) -> None:
            link.connack(code=0x9A if packet.connect_flags & 0x20 else 0)

        broker.answers[CONNECT] = answer
        one = Ends(broker, MqttAdapter(parse(f"{broker.url}/q"), Options(), serving=True))
        await one.adapter.open()
        await one.work()
        assert [bool(link.connect.connect_flags & 0x20) for link in broker.links] == [True, False]
        await one.back()
        assert [bool(link.connect.connect_flags & 0x20) for link in broker.links] == [True, False, False]
        assert one.link.got(PUBLISH) == []  # there is no will to remove
        await one.adapter.close()
        broker.answers[CONNECT] = lambda link, packet: link.connack(code=0x9A)
        broker.links.clear()
        other = MqttAdapter(parse(f"{broker.url}/q"), Options(), serving=True)
        with pytest.raises(ConnectionError):
            await other.open()
        assert len(broker.links) == 2


async def test_after_an_outage_a_missing_subscriber_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ends(serving=False) as one:
        await one.back()
        one.broker.answers[PUBLISH] = lambda link, packet: link.puback(packet, 0x10)
        with pytest.raises(NotTaken, match="not yet"):
            await one.adapter.request(MESSAGE, None)
        with pytest.raises(NotTaken, match="not yet"):
            await one.adapter.answer("q/reply/me", MESSAGE)
        monkeypatch.setattr("dragoman.net.reconnect.RECONNECT_GRACE", 0.0)
        with pytest.raises(Unroutable):
            await one.adapter.request(MESSAGE, None)
        await one.adapter.answer("q/reply/me", MESSAGE)


async def test_what_loses_the_broker_three_times_is_not_sent_again() -> None:
    """Three times in a row: what goes through in between is not a fault of the message."""
    async with ends(serving=False) as one:

        async def lost() -> None:
            one.states.clear()
            one.broker.answers[PUBLISH] = lambda link, packet: link.cut()
            try:
                await one.adapter.request(MESSAGE, None)
            finally:
                await one.broker.until(lambda: one.states and one.states[-1])

        for _ in range(2):
            for _ in range(2):
                with pytest.raises(ConnectionError) as why:
                    await lost()
                assert not isinstance(why.value, Refused)
            one.broker.answers[PUBLISH] = one.broker.published
            await one.adapter.request(MESSAGE, None)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await lost()
        with pytest.raises(Refused, match="lost 3 times while it was sent 2 bytes; they are not sent again"):
            await lost()


async def test_while_the_broker_is_away_nothing_is_taken() -> None:
    async with ends(serving=False) as one:
        one.broker.answers[CONNECT] = lambda link, packet: link.cut()
        one.link.cut()
        await one.broker.until(lambda: one.states)
        with pytest.raises(NotTaken, match="the broker is away"):
            await one.adapter.request(MESSAGE, None)


async def test_whether_a_broker_has_forgotten_is_told() -> None:
    async with ends(serving=False) as one:
        told: list[str] = []

        def state(online: bool, why: str) -> None:
            one.state(online, why)
            if online:
                told.append(why)

        one.adapter.on_state, kept = state, iter((False, True, False))
        one.broker.answers[CONNECT] = lambda link, packet: link.connack(present=next(kept))
        for _ in range(3):
            await one.back()
        assert told == ["it has forgotten our session", "", "it has forgotten our session"]


# -- the end ---------------------------------------------------------------------------------------


class Held:
    """Holds back what a client has sent to itself."""

    def __init__(self, one: Ends) -> None:
        self.one, self.marks = one, list[Packet]()
        one.broker.answers[PUBLISH] = self.published

    def published(self, link: Link, packet: Packet) -> None:
        link.puback(packet)
        if packet.topic in link.filters:
            self.marks.append(packet)


async def test_what_was_put_by_for_a_worker_that_leaves_is_given_back_first() -> None:
    """What it sent to itself comes last. Then it says goodbye, and the broker forgets it."""
    async with ends() as one:
        await one.work()
        held = Held(one)
        await one.adapter.pause()
        assert [packet.topic for packet in held.marks] == [own(one)]
        assert set(one.link.filters) == {own(one), *WILLS, *CONTROL}
        await one.adapter.pause()
        assert len(held.marks) == 1
        closing = asyncio.create_task(one.adapter.close())
        id = one.link.publish("q", b"late")
        await one.broker.until(lambda: one.came)
        one.came[0].settle("retry")
        await one.broker.until(lambda: id in one.link.acknowledged())
        assert [said.body for said in one.link.said("q")] == [b"late"]
        assert one.link.got(DISCONNECT) == []
        one.link.publish(own(one))
        async with asyncio.timeout(PATIENCE):
            await closing
            await one.link.ended.wait()
        assert [(said.code, said.about) for said in one.link.got(DISCONNECT)] == [(0, {"SessionExpiryInterval": 0})]
        await one.adapter.close()
        assert one.states == []


async def test_a_worker_that_leaves_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wire, "SECONDS_TO_LEAVE", 0.05)
    async with ends() as one:
        await one.work()
        Held(one)
        await one.adapter.pause()
        async with asyncio.timeout(PATIENCE):
            await one.adapter.close()
    assert "more was put by for us than can be given back" in caplog.text


async def test_a_broker_that_is_lost_while_a_worker_leaves_is_not_sought_again() -> None:
    async with ends() as one:
        await one.work()
        Held(one)
        await one.adapter.pause()
        closing = asyncio.create_task(one.adapter.close())
        one.link.publish("q", b"late")
        await one.broker.until(lambda: one.came)
        one.link.cut()
        async with asyncio.timeout(PATIENCE):
            await closing
        assert (one.states, len(one.broker.links)) == ([], 1)


async def test_what_is_at_work_when_a_worker_leaves_goes_to_the_others_as_a_delivery_more() -> None:
    async with ends() as one:
        await one.work()
        id = one.link.publish("q", b"{}", CorrelationData=b"c")
        await one.broker.until(lambda: one.came)
        await one.adapter.close()
        (said,) = one.link.said("q")
        assert said.about["UserProperty"] == [("count", "1")]
        await one.link.ended.wait()
        assert id in one.link.acknowledged()
        assert one.link.got(DISCONNECT)[0].about == {"SessionExpiryInterval": 0}


@pytest.mark.parametrize(("query", "code"), [("", 4), ("?client=me", 0)])
async def test_a_session_with_unacknowledged_requests_or_a_name_is_kept(query: str, code: int) -> None:
    """Its will is published, if it has one: another worker takes what the broker would not take from us."""
    async with ends(query) as one:
        await one.work()
        one.broker.answers[PUBLISH] = lambda link, packet: link.puback(packet, 0x80)
        one.link.publish("q", b"{}")
        await one.broker.until(lambda: one.came)
        await one.adapter.close()
        await one.link.ended.wait()
        assert [(said.code, said.about) for said in one.link.got(DISCONNECT)] == [(code, {})]
        assert PUBACK not in [said.kind for said in one.link.seen]
