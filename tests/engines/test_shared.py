"""A wire and a bus at the same place go over one connection."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from dragoman import connect, serve
from dragoman.bus import Bus, open_bus
from dragoman.engines.amqp.connection import AmqpConnection
from dragoman.net.urls import parse
from tests.ports import free_port

from .brokers import Engine, name
from .brokers import engine as started
from .wires import PATIENCE, calculator


async def works(bus: Bus) -> None:
    """What one tells, the other side of the same bus hears; and the store keeps."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    topic = name("topic")
    subscription = await bus.subscribe(topic, heard.put_nowait)
    await bus.publish(topic, b"news")
    async with asyncio.timeout(PATIENCE):
        assert await heard.get() == b"news"
    await subscription.close()
    assert bus.store is not None
    await bus.store.put(topic, b"value", ttl=60)
    assert await bus.store.get(topic) == b"value"


async def count_nats(monitor: int) -> int:
    def ask() -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/connz", timeout=5) as answer:
            return json.load(answer)

    return int((await asyncio.to_thread(ask))["num_connections"])


async def test_nats() -> None:
    monitor = free_port()

    def recipe(program: str, folder: Any, port: int) -> tuple[list[str], dict[str, str], str]:
        return [program, "-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), "-js", "-sd", str(folder)], {}, ""

    with started("nats", "nats-server", recipe, "/usr/sbin/nats-server") as one:
        one.control()
        async with serve(calculator(), urls=f"{one.url}/{name()}", bus=one.url) as serving:
            assert serving.bus is not None
            assert await count_nats(monitor) == 1
            await works(serving.bus)
            async with connect(serving.urls[0], timeout=PATIENCE) as peer:
                assert await peer.call("add", [1, 2]) == 3
                assert await count_nats(monitor) == 2  # a caller is a wire of its own


async def names(redis: Engine, raw: Redis) -> list[int]:
    found: Any = await raw.client_list()
    return [int(one["id"]) for one in found]


async def test_redis(redis: Engine) -> None:
    """Commands go over one, what is published over another; the blocking read of the worker has its own."""
    async with Redis.from_url(redis.url, protocol=2) as raw:
        before = len(await names(redis, raw))
        async with serve(calculator(), urls=f"{redis.url}/{name()}", bus=redis.url) as serving:
            assert serving.bus is not None
            assert len(await names(redis, raw)) == before + 3
            await works(serving.bus)
            async with connect(serving.urls[0], timeout=PATIENCE) as peer:
                assert await peer.call("add", [1, 2]) == 3


@pytest.mark.parametrize("which", ["nats", "redis"])
@pytest.mark.parametrize("first", ["wire", "bus"])
async def test_one_may_leave_before_the_other(which: str, first: str, request: pytest.FixtureRequest) -> None:
    """And an outage is told to both."""
    engine: Engine = request.getfixturevalue(which)
    engine.control()
    url = f"{engine.url}/{name()}"
    bus = await open_bus(engine.url)
    serving = serve(calculator(), urls=url)
    await serving.__aenter__()
    if first == "bus":
        await bus.close()
    else:
        await serving.close()
        await works(bus)
        serving = serve(calculator(), urls=url)
        await serving.__aenter__()
        states: asyncio.Queue[bool] = asyncio.Queue()
        bus.on_state = states.put_nowait
        await engine.restart()
        async with asyncio.timeout(PATIENCE):
            assert (await states.get(), await states.get()) == (False, True)
        await works(bus)
    async with connect(url, timeout=PATIENCE) as peer, asyncio.timeout(PATIENCE):
        while True:
            try:
                assert await peer.call("add", [1, 2]) == 3
                break
            except ConnectionError:  # the worker is on its way back
                await asyncio.sleep(0.02)
    await serving.close()
    await bus.close()


async def test_rabbitmq(rabbitmq: Engine) -> None:
    """A channel each on one connection; each may come back, or leave, without the other."""
    rabbitmq.control()
    url = f"{rabbitmq.url}/{name()}"
    bus = await open_bus(rabbitmq.url)
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe("topic", heard.put_nowait)

    async def told() -> None:
        await bus.publish("topic", b"news")
        async with asyncio.timeout(PATIENCE):
            assert await heard.get() == b"news"

    shared = cast(Any, bus)._connection._share._shared
    async with serve(calculator(), urls=url):
        assert shared.roles == {"wire", "bus"}
        async with connect(url, timeout=PATIENCE) as peer:
            assert await peer.call("add", [1, 2]) == 3
            await told()
    assert shared.roles == {"bus"}
    await told()
    async with serve(calculator(), urls=url):
        assert shared.roles == {"wire", "bus"}
        await bus.close()
        async with connect(url, timeout=PATIENCE) as peer:
            assert await peer.call("add", [1, 2]) == 3
    assert not shared.roles


async def test_a_channel_of_rabbitmq_that_is_lost_is_made_anew_on_the_same_connection(rabbitmq: Engine) -> None:
    where = parse(rabbitmq.url)
    wire = AmqpConnection(where, vhost="", role="wire")
    bus = AmqpConnection(where, vhost="", role="bus")
    await wire.begin()
    await bus.begin()
    there = await wire._share.connection.get()
    assert await bus._share.connection.get() is there
    states: asyncio.Queue[bool] = asyncio.Queue()
    wire.keeper.states.append(lambda alive, why: states.put_nowait(alive))
    await wire.queue("", own=True)
    with pytest.raises(ConnectionError):
        await wire.queue(name(), {"x-queue-type": "nonsense"})
    async with asyncio.timeout(PATIENCE):
        assert (await states.get(), await states.get()) == (False, True)
    assert bus.alive
    assert await wire._share.connection.get() is there
    await bus.queue("", own=True)
    await wire.close()
    assert there.is_opened
    await bus.close()
    assert there.is_closed
