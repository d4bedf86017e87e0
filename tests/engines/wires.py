"""The ways over a broker, as rows: what the tests of all of them (`test_every_broker*`) need to know of each.

A new broker is a new row; what only one broker does stands in a file of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import nats
import pytest
from msgspec import Struct
from redis.asyncio import Redis

from dragoman import Peer, Service, connect, serve
from dragoman.channel import Options
from dragoman.engines.amqp.wire import AmqpAdapter
from dragoman.engines.mqtt.wire import MqttAdapter
from dragoman.engines.nats.wire import adapter_at as nats_adapter
from dragoman.engines.redis.wire import adapter_at as redis_adapter
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.net.urls import Url, parse
from dragoman.transports.broker import memory
from dragoman.transports.broker.contract import BrokerAdapter, BrokerMessage
from dragoman.transports.broker.memory import MemoryAdapter
from tests.calculator import calculator as bare

from .brokers import Engine, name

PATIENCE = 60.0
SUBTRACT = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
YOUNG = 5.0
"""Seconds after which RabbitMQ has a new quorum queue on disk: one that is killed before has no leader ever after. 0.7
are always too few, 1.0 enough on a quiet machine, and 1.5 were too few once on a busy one."""

Dead: TypeAlias = Callable[[Engine, str, int], Awaitable[list[bytes]]]
"""Engine, URL, count -> the bodies of what was set aside, once there are so many."""


class Wire(Struct, frozen=True):
    """One way over a broker."""

    name: str
    engine: str
    """The fixture."""
    where: str
    """Path and query; {name} and {work} are new each time."""
    quick: str = ""
    """What makes it notice early that a worker, or the broker, is gone."""
    keeps: bool = True
    """Requests wait in the broker for a worker that is not there."""
    durable: bool = True
    """Calls that are out outlive a restart of the broker."""
    says_nobody: bool = True
    """A call that no worker takes fails immediately."""
    notes_confirmed: bool = True
    """So does a notification."""
    longest: int = 3_000_000
    """A long message that it takes."""
    hard: bool = True
    """What was confirmed outlives even a kill."""
    restarts: int = 5
    ends: frozenset[str] = frozenset({"answered"})
    """How calls may end while the broker restarts."""
    dead: Dead | None = None

    def url(self, engine: Engine) -> str:
        """An address of its own."""
        slash = "" if engine.url.endswith(":") else "/"
        return f"{engine.url}{slash}{self.where.format(name=name(), work=name('work'))}"


def plus(url: str, *more: str) -> str:
    """A URL with something more in its query."""
    said = "&".join(part for part in more if part)
    return f"{url}{'&' if '?' in url else '?'}{said}" if said else url


def address(url: str) -> str:
    """The name of the service that is called."""
    return urlsplit(url).path.rpartition("/")[2]


def adapter_at(url: str, *, serving: bool = False) -> BrokerAdapter:
    """The broker's own face, not open yet, for messages that no peer of ours would send."""
    where, options = parse(url), Options()
    makers: dict[str, Callable[[Url, Options], BrokerAdapter]] = {
        "amqp": AmqpAdapter,
        "nats": nats_adapter,
        "redis": redis_adapter,
    }
    if where.scheme == "memory+broker":
        return MemoryAdapter(where)
    if where.scheme == "mqtt":
        return MqttAdapter(where, options, serving=serving)
    return makers[where.scheme](where, options)


@asynccontextmanager
async def adapter(url: str, *, serving: bool = False) -> AsyncIterator[BrokerAdapter]:
    """An open one, for the length of the block."""
    one = adapter_at(url, serving=serving)
    await one.open()
    try:
        yield one
    finally:
        await one.close()


def calculator() -> Service:
    """The calculator, with two methods of which one has an answer as long as one likes."""
    api = bare()

    @api.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @api.method(inline=True)
    def repeat(text: str, times: int) -> str:
        return text * times

    return api


async def until(true: Callable[[], bool]) -> None:
    """Let the loop run until it is so; for what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_answered(peer: Peer) -> None:
    """Call until there is an answer: it is Unroutable until the worker has made its queue again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                assert await peer.call("add", [1, 2]) == 3
                return
            except ConnectionError:
                await asyncio.sleep(0.05)


# -- what was set aside ---------------------------------------------------------------------------


async def _dead_in_rabbitmq(engine: Engine, url: str, count: int) -> list[bytes]:
    found: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    async with adapter(f"{engine.url}/{address(url)}.dead?declare=no") as one:
        await one.work(found.put_nowait, count)
        async with asyncio.timeout(PATIENCE):
            messages = [await found.get() for _ in range(count)]
        for message in messages:
            message.settle("retry")
    return [message.body for message in messages]


