"""Under which name an answer is kept, and which addresses for answers are remembered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.bus.memory import MemoryBus
from dragoman.jsonrpc.limits import SERVER
from dragoman.net.urls import parse
from dragoman.transports.broker import answers, contract
from dragoman.transports.broker.answers import SECONDS, SHORT, AnswerCache, bound_key
from dragoman.transports.broker.contract import AGAIN, KEY, BrokerMessage, Mailboxes
from tests.engines.wires import until

from .stores import Recording

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


async def test_answers_go_by_their_age_from_the_old_end() -> None:
    now = [0.0]
    cache = AnswerCache(SERVER, clock=lambda: now[0])
    for second in range(4):
        now[0] = float(second)
        cache.keep(f"k{second}", "c", b"1")
    now[0] = SECONDS + 1.0  # the first two have expired
    assert [cache.here(f"k{second}") is not None for second in range(4)] == [False, False, True, True]
    cache.keep("k4", "c", b"1")
    assert len(cache) == 3
    cache.close()
    assert not len(cache)


async def test_an_answer_that_is_kept_anew_is_the_youngest() -> None:
    now = [0.0]
    cache = AnswerCache(SERVER, clock=lambda: now[0])
    cache.keep("a", "c", b"1")
    cache.keep("b", "c", b"1")
    now[0] = SECONDS - 1
    cache.keep("a", "c", b"2")
    now[0] = SECONDS + 1
    cache.keep("c", "c", b"1")
    assert (len(cache), cache.here("b")) == (2, None)
    assert (found := cache.here("a")) is not None
    assert found.body == b"2"
    cache.close()


async def test_answers_go_even_when_no_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SECONDS", 0.02)
    cache = AnswerCache(SERVER)
    cache.keep("a", "c", b"1")
    cache.keep("b", "c", b"1")
    await until(lambda: not len(cache))
    cache.keep("c", "c", b"1")
    await until(lambda: not len(cache))
    cache.close()


async def test_what_has_expired_is_not_deleted_from_the_store() -> None:
    now, store = [0.0], Recording()
    cache = AnswerCache(SERVER.but(answers_kept=3), store, clock=lambda: now[0])
    for second in range(8):  # of which at most three are there at once
        now[0] = second * SECONDS / 2
        await cache.share(f"k{second}", "c", b"1")
        assert not cache.crowded
    for number in range(3):
        await cache.share(f"more{number}", "c", b"1")
    assert cache.crowded
    await cache.forget()
    assert store.deleted == ["answer:k6", "answer:k7"]
