"""The service that every row calls. Limits that a row raises are named here."""

from __future__ import annotations

import asyncio

from dragoman import Service
from dragoman.jsonrpc.limits import Limits

RAISED = Limits(calls=40_000, calls_per_channel=30_000, waiting_per_channel=30_000, idle_timeout=None)
"""The rows that hold 10,000 calls open on one channel need these; every other number stays the default."""


def calculator(methods: int = 1) -> Service:
    """`subtract` three ways, `hold` that never answers, and `methods` methods in all but those."""
    api = Service("calculator", version="1.0.0", limits=RAISED)

    @api.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method("subtract_plain")
    def plain(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method("subtract_async")
    async def coroutine(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method(timeout=None)
    async def hold(minuend: int, subtrahend: int) -> int:
        await asyncio.Event().wait()
        return minuend - subtrahend

    for number in range(methods - 1):

        @api.method(f"method_{number}", inline=True)
        def another(minuend: int, subtrahend: int) -> int:
            return minuend - subtrahend

    return api
