"""`redis://` as a bus and a store: the contract, and what a loss does."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.bus import Bus, BusLost, Store, open_bus
from dragoman.jsonrpc.errors import LocalError
from tests.bus import table
from tests.engines.brokers import Engine


@pytest.mark.parametrize("case", table.BUS + table.STORE, ids=table.name)
async def test_contract(case: table.Case, redis: Engine) -> None:
    await case(lambda: open_bus(redis.url))


async def test_what_it_is(redis: Engine) -> None:
    host, port = redis.address
    bus = await open_bus(f"{redis.url.replace('://', '://default:@')}/2?prefix=p:")
    assert isinstance(bus, Bus)
    assert isinstance(bus.store, Store)
    assert bus.url == f"redis://{host}:{port}/2"
    await bus.close()


async def test_databases_and_prefixes_are_apart(redis: Engine) -> None:
    one, other, third = [await open_bus(redis.url + tail) for tail in ("/0", "/1", "/0?prefix=other:")]
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    for bus in (other, third):
        await bus.subscribe("topic", heard.put_nowait)
    await one.publish("topic", b"1")
    assert one.store is not None
    await one.store.put("key", b"1", ttl=table.LONG)
    for bus in (other, third):
        assert bus.store is not None
        assert await bus.store.get("key") is None
        await bus.publish("topic", b"own")
    assert await table.take(heard, 2) == [b"own", b"own"]
    await one.store.delete("key")
    for bus in (one, other, third):
        await bus.close()


async def test_a_log_and_a_value_are_not_the_same(redis: Engine) -> None:
    async with table.store(lambda: open_bus(redis.url)) as store:
        key = table.fresh("key")
        await store.put(key, b"1", ttl=table.LONG)
        assert await store.read(key) == []
        assert await store.append(key, b"2", ttl=table.LONG) == 1
        assert await store.get(key) is None
        await store.put(key, b"3", ttl=table.LONG)
        assert await store.get(key) == b"3"
        await store.delete(key)


async def test_a_missing_far_end() -> None:
    with pytest.raises(BusLost, match=r"redis://127\.0\.0\.1:1 is away"):
        await open_bus("redis://user:secret@127.0.0.1:1")
    with pytest.raises(LocalError, match="prefix"):
        await open_bus("redis://127.0.0.1/?prefx=1")
    with pytest.raises(LocalError, match="redis://host"):
        await open_bus("redis://")


async def test_a_wrong_password_is_not_shown(redis: Engine) -> None:
    host, port = redis.address
    with pytest.raises(BusLost) as caught:
        await open_bus(f"redis://somebody:secret-word@{host}:{port}")
    assert "secret-word" not in str(caught.value)


async def test_a_loss_and_a_return(redis: Engine, caplog: pytest.LogCaptureFixture) -> None:
    await table.a_loss_and_a_return(lambda: open_bus(redis.url), redis, caplog)


async def test_calls_in_flight_end_when_it_dies(redis: Engine) -> None:
    redis.control()
    bus = await open_bus(redis.url)
    assert bus.store is not None
    redis.freeze()
    calls = [asyncio.ensure_future(bus.store.get(table.fresh("key"))) for _ in range(50)]
    await asyncio.sleep(0)
    await redis.kill()
    async with asyncio.timeout(table.PATIENCE):
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(end) for end in ends} == {BusLost}
    await redis.start()
    await bus.close()
