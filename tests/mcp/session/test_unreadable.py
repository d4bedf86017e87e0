"""Records of a store and messages of a bus that cannot be read, as those of another version: each is as if it was not
there, sessions go on, and the log has one line for all of a kind, without a traceback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dragoman.bus.contract import reader
from dragoman.mcp.session.shared import BusMessage, Replica
from dragoman.store import documents
from tests.behind import behind

from ..http_wire import body
from ..replicas import Ring, ring, settled, text

GARBAGE = (b"", b"\xff\x00", b"{", b"[]", b'{"type":"whole"}', b'{"type":"other"}', b"[" * 5_000, b"\x91" * 5_000)
LOGS = ("", "home", "turn", "inbox")
"""The logs of a session, below its key."""
_packed = msgspec.msgpack.Encoder().encode


@pytest.fixture
async def two() -> AsyncIterator[Ring]:
    async with ring(2) as found:
        yield found


def of(ring_of: Ring, number: int) -> Replica:
    found: Any = behind(ring_of.servers[number]).shared
    assert isinstance(found, Replica)
    return found


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda one: repr(one[:12]))
async def test_of_a_session(two: Ring, log: str, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """At the replica that began it, and at one that reads all of it."""
    sitting = await two.begin()
    store = of(two, 0)
    key = store.key("session", sitting.id, *filter(None, (log,)))
    for _ in range(2):
        await store.append(key, garbage, 60)
    for number in (0, 1, 0, 1):
        assert (await two.at(number, sitting).post(body("ping"))).status == 200
    for peer in tuple(behind(two.servers[1]).host.peers):  # it has to read all of it
        session: Any = peer._channel
        session.end(ConnectionError("not used here"))
    found = await two.at(1, sitting).post(sitting.tool("add", 5, a=1, b=2))
    assert text(json.loads(found.body)) == "3"
    async with two.at(1, sitting).get() as home:
        await home.next()
        two.servers[0].remove_tool("add")
        assert (await home.message())["method"] == "notifications/tools/list_changed"
    assert (await two.at(0, sitting).post(body("ping"))).status == 200
    quiet(caplog)


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda one: repr(one[:12]))
async def test_of_the_server(two: Ring, garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Changes, how far a stream was read, and messages."""
    sitting = await two.begin()
    store = of(two, 0)
    await store.append(store.key("events"), garbage, 60)
    await store.put(store.key("session", sitting.id, "home", "had"), garbage, 60)
    for raw in (garbage, _packed(BusMessage("event", "other", number=2, body=garbage))):
        await store.bus.publish(store.topic(None), raw)
    for kind in ("taken", "asked", "grew", "gone", "over", "answer", "turn", "free", "home", "changed", "used", "?"):
        word = BusMessage(kind, "other", sitting.id, "a.b", body=garbage)
        await store.bus.publish(store.topic(None), _packed(word))
    await settled()
    async with two.at(1, sitting).get() as home:
        await home.next()
        two.servers[0].remove_tool("add")
        assert (await home.message())["method"] == "notifications/tools/list_changed"
    assert (await two.begin()).id != sitting.id
    quiet(caplog)


def quiet(caplog: pytest.LogCaptureFixture) -> None:
    assert [one.message for one in caplog.records if one.exc_info or one.levelname == "ERROR"] == []


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    read = reader(msgspec.json.Decoder(int).decode, "numbers")
    assert [read(one) for one in (b"1", b"x", b'"\\ud800"', b"[" * 10_000, b"2")] == [1, None, None, None, 2]
    told = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].startswith("numbers: ")


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda one: repr(one[:12]))
def test_of_what_is_kept_for_a_caller(garbage: bytes) -> None:
    assert documents.alive(garbage, 0.0) == {}
    assert documents.drop(garbage, "key", 0.0).result is False
