"""The bare library doing what `redis://` does: a request stream with a group, an answer stream per caller, XACK and
XDEL after the answer. The worker takes 64 entries a read and sends what it owes for them in one pipeline."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench.brokers import obey, stay


async def work(redis: Redis, queue: str) -> None:
    """Answer for ever."""
    while True:
        found: Any = await redis.xreadgroup("workers", "one", {queue: ">"}, count=64, block=2_000)
        if not found:
            continue
        async with redis.pipeline(transaction=False) as pipe:
            for entry, fields in found[0][1]:
                request = json.loads(fields[b"body"])
                minuend, subtrahend = request["params"]
                body = json.dumps({"jsonrpc": "2.0", "result": minuend - subtrahend, "id": request["id"]})
                pipe.xadd(fields[b"to"], {"id": fields[b"id"], "body": body})
                pipe.xack(queue, "workers", entry)
                pipe.xdel(queue, entry)
            await pipe.execute()


class Caller:
    """Calls over one pool, answers over one read."""

    def __init__(self, redis: Redis, queue: str) -> None:
        self.redis, self.queue, self.box = redis, queue, f"{queue}:to:{uuid.uuid4().hex}"
        self.count = 0
        self.waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def call(self) -> object:
        """One call."""
        self.count += 1
        id = b"%d" % self.count
        answer = self.waiting[id] = asyncio.get_running_loop().create_future()
        request = {"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": self.count}
        await self.redis.xadd(self.queue, {"to": self.box, "id": id, "body": json.dumps(request)})
        return json.loads(await answer)["result"]

    async def collect(self) -> None:
        """Hand out the answers."""
        last: Any = "0"
        while True:
            found: Any = await self.redis.xread({self.box: last}, count=256, block=2_000)
            if found:
                entries = found[0][1]
                last = entries[-1][0]
                for _, fields in entries:
                    self.waiting.pop(fields[b"id"]).set_result(fields[b"body"])
                await self.redis.xdel(self.box, *(entry for entry, _ in entries))


async def main(part: str, url: str) -> None:
    """Serve or call until end of file."""
    where = urlsplit(url)
    queue = where.path.strip("/")
    async with Redis(host=where.hostname or "", port=where.port or 0, protocol=2) as redis:
        try:
            await redis.xgroup_create(queue, "workers", "0", mkstream=True)
        except ResponseError as why:
            if "BUSYGROUP" not in str(why):
                raise
        caller = Caller(redis, queue)
        task = asyncio.create_task(work(redis, queue) if part == "worker" else caller.collect())
        await (stay() if part == "worker" else obey(caller.call))
        task.cancel()
        await asyncio.wait([task])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
