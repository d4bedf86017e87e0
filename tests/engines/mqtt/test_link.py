"""One connection to an MQTT broker that does what a test says: what it says of itself, what it holds back, and its
end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest
from msgspec.structs import replace

from dragoman.channel import Options
from dragoman.engines.mqtt import connection
from dragoman.engines.mqtt.connection import ConnectRefused, LostBySize, MqttEndpoint, MqttLink
from dragoman.engines.mqtt.messages import MqttMessage
from dragoman.engines.mqtt.topics import endpoint_of
from dragoman.net.urls import parse
from tests.engines.wires import PATIENCE

from .scripted import CONNECT, DISCONNECT, PINGREQ, PUBLISH, SUBSCRIBE, Scripted, scripted


class Plain:
    """A connection, the broker's end of it, what came, and why it was lost."""

    def __init__(self, broker: Scripted, **endpoint: Any) -> None:
        host, _, port = broker.url.rpartition("/")[2].rpartition(":")
        self.broker = broker
        self.came: list[MqttMessage] = []
        self.lost: list[str] = []
        self.link = MqttLink(MqttEndpoint(host=host, port=int(port), client="me", **endpoint), self.take, self.over)

    def take(self, link: MqttLink, message: MqttMessage) -> None:
        self.came.append(message)
        self.broker.changed.set()

    def over(self, link: MqttLink, why: str) -> None:
        self.lost.append(why)
        self.broker.changed.set()


@asynccontextmanager
async def plain(connack: dict[str, Any] | None = None, **endpoint: Any) -> AsyncIterator[Plain]:
    async with scripted() as broker:
        broker.answers[CONNECT] = lambda link, packet: link.connack(**connack or {})
        one = Plain(broker, **endpoint)
        await one.link.open()
        try:
            yield one
        finally:
            await one.link.close(forget=True)


# -- connecting ------------------------------------------------------------------------------------

CLEAN, WILL, RETAINED, USER = 0x02, 0x04 | 0x08, 0x20, 0xC0


@pytest.mark.parametrize(
    ("url", "serving", "flags", "keepalive", "about", "will"),
    [
        ("", False, 0, 10, {"SessionExpiryInterval": 60, "ReceiveMaximum": 65_535}, None),
        (
            "?prefetch=7&keepalive=3",
            True,
            WILL | RETAINED,
            3,
            {"SessionExpiryInterval": 60, "ReceiveMaximum": 7},
            {"WillDelayInterval": 5, "MessageExpiryInterval": 55},
        ),
        (
            "?expiry=5&prefetch=70000",
            True,
            WILL,
            10,
            {"SessionExpiryInterval": 5, "ReceiveMaximum": 65_535},
            {"WillDelayInterval": 5},
        ),
        ("?client=a&prefetch=7", True, 0, 10, {"SessionExpiryInterval": 86_400, "ReceiveMaximum": 7}, None),
        ("?v=3.1.1", True, CLEAN, 10, {}, None),
        ("?v=3.1.1&client=a", True, 0, 10, {}, None),
    ],
)
async def test_what_a_client_says_of_itself(
    url: str, serving: bool, flags: int, keepalive: int, about: dict[str, int], will: dict[str, int] | None
) -> None:
    """MQTT 5.0, 3.1.2; Clean Start only where 3.1.1 shall keep no session."""
    async with scripted() as broker:
        endpoint = endpoint_of(parse(f"{broker.url}/q{url}"), Options(), serving=serving)
        link = MqttLink(endpoint, lambda *_: None, lambda *_: None)
        await link.open()
        await link.close(forget=True)
        said = broker.last.connect
    assert (said.client, said.connect_flags, said.keepalive, said.about) == (endpoint.client, flags, keepalive, about)
    topic = f"q/fallen/dragoman/{endpoint.client}"
    assert said.will == (None if will is None else (topic, endpoint.client.encode(), will))
    assert said.client == "a" or said.client.startswith("dragoman-")


async def test_the_defaults_of_a_place() -> None:
    async with plain(tls=None, auth=("user", "word")) as one:
        said = one.broker.last.connect
        assert (said.about, said.connect_flags) == ({"SessionExpiryInterval": 0, "ReceiveMaximum": 65_535}, USER)
        assert one.link.endpoint.ordered


