"""One connected MQTT client on asyncio's loop: publish, subscribe, acknowledge. The one file with paho-mqtt.

Rules:

- Only connecting, which blocks, runs in a thread; everything else runs on the loop, which calls paho when its socket
  can be read or written.
- A link is used once: when it is lost, waiting tasks get ConnectionError, and its owner opens another
  under the same client id, by which the broker finds the session.
- Acknowledgements go out in the order in which the messages came: "A Client MUST send PUBACK packets in the order in
  which the corresponding PUBLISH packets were received" (MQTT 5.0, 4.6), unless `MqttEndpoint.ordered` is False.
- No more is unacknowledged than the broker's Receive Maximum allows (MQTT 5.0, 4.9).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Struct
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ...system.watching import add_reader, add_writer, remove_reader, remove_writer
from .messages import MqttMessage, PackedProperties, properties

log: logging.Logger = logging.getLogger("dragoman.wire")

PATIENCE = 3.0
"""Seconds to connect, and again for the broker's CONNACK: less than the sum of the pauses between attempts."""
LONGEST_PACKET = 268_435_455
"""MQTT 5.0, 1.5.5: the largest Remaining Length of four bytes."""
WITH_WILL = 0x04
"""DISCONNECT: the broker shall publish our will nevertheless."""
NO_SUBSCRIBERS = 0x10
"""PUBACK: the message was taken, and it has no subscriber."""
UNSUPPORTED = 0x84
"""CONNACK: the broker does not speak this version of MQTT."""
NO_RETAINING = 0x9A
"""CONNACK: the broker retains no messages, so it takes no will that it should retain."""
FIRST_FAILURE = 0x80
"""Reason codes from here on are failures."""


class MqttEndpoint(Struct, frozen=True, kw_only=True):
    """Where to connect, and with which client id and session."""

    host: str
    port: int
    client: str
    """The client id, by which the broker knows its session."""
    tls: ssl.SSLContext | None = None
    auth: tuple[str, str] | None = None
    version: str = "5"
    """"5" or "3.1.1"."""
    keepalive: int = 10
    expiry: int = 0
    """Seconds that the broker keeps the session after the link is lost. On 3.1.1: 0 or for ever."""
    receive: int = 65_535
    """The most unacknowledged messages that the broker may send us."""
    ordered: bool = True
    will: tuple[str, bytes] | None = None
    """Topic and body that the broker publishes when the link is lost and not back in `will_after` seconds (5 only)."""
    will_after: int = 0
    will_kept: int = 0
    """Seconds that the broker retains it for later subscribers; 0: it does not retain it."""


