"""An MQTT broker that does what a test says: packets in, packets out, in MQTT 5 and 3.1.1. Only the properties are read
and written by the library that we use, too."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

from msgspec import Struct
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dragoman.channel import Options
from dragoman.engines.mqtt.wire import MqttAdapter
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage
from tests.engines.scripted_server import ScriptedServer, listening

CONNECT, CONNACK, PUBLISH, PUBACK = 1, 2, 3, 4
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK = 8, 9, 10, 11
PINGREQ, PINGRESP, DISCONNECT = 12, 13, 14

MESSAGE = BrokerMessage(body=b"{}", reply_to="q/reply/me", correlation="c")
PLAIN, SHARED = {"q": 1, "q/request/#": 1}, {"$share/dragoman/q": 1, "$share/dragoman/q/request/#": 1}
WILLS, CONTROL = {"q/fallen/dragoman/+": 0}, {"q/control/#": 0}
"""What an adapter at the topic `q` subscribes to, with the QoS."""


class Packet(Struct, frozen=True, kw_only=True):
    """One packet that came in."""

    kind: int
    id: int = 0
    about: dict[str, Any] = {}
    """Its properties."""
    flags: int = 0
    """Of PUBLISH: the lower bits of the first byte."""
    topic: str = ""
    body: bytes = b""
    filters: list[tuple[str, int]] = []
    """Of SUBSCRIBE and UNSUBSCRIBE: the filters, with their options."""
    code: int = 0
    """Of DISCONNECT and PUBACK."""
    client: str = ""
    connect_flags: int = 0
    keepalive: int = 0
    will: tuple[str, bytes, dict[str, Any]] | None = None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        part, self.data = self.data[:size], self.data[size:]
        assert len(part) == size
        return part

    def number(self, size: int = 2) -> int:
        return int.from_bytes(self.take(size))

    def text(self) -> bytes:
        return self.take(self.number())

    def properties(self, packet: int) -> dict[str, Any]:
        found = Properties(packet)  # type: ignore[no-untyped-call]
        _, size = found.unpack(self.data)  # type: ignore[no-untyped-call]
        self.take(size)
        return {name: value for name, value in vars(found).items() if name[0].isupper()}


def text(words: str) -> bytes:
    raw = words.encode()
    return struct.pack("!H", len(raw)) + raw


class Link:
    """One connection of a client."""

    def __init__(self, broker: Scripted, writer: asyncio.StreamWriter) -> None:
        self._broker, self._writer = broker, writer
        self.five = True
        self.client = ""
        self.connect: Packet = Packet(kind=CONNECT)
        self.seen: list[Packet] = []
        self.filters: dict[str, int] = {}
        self.ended = asyncio.Event()
        self._number = 0

    def got(self, kind: int) -> list[Packet]:
        """The packets of a kind that came."""
        return [one for one in self.seen if one.kind == kind]

    def said(self, topic: str) -> list[Packet]:
        """What was published at a topic."""
        return [one for one in self.got(PUBLISH) if one.topic == topic]

    def send(self, first: int, body: bytes) -> None:
        """A packet with that first byte."""
        length, number = b"", len(body)
        while True:
            number, low = divmod(number, 128)
            length += bytes([low | 128 if number else low])
            if not number:
                break
        self._writer.write(bytes([first]) + length + body)

    def about(self, packet: int, values: dict[str, Any]) -> bytes:
        """Properties as bytes; none in MQTT 3.1.1."""
        if not self.five:
            return b""
        made = Properties(packet)  # type: ignore[no-untyped-call]
        for name, value in values.items():
            setattr(made, name, value)
        return bytes(made.pack())  # type: ignore[no-untyped-call]

    def connack(self, *, present: bool = False, code: int = 0, **about: Any) -> None:
        self.send(CONNACK << 4, bytes([present, code]) + self.about(PacketTypes.CONNACK, about))

    def suback(self, packet: Packet, *codes: int) -> None:
        granted = codes or tuple(options & 3 for _, options in packet.filters)
        self.send(SUBACK << 4, struct.pack("!H", packet.id) + self.about(PacketTypes.SUBACK, {}) + bytes(granted))

    def unsuback(self, packet: Packet) -> None:
        codes = bytes(len(packet.filters)) if self.five else b""
        self.send(UNSUBACK << 4, struct.pack("!H", packet.id) + self.about(PacketTypes.UNSUBACK, {}) + codes)

    def puback(self, packet: Packet, code: int = 0) -> None:
        self.send(PUBACK << 4, struct.pack("!H", packet.id) + (bytes([code]) if code else b""))

    def publish(
        self, topic: str, body: bytes = b"", *, qos: int = 1, again: bool = False, retained: bool = False, **about: Any
    ) -> int:
        """Deliver a message; returns its packet id."""
        self._number += bool(qos)
        id = struct.pack("!H", self._number) if qos else b""
        head = PUBLISH << 4 | again << 3 | qos << 1 | retained
        self.send(head, text(topic) + id + self.about(PacketTypes.PUBLISH, about) + body)
        return self._number if qos else 0

    def acknowledged(self) -> list[int]:
        """The ids of what the client has acknowledged."""
        return [one.id for one in self.got(PUBACK)]

    def pause(self) -> None:
        """Read no more."""
        cast(asyncio.ReadTransport, self._writer.transport).pause_reading()

    def cut(self) -> None:
        self._writer.transport.abort()

    def parsed(self, first: int, data: bytes) -> Packet:
        """A packet as a value."""
        kind, rest = first >> 4, _Reader(data)
        if kind == CONNECT:
            return self._on_connect(rest)
        if kind == PUBLISH:
            topic = rest.text().decode()
            id = rest.number() if first & 6 else 0
            about = rest.properties(PacketTypes.PUBLISH) if self.five else {}
            return Packet(kind=kind, flags=first & 15, id=id, topic=topic, about=about, body=rest.data)
        if kind == PUBACK:
            return Packet(kind=kind, id=rest.number())
        if kind in (SUBSCRIBE, UNSUBSCRIBE):
            id, filters = rest.number(), list[tuple[str, int]]()
            about = rest.properties(kind) if self.five else {}
            while rest.data:
                one = rest.text().decode()
                filters.append((one, rest.number(1) if kind == SUBSCRIBE else 0))
            return Packet(kind=kind, id=id, filters=filters, about=about)
        if kind == DISCONNECT:
            code = rest.number(1) if rest.data else 0
            return Packet(kind=kind, code=code, about=rest.properties(kind) if rest.data else {})
        return Packet(kind=kind)

    def _on_connect(self, rest: _Reader) -> Packet:
        assert rest.text() == b"MQTT"
        self.five = rest.number(1) == 5
        flags, keepalive = rest.number(1), rest.number()
        about = rest.properties(PacketTypes.CONNECT) if self.five else {}
        self.client, will = rest.text().decode(), None
        if flags & 4:
            how = rest.properties(PacketTypes.WILLMESSAGE) if self.five else {}
            will = rest.text().decode(), rest.text(), how
        return Packet(
            kind=CONNECT, client=self.client, connect_flags=flags, keepalive=keepalive, about=about, will=will
        )


Answer = Callable[[Link, Packet], None]


class Scripted(ScriptedServer[Link]):
    """The broker. `answers`: what it does when a packet of a kind comes; it answers all of them, and delivers nothing
    except what a client publishes to itself. `links`: every connection that there was."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, Answer] = {
            CONNECT: lambda link, packet: link.connack(),
            SUBSCRIBE: Link.suback,
            UNSUBSCRIBE: Link.unsuback,
            PUBLISH: self.published,
            PINGREQ: lambda link, packet: link.send(PINGRESP << 4, b""),
        }

    def published(self, link: Link, packet: Packet) -> None:
        """Confirm a message, and give it to its sender if that has asked for it."""
        if packet.flags & 6:
            link.puback(packet)
        if packet.topic in link.filters:
            link.publish(packet.topic, packet.body)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, writer)
        try:
            while True:
                first = (await reader.readexactly(1))[0]
                length = shift = 0
                more = 128
                while more & 128:
                    more = (await reader.readexactly(1))[0]
                    length |= (more & 127) << shift
                    shift += 7
                packet = link.parsed(first, await reader.readexactly(length))
                if packet.kind == CONNECT:
                    link.connect = packet
                    self.links.append(link)
                link.seen.append(packet)
                if packet.kind == SUBSCRIBE:
                    link.filters |= packet.filters
                if packet.kind == UNSUBSCRIBE:
                    for one, _ in packet.filters:
                        link.filters.pop(one, None)
                if (answer := self.answers.get(packet.kind)) is not None:
                    answer(link, packet)
                self.changed.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            link.ended.set()
            writer.transport.abort()
            self.changed.set()