async def test_what_the_broker_says_of_itself() -> None:
    async with plain() as one:
        link = one.link
        assert (link.resumed, link.shares, link.packet) == (False, True, 268_435_455)
    about = {"present": True, "SharedSubscriptionAvailable": 0, "MaximumPacketSize": 99}
    async with plain(about) as one:
        assert (one.link.resumed, one.link.shares, one.link.packet) == (True, False, 99)
    async with plain({"present": True}, version="3.1.1") as one:
        assert (one.link.resumed, one.link.shares, one.link.packet) == (True, False, 268_435_455)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [("3.1.1", 1, "protocol error"), ("3.1.1", 5, "not authorized"), ("5", 0x87, "not authorized")],
)
async def test_a_broker_that_refuses_is_asked_once(version: str, code: int, told: str) -> None:
    """Not again in MQTT 3.1, as the library would."""
    async with scripted() as broker:
        broker.answers[CONNECT] = lambda link, packet: link.connack(code=code)
        with pytest.raises(ConnectionError, match=told) as why:
            await Plain(broker, version=version).link.open()
        assert isinstance(why.value, ConnectRefused) is (told == "not authorized")
        assert len(broker.links) == 1
        await broker.last.ended.wait()


async def test_a_broker_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)
    async with scripted() as broker:
        del broker.answers[CONNECT]
        one = Plain(broker)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectionError, match="the broker does not answer"):
                await one.link.open()
            await broker.until(lambda: broker.links)
            await broker.last.ended.wait()
        assert one.lost == []


