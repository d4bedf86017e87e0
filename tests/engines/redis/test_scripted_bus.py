"""`redis://` as a bus and a store, against a Redis that does what a test says: what goes over the wire, what its
answers become, and what is told of an outage."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus import BusLost, Store, open_bus
from dragoman.engines.redis.bus import _APPEND, RedisBus
from tests.bus import table

from .scripted import OK, Scripted, bulk, scripted

APPEND = _APPEND._sha
NONE = b"$-1\r\n"
REFUSED = b"-OOM command not allowed\r\n"
OTHER_TYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


@asynccontextmanager
async def ends(query: str = "?prefix=p:", /, **replies: Any) -> AsyncIterator[tuple[Scripted, RedisBus]]:
    async with scripted() as server:
        server.replies |= replies
        async with table.opened(server.url + query, RedisBus) as bus:
            yield server, bus


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr("dragoman.engines.redis.connection.PAUSES", (0.0, 0.0))


Work = Callable[[Store], Awaitable[Any]]


def name(work: object) -> str | None:
    """The method that a lambda calls, for pytest's ids."""
    return work.__code__.co_names[0] if callable(work) and hasattr(work, "__code__") else None


@pytest.mark.parametrize(
    ("work", "command", "words", "reply", "result"),
    [
        (lambda it: it.get("k"), "GET", ["p:k"], bulk(b"v"), b"v"),
        (lambda it: it.get("k"), "GET", ["p:k"], NONE, None),
        (lambda it: it.get("k"), "GET", ["p:k"], OTHER_TYPE, None),
        (lambda it: it.put("k", b"v"), "SET", ["p:k", "v"], OK, None),
        (lambda it: it.put("k", b"v", ttl=1.5), "SET", ["p:k", "v", "PX", "1500"], OK, None),
        (lambda it: it.put("k", b"v", ttl=0.0001), "SET", ["p:k", "v", "PX", "1"], OK, None),
        (lambda it: it.put_new("k", b"v"), "SET", ["p:k", "v", "NX"], OK, True),
        (lambda it: it.put_new("k", b"v", ttl=2), "SET", ["p:k", "v", "NX", "PX", "2000"], NONE, False),
        (lambda it: it.delete("k"), "DEL", ["p:k"], bulk(1), True),
        (lambda it: it.delete("k"), "DEL", ["p:k"], bulk(0), False),
        (lambda it: it.touch("k", 2), "PEXPIRE", ["p:k", "2000"], bulk(1), True),
        (lambda it: it.touch("k", 0), "PEXPIRE", ["p:k", "1"], bulk(0), False),
        (lambda it: it.read("k"), "XRANGE", ["p:k", "1-0", "+"], bulk([["7-0", ["b", "3", "m", "x"]]]), [(7, b"x")]),
        (lambda it: it.read("k", 4), "XRANGE", ["p:k", "5-0", "+"], bulk([]), []),
        (lambda it: it.read("k"), "XRANGE", ["p:k", "1-0", "+"], OTHER_TYPE, []),
        (lambda it: it.read("k"), "XRANGE", ["p:k", "1-0", "+"], bulk([["7-0", ["head", "3"]]]), []),
        (
            lambda it: it.append("k", b"m", ttl=2),
            *(APPEND, [APPEND, "1", "p:k", "m", "2000", "1000", "1048576", ""], bulk(7), 7),
        ),
        (
            lambda it: it.append("k", b"m", ttl=2, messages=0, size=0),
            *(APPEND, [APPEND, "1", "p:k", "m", "2000", "1", "0", ""], bulk(1), 1),
        ),
        (
            lambda it: it.append("k", b"m", ttl=2, number=8),
            *(APPEND, [APPEND, "1", "p:k", "m", "2000", "1000", "1048576", "8"], bulk(9), 9),
        ),
    ],
    ids=name,
)
async def test_what_a_store_asks(work: Work, command: str, words: list[str], reply: bytes, result: Any) -> None:
    async with ends(**{command: reply}) as (server, bus):
        assert bus.store is not None
        assert await work(bus.store) == result
        assert server.sent(command) == [words]


