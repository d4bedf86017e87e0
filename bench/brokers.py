"""Round trips over a broker: ours beside the bare library that does the same request and reply.

A contestant is a program with two parts, `python -m PROGRAM worker URL` (prints a line when it serves) and
`python -m PROGRAM caller URL`, which takes orders: `{"calls": N, "window": W}` is answered with `{"wall": seconds,
"median": seconds of one call}`. The worker has one core, the caller the other, the broker what is left of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.environments import Missing
from bench.figures import Row, at_least, at_most, ratio
from bench.referee import START_TIME, Contestant, Failed, Referee, Talker, await_listening, free_port

WINDOW = 64


@contextlib.contextmanager
def broker(command: Callable[[int, Path], Sequence[str]], patience: float = START_TIME) -> Iterator[int]:
    """A broker on a port of its own; `command` gets the port and a folder, `patience` is how long it may take to
    listen. Raises Missing or Failed."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as output,
    ):
        argv = list(command(port, Path(folder)))
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
            )
        except FileNotFoundError:
            raise Missing(f"no {argv[0]} on this machine") from None
        try:
            await_listening(child, ["127.0.0.1", port], output, patience)
            yield port
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # RabbitMQ's is a script with children; nothing here is worth keeping
            child.wait()


def round_trips(
    referee: Referee,
    key: str,
    title: str,
    bare: str,
    url: Callable[[str], str],
    calls: int,
    *,
    environment: str = "",
    peers: Sequence[Contestant] = (),
) -> list[Row]:
    """Two rows: one call in flight (latency), and `WINDOW` (throughput), both in microseconds a call. `bare`: the
    program of the bare library, in its `environment`; `url`: a fresh URL for a contestant's name. The first of `peers`
    must be three times as slow as we are at least."""
    rows = []
    for window, what in ((1, "one in flight, median latency"), (WINDOW, f"{WINDOW} in flight, per call")):
        ours = Contestant("dragoman", ["-m", "bench.servers.broker"], calls)
        limit = Contestant("the bare library", ["-m", bare], calls, environment)
        others = [replace(peer) for peer in peers]
        _race(referee, [ours, limit, *others], url, window)
        figures = [one.figure for one in others]
        row = Row(f"{key}-{window}", f"{title}, {what}", "us", ours.figure, limit.figure, figures)
        cost = ratio(ours.figure, limit.figure)
        if window == 1:
            row.goals = [at_most("<= 1.3x the bare library", cost, 1.3)]
        else:
            row.goals = [at_most(">= 70 % of the bare library's throughput", cost, 1 / 0.7)]
            row.goals += [at_least(f">= 3x {one.name}", ratio(one, ours.figure), 3) for one in figures[:1]]
        rows.append(row)
    return rows


def _race(referee: Referee, contestants: Sequence[Contestant], url: Callable[[str], str], window: int) -> None:
    """Fill their figures, in turn."""
    with contextlib.ExitStack() as ends:
        callers: dict[str, Talker] = {}
        for one in contestants:
            try:
                caller = _opened(referee, ends, one, url(one.name.split()[-1]))
                caller.ask(calls=200, window=window)
                callers[one.name] = caller
            except (Missing, Failed, OSError) as error:
                one.figure.missing = str(error)
        for _ in range(referee.rounds):
            for one in contestants:
                if one.name not in callers:
                    continue
                count = max(20, int(one.calls * referee.scale / (4 if window == 1 else 1)))
                try:
                    report = callers[one.name].ask(calls=count, window=window)
                except Failed as error:
                    one.figure.missing = str(error)
                    del callers[one.name]
                else:
                    spent = report["median"] if window == 1 else report["wall"] / count
                    one.figure.samples.append(spent * 1e6)


def _opened(referee: Referee, ends: contextlib.ExitStack, one: Contestant, place: str) -> Talker:
    argv, env = referee.command(one)
    worker = Talker([*argv, "worker", place], referee.server_core, env)
    ends.callback(worker.end)
    worker.ask()
    caller = Talker([*argv, "caller", place], referee.load_core, env)
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