async def test_a_broker_that_closes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the library has written its first packet."""
    monkeypatch.setattr(paho.Client, "reconnect", lambda client: None)
    async with scripted() as broker:
        with pytest.raises(ConnectionError, match="the broker closed at once"):
            await Plain(broker).link.open()


# -- what goes out ---------------------------------------------------------------------------------


async def test_no_more_is_unconfirmed_than_the_broker_takes() -> None:
    """MQTT 5.0, 4.9: Receive Maximum; what is sent with QoS 0 does not count. All that waits fails with the link."""
    async with plain({"ReceiveMaximum": 2}) as one:
        one.broker.answers[PUBLISH] = lambda link, packet: None
        there = one.broker.last
        sending = [asyncio.ensure_future(one.link.publish(MqttMessage(topic=f"{n}", body=b""))) for n in range(6)]
        await one.broker.until(lambda: len(there.got(PUBLISH)) == 2)
        one.link.publish_unconfirmed(MqttMessage(topic="told", body=b""))
        await one.broker.until(lambda: there.said("told"))
        assert [said.topic for said in there.got(PUBLISH)] == ["0", "1", "told"]
        there.puback(there.said("1")[0], 0x10)
        assert await sending[1] == 0x10
        await one.broker.until(lambda: there.said("2"))
        assert there.said("3") == []
        assert one.link.confirmed == 1
        sending[3].cancel()
        there.cut()
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(end) for end in ends if end != 0x10] == [
            *(ConnectionError, LostBySize, asyncio.CancelledError, ConnectionError, ConnectionError)
        ]
        with pytest.raises(ConnectionError):
            await one.link.publish(MqttMessage(topic="late", body=b""))
        with pytest.raises(ConnectionError):
            one.link.publish_unconfirmed(MqttMessage(topic="late", body=b""))


async def test_as_much_is_unconfirmed_as_the_broker_takes() -> None:
    """Where it says nothing, more than the library would by itself."""
    async with plain() as one:
        one.broker.answers[PUBLISH] = lambda link, packet: None
        sending = [asyncio.ensure_future(one.link.publish(MqttMessage(topic="q", body=b""))) for _ in range(50)]
        await one.broker.until(lambda: len(one.broker.last.said("q")) == 50)
        for packet in one.broker.last.said("q"):
            one.broker.last.puback(packet)
        assert await asyncio.gather(*sending) == [0] * 50


async def test_an_answer_that_is_not_waited_for_any_more_is_no_fault() -> None:
    async with plain() as one:
        answer = one.broker.answers.pop(SUBSCRIBE)
        asking = asyncio.ensure_future(one.link.subscribe(["a"], 1))
        await one.broker.until(lambda: one.broker.last.got(SUBSCRIBE))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        one.broker.answers[SUBSCRIBE] = answer
        answer(one.broker.last, one.broker.last.got(SUBSCRIBE)[0])
        assert await one.link.subscribe(["b"], 1) == [1]
        assert one.lost == []


@pytest.mark.parametrize("sizes", [(1, 9, 5), (9, 5, 1)])
async def test_the_longest_unconfirmed_message_is_blamed_for_the_end(sizes: tuple[int, ...]) -> None:
    async with plain() as one:
        one.broker.answers[PUBLISH] = lambda link, packet: None
        sending = [asyncio.ensure_future(one.link.publish(MqttMessage(topic="q", body=b"x" * size))) for size in sizes]
        asked = asyncio.ensure_future(one.link.subscribe(["a"], 1))
        one.broker.answers[SUBSCRIBE] = lambda link, packet: link.cut()
        ends = await asyncio.gather(*sending, asked, return_exceptions=True)
        assert [isinstance(end, LostBySize) for end in ends] == [*(size == 9 for size in sizes), False]
        assert all(isinstance(end, ConnectionError) for end in ends)
        await one.broker.until(lambda: one.lost)
        assert one.lost == ["the connection is gone"]


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_subscribing_and_unsubscribing(version: str) -> None:
    async with plain(version=version) as one:
        one.broker.answers[SUBSCRIBE] = lambda link, packet: link.suback(packet, 0, 0x80)
        assert await one.link.subscribe(["a", "b/#"], 1) == [0, 0x80]
        await one.link.unsubscribe(["a"])
        assert one.broker.last.filters.keys() == {"b/#"}
        await one.link.close(forget=True)
        with pytest.raises(ConnectionError, match="normal disconnection"):
            await one.link.subscribe(["a"], 1)
        with pytest.raises(ConnectionError, match="normal disconnection"):
            await one.link.unsubscribe(["a"])


# -- what comes in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_what_a_message_says(version: str) -> None:
    about: dict[str, Any] = {
        "ResponseTopic": "me",
        "CorrelationData": b"\xff",
        "UserProperty": [("a", "b")],
        "MessageExpiryInterval": 9,
    }
    async with plain(version=version) as one:
        id = one.broker.last.publish("q", b"1", again=True, retained=True, **about)
        one.broker.last.publish("q", b"2", qos=0)
        await one.broker.until(lambda: len(one.came) == 2)
        full = MqttMessage(topic="q", body=b"1", id=id, again=True, retained=True)
        if version == "5":
            full = replace(full, reply_to="me", correlation="\xff", headers={"a": "b"}, expiry=9)
        for found, said in zip(one.came, (full, MqttMessage(topic="q", body=b"2")), strict=True):
            assert {name: getattr(found, name) for name in MqttMessage.__struct_fields__} == {
                name: getattr(said, name) for name in MqttMessage.__struct_fields__
            }


@pytest.mark.parametrize(("ordered", "order"), [(True, [[], [1, 2], [1, 2, 3]]), (False, [[2], [2, 1], [2, 1, 3]])])
async def test_acknowledgements_and_what_is_owed(ordered: bool, order: list[list[int]]) -> None:
    async with plain(ordered=ordered) as one:
        there = one.broker.last
        there.publish("q", b"none", qos=0)
        for body in (b"1", b"2", b"3"):
            there.publish("q", body)
        await one.broker.until(lambda: len(one.came) == 4)
        assert one.link.owes
        one.link.acknowledge(one.came[0])
        for at, acknowledged in zip((2, 1, 3), order, strict=True):
            one.link.acknowledge(one.came[at])
            await one.link.subscribe(["fence"], 0)
            assert there.acknowledged() == acknowledged
        assert not one.link.owes


async def test_nothing_is_read_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = list[MqttLink](), MqttLink._read

    def counted(link: MqttLink) -> None:
        reads.append(link)
        read(link)

    monkeypatch.setattr(MqttLink, "_read", counted)
    async with plain() as one:
        await one.link.subscribe(["fence"], 0)
        before = len(reads)
        for _ in range(20):
            await asyncio.sleep(0)
        assert 0 < before == len(reads)


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda one: one.broker.last.send(0xE0, b"\x8b\x00"), "the broker says: server shutting down"),
        (lambda one: one.broker.last.send(0x90, b"\0\1\0\x7f"), "protocol error"),
        (lambda one: one.broker.last.cut(), "the connection is gone"),
    ],
    ids=["says so", "garbage", "cut"],
)
async def test_how_a_link_ends_is_told_once(end: Callable[[Plain], None], words: str) -> None:
    async with plain() as one:
        one.broker.last.publish("q", b"unacknowledged")
        await one.broker.until(lambda: one.came)
        end(one)
        await one.broker.until(lambda: one.lost)
        await one.broker.last.ended.wait()
        assert len(one.lost) == 1
        assert one.lost[0].startswith(words)
        assert not one.link.owes
        one.link.acknowledge(one.came[0])
    assert len(one.lost) == 1


async def test_what_cannot_be_dealt_with_ends_the_link_and_not_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError

    async with plain() as one:
        monkeypatch.setattr(one.link, "_take", broken)
        one.broker.last.publish("q", b"")
        await one.broker.until(lambda: one.lost)
        assert one.lost == ["what the broker sent could not be understood: ArithmeticError"]
        await one.broker.last.ended.wait()


async def test_a_broker_that_is_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is pinged after a silence of `keepalive` seconds, by the library's clock, which is put forward here."""
    ticks: list[Callable[[], None]] = []
    monkeypatch.setattr(MqttLink, "_tick", lambda link: ticks.append(lambda: link._guard(link._client.loop_misc)))
    later = 0.0
    real = paho.time_func
    monkeypatch.setattr(paho, "time_func", lambda: real() + later)
    async with plain(keepalive=5) as one:
        del one.broker.answers[PINGREQ]
        ticks[0]()
        await one.link.subscribe(["fence"], 0)
        assert one.broker.last.got(PINGREQ) == []
        later = 6.0
        ticks[0]()
        await one.broker.until(lambda: one.broker.last.got(PINGREQ))
        assert one.lost == []
        later = 12.0
        ticks[0]()
        await one.broker.until(lambda: one.lost)
        assert one.lost == ["the broker is silent"]


