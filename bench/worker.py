"""A contestant that is measured inside its own process: it answers bytes with bytes, as often as it is told.

The referee writes one JSON object a line, `{"task": "single", "calls": 1000}`; the worker makes the calls and
answers `{"cpu": seconds, "wall": seconds, "answer": "..."}`. Standard library only, since peers' interpreters
run it too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import repeat
from typing import Any

Make = Callable[[], object]
"""One unit of work: a call, or a batch of a hundred."""


def offer(tasks: Mapping[str, Make]) -> None:
    """Serve the referee with tasks of plain functions until its end of file."""
    for order in map(json.loads, sys.stdin):
        make = tasks[order["task"]]
        answer = make()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in repeat(None, order["calls"]):
            make()
        _report(wall, cpu, answer)


async def offer_async(tasks: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """The same with coroutine functions, on the loop that runs this."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        make = tasks[order["task"]]
        answer = await make()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in repeat(None, order["calls"]):
            await make()
        _report(wall, cpu, answer)


def _report(wall: float, cpu: float, answer: Any) -> None:
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    text = answer.decode() if isinstance(answer, bytes) else str(answer)
    print(json.dumps(spent | {"answer": text[:200]}), flush=True)


SINGLE = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
BATCH = (
    b"[" + b",".join(b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":%d}' % i for i in range(100)) + b"]"
)
