# mypy: ignore-errors
"""jsonrpcserver: in process (no argument), or on aiohttp as its documentation shows (`PORT`)."""

from __future__ import annotations

import sys

from jsonrpcserver import Success, async_dispatch, dispatch, method

from bench.worker import BATCH, SINGLE, offer


def in_process() -> None:
    @method
    def subtract(minuend: int, subtrahend: int):
        return Success(minuend - subtrahend)

    def answer(raw: bytes) -> bytes:
        return dispatch(raw.decode()).encode()

    offer({"single": lambda: answer(SINGLE), "batch": lambda: answer(BATCH)})


def on_aiohttp(port: int) -> None:
    from aiohttp import web

    @method
    async def subtract(minuend: int, subtrahend: int):
        return Success(minuend - subtrahend)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=await async_dispatch(await request.text()), content_type="application/json")

    app = web.Application()
    app.router.add_post("/", handle)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, backlog=1024)


if __name__ == "__main__":
    on_aiohttp(int(sys.argv[1])) if len(sys.argv) > 1 else in_process()