@pytest.mark.parametrize(
    ("work", "command"),
    [
        (lambda it: it.get("k"), "GET"),
        (lambda it: it.put("k", b"v"), "SET"),
        (lambda it: it.put_new("k", b"v"), "SET"),
        (lambda it: it.delete("k"), "DEL"),
        (lambda it: it.touch("k", 2), "PEXPIRE"),
        (lambda it: it.read("k"), "XRANGE"),
        (lambda it: it.append("k", b"m", ttl=2), APPEND),
    ],
    ids=name,
)
async def test_what_is_refused_is_an_error(work: Work, command: str) -> None:
    """And not the answer that there is nothing."""
    async with ends(**{command: REFUSED}) as (_, bus):
        assert bus.store is not None
        with pytest.raises(BusLost, match=rf"^{bus.url}: .*command not allowed"):
            await work(bus.store)


async def test_what_is_published_and_heard() -> None:
    """Topics begin with the prefix and the database; what is refused is not counted."""
    async with ends("/2?prefix=p:", PUBLISH=bulk(1)) as (server, bus):
        heard = list[bytes]()

        def take(message: bytes) -> None:
            heard.append(message)
            server.changed.set()

        await bus.subscribe("t", take)
        assert server.sent("SUBSCRIBE") == [["p:2:t"]]
        await bus.publish("t", b"m")
        assert server.sent("PUBLISH") == [["p:2:t", "m"]]
        server.over("SUBSCRIBE").writer.write(bulk(["message", "p:2:t", "n"]))
        await server.until(lambda: heard)
        assert heard == [b"n"]
        server.replies["PUBLISH"] = b"-NOPERM no\r\n"
        with pytest.raises(BusLost, match=rf"^{bus.url}: .*no"):
            await bus.publish("t", b"m")
        assert (bus.measures()["bus_published_total"], bus.measures()["bus_received_total"]) == (1, 1)


async def test_the_loss_of_either_connection_is_told_and_its_return_when_both_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.bus")

    def logged() -> list[str]:
        said = [record.message for record in caplog.records]
        caplog.clear()
        return [text.removeprefix(f"{bus.url}: Redis is ").partition(":")[0] for text in said]

    async with ends() as (server, bus):
        assert logged() == []
        states, outages = list[bool](), 0

        def told(alive: bool) -> None:
            assert bus.alive is alive
            states.append(alive)
            assert bus.measures()["bus_outages_total"] == outages + states.count(False)
            server.changed.set()

        await bus.subscribe("t", print)
        await bus.publish("t", b"m")
        bus.on_state = told
        for command in ("SUBSCRIBE", "PUBLISH"):
            server.over(command).cut()
            await server.until(lambda: bus.alive and states)
            assert states == [False, True]
            assert logged() == ["lost, coming back", "back"]
            states.clear()
            outages += 1
            await bus.publish("t", b"m")
        # both at once: it is back when both are
        server.replies["SUBSCRIBE"] = None
        server.over("SUBSCRIBE").cut()
        await server.until(lambda: len(server.sent("SUBSCRIBE")) == 3)
        lines = list[bool]()

        def connection(alive: bool, why: str) -> None:
            lines.append(alive)
            server.changed.set()

        bus._connection.states.append(connection)
        server.over("PUBLISH").cut()
        await server.until(lambda: lines and lines[-1])
        assert states == [False]
        assert set(logged()) == {"lost, coming back"}
        server.replies["SUBSCRIBE"] = lambda words: bulk(["subscribe", words[1], 1])
        server.over("SUBSCRIBE").cut()
        await server.until(lambda: bus.alive)
        assert states == [False, True]
        assert logged()[-1] == "back"


async def test_the_end_of_a_bus_is_that_of_its_connections() -> None:
    async with ends() as (server, bus):
        states = list[bool]()
        bus.on_state = states.append
        assert len(server.links) == 2
        await bus.close()
        await server.until(lambda: not server.links)
        assert (states, bus.alive) == ([], False)


async def test_a_bus_that_does_not_get_all_its_connections_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted() as server:

        async def denied(connection: object) -> None:
            raise BusLost("no more connections")

        monkeypatch.setattr("dragoman.engines.redis.connection.PubSubConnection.open", denied)
        with pytest.raises(BusLost, match="no more connections"):
            await open_bus(server.url)
        await server.until(lambda: not server.links)
