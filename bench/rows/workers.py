"""Many workers on one machine: what a second one brings, and how long a message takes from one to another."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure, Goal, Row, at_least, at_most, ratio
from bench.referee import ROOT, Failed, Referee, Talker, await_listening, finish, free_port

CONNECTIONS = 32


def workers(referee: Referee) -> list[Row]:
    """Throughput, then the bus."""
    return [_throughput(referee), _hop(referee)]


def _throughput(referee: Referee) -> Row:
    """Wall time of a call whose method costs 1 ms of CPU. Nothing is pinned: two workers and the load share the
    cores."""
    two, one = Figure("--workers 2"), Figure("--workers 1")
    calls = max(200, int(3_000 * referee.scale))
    try:
        with contextlib.ExitStack() as ends:
            load = Talker([sys.executable, "-m", "bench.load"], None, {})
            ends.callback(load.end)
            for figure, count in ((two, 2), (one, 1)):
                pid, address = ends.enter_context(_served(count))
                order: dict[str, Any] = {"framing": "http", "address": address, "pid": pid, "connections": CONNECTIONS}
                load.ask(do="open", name=figure.name, **order)
                load.ask(do="run", name=figure.name, calls=200, window=1)
            for _ in range(referee.rounds):
                for figure in (two, one):
                    spent = load.ask(do="run", name=figure.name, calls=calls, window=1)["wall"]
                    figure.samples.append(spent / calls * 1e6)
            for figure in (two, one):
                load.ask(do="close", name=figure.name)
    except (Failed, OSError) as error:
        for figure in (two, one):
            figure.missing = figure.missing or str(error)
    row = Row("workers", "HTTP, a method of 1 ms CPU, wall time per call", "us", two, also=[one])
    gain = ratio(one, two)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = ">= 1.7x one worker, on two cores"
    row.goals = [at_least(text, gain, 1.7) if cores > 1 else Goal(text, "one core", None)]
    return row


@contextlib.contextmanager
def _served(count: int) -> Iterator[tuple[int, list[Any]]]:
    """So many workers behind one port, all of them there: the supervisor's process id, and the address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "dragoman", "serve", "bench.servers.burning:api", url, "--workers", str(count)]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [*argv, "--json"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, cwd=ROOT
        )
        assert child.stderr is not None
        try:
            await_listening(child, ["127.0.0.1", port], output)
            ready = 0
            while ready < count:
                line = child.stderr.readline().decode()
                if not line:
                    raise Failed("the supervisor ended without a word")
                ready += "is ready" in line
            yield child.pid, ["127.0.0.1", port]
        finally:
            child.stderr.close()
            finish(child)


def _hop(referee: Referee) -> Row:
    """From `publish` in one process to the subscriber in another."""
    figure = Figure("unix: bus of workers")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.ExitStack() as ends:
        path = str(Path(folder) / "bus")
        try:
            talkers = []
            for role, core, place in (
                ("hub", None, path),
                ("hear", referee.server_core, f"unix:{path}"),
                ("tell", referee.load_core, f"unix:{path}"),
            ):
                talkers.append(Talker([sys.executable, "-m", "bench.servers.bus", role, place], core, {}))
                ends.callback(talkers[-1].end)
                talkers[-1].ask()  # it is there
            calls = max(200, int(2_000 * referee.scale))
            talkers[-1].ask(calls=200)
            for _ in range(referee.rounds):
                figure.samples.append(talkers[-1].ask(calls=calls)["seconds"] * 1e6)
        except (Failed, OSError) as error:
            figure.missing = str(error)
    row = Row("bus", "bus hop between two workers, median latency", "us", figure)
    row.goals = [at_most("< 500 us", figure.median if figure.samples else None, 500, " us")]
    return row
