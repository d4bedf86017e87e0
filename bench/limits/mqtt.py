"""The bare library doing what `mqtt://` does: a shared subscription, QoS 1, Response Topic and Correlation Data, and
the request acknowledged when the broker has confirmed the answer. The worker runs in paho's own thread, its quickest
way; the caller on asyncio's loop, as in paho's own example."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import uuid
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bench.brokers import obey, stay


def connected(url: str) -> tuple[paho.Client, str]:
    """A client, not yet connected, and the topic."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)

    def opened(client: paho.Client, _: Any, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    client.on_socket_open = opened
    return client, urlsplit(url).path.strip("/")


def properties(**values: Any) -> Properties:
    """Those of a PUBLISH."""
    about = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(about, name, value)
    return about


async def work(url: str) -> None:
    """Answer until end of file."""
    client, topic = connected(url)
    owed: dict[int, int] = {}

    def take(client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        about: Any = message.properties
        request = json.loads(message.payload)
        minuend, subtrahend = request["params"]
        body = json.dumps({"jsonrpc": "2.0", "result": minuend - subtrahend, "id": request["id"]})
        to = properties(CorrelationData=about.CorrelationData)
        owed[client.publish(about.ResponseTopic, body, 1, properties=to).mid] = message.mid

    def confirmed(client: paho.Client, _: Any, mid: int, *__: Any) -> None:
        client.ack(owed.pop(mid), 1)

    client.on_message = take
    client.on_publish = confirmed
    subscribed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ready(*_: Any) -> None:
        loop.call_soon_threadsafe(subscribed.set)

    client.on_subscribe = ready
    client.on_connect = lambda client, *_: client.subscribe(f"$share/workers/{topic}", 1)
    where = urlsplit(url)
    await asyncio.to_thread(client.connect, where.hostname or "", where.port or 0)
    client.loop_start()
    await subscribed.wait()
    await stay()
    client.disconnect()
    client.loop_stop()


class Caller:
    """Calls and answers on one client."""

    def __init__(self, url: str) -> None:
        self.client, self.topic = connected(url)
        self.url = url
        self.box = f"{self.topic}/reply/{uuid.uuid4().hex}"
        self.count = 0
        self.waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self.sent: dict[int, asyncio.Future[None]] = {}
        self.loop = asyncio.get_running_loop()

    async def call(self) -> object:
        """One call: confirmed, then answered."""
        self.count += 1
        id = b"%d" % self.count
        answer = self.waiting[id] = self.loop.create_future()
        sent: asyncio.Future[None] = self.loop.create_future()
        request = {"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": self.count}
        about = properties(ResponseTopic=self.box, CorrelationData=id)
        self.sent[self.client.publish(self.topic, json.dumps(request), 1, properties=about).mid] = sent
        await sent
        return json.loads(await answer)["result"]

    def take(self, client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        """An answer."""
        about: Any = message.properties
        self.waiting.pop(about.CorrelationData).set_result(bytes(message.payload))
        client.ack(message.mid, 1)

    def confirmed(self, client: paho.Client, _: Any, mid: int, *__: Any) -> None:
        """The broker has it."""
        self.sent.pop(mid).set_result(None)

    async def open(self) -> None:
        """Connect and subscribe, on the loop."""
        client, loop = self.client, self.loop
        subscribed = asyncio.Event()
        client.on_message = self.take
        client.on_publish = self.confirmed
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_connect = lambda client, *_: client.subscribe(self.box, 1)

        def unsent(client: paho.Client, _: Any, sock: Any) -> None:
            loop.add_writer(sock, client.loop_write)

        def all_sent(client: paho.Client, _: Any, sock: Any) -> None:
            loop.remove_writer(sock)

        client.on_socket_register_write = unsent
        client.on_socket_unregister_write = all_sent
        where = urlsplit(self.url)
        client.connect(where.hostname or "", where.port or 0)
        loop.add_reader(client.socket() or 0, client.loop_read)
        await subscribed.wait()


async def main(part: str, url: str) -> None:
    """Serve or call until end of file."""
    if part == "worker":
        await work(url)
    else:
        caller = Caller(url)
        await caller.open()
        await obey(caller.call)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
