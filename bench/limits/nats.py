"""The bare library doing what `nats://` does: `request` and a queue group that answers; with `?stream=` a work queue on
JetStream, a confirmed publish, an answer to the caller's inbox, an acknowledgement after it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from nats import connect, errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.brokers import obey, stay


def answer(body: bytes) -> bytes:
    """What the service does."""
    request = json.loads(body)
    minuend, subtrahend = request["params"]
    return json.dumps({"jsonrpc": "2.0", "result": minuend - subtrahend, "id": request["id"]}).encode()


def question(number: int) -> bytes:
    """A call."""
    return json.dumps({"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": number}).encode()


async def core(client: Client, part: str, subject: str) -> None:
    """At most once."""
    if part == "worker":

        async def came(message: Msg) -> None:
            await client.publish(message.reply, answer(message.data))

        await client.subscribe(subject, "workers", cb=came)
        await stay()
        return
    count = 0

    async def call() -> object:
        nonlocal count
        count += 1
        reply = await client.request(subject, question(count), timeout=30)
        return json.loads(reply.data)["result"]

    await obey(call)


async def queue(client: Client, part: str, subject: str, stream: str) -> None:
    """At least once."""
    stage = client.jetstream()
    if part == "worker":
        await stage.add_stream(name=stream, subjects=[subject], retention="workqueue")
        taken = await stage.pull_subscribe(subject, durable="workers", stream=stream)

        async def work() -> None:
            while True:
                with suppress(errors.TimeoutError):
                    for message in await taken.fetch(64, timeout=5):
                        headers = message.headers or {}
                        await client.publish(headers["to"], answer(message.data))
                        await message.ack()

        task = asyncio.create_task(work())
        await stay()
        task.cancel()
        await asyncio.wait([task])
        return
    box, count = client.new_inbox(), 0
    waiting: dict[str, asyncio.Future[bytes]] = {}

    async def came(message: Msg) -> None:
        waiting.pop(message.subject).set_result(message.data)

    await client.subscribe(f"{box}.*", cb=came)

    async def call() -> object:
        nonlocal count
        count += 1
        to = f"{box}.{count}"
        reply = waiting[to] = asyncio.get_running_loop().create_future()
        await stage.publish(subject, question(count), headers={"to": to, "Nats-Msg-Id": to})
        return json.loads(await reply)["result"]

    await obey(call)


async def main(part: str, url: str) -> None:
    """Serve or call until end of file."""
    where = urlsplit(url)
    subject, query = where.path.strip("/"), parse_qs(where.query)
    client = await connect(f"nats://{where.netloc}")
    if "stream" in query:
        await queue(client, part, subject, query["stream"][0])
    else:
        await core(client, part, subject)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
