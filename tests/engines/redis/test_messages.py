"""What an entry of a stream says, of any origin: fields in, a message out."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.engines.redis.messages import after, head_of, message_of
from dragoman.transports.broker.contract import BrokerMessage, Outcome

HEAD = b'{"to":"t","id":"i","count":2,"headers":{"a":"b"}}'
FULL: tuple[Any, ...] = ("t", "i", {"a": "b"}, 2)
EMPTY: tuple[Any, ...] = ("", "", {}, 0)


@pytest.mark.parametrize(
    ("fields", "body", "said"),
    [
        ([b"head", HEAD, b"body", b"x"], b"x", FULL),
        ([b"body", b"x", b"head", HEAD], b"x", FULL),
        ([b"more", b"y", b"head", HEAD, b"body", b"x"], b"x", FULL),
        ([b"head", HEAD, b"body", b"x", b"more", b"y"], b"x", FULL),
        ([b"head", b"{}", b"body", b"y", b"head", HEAD, b"body", b"x"], b"x", FULL),  # the last of a name counts
        ([b"head", HEAD, b"more", b"y"], b"", FULL),
        ([b"more", HEAD, b"body", b"x"], b"x", EMPTY),
        ([b"body", b"x"], b"x", EMPTY),
        ([b"more", b"y"], b"", EMPTY),
        ([b"head", b'{"more":[1]}', b"body", b"x"], b"x", EMPTY),
        ([b"head", b'{"count":-7}', b"body", b"x"], b"x", EMPTY),
        ([b"head", b'{"count":1}', b"body", b"x"], b"x", ("", "", {}, 1)),
    ],
)
def test_what_an_entry_says(fields: list[bytes], body: bytes, said: tuple[Any, ...]) -> None:
    settled: list[Outcome] = []
    for before in (0, 3):
        found = message_of(fields, settled.append, before)
        assert found is not None
        assert (found.reply_to, found.correlation, found.headers, found.count - before) == said
        assert (found.body, found.mailbox) == (body, "")
        found.settle("answered")
    assert settled == ["answered", "answered"]


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"no JSON",
        b"[]",
        b'{"id":1}',
        b'{"count":"1"}',
        b'{"headers":{"a":1}}',
        b'{"id":"\xff"}',
        b'{"headers":{"\xff":""}}',
        b'{"id":"\\ud800"}',
        b'{"more":' + b"[" * 100_000,
    ],
    ids=lambda head: ascii(head[:30]),
)
def test_what_is_no_message(head: bytes) -> None:
    """It is said so, whatever it is: the reading goes on."""
    assert message_of([b"head", head, b"body", b"x"]) is None


def test_what_is_usual_takes_no_room_in_a_head() -> None:
    assert head_of(BrokerMessage(body=b"x")) == b"{}"
    assert head_of(BrokerMessage(body=b"x", reply_to="t", correlation="i", headers={"a": "b"}), 2) == HEAD


@pytest.mark.parametrize(("id", "next"), [(b"5-0", "5-1"), (b"1700000000000-9", "1700000000000-10")])
def test_the_id_after_an_id(id: bytes, next: str) -> None:
    assert after(id) == next
