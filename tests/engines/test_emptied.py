"""A bus whose engine comes back empty, or loses what the bus has made there: it is made again, the log says so, and
until then the bus counts as lost, for `/ready` and for everybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiormq
import pytest
from nats.aio.client import Client
from redis.asyncio import Redis

from dragoman import serve
from dragoman.bus import Bus, BusLost, open_bus
from dragoman.bus.hub import open_hub
from dragoman.engines.amqp import bus as amqp_bus
from dragoman.mcp.protocol.revisions import R2025_11
from tests.bus import table
from tests.mcp.http_wire import ME, body
from tests.mcp.replicas import ring, text

from .brokers import Engine
from .wires import calculator

Loss = Callable[[], Awaitable[None]]


async def flushed(redis: Engine) -> None:
    async with Redis.from_url(redis.url) as raw:
        await raw.flushall()


def without(*streams: str) -> Callable[[Engine], Awaitable[None]]:
    async def lost(nats: Engine) -> None:
        client = Client()
        await client.connect(nats.url)
        for stream in streams:
            answer = await client.request(f"$JS.API.STREAM.DELETE.{stream}", b"", timeout=5)
            assert json.loads(answer.data)["success"]
        await client.close()

    return lost


def deleted(what: str) -> Callable[[Engine], Awaitable[None]]:
    async def lost(rabbitmq: Engine) -> None:
        connection = await aiormq.connect(rabbitmq.url)
        channel = await connection.channel()
        if what == "exchange":
            await channel.exchange_delete("dragoman.bus")
        await connection.close()

    return lost


async def emptied(engine: Engine) -> None:
    await engine.empty()


LOSSES: dict[str, tuple[str, Callable[[Engine], Awaitable[None]]]] = {
    "redis flushed": ("redis", flushed),
    "redis emptied": ("redis", emptied),
    "nats emptied": ("nats", emptied),
    "nats without its logs": ("nats", without("dragoman-logs")),
    "nats without its bucket": ("nats", without("KV_dragoman")),
    "nats without both": ("nats", without("dragoman-logs", "KV_dragoman")),
    "rabbitmq without the exchange": ("rabbitmq", deleted("exchange")),
    "rabbitmq emptied": ("rabbitmq", emptied),
}


@pytest.fixture(params=[*LOSSES, "unix emptied"])
async def lost(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Loss]]:
    """The URL of a bus, and what makes its engine lose what it had."""
    if request.param == "unix emptied":
        hubs = [await open_hub(str(tmp_path / "bus"))]

        async def again() -> None:
            await hubs.pop().close()
            hubs.append(await open_hub(str(tmp_path / "bus")))

        yield f"unix:{tmp_path}/bus", again
        await hubs[0].close()
        return
    which, loss = LOSSES[request.param]
    engine: Engine = request.getfixturevalue(which)
    engine.control()
    yield engine.url, lambda: loss(engine)


async def test_a_bus(lost: tuple[str, Loss], monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come and records are kept again, at every end, whether or not it does something itself meanwhile."""
    monkeypatch.setattr(amqp_bus, "LOOK", 0.2)
    url, lose = lost
    async with table.ends(lambda: open_bus(url), 2) as (one, other):
        topic, heard = table.fresh("topic"), asyncio.Queue[bytes]()
        await other.subscribe(topic, heard.put_nowait)
        for bus in (one, other):
            if bus.store is not None:
                await bus.store.append("log", b"before", ttl=table.LONG)
                await bus.store.put("key", b"before", ttl=table.LONG)
        await lose()

        async def works(bus: Bus) -> bool:
            try:
                if bus.store is not None:
                    await bus.store.put("key", b"after", ttl=table.LONG)
                    await bus.store.append("log", b"after", ttl=table.LONG)
                    await bus.store.delete("key")
            except BusLost:
                return False
            return bus.alive

        for bus in (one, other):
            await table.until(partial(works, bus))

        async def told() -> bool:
            try:
                await one.publish(topic, b"after")
                async with asyncio.timeout(0.2):
                    return await heard.get() == b"after"
            except (BusLost, TimeoutError):
                return False

        await table.until(told)
        if one.store is not None:
            await one.store.delete("log")


async def test_what_nats_has_lost_is_told(nats: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """`/ready` says it until the stream is there again."""
    nats.control()
    async with serve(calculator(), urls="http://127.0.0.1:0", bus=nats.url) as serving:
        assert serving.bus is not None
        assert serving.bus.store is not None
        states: list[tuple[bool, str]] = []
        serving.bus.on_state = lambda alive: states.append((alive, serving._shared.unready()))
        await without("dragoman-logs")(nats)
        with pytest.raises(BusLost):
            await serving.bus.store.read("log")
        await table.until(lambda: _len(states, 2))
        assert states == [(False, "the bus is gone"), (True, "")]
        assert await serving.bus.store.read("log") == []
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any("is lost, coming back: the stream dragoman-logs is gone" in message for message in told)
    assert any("were made again" in message for message in told)


async def _len(found: list[Any], count: int) -> bool:
    return len(found) >= count


@pytest.mark.parametrize("which", [name for name in LOSSES if not name.startswith("rabbitmq")])
async def test_sessions_begin_anew(which: str, request: pytest.FixtureRequest) -> None:
    """A session of before is 404 or goes on; a new one works at every replica, and hears of changes."""
    name, loss = LOSSES[which]
    engine: Engine = request.getfixturevalue(name)
    engine.control()
    async with ring(2, join=lambda: open_bus(engine.url)) as two:
        before = await two.begin(R2025_11)
        two.servers[0].remove_tool("marked")
        await loss(engine)

        async def goes_on() -> bool:
            """As for a client: what is 503 is tried again."""
            answers = [(await two.at(number, before).post(body("ping"))).status for number in (0, 1)]
            answers += [(await place.ask(body("initialize", first, 0))).status for place in two.places]
            return all(answer in (200, 404) for answer in answers)

        first = {"protocolVersion": R2025_11.date, "capabilities": {}, "clientInfo": ME}
        await table.until(goes_on)
        try:
            sitting = await two.begin(R2025_11)
        except AssertionError:  # a replica notices only now that a bucket is gone: a 503, after which it goes on
            await table.until(goes_on)
            sitting = await two.begin(R2025_11)
        for number in (0, 1):
            found = await two.at(number, sitting).post(sitting.tool("add", number, a=number, b=1))
            assert text(json.loads(found.body)) == str(number + 1)
        async with two.at(1, sitting).get() as home:
            await home.next()
            two.servers[0].remove_tool("add")
            assert (await home.message())["method"] == "notifications/tools/list_changed"
