# mypy: ignore-errors
"""pjrpc: in process (no argument), or on aiohttp (`PORT`)."""

from __future__ import annotations

import sys

import pjrpc.server

from bench.worker import BATCH, SINGLE, offer

methods = pjrpc.server.MethodRegistry()


def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


async def subtract_async(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


def in_process() -> None:
    methods.add_method(subtract, "subtract")
    dispatcher = pjrpc.server.Dispatcher()
    dispatcher.add_methods(methods)

    def answer(raw: bytes) -> bytes:
        text, _codes = dispatcher.dispatch(raw.decode(), context=None)
        return text.encode()

    offer({"single": lambda: answer(SINGLE), "batch": lambda: answer(BATCH)})


def on_aiohttp(port: int) -> None:
    from aiohttp import web
    from pjrpc.server.integration.aiohttp import Application

    methods.add_method(subtract_async, "subtract")
    app = Application("/")
    app.add_methods(methods)
    web.run_app(app.http_app, host="127.0.0.1", port=port, print=None, access_log=None, backlog=1024)


if __name__ == "__main__":
    on_aiohttp(int(sys.argv[1])) if len(sys.argv) > 1 else in_process()
