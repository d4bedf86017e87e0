"""The bare library doing what `mqtt://` does: a shared subscription, QoS 1, Response Topic and Correlation Data, and
the request acknowledged when the broker has confirmed the answer. The worker runs in paho's own thread, its quickest
way; the caller on asyncio's loop, as in paho's own example."""

from __future__ import annotations

import asyncio
import socket
import uuid
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bench.worker import Calls, answer, stay


def _client(url: str) -> tuple[paho.Client, str, tuple[str, int]]:
    """A client, not yet connected, the topic, and where the broker is."""
    where = urlsplit(url)
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)

    def opened(client: paho.Client, _: Any, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    client.on_socket_open = opened
    return client, where.path.strip("/"), (where.hostname or "", where.port or 0)


def _properties(**values: Any) -> Properties:
    """Those of a PUBLISH."""
    about = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(about, name, value)
    return about


async def worker(url: str) -> None:
    client, topic, place = _client(url)
    loop, subscribed, owed = asyncio.get_running_loop(), asyncio.Event(), dict[int, int]()

    def take(client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        about: Any = message.properties
        to = _properties(CorrelationData=about.CorrelationData)
        owed[client.publish(about.ResponseTopic, answer(message.payload), 1, properties=to).mid] = message.mid

    def confirmed(client: paho.Client, _: Any, mid: int, *__: Any) -> None:
        client.ack(owed.pop(mid), 1)

    def ready(*_: Any) -> None:
        loop.call_soon_threadsafe(subscribed.set)

    client.on_message, client.on_publish, client.on_subscribe = take, confirmed, ready
    client.on_connect = lambda client, *_: client.subscribe(f"$share/workers/{topic}", 1)
    await asyncio.to_thread(client.connect, *place)
    client.loop_start()
    await subscribed.wait()
    await stay()
    client.disconnect()
    client.loop_stop()


async def caller(url: str) -> None:
    """Calls and answers on one client."""
    client, topic, place = _client(url)
    box, calls, loop = f"{topic}/reply/{uuid.uuid4().hex}", Calls(), asyncio.get_running_loop()
    sent: dict[int, asyncio.Future[None]] = {}
    subscribed = asyncio.Event()

    def take(client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        about: Any = message.properties
        calls.came(about.CorrelationData.decode(), message.payload)
        client.ack(message.mid, 1)

    def confirmed(client: paho.Client, _: Any, mid: int, *__: Any) -> None:
        sent.pop(mid).set_result(None)

    def unsent(client: paho.Client, _: Any, sock: Any) -> None:
        loop.add_writer(sock, client.loop_write)

    def all_sent(client: paho.Client, _: Any, sock: Any) -> None:
        loop.remove_writer(sock)

    def send(id: str, body: bytes) -> asyncio.Future[None]:
        about = _properties(ResponseTopic=box, CorrelationData=id.encode())
        mid = client.publish(topic, body, 1, properties=about).mid
        confirmation = sent[mid] = loop.create_future()
        return confirmation

    client.on_message, client.on_publish = take, confirmed
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_connect = lambda client, *_: client.subscribe(box, 1)
    client.on_socket_register_write, client.on_socket_unregister_write = unsent, all_sent
    client.connect(*place)
    loop.add_reader(client.socket() or 0, client.loop_read)
    await subscribed.wait()
    await calls.measure(send)
