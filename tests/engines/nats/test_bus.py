"""`nats://` as a bus and, on JetStream, a store: the contract, and what a loss does."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from dragoman.bus import Bus, BusLost, Store, open_bus
from dragoman.engines.nats import connection
from dragoman.engines.nats.bus import NatsStore, token
from dragoman.jsonrpc.errors import LocalError
from tests.bus import table
from tests.engines.brokers import Engine, engine


@pytest.mark.parametrize("case", table.BUS + table.STORE, ids=table.name)
async def test_contract(case: table.Case, nats: Engine) -> None:
    await case(lambda: open_bus(nats.url))


async def test_what_it_is(nats: Engine) -> None:
    host, port = nats.address
    bus = await open_bus(f"nats://me:secret@{host}:{port}?prefix=p")
    assert isinstance(bus, Bus)
    assert isinstance(bus.store, Store)
    assert bus.url == f"nats://{host}:{port}"
    await bus.close()


async def test_prefixes_are_apart(nats: Engine) -> None:
    one, other = await open_bus(nats.url), await open_bus(f"{nats.url}?prefix=other")
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await other.subscribe("topic", heard.put_nowait)
    await one.publish("topic", b"1")
    await other.publish("topic", b"own")
    assert await table.take(heard, 1) == [b"own"]
    assert one.store is not None
    assert other.store is not None
    key = table.fresh("key")
    await one.store.put(key, b"1", ttl=table.LONG)
    assert await other.store.get(key) is None
    await one.store.delete(key)
    await one.close()
    await other.close()


def test_any_text_is_a_key() -> None:
    assert token("answer:4f-1/x.y*>é") == "answer=3A4f-1=2Fx=2Ey=2A=3E=C3=A9"
    assert token("a=b") != token("a=3Db")


async def test_a_log_and_a_value_are_not_the_same(nats: Engine) -> None:
    async with table.store(lambda: open_bus(nats.url)) as store:
        key = table.fresh("*.key >")
        await store.put(key, b"1", ttl=table.LONG)
        assert await store.read(key) == []
        assert await store.append(key, b"2", ttl=table.LONG) == 1
        assert await store.get(key) == b"1"
        assert await store.delete(key) is True
        assert await store.read(key) == [(1, b"2")]
        assert await store.delete(key) is True
        assert await store.delete(key) is False


async def test_ends_that_take_turns_at_one_log(nats: Engine) -> None:
    """Bounds hold, and numbers go on, whichever process appends."""
    async with table.ends(lambda: open_bus(nats.url), 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        log = table.fresh("log")
        for number in range(1, 201):
            store = one.store if number % 3 else other.store
            assert await store.append(log, b"%03d" % number, ttl=table.LONG, messages=50, size=90) == number
        assert await other.store.read(log) == [(n, b"%03d" % n) for n in range(171, 201)]
        assert await one.store.delete(log) is True
        assert await other.store.append(log, b"anew", ttl=table.LONG) == 1
        assert await one.store.append(log, b"more", ttl=table.LONG) == 2
        assert await other.store.read(log) == [(1, b"anew"), (2, b"more")]
        assert await one.store.append(log, b"alone", ttl=table.LONG, messages=1) == 3
        assert await other.store.delete(log) is True
        assert await other.store.append(log, b"anew", ttl=table.LONG) == 1
        assert await one.store.append(log, b"more", ttl=table.LONG) == 2  # it knew the former, and its bounds
        assert await other.store.read(log) == [(1, b"anew"), (2, b"more")]
        assert await one.store.delete(log) is True


async def test_what_is_over_is_swept(nats: Engine) -> None:
    """The disk does not fill with what is not asked for any more."""
    bus = await open_bus(f"{nats.url}?prefix={uuid.uuid4().hex}")
    store = bus.store
    assert isinstance(store, NatsStore)
    await store.put("short", b"1", ttl=0.05)
    await store.put("long", b"2", ttl=table.LONG)
    await store.append("log", b"3", ttl=0.05)

    async def gone() -> bool:
        return await store.get("short") is None and await store.read("log") == []

    await table.until(gone)
    assert await store._values.last("short") is not None
    await store.sweep()
    assert await store._values.last("short") is None
    assert await store._log_stream.last("log") is None
    assert await store.get("long") == b"2"
    await bus.close()


async def test_a_missing_far_end() -> None:
    with pytest.raises(BusLost, match=r"nats://127\.0\.0\.1:1 is away: connection refused"):
        await open_bus("nats://127.0.0.1:1")
    for tail in ("prefx=1", "prefix=a.b", "replicas=2"):
        with pytest.raises(LocalError, match=tail.partition("=")[0]):
            await open_bus(f"nats://127.0.0.1/?{tail}")


async def test_a_loss_and_a_return(nats: Engine, caplog: pytest.LogCaptureFixture) -> None:
    await table.a_loss_and_a_return(lambda: open_bus(nats.url), nats, caplog)


async def for_ever(bus: Bus) -> None:
    while True:
        await bus.publish("topic", b"")


async def test_a_server_that_hangs_is_noticed(nats: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    nats.control()
    monkeypatch.setattr(connection, "PATIENCE", 1.0)
    bus = await open_bus(nats.url)
    states: asyncio.Queue[bool] = asyncio.Queue()
    bus.on_state = states.put_nowait
    nats.freeze()
    try:
        async with asyncio.timeout(table.PATIENCE):
            with pytest.raises(BusLost):
                await for_ever(bus)
            assert await states.get() is False
    finally:
        nats.thaw()
    async with asyncio.timeout(table.PATIENCE):
        assert await states.get() is True
    await bus.close()


async def test_without_jetstream_there_is_no_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DRAGOMAN_TEST_NATS", raising=False)
    with engine("nats", "nats-server", _plain, "/usr/sbin/nats-server") as plain:
        bus = await open_bus(plain.url)
        assert bus.store is None
        assert "no JetStream" in caplog.text
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        await bus.subscribe("topic", heard.put_nowait)
        await bus.publish("topic", b"1")
        assert await table.take(heard, 1) == [b"1"]
        await bus.close()


def _plain(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
    return [program, "-a", "127.0.0.1", "-p", str(port)], {}, ""
