"""The properties of a message as bytes, and what cannot be one (MQTT 5.0, 1.5.4, 2.2.2 and 3.3.2.3)."""

from __future__ import annotations

import re

import pytest

from dragoman.engines.mqtt.messages import MqttMessage, PackedProperties, sendable
from dragoman.transports.broker.contract import Refused

LONG = 65_535
"""Bytes that a text has at most."""


@pytest.mark.parametrize(
    ("message", "raw"),
    [
        (MqttMessage(topic="t", body=b"x"), b"\x00"),
        (MqttMessage(topic="t", body=b"x", expiry=1), b"\x05\x02\x00\x00\x00\x01"),
        (MqttMessage(topic="t", body=b"x", reply_to="é"), b"\x05\x08\x00\x02\xc3\xa9"),
        (MqttMessage(topic="t", body=b"x", correlation="é"), b"\x04\x09\x00\x01\xe9"),
        (
            MqttMessage(topic="t", body=b"x", headers={"a": "", "": "é"}),
            b"\x0d\x26\x00\x01a\x00\x00\x26\x00\x00\x00\x02\xc3\xa9",
        ),
        (
            MqttMessage(topic="t", body=b"x", reply_to="r", correlation="c", headers={"a": "b"}, expiry=2**32 - 1),
            b"\x14\x02\xff\xff\xff\xff\x08\x00\x01r\x09\x00\x01c\x26\x00\x01a\x00\x01b",
        ),
        (MqttMessage(topic="t", body=b"x", reply_to="r" * 124), b"\x7f\x08\x00\x7c" + b"r" * 124),
        (MqttMessage(topic="t", body=b"x", reply_to="r" * 125), b"\x80\x01\x08\x00\x7d" + b"r" * 125),
        (MqttMessage(topic="t", body=b"x", reply_to="r" * 16_380), b"\xff\x7f\x08\x3f\xfc" + b"r" * 16_380),
        (MqttMessage(topic="t", body=b"x", reply_to="r" * 16_381), b"\x80\x80\x01\x08\x3f\xfd" + b"r" * 16_381),
    ],
    ids=lambda value: str(value)[:160],
)
def test_the_bytes_of_properties(message: MqttMessage, raw: bytes) -> None:
    assert PackedProperties(message).pack() == raw


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Größe": "\xa0 ok \u200b"},  # not printable, and allowed
        {"a": "x" * 20_000},
        {"a": "x" * LONG, "x" * LONG: "é" * 32_767 + "x"},
    ],
    ids=lambda headers: ascii(headers)[:30],
)
def test_headers_that_are_carried(headers: dict[str, str]) -> None:
    assert sendable(headers) is headers


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("x", "a\0b", "x: it has U+0000, which brokers close the connection for"),
        ("x\0", "a", r"x\x00: it has U+0000"),
        ("x", "\x1f", "x: it has U+001F"),
        ("x", "\x7f", "x: it has U+007F"),
        ("x", "\x9f", "x: it has U+009F"),
        ("x", "\ud800", "x: it has U+D800"),
        ("x", "\udfff", "x: it has U+DFFF"),
        ("x", "\ufdd0", "x: it has U+FDD0"),
        ("x", "\ufdef", "x: it has U+FDEF"),
        ("x", "\ufffe", "x: it has U+FFFE"),
        ("x", "\U0001ffff", "x: it has U+1FFFF"),
        ("x", "\U0010ffff", "x: it has U+10FFFF"),
        ("x", "é" * 32_768, "x: it has 65536 bytes, of which 65535 are allowed"),
        ("x", "😀" * 16_384, "x: it has 65536 bytes"),
        ("y" * 65_536, "x", f"{'y' * 61}...: it has 65536 bytes"),
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_a_header_that_mqtt_does_not_carry(name: str, text: str, what: str) -> None:
    """A broker closes the connection for it, and all other calls on it wait for the next."""
    with pytest.raises(Refused, match=re.escape(f"MQTT does not carry the header {what}")):
        sendable({"good": "one", name: text})
