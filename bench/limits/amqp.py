# mypy: ignore-errors
"""The bare library doing what `amqp://` does, with aio-pika: a quorum queue for requests, a durable one for a caller's
answers, everything persistent and confirmed, requests mandatory, and a request acknowledged when RabbitMQ has confirmed
its answer. It runs in an environment of its own: what we use is aio-pika's lower half alone."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from urllib.parse import urlsplit

from aio_pika import DeliveryMode, Message, connect
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from bench.brokers import obey, stay

PREFETCH = 256
EXPIRES = 600_000


def letter(body: str, correlation: str, reply_to: str | None = None) -> Message:
    """A message that outlives the broker."""
    return Message(
        body.encode(),
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=correlation,
        correlation_id=correlation,
        reply_to=reply_to,
    )


async def work(channel: AbstractChannel, name: str) -> None:
    """Answer until end of file."""
    dead = await channel.declare_queue(f"{name}.dead", durable=True, arguments={"x-queue-type": "quorum"})
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead.name,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    queue = await channel.declare_queue(name, durable=True, arguments=arguments)
    await channel.set_qos(PREFETCH)

    async def take(message: AbstractIncomingMessage) -> None:
        request = json.loads(message.body)
        minuend, subtrahend = request["params"]
        body = json.dumps({"jsonrpc": "2.0", "result": minuend - subtrahend, "id": request["id"]})
        answer = letter(body, message.correlation_id)
        await channel.default_exchange.publish(answer, message.reply_to, mandatory=False)
        await message.ack()

    await queue.consume(take)
    await stay()


async def call(channel: AbstractChannel, name: str) -> None:
    """Call until end of file."""
    box = await channel.declare_queue(
        f"{name}.answers.{uuid.uuid4().hex}", durable=True, arguments={"x-expires": EXPIRES}
    )
    waiting: dict[str, asyncio.Future[bytes]] = {}
    count = 0

    async def take(message: AbstractIncomingMessage) -> None:
        waiting.pop(message.correlation_id).set_result(message.body)
        await message.ack()

    async def one() -> object:
        nonlocal count
        count += 1
        id = str(count)
        answer = waiting[id] = asyncio.get_running_loop().create_future()
        request = {"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": count}
        await channel.default_exchange.publish(letter(json.dumps(request), id, box.name), name, mandatory=True)
        return json.loads(await answer)["result"]

    await box.consume(take)
    await obey(one)


async def main(part: str, url: str) -> None:
    """Serve or call until end of file."""
    where = urlsplit(url)
    async with await connect(f"amqp://{where.netloc}/") as connection:
        channel = await connection.channel(on_return_raises=True)
        await (work if part == "worker" else call)(channel, where.path.strip("/"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
