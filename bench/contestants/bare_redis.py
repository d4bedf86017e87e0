"""The bare library doing what `redis://` does: a request stream with a group, an answer stream per caller, XACK and
XDEL after the answer. The worker takes 64 entries a read and sends what it owes for them in one pipeline."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench.worker import Calls, answer, stay


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[tuple[Redis, str]]:
    """A client and the queue, whose group is there."""
    where = urlsplit(url)
    queue = where.path.strip("/")
    async with Redis(host=where.hostname or "", port=where.port or 0, protocol=2) as redis:
        try:
            await redis.xgroup_create(queue, "workers", "0", mkstream=True)
        except ResponseError as why:
            if "BUSYGROUP" not in str(why):
                raise
        yield redis, queue


async def worker(url: str) -> None:
    async with _open(url) as (redis, queue), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_work(redis, queue))
        await stay()
        task.cancel()


async def _work(redis: Redis, queue: str) -> None:
    while True:
        found: Any = await redis.xreadgroup("workers", "one", {queue: ">"}, count=64, block=2_000)
        if not found:
            continue
        async with redis.pipeline(transaction=False) as pipe:
            for entry, fields in found[0][1]:
                pipe.xadd(fields[b"to"], {"id": fields[b"id"], "body": answer(fields[b"body"])})
                pipe.xack(queue, "workers", entry)
                pipe.xdel(queue, entry)
            await pipe.execute()


async def caller(url: str) -> None:
    """Calls over one pool, answers over one read."""
    async with _open(url) as (redis, queue), asyncio.TaskGroup() as tasks:
        box, calls = f"{queue}:to:{uuid.uuid4().hex}", Calls()
        task = tasks.create_task(_collect(redis, box, calls))
        await calls.measure(lambda id, body: redis.xadd(queue, {"to": box, "id": id, "body": body}))
        task.cancel()


async def _collect(redis: Redis, box: str, calls: Calls) -> None:
    last: Any = "0"
    while True:
        found: Any = await redis.xread({box: last}, count=256, block=2_000)
        if found:
            entries = found[0][1]
            last = entries[-1][0]
            for _, fields in entries:
                calls.came(fields[b"id"].decode(), fields[b"body"])
            await redis.xdel(box, *(entry for entry, _ in entries))
