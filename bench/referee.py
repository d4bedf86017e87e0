"""Measures a row: starts its contestants and their loads, pins them to cores, and runs them in turn.

Rules: the server's core does nothing else of ours; a contestant that cannot run has no samples, but the reason; whatever
was started is ended, and only that. How a contestant is measured is the row's `Way`: it begins with the contestant, and
gives a function that takes a sample: seconds or bytes of one call or thing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from bench.environments import NODE, PYTHON, ROOT, Missing, command
from bench.figures import Contestant, Row

T = TypeVar("T")
START_TIME = 20.0
"""Seconds a server may take to listen."""
SAMPLE = 0.2
"""Seconds that the calls of one sample take, or nearly."""
UNITS = {"us": 1e6, "ms": 1e3, "ms CPU": 1e3, "KiB": 1 / 1024, "MiB": 1 / 1024**2}


class Failed(Exception):
    """A contestant or the load said why it cannot go on."""


TROUBLE = (Missing, Failed, OSError)
Sampler = Callable[[], float]


@dataclass(frozen=True)
class Way:
    """How a row's contestants are measured. `rounds`: how many of them, of those that were asked for."""

    begin: Callable[[Race, Contestant], Sampler]
    rounds: Callable[[int], int] = lambda asked: asked


def cores() -> tuple[int | None, int | None]:
    """A core for the server and one for the load; None where there is only one."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (mine[0], mine[1]) if len(mine) > 1 else (None, None)


SERVER_CORE, LOAD_CORE = cores()


@dataclass(frozen=True)
class Referee:
    """One run of the benchmarks: how many rounds, how large a part of a sample's time, and whether with peers."""

    rounds: int
    scale: float
    peers: bool

    def measure(self, row: Row) -> None:
        """Fill the figures of a row's contestants in interleaved rounds."""
        with Race(self, row) as race:
            samplers: dict[Contestant, Sampler] = {}
            for one in row.contestants:
                try:
                    samplers[one] = row.way.begin(race, one)
                except TROUBLE as why:
                    one.missing = str(why)
            for _ in range(row.way.rounds(self.rounds)):
                for one, sample in list(samplers.items()):
                    try:
                        one.samples.append(sample() * UNITS[row.unit])
                    except TROUBLE as why:
                        one.missing = str(why)
                        del samplers[one]


class Race(contextlib.ExitStack):
    """One row while it is measured: what was started ends with it."""

    def __init__(self, referee: Referee, row: Row) -> None:
        super().__init__()
        self.referee, self.row = referee, row
        self._shared: dict[str, Any] = {}

    def command(self, one: Contestant, **places: object) -> tuple[list[str], dict[str, str]]:
        """Its command line and environment variables. Raises Missing."""
        text = one.command
        for place, value in places.items():
            text = text.replace(place, str(value))
        if not self.referee.peers and set(text.split()[:2]) & (PYTHON.keys() | NODE.keys()):
            raise Missing("peers were left out")
        return command(text)

    def talker(self, one: Contestant, core: int | None = SERVER_CORE, **places: object) -> Talker:
        """A contestant that takes orders itself."""
        argv, env = self.command(one, **places)
        return self.enter_context(Talker(argv, core, env))

    def load(self, core: int | None = LOAD_CORE) -> Talker:
        """A load generator."""
        return self.enter_context(Talker([sys.executable, "-m", "bench.load"], core, {}))

    def server(self, one: Contestant, core: int | None = SERVER_CORE) -> tuple[int, list[Any]]:
        """A contestant that listens: its process id and its address. Raises Missing or Failed."""
        return self.enter_context(_served(self, one, core))

    def shared(self, key: str, begin: Callable[[], contextlib.AbstractContextManager[T]]) -> T:
        """What the contestants of the row have in common."""
        if key not in self._shared:
            self._shared[key] = self.enter_context(begin())
        found: T = self._shared[key]
        return found

    def calls(self, run: Callable[[int], float], least: int = 1, seconds: float = SAMPLE) -> int:
        """How many calls make a sample: found by making some, which warms up as well. `run` tells what they took."""
        wanted, calls = seconds * self.referee.scale, least
        while (spent := run(calls)) < wanted / 3:
            calls *= min(8, max(2, int(wanted / 2 / max(spent, 1e-9))))
        return max(least, round(calls * wanted / spent))

    def many(self, count: int) -> int:
        """So many of what is held, or fewer for a mere look; the row's title says how many it was."""
        found = int(count * self.referee.scale)
        if found < count:
            self.row.title = self.row.title.replace(f"{count:,}", f"{found:,}")
        return found


@contextlib.contextmanager
def _served(race: Race, one: Contestant, core: int | None) -> Iterator[tuple[int, list[Any]]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, tempfile.TemporaryFile() as output:
        path, port = str(Path(folder) / "s"), free_port()
        argv, env = race.command(one, PORT=port, SOCKET=path)
        address: list[Any] = [path] if "SOCKET" in one.command else ["127.0.0.1", port]
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **env}, cwd=ROOT
        )
        try:
            if core is not None:
                os.sched_setaffinity(child.pid, {core})
            await_listening(child, address, output, ready=one.about.get("workers", 0))
            yield child.pid, address
        finally:
            finish(child)


class Talker:
    """A child process that takes one JSON order a line and answers with one."""

    def __init__(self, argv: Sequence[str], core: int | None, env: Mapping[str, str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `__exit__`
        self.child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env={**os.environ, **env}, cwd=ROOT
        )
        if core is not None:
            os.sched_setaffinity(self.child.pid, {core})

    def ask(self, **order: Any) -> dict[str, Any]:
        """The answer to one order. Raises Failed with what the child said last."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            self.child.stdin.write(json.dumps(order).encode() + b"\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise Failed(_last_words(self.errors))
        report: dict[str, Any] = json.loads(line)
        if "error" in report:
            raise Failed(report["error"])
        return report

    def __enter__(self) -> Talker:
        return self

    def __exit__(self, *_: object) -> None:
        """Close its stdin; kill it if that does not end it."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        finish(self.child, terminate=False)
        self.child.stdout.close()
        self.errors.close()


def finish(child: subprocess.Popen[bytes], *, terminate: bool = True) -> None:
    """End a child we started."""
    if terminate and child.poll() is None:
        child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _last_words(errors: IO[bytes]) -> str:
    """The last line a child wrote."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "it ended without a word"


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_listening(
    child: subprocess.Popen[bytes],
    address: list[Any],
    output: IO[bytes],
    patience: float = START_TIME,
    ready: int = 0,
) -> None:
    """Return once connections are accepted there, and the child has said of so many workers that they are ready."""
    deadline = time.monotonic() + patience
    while True:
        with socket.socket(socket.AF_UNIX if len(address) == 1 else socket.AF_INET) as probe:
            listens = not probe.connect_ex(address[0] if len(address) == 1 else tuple(address))
        output.seek(0)
        if listens and output.read().count(b"is ready") >= ready:
            return
        if child.poll() is not None:
            raise Failed(_last_words(output))
        if time.monotonic() > deadline:
            raise Failed(f"does not listen after {patience:g} s")
        time.sleep(0.02)
