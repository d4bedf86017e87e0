"""How the engines write a message down: what goes in comes out."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from dragoman.engines.mqtt.messages import MqttMessage, PackedProperties
from dragoman.engines.mqtt.topics import in_topic
from dragoman.engines.mqtt.topics import message_of as mqtt_message
from dragoman.engines.redis.messages import head_of, message_of
from dragoman.transports.broker.contract import BrokerMessage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
HEADERS = st.dictionaries(TEXT, TEXT, max_size=5)
MQTT_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
"""What a text may be there: no U+0000 (MQTT 5.0, 1.5.4)."""


@given(
    st.builds(BrokerMessage, body=st.binary(max_size=200), reply_to=TEXT, correlation=TEXT, headers=HEADERS),
    st.integers(0, 99),
    st.integers(0, 99),
    st.booleans(),
)
def test_redis(message: BrokerMessage, sent: int, delivered: int, turned: bool) -> None:
    """In either order of its fields; deliveries are counted together."""
    fields = [b"head", head_of(message, sent), b"body", message.body]
    found = message_of(fields[2:] + fields[:2] if turned else fields, count=delivered)
    assert found is not None
    assert (found.body, found.reply_to, found.correlation) == (message.body, message.reply_to, message.correlation)
    assert (dict(found.headers), found.count) == (dict(message.headers), sent + delivered)


@given(
    st.builds(
        MqttMessage,
        topic=st.just("t"),
        body=st.just(b""),
        reply_to=MQTT_TEXT,
        correlation=st.text(st.characters(max_codepoint=255), max_size=40),
        headers=st.dictionaries(MQTT_TEXT, MQTT_TEXT, max_size=5),
        expiry=st.integers(0, 2**32 - 1),
    )
)
def test_mqtt_properties_as_pahos_own_reader_reads_them(message: MqttMessage) -> None:
    found = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    raw = PackedProperties(message).pack()
    found.unpack(raw)  # type: ignore[no-untyped-call]
    said = vars(found)
    assert said.get("ResponseTopic", "") == message.reply_to
    assert said.get("CorrelationData", b"").decode("latin-1") == message.correlation
    assert dict(said.get("UserProperty", [])) == dict(message.headers)
    assert said.get("MessageExpiryInterval", 0) == message.expiry


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), HEADERS, st.binary(max_size=100))
def test_mqtt_what_a_topic_says(correlation: str, headers: dict[str, str], body: bytes) -> None:
    """For clients without properties: correlation and headers are levels of the topic, and no wildcard is in them."""
    said = in_topic(headers)
    assert not set(said) & set("+#/")
    topic = f"answers/{quote(correlation, safe='')}/{said}"
    found = mqtt_message(MqttMessage(topic=topic, body=body), "answers", answer=True)
    assert (found.body, found.correlation) == (body, correlation)
    assert dict(found.headers) == headers