async def _dead_in_nats(engine: Engine, url: str, count: int) -> list[bytes]:
    client = await nats.connect(engine.url)
    stream = f"{parse_qs(urlsplit(url).query)['stream'][0]}-dead"
    bodies: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        while len(bodies) < count:
            try:
                message = await client.jetstream().get_msg(stream, len(bodies) + 1)
                bodies.append(message.data or b"")
            except nats.js.errors.NotFoundError:
                await asyncio.sleep(0.02)
    await client.close()
    return bodies


async def _dead_in_redis(engine: Engine, url: str, count: int) -> list[bytes]:
    found: Any = []
    async with Redis.from_url(engine.url, protocol=2) as client, asyncio.timeout(PATIENCE):
        while len(found) < count:
            await asyncio.sleep(0.02)
            found = await client.xrange(f"{address(url)}:dead")
    return [fields[b"body"] for _, fields in found]


async def _dead_in_memory(engine: Engine, url: str, count: int) -> list[bytes]:
    queue = memory.broker().queues[address(url)]
    await until(lambda: len(queue.dead) >= count)
    return [message.body for message in queue.dead]


# -- the rows -------------------------------------------------------------------------------------

AMQP = Wire("amqp", "rabbitmq", "{name}", "heartbeat=2", restarts=4, dead=_dead_in_rabbitmq)
DIRECT = Wire("amqp direct", "rabbitmq", "{name}?reply=direct", durable=False, dead=_dead_in_rabbitmq)
MQTT = Wire(
    "mqtt 5",
    "mosquitto",
    "devices/{name}",
    "keepalive=1",
    keeps=False,
    hard=False,
    ends=frozenset({"answered", "CallTimeout", "Unroutable"}),
)
OLD = Wire(
    "mqtt 3.1.1", "mosquitto", "devices/{name}?v=3.1.1&group=workers", keeps=False, durable=False, says_nobody=False
)
NATS = Wire(
    "nats",
    "nats",
    "{name}",
    keeps=False,
    durable=False,
    notes_confirmed=False,
    longest=900_000,
    ends=frozenset({"answered", "Broken"}),
)
STREAM = Wire("nats stream", "nats", "{name}?stream={work}", "wait=2", longest=900_000, dead=_dead_in_nats)
REDIS = Wire("redis", "redis", "{name}", "idle=1", dead=_dead_in_redis)
MEMORY = Wire("memory", "memory", "{name}", dead=_dead_in_memory)
WIRES = (MEMORY, AMQP, DIRECT, MQTT, OLD, NATS, STREAM, REDIS)


def over(*wires: Wire) -> pytest.MarkDecorator:
    """The scene is for these: `wire` is one of them."""
    rows = [pytest.param(wire, id=wire.name, marks=pytest.mark.xdist_group(wire.engine)) for wire in wires]
    return pytest.mark.parametrize("wire", rows)


EVERY = over(*WIRES)
KEEPS = over(*(wire for wire in WIRES if wire.keeps))
"""Where requests wait in the broker."""
MAIN = over(MEMORY, AMQP, MQTT, NATS, STREAM, REDIS)
"""Each broker in the ways that differ when it is lost."""
REAL = over(AMQP, MQTT, NATS, STREAM, REDIS)
"""Those of them that have a socket, which can hang."""
DURABLE = over(MEMORY, AMQP, MQTT, STREAM, REDIS)


def jsonrpc(method: str, *params: object) -> bytes:
    """A request."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": 1}).encode()


async def too_large_is_refused(url: str, size: int, who: str) -> None:
    """Before it is sent, with the numbers; so is an answer; and what is shorter goes through."""
    async with serve(calculator(), urls=[url]), connect(url, timeout=PATIENCE) as peer:
        with pytest.raises(LocalError) as refused:
            await peer.call("repeat", ["x" * size, 1])
        numbers = re.match(rf"the message has (\d+) bytes; {who} takes (\d+) at ", str(refused.value))
        assert numbers is not None
        sent, takes = map(int, numbers.groups())
        assert sent > size > takes
        with pytest.raises(RpcError) as answered:
            await peer.call("repeat", ["x" * (size // 4), 4])
        assert answered.value.code == -32003
        assert answered.value.data["allowed"] == takes
        assert await peer.call("add", [1, 2]) == 3
