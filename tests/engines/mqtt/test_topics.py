"""What URLs, topics and properties say: each a value in and a value out, without a broker."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from dragoman.channel import Options
from dragoman.engines.mqtt.messages import MqttMessage
from dragoman.engines.mqtt.topics import OWN_NAME, describe_code, endpoint_of, in_topic, message_of, topic_of
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import SERVER
from dragoman.net.urls import parse

# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "topic"),
    [
        ("/lamp", "lamp"),
        ("//devices/lamp-1/", "devices/lamp-1"),
        ("/a%20b/%E7%81%AF", "a b/灯"),
        ("/a$b", "a$b"),
        ("/" + "x" * 1_000, "x" * 1_000),
        ("/" + "%C3%A9" * 500, "é" * 500),
    ],
    ids=lambda text: text[:12],
)
def test_what_is_a_topic(path: str, topic: str) -> None:
    assert topic_of(parse(f"mqtt://h{path}")) == topic


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "name the topic, as in mqtt://h:1883/devices/lamp-1"),
        ("//", "name the topic"),
        ("/a%2Bb", r"'a\+b' is not a topic"),
        ("/a%23", "'a#' is not a topic"),
        ("/a%00", r"'a\\\\x00' is not a topic"),
        ("/$SYS", r"'\$SYS' is not a topic"),
        ("/" + "x" * 1_001, "is not a topic"),
        ("/" + "%C3%A9" * 501, "is not a topic"),
    ],
    ids=lambda text: text[:12],
)
def test_what_is_none(path: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        topic_of(parse(f"mqtt://h{path}"))


CALLS = min(SERVER.calls, SERVER.calls_per_channel)
CALLER = {
    "host": "h",
    "port": 1883,
    "tls": None,
    "auth": None,
    "version": "5",
    "keepalive": 10,
    "expiry": 60,
    "receive": 65_535,
    "ordered": True,
    "will": None,
    "will_after": 5,
    "will_kept": 0,
}
"""What a caller's URL says that has no query."""


@pytest.mark.parametrize(
    ("url", "serving", "says"),
    [
        ("mqtt://h/q", False, {}),
        ("mqtt:///q", False, {"host": "127.0.0.1"}),
        ("mqtt://u:w@h:1/q", False, {"port": 1, "auth": ("u", "w")}),
        ("mqtt://h/q?v=3.1.1", False, {"version": "3.1.1", "expiry": 0}),
        ("mqtt://h/q?v=3.1.1&client=me", False, {"version": "3.1.1", "expiry": 86_400, "client": "me"}),
        ("mqtt://h/q?client=me&expiry=7", False, {"expiry": 7, "client": "me"}),
        ("mqtt://h/q?keepalive=65535&acks=any", False, {"keepalive": 65_535, "ordered": False}),
        ("mqtt://h/q?keepalive=65536&expiry=4294967296", False, {"keepalive": 65_535, "expiry": 4_294_967_295}),
        ("mqtt://h/q?expiry=0&prefetch=9", False, {"expiry": 0}),
        ("mqtt://h/q", True, {"receive": CALLS, "will": "dragoman", "will_kept": 55}),
        ("mqtt://h/q?group=g&expiry=6", True, {"expiry": 6, "receive": CALLS, "will": "g", "will_kept": 1}),
        ("mqtt://h/q?expiry=4", True, {"expiry": 4, "receive": CALLS, "will": "dragoman"}),
        ("mqtt://h/q?prefetch=65535&client=me", True, {"receive": 65_535, "expiry": 86_400, "client": "me"}),
        ("mqtt://h/q?prefetch=65536&v=3.1.1", True, {"receive": 65_535, "version": "3.1.1", "expiry": 0}),
    ],
)
def test_where_a_url_leads(url: str, serving: bool, says: dict[str, Any]) -> None:
    endpoint = endpoint_of(parse(url), Options(), serving=serving)
    will = says.get("will")
    expected = {**CALLER, "client": endpoint.client, **says}
    if will is not None:
        expected["will"] = (f"q/fallen/{will}/{endpoint.client}", endpoint.client.encode())
    assert {name: getattr(endpoint, name) for name in endpoint.__struct_fields__} == expected
    assert "client" in says or OWN_NAME.fullmatch(endpoint.client)


