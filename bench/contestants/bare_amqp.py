# mypy: ignore-errors
"""The bare library doing what `amqp://` does, with aio-pika: a quorum queue for requests, a durable one for a caller's
answers, everything persistent and confirmed, requests mandatory, and a request acknowledged when RabbitMQ has confirmed
its answer. It runs in an environment of its own: what we use is aio-pika's lower half alone."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from aio_pika import DeliveryMode, Message, connect

from bench.worker import Calls, answer, stay


@asynccontextmanager
async def _open(url: str):
    """A channel, and the name of the queue."""
    where = urlsplit(url)
    async with await connect(f"amqp://{where.netloc}/") as connection:
        yield await connection.channel(on_return_raises=True), where.path.strip("/")


def _letter(body: bytes, id: str, reply_to: str | None = None) -> Message:
    """A message that outlives the broker."""
    return Message(
        body,
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=id,
        correlation_id=id,
        reply_to=reply_to,
    )


async def worker(url: str) -> None:
    async with _open(url) as (channel, name):
        dead = await channel.declare_queue(f"{name}.dead", durable=True, arguments={"x-queue-type": "quorum"})
        arguments = {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead.name,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        queue = await channel.declare_queue(name, durable=True, arguments=arguments)
        await channel.set_qos(256)

        async def take(message) -> None:
            letter = _letter(answer(message.body), message.correlation_id)
            await channel.default_exchange.publish(letter, message.reply_to, mandatory=False)
            await message.ack()

        await queue.consume(take)
        await stay()


async def caller(url: str) -> None:
    async with _open(url) as (channel, name):
        calls, arguments = Calls(), {"x-expires": 600_000}
        box = await channel.declare_queue(f"{name}.answers.{uuid.uuid4().hex}", durable=True, arguments=arguments)

        async def take(message) -> None:
            calls.came(message.correlation_id, message.body)
            await message.ack()

        async def send(id: str, body: bytes) -> None:
            await channel.default_exchange.publish(_letter(body, id, box.name), name, mandatory=True)

        await box.consume(take)
        await calls.measure(send)
