"""Records of an engine that others wrote where a bus keeps its own, in a form that it does not have: a log with such
ones is read without them, and goes on."""

from __future__ import annotations

from typing import Any

import pytest
from nats.aio.client import Client
from redis.asyncio import Redis

from dragoman.bus import open_bus
from dragoman.engines.nats.bus import token
from tests.bus import table
from tests.engines.brokers import Engine

REDIS: list[tuple[Any, ...]] = [
    ("XADD", "{key}", "*", "head", "1"),
    ("XADD", "{key}", "*", "b", "x", "m", "1"),
    ("XADD", "{key}", "*", "m", "1", "b", "1"),
    ("SET", "{key}", "text"),
    ("LPUSH", "{key}", "text"),
    ("HSET", "{key}", "b", "m"),
]


@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("command", REDIS, ids=lambda one: " ".join(one))
async def test_redis(redis: Engine, command: tuple[str, ...], begun: bool) -> None:
    async with (
        table.ends(lambda: open_bus(redis.url), 2) as (one, other),
        Redis.from_url(redis.url) as client,
    ):
        raw: Any = client
        assert one.store is not None
        assert other.store is not None
        log = table.fresh("log")
        if begun and command[0] == "XADD":
            assert await one.store.append(log, b"1", ttl=table.LONG) == 1
        await raw.execute_command(*(word.format(key=f"dragoman:{log}") for word in command))
        for _, message in await other.store.read(log):
            assert message in (b"1",)
        number = await one.store.append(log, b"2", ttl=table.LONG)
        assert (await other.store.read(log))[-1] == (number, b"2")
        assert await other.store.append(log, b"3", ttl=table.LONG) == number + 1
        assert await one.store.read(log, number) == [(number + 1, b"3")]
        assert await one.store.delete(log)


HEADERS: list[dict[str, str] | None] = [
    None,
    {"Number": "1"},
    {"Number": "x", "Before": "0", "First": "1", "Origin": "0"},
    {"Number": "1", "Before": "0", "First": "1", "Origin": ""},
    {"Expires": "soon"},
]


@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("headers", HEADERS, ids=str)
async def test_nats(nats: Engine, headers: dict[str, str] | None, begun: bool) -> None:
    client = Client()
    await client.connect(nats.url)
    async with table.ends(lambda: open_bus(nats.url), 2) as (one, other):
        assert one.store is not None
        assert other.store is not None
        log, key = table.fresh("log"), table.fresh("key")
        if begun:
            assert await one.store.append(log, b"1", ttl=table.LONG) == 1
        for subject in (f"dragoman.logs.{token(log)}", f"$KV.dragoman.{token(key)}"):
            await client.request(subject, b"strange", headers=headers, timeout=5)
        assert await other.store.read(log) == []
        assert await other.store.touch(log, table.LONG) is False
        number = await one.store.append(log, b"2", ttl=table.LONG)
        assert await other.store.read(log) == [(number, b"2")]
        assert await other.store.append(log, b"3", ttl=table.LONG) == number + 1
        await client.request(f"dragoman.logs.{token(log)}", b"strange", headers=headers, timeout=5)
        assert await one.store.get(key) == b"strange"
        for name in (log, key):
            await one.store.delete(name)
    await client.close()
