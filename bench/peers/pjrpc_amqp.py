# mypy: ignore-errors
"""pjrpc over RabbitMQ by its aio-pika integration, with its defaults: `[results] worker URL`, `[results] caller URL`.
`results`: the caller takes its answers from one queue, not from a new one for each call."""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit

import pjrpc.server
from pjrpc.client.backend.aio_pika import Client
from pjrpc.server.integration.aio_pika import Executor
from yarl import URL

from bench.brokers import obey, stay

methods = pjrpc.server.MethodRegistry()


async def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


async def work(broker: URL, name: str) -> None:
    methods.add_method(subtract, "subtract")
    executor = Executor(broker, request_queue_name=name)
    executor.dispatcher.add_methods(methods)
    await executor.start()
    await stay()
    await executor.shutdown()


async def call(broker: URL, name: str, results: str | None) -> None:
    own = {"exclusive": True, "auto_delete": True} if results else None
    async with Client(broker, routing_key=name, result_queue_name=results, result_queue_args=own) as client:
        await obey(lambda: client.proxy.subtract(42, 23))


async def main(part: str, url: str, *, results: bool) -> None:
    where = urlsplit(url)
    broker, name = URL(f"amqp://{where.netloc}/"), where.path.strip("/")
    if part == "worker":
        await work(broker, name)
    else:
        await call(broker, name, f"{name}.results" if results else None)


if __name__ == "__main__":
    *results, part, url = sys.argv[1:]
    asyncio.run(main(part, url, results=bool(results)))