class ConnectRefused(ConnectionError):
    """The broker refused; `code` is MQTT 5's reason code."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class LostBySize(ConnectionError):
    """The link was lost while this was the longest message that the broker had not confirmed. The broker may have
    closed the link because of it (too long, if it does not state its limit)."""


class MqttLink:
    """One connection to the broker. `take` gets each message; `lost` is called once with the reason, unless `close` was
    called."""

    def __init__(
        self,
        endpoint: MqttEndpoint,
        take: Callable[[MqttLink, MqttMessage], None],
        lost: Callable[[MqttLink, str], None],
    ) -> None:
        self.endpoint = endpoint
        self.resumed: bool = False
        """Whether the broker had kept our session."""
        self.shares: bool = endpoint.version == "5"
        """Whether the broker states that it has shared subscriptions."""
        self.packet: int = LONGEST_PACKET
        """The longest packet that the broker takes."""
        self.why: str = ""
        """Why it has ended; "" while it lives."""
        self._take = take
        self._on_lost = lost
        self._loop = asyncio.get_running_loop()
        self._client = _client(endpoint)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.dialled: bool = False
        """Whether it was connected, so that the broker may have made a session."""
        self._writing = False
        self._flushing = False
        self._closing: asyncio.Future[None] | None = None
        self._room = asyncio.Semaphore(1)
        self.confirmed: int = 0
        """How many of our messages the broker has confirmed."""
        self._sent: dict[int, tuple[asyncio.Future[int], int]] = {}
        self._pending: dict[int, asyncio.Future[list[int]]] = {}
        self._owed: dict[int, bool] = {}  # unacknowledged messages in order; whether they may be acknowledged
        self._ticking: asyncio.TimerHandle | None = None

    # -- its life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; `resumed` says whether the broker had kept a session under our client id. Clean Start is never set,
        not with a new client id either: Mosquitto 2.0 stores no session that began with it. Raises OSError,
        ConnectRefused."""
        client, endpoint = self._client, self.endpoint
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer
        client.on_socket_close = self._stop_watching
        client.on_socket_register_write = self._on_want_write
        if endpoint.version == "5":
            about = properties(
                PacketTypes.CONNECT, SessionExpiryInterval=endpoint.expiry, ReceiveMaximum=endpoint.receive
            )
            if endpoint.will is not None:
                how = {"WillDelayInterval": endpoint.will_after}
                if endpoint.will_kept:
                    how["MessageExpiryInterval"] = endpoint.will_kept
                delay = properties(PacketTypes.WILLMESSAGE, **how)
                client.will_set(*endpoint.will, qos=1, retain=bool(endpoint.will_kept), properties=delay)
            client.connect_async(endpoint.host, endpoint.port, endpoint.keepalive, clean_start=False, properties=about)
        else:
            client.connect_async(endpoint.host, endpoint.port, endpoint.keepalive)
        dialling = self._loop.run_in_executor(None, self._dial)
        try:
            await asyncio.shield(dialling)
        except asyncio.CancelledError:
            self.why = "closed"
            dialling.add_done_callback(self._discard_dial)
            raise
        self._watch_socket()
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._end("the broker does not answer")
            raise ConnectionError("the broker does not answer") from None
        except BaseException:
            self._end("closed")
            raise
        finally:
            if self._ready.done() and not self._ready.cancelled():
                self._ready.exception()
            self._ready.cancel()

    def _watch_socket(self) -> None:
        """Let the loop watch the connected socket from now on."""
        self.dialled = True
        sock = self._client.socket()
        if sock is None:
            raise ConnectionError("the broker closed at once")
        cast(socket.socket, sock).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        add_reader(self._loop, cast(socket.socket, sock), self._read)
        self._flush_soon()
        self._tick()

    def _dial(self) -> None:
        """Connect, in a thread. The loop may have ended meanwhile, so a connection that is not wanted any more is
        closed here."""
        self._client.reconnect()
        if self.why and (sock := self._client.socket()) is not None:
            sock.close()

    def _discard_dial(self, dialling: asyncio.Future[Any]) -> None:
        if not dialling.cancelled():
            dialling.exception()
        if (sock := self._client.socket()) is not None:
            sock.close()

    def _tick(self) -> None:
        """Keep-alive: send a ping after silence; end the link if it is not answered."""
        self._ticking = self._loop.call_later(1.0, self._tick)
        self._guard(self._client.loop_misc)

    async def close(self, *, forget: bool) -> None:
        """Send what is queued and disconnect. `forget`: the broker shall discard our session; otherwise it publishes
        our will, if we have one. Never raises."""
        if self.why or self._closing is not None:
            return
        self._closing = self._loop.create_future()
        code = about = None
        if self.endpoint.version == "5" and forget:
            about = properties(PacketTypes.DISCONNECT, SessionExpiryInterval=0)
        elif self.endpoint.version == "5" and self.endpoint.will is not None:
            code = ReasonCode(PacketTypes.DISCONNECT, identifier=WITH_WILL)
        self._client.disconnect(code, about)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._closing
        except TimeoutError:
            log.debug("MQTT: the broker reads no more; what was unsent is lost")
        finally:
            self._end("closed")

    def _end(self, why: str) -> None:
        """End the link, once: what waits on it fails, and its owner is notified."""
        if self.why:
            return
        self.why = why
        if self._ticking is not None:
            self._ticking.cancel()
        if (sock := self._client.socket()) is not None:
            self._stop_watching(self._client, None, sock)
            sock.close()
        error = ConnectionError(why)
        sent = sorted(self._sent.values(), key=lambda one: one[1])
        everyone: list[asyncio.Future[Any]] = [*(one for one, _ in sent), *self._pending.values()]
        for waiting in everyone:
            if not waiting.done():
                waiting.set_exception(LostBySize(why) if sent and waiting is sent[-1][0] else error)
                waiting.exception()  # marks it as retrieved: the waiting task may be gone
        self._owed.clear()
        self._room.release()  # each publisher that waits fails, and lets the next one in
        if self._closing is not None:
            if not self._closing.done():
                self._closing.set_result(None)
        elif not self._ready.done():
            self._ready.set_exception(error)
        else:
            self._loop.call_soon(self._on_lost, self, why)

    # -- used by its owner ------------------------------------------------------------------------

    async def publish(self, message: MqttMessage) -> int:
        """Send with QoS 1; returns the broker's reason code (0 on 3.1.1) when it has the message. Raises
        ConnectionError, LostBySize."""
        await self._room.acquire()
        confirmed: asyncio.Future[int] = self._loop.create_future()
        try:
            self._sent[self._publish(message, 1)] = confirmed, len(message.body)
        except BaseException:
            self._room.release()
            raise
        return await confirmed

    def publish_unconfirmed(self, message: MqttMessage) -> None:
        """Send with QoS 0: at most once, and not delayed by unacknowledged messages."""
        self._publish(message, 0)

    def _publish(self, message: MqttMessage, qos: int) -> int:
        if self.why:
            raise ConnectionError(self.why)
        about = cast(Properties, PackedProperties(message))  # not looked at on 3.1.1
        info = self._client.publish(message.topic, message.body, qos, message.retained, properties=about)
        if info.rc != paho.MQTT_ERR_SUCCESS:
            raise ConnectionError(paho.error_string(info.rc))
        return info.mid

    async def subscribe(self, filters: Sequence[str], qos: int, *, retained: bool = False) -> list[int]:
        """Subscribe; return the broker's reason codes, one for each filter. `retained`: retained messages are wanted as
        well; otherwise they are not sent, if the version of MQTT can express that. Raises ConnectionError."""
        if self.why:
            raise ConnectionError(self.why)
        if self.endpoint.version == "5":
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if retained else SubscribeOptions.RETAIN_DO_NOT_SEND
            how = SubscribeOptions(qos=qos, retainHandling=handling)
            _, mid = self._client.subscribe([(one, how) for one in filters])
        else:
            _, mid = self._client.subscribe([(one, qos) for one in filters])
        return await self._answer(mid)

    async def unsubscribe(self, filters: Sequence[str]) -> None:
        """Unsubscribe. Raises ConnectionError."""
        if self.why:
            raise ConnectionError(self.why)
        _, mid = self._client.unsubscribe(list(filters))
        await self._answer(mid)

    async def _answer(self, mid: int | None) -> list[int]:
        if mid is None:
            raise ConnectionError("the link is lost")
        answer: asyncio.Future[list[int]] = self._loop.create_future()
        self._pending[mid] = answer
        return await answer

    def acknowledge(self, message: MqttMessage) -> None:
        """Acknowledge a message. No effect if the link has ended: the broker will send it again."""
        if self.why or not message.id:
            return
        if not self.endpoint.ordered:
            self._owed.pop(message.id, None)
            self._client.ack(message.id, 1)
            return
        self._owed[message.id] = True
        while self._owed and self._owed[id := next(iter(self._owed))]:
            del self._owed[id]
            self._client.ack(id, 1)

    @property
    def owes(self) -> bool:
        """Whether any received message is not acknowledged yet."""
        return bool(self._owed)

    # -- called by paho ----------------------------------------------------------------------------

    def _on_connect(self, client: Any, _: Any, flags: paho.ConnectFlags, code: ReasonCode, about: Any) -> None:
        if code.is_failure:
            if not self._ready.done():
                self._ready.set_exception(ConnectRefused(code.value, f"the broker says: {code.getName().lower()}"))
            return
        self.resumed = flags.session_present
        if self.endpoint.version == "5":
            self.packet = getattr(about, "MaximumPacketSize", LONGEST_PACKET)
            self.shares = bool(getattr(about, "SharedSubscriptionAvailable", 1))
        self._room = asyncio.Semaphore(getattr(about, "ReceiveMaximum", 65_535))
        if not self._ready.done():
            self._ready.set_result(None)

    def _on_disconnect(self, client: Any, _: Any, flags: Any, code: ReasonCode, about: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._end(f"the broker says: {code.getName().lower()}")
        else:  # paho's own names for what it found are of little help
            words = {"Unspecified error": "the connection is gone", "Keep alive timeout": "the broker is silent"}
            self._end(words.get(code.getName(), code.getName().lower()))

    def _on_message(self, client: Any, _: Any, received: paho.MQTTMessage) -> None:
        if received.qos:
            self._owed[received.mid] = False
        about = received.properties
        data = getattr(about, "CorrelationData", b"")
        message = MqttMessage(
            topic=received.topic,
            body=bytes(received.payload),
            reply_to=getattr(about, "ResponseTopic", ""),
            correlation=data.decode("latin-1"),
            headers=dict(getattr(about, "UserProperty", ())),
            expiry=getattr(about, "MessageExpiryInterval", 0),
            id=received.mid if received.qos else 0,
            again=received.dup,
            retained=received.retain,
        )
        self._take(self, message)

    def _on_publish(self, client: Any, _: Any, mid: int, code: ReasonCode, about: Any) -> None:
        sent = self._sent.pop(mid, None)
        if sent is None:  # QoS 0
            return
        self.confirmed += 1
        self._room.release()
        if not sent[0].done():
            sent[0].set_result(code.value)

    def _on_answer(self, client: Any, _: Any, mid: int, codes: Sequence[ReasonCode], about: Any) -> None:
        answer = self._pending.pop(mid, None)
        if answer is not None and not answer.done():
            answer.set_result([code.value for code in codes])

    # -- the socket -------------------------------------------------------------------------------

    def _guard(self, step: Callable[[], object]) -> None:
        """If paho fails on what the broker sends, the link ends, not the loop."""
        try:
            step()
        except Exception as error:
            log.debug("MQTT: a packet could not be understood", exc_info=True)
            self._end(f"what the broker sent could not be understood: {type(error).__name__}")

    def _read(self) -> None:
        self._guard(self._client.loop_read)
        pending = getattr(self._client.socket(), "pending", None)  # TLS reads ahead
        if pending is not None and pending():
            self._loop.call_soon(self._read)

    def _on_want_write(self, client: Any, _: Any, sock: Any) -> None:
        if self.dialled:
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Write what is published in one turn of the loop together, in the next."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is unsent, as far as the socket takes it."""
        self._flushing = False
        if self.why:
            return
        self._guard(self._client.loop_write)
        if self.why:
            return
        sock = cast(socket.socket, self._client.socket())
        if self._client.want_write() and not self._writing:
            self._writing = True
            add_writer(self._loop, sock, self.flush)
        elif self._writing and not self._client.want_write():
            self._writing = False
            remove_writer(self._loop, sock)

    def _stop_watching(self, client: Any, _: Any, sock: Any) -> None:
        if self.dialled and sock.fileno() >= 0:
            remove_reader(self._loop, sock)
            remove_writer(self._loop, sock)


def _client(endpoint: MqttEndpoint) -> paho.Client:
    five = endpoint.version == "5"
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=endpoint.client,
        clean_session=None if five else not endpoint.expiry,
        protocol=MQTTProtocolVersion.MQTTv5 if five else MQTTProtocolVersion.MQTTv311,
        reconnect_on_failure=False,
        manual_ack=True,
    )
    client.connect_timeout = PATIENCE
    client.max_inflight_messages = 0  # `MqttLink._room` counts, by what the broker says
    if endpoint.tls is not None:
        client.tls_set_context(cast(ssl.SSLContext, _TlsWrapper(endpoint.tls)))
    if endpoint.auth is not None:
        client.username_pw_set(*endpoint.auth)
    return client


class _TlsWrapper:
    """The part of a TLS context that paho uses. The handshake is made here: where it fails, paho would forget to
    close."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.check_hostname = True  # paho has nothing more to check

    def wrap_socket(
        self, plain: socket.socket, server_hostname: str, do_handshake_on_connect: bool = False
    ) -> ssl.SSLSocket:
        """Wrap a socket, and make the handshake. Raises OSError."""
        plain.settimeout(PATIENCE)
        return self._context.wrap_socket(plain, server_hostname=server_hostname)
