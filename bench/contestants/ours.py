"""dragoman as a JSON-RPC service: in process, on a wire (`listen`), on uvicorn, in memory, behind workers, and at both
ends of a broker."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.messages import BATCH, SINGLE
from bench.worker import call_broker, measure, measure_async, stay
from dragoman import Service, connect, http_app, serve
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


# -- in process -----------------------------------------------------------------------------------


def _answering(api: Service, raw: bytes = SINGLE) -> None:
    answer = api.answer
    measure(lambda: answer(raw))


def single(methods: str = "1") -> None:
    _answering(calculator(int(methods)))


def batch() -> None:
    _answering(calculator(), BATCH)


def plain() -> None:
    _answering(calculator(), SINGLE.replace(b"subtract", b"subtract_plain"))


async def on_loop(what: str) -> None:
    """`await service.answer_async`: a method, or `batch`."""
    answer, raw = calculator().answer_async, SINGLE.replace(b"subtract", what.encode())
    if what == "batch":
        raw = BATCH
    await measure_async(lambda: answer(raw))


def observed(name: str) -> None:
    """With an observer: `metrics`, `log`, `traces` (which nothing records), or `nothing`, which does nothing."""
    from dragoman.telemetry import AccessLog, Metrics, Traces

    class Nothing:
        def came_in(self, seen: object) -> None: ...

        outbound = started = ended = rejected = came_in

    made: dict[str, Any] = {"metrics": Metrics, "traces": Traces, "nothing": Nothing}
    api = calculator()
    api.observe(made[name]() if name in made else AccessLog(lambda line: None))
    _answering(api)


def through(name: str) -> None:
    """With a middleware: of `dragoman.middleware` by its name, or `nothing`, which does nothing."""
    from dragoman.middleware import audit, map_errors, rate_limit, response_cache, size_limit, timing

    async def nothing(call: Any, next: Any) -> Any:
        return await next(call)

    made: dict[str, Callable[[], Any]] = {
        "nothing": lambda: nothing,
        "timing": lambda: timing(lambda name, seconds: None),
        "audit": lambda: audit(lambda entry: None),
        "rate_limit": lambda: rate_limit(1e9),
        "response_cache": lambda: response_cache(["subtract"], ttl=3600),
        "size_limit": lambda: size_limit(1_000_000),
        "map_errors": lambda: map_errors({}),
    }
    api = calculator()
    api.use(made[name]())
    _answering(api)


# -- on wires -------------------------------------------------------------------------------------


async def listen(url: str) -> None:
    """Until SIGTERM; on stdio until end of file."""
    await serve(calculator(), urls=[url], limits=RAISED)


def asgi(port: str) -> None:
    from bench.contestants.bare_http import uvicorn_run

    uvicorn_run(http_app(calculator()), port)


async def memory(what: str) -> None:
    """Peer to peer, both in this process: one method, or `together`: 32 calls at a time."""
    async with serve(calculator(), urls=["memory:bench"]), connect("memory:bench") as peer:

        async def together() -> object:
            return await asyncio.gather(*[peer.call("subtract", [42, 23]) for _ in range(32)])

        await measure_async(together if what == "together" else lambda: peer.call(what, [42, 23]))


async def worker(url: str) -> None:
    async with serve(calculator(), urls=url):
        await stay()


async def caller(url: str) -> None:
    async with connect(url) as peer:
        await call_broker(lambda: peer.call("subtract", [42, 23]))


burning = Service("burning", version="1.0.0")


@burning.method("subtract", inline=True)
def burn(minuend: int, subtrahend: int) -> int:
    """A millisecond of CPU."""
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass
    return minuend - subtrahend


def workers(port: str, count: str) -> None:
    """So many processes behind one port, as the command has them."""
    served = ["serve", "bench.contestants.ours:burning", f"http://127.0.0.1:{port}", "--workers", count, "--json"]
    os.execv(sys.executable, [sys.executable, "-m", "dragoman", *served])
