"""What an MQTT message is, and its properties as bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

from msgspec import Struct, field
from paho.mqtt.properties import Properties

from ...net.urls import printable
from ...transports.broker.contract import Refused

_LONGEST = 0xFFFF
"""Bytes that a UTF-8 string of MQTT has at most (5.0, 1.5.4)."""
_FORBIDDEN = re.compile(
    "[\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
    + "]"
)
"""Control characters, halves of surrogate pairs, and what Unicode calls noncharacters."""
_SHOWN = 64
"""Characters of a header's name in an error."""


class MqttMessage(Struct, frozen=True, kw_only=True, eq=False):
    """One message, as it goes out and as it comes in."""

    topic: str
    body: bytes
    reply_to: str = ""
    correlation: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    expiry: int = 0
    """Seconds after which the broker shall drop it; 0: never."""
    id: int = 0
    """Incoming: what to acknowledge; 0 for nothing."""
    again: bool = False
    """Incoming: the DUP flag: it was sent to us, or to an earlier owner of our client id, and never acknowledged."""
    retained: bool = False
    """Incoming: it was published before we subscribed. Outgoing: the broker shall keep it for later subscribers."""


def properties(packet: int, **values: int) -> Properties:
    """Return the properties of a packet of this type, by their names at paho."""
    about = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(about, name, value)
    return about


class PackedProperties:
    """The properties of a PUBLISH as bytes (MQTT 5.0, 2.2.2 and 3.3.2.3). It replaces paho's own class, which takes ten
    times as long, and of which paho calls only `pack`."""

    __slots__ = ("_message",)

    def __init__(self, message: MqttMessage) -> None:
        self._message = message

    def pack(self) -> bytes:
        """Return their length and the properties."""
        message = self._message
        out = bytearray()
        if message.expiry:
            out += struct.pack("!BI", 2, message.expiry)
        if message.reply_to:
            out += b"\x08" + _text(message.reply_to)
        if message.correlation:
            out += b"\x09" + _text(message.correlation, "latin-1")
        for name, value in message.headers.items():
            out += b"\x26" + _text(name) + _text(value)
        return _length(len(out)) + bytes(out)


def sendable(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Check headers, which become user properties, and return them. Raises Refused for a name or value that is not a
    UTF-8 string of MQTT (5.0, 1.5.4): a broker closes the connection for one with U+0000, and may for the other
    characters of `_FORBIDDEN`, as Mosquitto does."""
    for name, value in headers.items():
        for text in (name, value):
            if not text.isprintable() and (found := _FORBIDDEN.search(text)) is not None:
                what = f"has U+{ord(found[0]):04X}, which brokers close the connection for"
                raise Refused(f"MQTT does not carry the header {printable(name, _SHOWN)}: it {what}")
            if len(text) > _LONGEST // 4 and (size := len(text.encode())) > _LONGEST:
                what = f"{size} bytes, of which {_LONGEST} are allowed"
                raise Refused(f"MQTT does not carry the header {printable(name, _SHOWN)}: it has {what}")
    return headers


def _text(text: str, encoding: str = "utf-8") -> bytes:
    raw = text.encode(encoding)
    return struct.pack("!H", len(raw)) + raw


def _length(number: int) -> bytes:
    """A Variable Byte Integer."""
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | 128 if number else low)
        if not number:
            return bytes(out)
