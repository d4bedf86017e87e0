"""Round trips over a broker: ours beside the bare library that does the same request and reply.

A contestant is a program with two parts, `python -m PROGRAM worker URL` (prints a line when it serves) and
`python -m PROGRAM caller URL`, which takes orders: `{"calls": N, "window": W}` is answered with `{"wall": seconds,
"median": seconds of one call}`. The worker has one core, the caller the other, the broker what is left of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from bench.environments import Missing
from bench.figures import Figure, Row, at_most, ratio
from bench.referee import Failed, Referee, Talker, await_listening, finish, free_port

WINDOW = 64


@contextlib.contextmanager
def broker(command: Callable[[int, Path], Sequence[str]]) -> Iterator[int]:
    """A broker on a port of its own; `command` gets the port and a folder. Raises Missing or Failed."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, tempfile.TemporaryFile() as output:
        argv = list(command(port, Path(folder)))
        try:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)
        except FileNotFoundError:
            raise Missing(f"no {argv[0]} on this machine") from None
        try:
            await_listening(child, ["127.0.0.1", port], output)
            yield port
        finally:
            finish(child)


def round_trips(referee: Referee, key: str, title: str, bare: str, url: Callable[[str], str], calls: int) -> list[Row]:
    """Two rows: one call in flight (latency), and `WINDOW` (throughput), both in microseconds a call. `bare`: the
    program of the bare library; `url`: a fresh URL for a contestant's name."""
    rows = []
    for window, what in ((1, "one in flight, median latency"), (WINDOW, f"{WINDOW} in flight, per call")):
        ours, limit = Figure("dragoman"), Figure("the bare library")
        with contextlib.ExitStack() as ends:
            callers: dict[str, Talker] = {}
            for figure, program in ((ours, "bench.servers.broker"), (limit, bare)):
                place = url(figure.name.split()[-1])
                try:
                    callers[figure.name] = _opened(referee, ends, program, place)
                    callers[figure.name].ask(calls=200, window=window)
                except (Failed, OSError) as error:
                    figure.missing = str(error)
                    callers.pop(figure.name, None)
            count = max(20, int(calls * referee.scale / (4 if window == 1 else 1)))
            for _ in range(referee.rounds):
                for figure in (ours, limit):
                    if figure.name in callers:
                        report = callers[figure.name].ask(calls=count, window=window)
                        spent = report["median"] if window == 1 else report["wall"] / count
                        figure.samples.append(spent * 1e6)
        row = Row(f"{key}-{window}", f"{title}, {what}", "us", ours, limit)
        bound = 1.3 if window == 1 else 1 / 0.7
        words = "<= 1.3x the bare library" if window == 1 else ">= 70 % of the bare library's throughput"
        row.goals = [at_most(words, ratio(ours, limit), bound)]
        rows.append(row)
    return rows


def _opened(referee: Referee, ends: contextlib.ExitStack, program: str, place: str) -> Talker:
    worker = Talker([sys.executable, "-m", program, "worker", place], referee.server_core, {})
    ends.callback(worker.end)
    worker.ask()
    caller = Talker([sys.executable, "-m", program, "caller", place], referee.load_core, {})
    ends.callback(caller.end)
    return caller


# -- for the programs -----------------------------------------------------------------------------


async def obey(call: Callable[[], Awaitable[object]]) -> None:
    """A caller: take orders until end of file. `call` makes one call and returns its result, 19."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        try:
            report = await _measured(call, order["calls"], order["window"])
        except Exception as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)


async def _measured(call: Callable[[], Awaitable[object]], calls: int, window: int) -> dict[str, object]:
    taken: list[float] = []

    async def some(count: int) -> None:
        for _ in range(count):
            began = time.perf_counter()
            if await call() != 19:
                raise ValueError("a wrong answer")
            taken.append(time.perf_counter() - began)

    began = time.perf_counter()
    shares = [calls // window + (number < calls % window) for number in range(window)]
    await asyncio.gather(*(some(share) for share in shares))
    return {"wall": time.perf_counter() - began, "median": statistics.median(taken)}


async def stay() -> None:
    """A worker: say that it serves, and do so until end of file."""
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print("{}", flush=True)