@pytest.mark.parametrize(
    ("endpoint", "forget", "code", "about"),
    [
        ({}, True, 0, {"SessionExpiryInterval": 0}),
        ({}, False, 0, {}),
        ({"will": ("w", b"")}, False, 4, {}),
        ({"will": ("w", b"")}, True, 0, {"SessionExpiryInterval": 0}),
        ({"version": "3.1.1"}, True, 0, {}),
        ({"version": "3.1.1"}, False, 0, {}),
    ],
)
async def test_how_it_says_goodbye(endpoint: dict[str, Any], forget: bool, code: int, about: dict[str, int]) -> None:
    """MQTT 5.0, 3.14.2: after what is unsent."""
    async with plain(**endpoint) as one:
        one.link.publish_unconfirmed(MqttMessage(topic="last", body=b"x" * 1_000_000))
        await one.link.close(forget=forget)
        await one.link.close(forget=not forget)
        there = one.broker.last
        await there.ended.wait()
        assert [(len(said.body), said.kind) for said in there.seen[1:]] == [(1_000_000, PUBLISH), (0, DISCONNECT)]
        assert [(said.code, said.about) for said in there.got(DISCONNECT)] == [(code, about)]
        assert one.lost == []


async def test_a_broker_that_reads_no_more_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with plain() as one:
        monkeypatch.setattr(connection, "PATIENCE", 0.05)
        one.broker.last.pause()
        one.link.publish_unconfirmed(MqttMessage(topic="q", body=b"x" * 30_000_000))
        async with asyncio.timeout(PATIENCE):
            await one.link.close(forget=True)
        assert one.lost == []
    assert "the broker reads no more; what was unsent is lost" in caplog.text
