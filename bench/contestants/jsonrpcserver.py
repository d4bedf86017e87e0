# mypy: ignore-errors
"""jsonrpcserver: in process, or on aiohttp as its documentation shows."""

from __future__ import annotations

from jsonrpcserver import Success, async_dispatch, dispatch, method

from bench.messages import BATCH, SINGLE
from bench.worker import measure


def single(raw: bytes = SINGLE) -> None:
    @method
    def subtract(minuend: int, subtrahend: int):
        return Success(minuend - subtrahend)

    measure(lambda: dispatch(raw.decode()).encode())


def batch() -> None:
    single(BATCH)


def http(port: str) -> None:
    from aiohttp import web

    @method
    async def subtract(minuend: int, subtrahend: int):
        return Success(minuend - subtrahend)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=await async_dispatch(await request.text()), content_type="application/json")

    app = web.Application()
    app.router.add_post("/", handle)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None, backlog=1024)
