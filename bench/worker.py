"""What contestants are measured with inside their own process: they make one call, as often as they are told.

The referee writes one JSON object a line, `{"calls": 1000}`, and gets what these took. Standard library only, since
peers' interpreters run it too.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import repeat
from typing import Any


def measure(make: Callable[[], object]) -> None:
    """Measure a plain function until end of file: a call, or a batch of a hundred."""
    for order in map(json.loads, sys.stdin):
        answer = make()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in repeat(None, order["calls"]):
            make()
        _tell(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall, answer=_text(answer))


async def measure_async(make: Callable[[], Awaitable[object]]) -> None:
    """The same of a coroutine function, on the loop that runs this."""
    async for order in _orders():
        answer = await make()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in repeat(None, order["calls"]):
            await make()
        _tell(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall, answer=_text(answer))


async def measure_trips(trip: Callable[[], Awaitable[float]]) -> None:
    """The same of round trips that tell their own seconds; `{"calls": N, "window": W}`: W of them in flight."""

    async def some(count: int, taken: list[float]) -> None:
        for _ in range(count):
            taken.append(await trip())

    async for order in _orders():
        calls, window, began, taken = order["calls"], order["window"], time.perf_counter(), list[float]()
        shares = [calls // window + (number < calls % window) for number in range(window)]
        try:
            await asyncio.gather(*(some(share, taken) for share in shares))
        except Exception as error:
            _tell(error=f"{type(error).__name__}: {error}")
        else:
            _tell(wall=time.perf_counter() - began, median=statistics.median(taken))


async def call_broker(call: Callable[[], Awaitable[object]]) -> None:
    """Measure calls over a broker, each of which must return 19."""

    async def trip() -> float:
        began = time.perf_counter()
        if await call() != 19:
            raise ValueError("a wrong answer")
        return time.perf_counter() - began

    await measure_trips(trip)


class Calls:
    """Calls over a broker by a bare library, and the answers that they wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.waiting: dict[str, asyncio.Future[bytes]] = {}

    async def measure(self, send: Callable[[str, bytes], Awaitable[object]]) -> None:
        """`send` sends a request, whose id as text comes first; `came` takes the answers."""

        async def call() -> object:
            self.count += 1
            id = str(self.count)
            answer = self.waiting[id] = asyncio.get_running_loop().create_future()
            await send(id, question(self.count))
            return json.loads(await answer)["result"]

        await call_broker(call)

    def came(self, id: str, body: bytes) -> None:
        """An answer."""
        self.waiting.pop(id).set_result(body)


def question(number: int) -> bytes:
    """A call, written anew each time."""
    return json.dumps({"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": number}).encode()


def answer(body: bytes) -> bytes:
    """What the service does."""
    request = json.loads(body)
    minuend, subtrahend = request["params"]
    return json.dumps({"jsonrpc": "2.0", "result": minuend - subtrahend, "id": request["id"]}).encode()


async def stay() -> None:
    """Say that one is there when asked, until end of file."""
    async for _ in _orders():
        _tell()


async def _orders() -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield json.loads(line)


def _text(answer: object) -> str:
    return (answer.decode() if isinstance(answer, bytes) else str(answer))[:200]


def _tell(**report: object) -> None:
    print(json.dumps(report), flush=True)