def test_whose_tls_it_is() -> None:
    """The context that was given, otherwise one that trusts what the system does; none without TLS."""
    given = ssl.create_default_context()
    options = Options(client_tls=given)
    assert endpoint_of(parse("mqtts://h/q"), options, serving=False).tls is given
    assert endpoint_of(parse("mqtt://h/q"), options, serving=False).tls is None
    own = endpoint_of(parse("mqtts://h/q"), Options(), serving=False).tls
    assert own is not None
    assert (own.verify_mode, own.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("v=5.0", r"\?v= is 5 or 3.1.1, not '5.0'"),
        ("acks=all", r"\?acks= is ordered or any, not 'all'"),
        ("client=a/b", r"\?client= is a name without / \+ and #, not 'a/b'"),
        ("client=" + "x" * 101, r"\?client= is a name"),
        ("group=a%2Bb", r"\?group= is a name without / \+ and #, not 'a\+b'"),
        ("group=", r"\?group= is a name"),
        ("expiry=-1", r"\?expiry= is a whole number from 0 on"),
        ("keepalive=0", r"\?keepalive= is a whole number from 1 on"),
    ],
    ids=lambda text: text[:12],
)
def test_what_a_url_may_not_say(query: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        endpoint_of(parse(f"mqtt://h/q?{query}"), Options(), serving=False)


# -- messages --------------------------------------------------------------------------------------


def published(topic: str = "q", again: bool = False, **about: Any) -> MqttMessage:
    return MqttMessage(topic=topic, body=b"x", again=again, **about)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (published(), {}),
        (published(again=True), {"count": 1}),
        (
            published(reply_to="q/reply/me", correlation="c", headers={"a": "b"}),
            {"reply_to": "q/reply/me", "correlation": "c", "headers": {"a": "b"}},
        ),
        # nothing is published to a wildcard, nor where the caller says that it is a mailbox of 3.1.1
        (published(reply_to="#"), {"reply_to": "+"}),
        (published(reply_to="q/reply/me/c/#"), {"reply_to": "+"}),
        (published("q/request/a%23b/c"), {"reply_to": "+", "correlation": "c"}),
        (published(headers={"count": "3", "a": "b"}), {"count": 3, "headers": {"a": "b"}}),
        (published(headers={"count": "99999"}, again=True), {"count": 100_000}),
        *(
            (published(headers={"count": count}), {"count": 0, "headers": headers})
            for count, headers in [
                ("100000", {}),
                ("-1", {}),
                ("many", {}),
                ("٣", {}),
                ("²", {}),
                ("", {"count": ""}),
            ]
        ),
        # 3.1.1: what its topic says, and nothing of the properties
        (
            published(
                "q/request/a%2Fb/c%2F%C3%BC/k=v%20w&count=2&e=", reply_to="x", correlation="y", headers={"z": "z"}
            ),
            {
                "reply_to": "a/b/c%2F%C3%BC/#",
                "mailbox": "a/b",
                "correlation": "c/ü",
                "headers": {"k": "v w", "e": ""},
                "count": 2,
            },
        ),
        (
            published("q/request/a/c/k=v/more"),
            {"reply_to": "a/c/#", "mailbox": "a", "correlation": "c", "headers": {"k": "v"}},
        ),
        (published("q/request/a"), {"reply_to": "a/#", "mailbox": "a"}),
        (published("q/request/"), {}),
        (published("q/request//c"), {"correlation": "c"}),
        (published("q/requests/a/c", reply_to="b"), {"reply_to": "b"}),
        (published("q/request", reply_to="b"), {"reply_to": "b"}),
    ],
    ids=lambda value: value.topic if isinstance(value, MqttMessage) else "",
)
def test_what_a_request_says(message: MqttMessage, says: dict[str, Any]) -> None:
    outcomes: list[str] = []
    found = message_of(message, "q/request", settle=outcomes.append)
    found.settle("answered")
    assert outcomes == ["answered"]
    usual = {"reply_to": "", "mailbox": "", "correlation": "", "headers": {}, "count": 0, "body": b"x"}
    assert {name: getattr(found, name) for name in usual} == usual | says
    plain = message_of(message, "q/request")
    assert {name: getattr(plain, name) for name in usual} == usual | says


@pytest.mark.parametrize(
    ("message", "correlation", "headers"),
    [
        (published("q/reply/me", correlation="c", headers={"a": "b"}), "c", {"a": "b"}),
        (published("q/reply/me/c%2Fd/a=b%20c", correlation="x", headers={"y": "z"}), "c/d", {"a": "b c"}),
        (published("q/reply/me/c", correlation="x", headers={"y": "z"}), "c", {}),
        (published("q/reply/me/", correlation="x"), "", {}),
    ],
)
def test_what_an_answer_says(message: MqttMessage, correlation: str, headers: dict[str, str]) -> None:
    found = message_of(message, "q/reply/me", answer=True)
    assert (found.body, found.reply_to, found.mailbox) == (b"x", "", "")
    assert (found.correlation, found.headers) == (correlation, headers)


def test_headers_in_a_topic() -> None:
    assert in_topic({"a": "b c", "d/e": "+#&=", "f": ""}) == "a=b%20c&d%2Fe=%2B%23%26%3D&f="
    assert in_topic({}) == ""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0x87, "not authorized"),
        (0x90, "topic name invalid"),
        (0x95, "packet too large"),
        (0x97, "quota exceeded"),
        (0x0A, "reason code 0x0a"),
    ],
)
def test_what_a_reason_code_says(code: int, words: str) -> None:
    assert describe_code(code) == words