def scripted() -> AbstractAsyncContextManager[Scripted]:
    """One that listens, for the length of the block."""
    return listening(Scripted(), "mqtt")


class Ends:
    """An adapter on a scripted broker, what it told, and what it took."""

    def __init__(self, broker: Scripted, adapter: MqttAdapter) -> None:
        self.broker, self.adapter = broker, adapter
        self.states: list[bool] = []
        self.came: list[BrokerMessage] = []
        self.heard: list[BrokerMessage] = []
        self.answers: list[BrokerMessage] = []
        adapter.on_state = self.state

    def state(self, online: bool, why: str) -> None:
        self.states.append(online)
        self.broker.changed.set()

    def take(self, message: BrokerMessage) -> None:
        self.came.append(message)
        self.broker.changed.set()

    def read(self, message: BrokerMessage) -> None:
        self.answers.append(message)
        self.broker.changed.set()

    @property
    def link(self) -> Link:
        """The adapter's own connection, the last of them."""
        return next(one for one in reversed(self.broker.links) if one.client == self.adapter.endpoint.client)

    async def work(self) -> None:
        await self.adapter.receive_control(self.heard.append)
        await self.adapter.work(self.take, 10)

    async def fence(self) -> None:
        """Until all that was delivered before has been dealt with."""
        id = self.link.publish("fence")
        await self.broker.until(lambda: id in self.link.acknowledged())

    async def back(self) -> None:
        """Lose the connection, and wait until it is back."""
        self.states.clear()
        self.link.cut()
        await self.broker.until(lambda: self.states and self.states[-1])


@asynccontextmanager
async def ends(query: str = "", *, serving: bool = True, present: bool = False, **connack: Any) -> AsyncIterator[Ends]:
    """`present`: the broker has a session of ours at first."""
    async with scripted() as broker:
        broker.answers[CONNECT] = lambda link, packet: link.connack(
            present=present and len(broker.links) == 1, **connack
        )
        one = Ends(broker, MqttAdapter(parse(f"{broker.url}/q{query}"), Options(), serving=serving))
        await one.adapter.open()
        try:
            yield one
        finally:
            await one.adapter.close()


def own(one: Ends) -> str:
    return f"q/reply/{one.adapter.endpoint.client}"
