"""The bare library doing what `nats://` does: `request` and a queue group that answers; with `?stream=` a work queue on
JetStream, a confirmed publish, an answer to the caller's inbox, an acknowledgement after it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from nats import connect, errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.worker import Calls, answer, call_broker, question, stay


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[tuple[Client, str, str]]:
    """A client, the subject, and the stream where there is one."""
    where = urlsplit(url)
    client = await connect(f"nats://{where.netloc}")
    yield client, where.path.strip("/"), parse_qs(where.query).get("stream", [""])[0]
    await client.close()


async def worker(url: str) -> None:
    async with _open(url) as (client, subject, stream):
        if not stream:

            async def came(message: Msg) -> None:
                await client.publish(message.reply, answer(message.data))

            await client.subscribe(subject, "workers", cb=came)
            await stay()
            return
        stage = client.jetstream()
        await stage.add_stream(name=stream, subjects=[subject], retention="workqueue")
        taken = await stage.pull_subscribe(subject, durable="workers", stream=stream)

        async def work() -> None:
            while True:
                with suppress(errors.TimeoutError):
                    for message in await taken.fetch(64, timeout=5):
                        await client.publish((message.headers or {})["to"], answer(message.data))
                        await message.ack()

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work())
            await stay()
            task.cancel()


async def caller(url: str) -> None:
    async with _open(url) as (client, subject, stream):
        calls = Calls()
        if not stream:

            async def call() -> object:
                calls.count += 1
                reply = await client.request(subject, question(calls.count), timeout=30)
                return json.loads(reply.data)["result"]

            await call_broker(call)
            return
        box, stage = client.new_inbox(), client.jetstream()

        async def came(message: Msg) -> None:
            calls.came(message.subject.rpartition(".")[2], message.data)

        async def send(id: str, body: bytes) -> None:
            to = f"{box}.{id}"
            await stage.publish(subject, body, headers={"to": to, "Nats-Msg-Id": to})

        await client.subscribe(f"{box}.*", cb=came)
        await calls.measure(send)
