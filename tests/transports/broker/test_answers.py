"""Under which name an answer is kept, and which addresses for answers are remembered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.limits import SERVER
from dragoman.net.urls import parse
from dragoman.transports.broker import contract
from dragoman.transports.broker.answers import SHORT, AnswerCache, bound_key
from dragoman.transports.broker.contract import AGAIN, KEY, BrokerMessage, Mailboxes

BODY = b'{"jsonrpc":"2.0","method":"pay","params":[1],"id":1}'
MESSAGES = {
    "the correlation is the key": BrokerMessage(body=BODY, reply_to="box", correlation="c-1", headers={KEY: "c-1"}),
    "the caller's own key": BrokerMessage(body=BODY, reply_to="box", correlation="c-1", headers={KEY: "k"}),
    "long": BrokerMessage(body=BODY, reply_to="b" * SHORT, correlation="c-1", headers={KEY: "c-1"}),
    "half of a pair": BrokerMessage(body=BODY, reply_to="\ud800" * SHORT, correlation="c-1", headers={KEY: "c-1"}),
}


@pytest.mark.parametrize(
    "value", [b"", b"\xc1", b"{}", b"\x93\xa1a\xa1b\xc0", b"\x93\xa1\xff\xc4\x01a\xcb\0\0\0\0\0\0\0\0"]
)
async def test_what_is_no_answer_in_the_store_is_as_if_there_was_none(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bus = MemoryBus()
    store: Any = bus.store
    key = bound_key(MESSAGES["the caller's own key"])
    cache = AnswerCache(SERVER, store)
    await cache.share(key, "c-1", b"1")
    assert (await cache.shared(key)) is not None
    (name,) = bus._hub.store._kept
    await store.put(name, value)
    assert await cache.shared(key) is None
    assert "the store of recent answers is of no use now" in caplog.text


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize(
    "other",
    [
        {"body": BODY.replace(b"pay", b"see")},
        {"body": BODY.replace(b"[1]", b"[2]")},
        {"reply_to": "another box"},
        {"mailbox": "another box"},
        {"headers": {"authorization": "Bearer x"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_call_or_caller_has_another_name(message: BrokerMessage, other: dict[str, Any]) -> None:
    if "headers" in other:
        other = {"headers": {**message.headers, **other["headers"]}}
    assert bound_key(replace(message, **other)) != bound_key(message)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_the_same_sent_or_delivered_again_has_the_same_name(message: BrokerMessage) -> None:
    assert bound_key(replace(message, count=2, headers={**message.headers, AGAIN: "1"})) == bound_key(message)


def test_with_a_key_of_its_own_a_call_may_be_made_anew() -> None:
    message = MESSAGES["the caller's own key"]
    again = replace(message, body=BODY.replace(b'"id":1', b'"id":2'), correlation="c-2")
    assert bound_key(again) == bound_key(message)


def test_what_is_remembered_of_mailboxes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "MAILBOXES_KNOWN", 3)
    mailboxes = Mailboxes(parse("redis://host/queue"), "box.*")
    for number in range(10):
        assert mailboxes.hold(f"box.{number}")
        assert mailboxes.hold(f"box.{number}")
        assert not mailboxes.hold(f"orders.{number}")
        assert len(mailboxes._held) <= 3
