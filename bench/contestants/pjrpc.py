# mypy: ignore-errors
"""pjrpc: in process, on aiohttp, and over RabbitMQ by its aio-pika integration with its defaults."""

from __future__ import annotations

from urllib.parse import urlsplit

import pjrpc.server

from bench.messages import BATCH, SINGLE
from bench.worker import call_broker, measure, stay


def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


async def subtract_async(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


def _methods(function):
    methods = pjrpc.server.MethodRegistry()
    methods.add_method(function, "subtract")
    return methods


def single(raw: bytes = SINGLE) -> None:
    dispatcher = pjrpc.server.Dispatcher()
    dispatcher.add_methods(_methods(subtract))
    measure(lambda: dispatcher.dispatch(raw.decode(), context=None)[0].encode())


def batch() -> None:
    single(BATCH)


def http(port: str) -> None:
    from aiohttp import web
    from pjrpc.server.integration.aiohttp import Application

    app = Application("/")
    app.add_methods(_methods(subtract_async))
    web.run_app(app.http_app, host="127.0.0.1", port=int(port), print=None, access_log=None, backlog=1024)


async def worker(url: str) -> None:
    from pjrpc.server.integration.aio_pika import Executor
    from yarl import URL

    where = urlsplit(url)
    executor = Executor(URL(f"amqp://{where.netloc}/"), request_queue_name=where.path.strip("/"))
    executor.dispatcher.add_methods(_methods(subtract_async))
    await executor.start()
    await stay()
    await executor.shutdown()


async def caller(url: str) -> None:
    """With `?results` it takes its answers from one queue, not from a new one for each call."""
    from pjrpc.client.backend.aio_pika import Client
    from yarl import URL

    where = urlsplit(url)
    name = where.path.strip("/")
    results = {"result_queue_name": f"{name}.results", "result_queue_args": {"exclusive": True, "auto_delete": True}}
    options = results if where.query == "results" else {}
    async with Client(URL(f"amqp://{where.netloc}/"), routing_key=name, **options) as client:
        await call_broker(lambda: client.proxy.subtract(42, 23))
