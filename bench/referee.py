"""Starts contestants and the load, pins them to cores, and runs them in turn.

Rules: the server's core does nothing else of ours; a contestant that cannot run is a figure without
samples and with the reason; whatever was started is ended, and only that.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench.environments import Environments, Missing
from bench.figures import Figure

ROOT = Path(__file__).parent.parent
START_TIME = 20.0
"""Seconds a server may take to listen."""


def cores() -> tuple[int | None, int | None]:
    """A core for the server and one for the load; None where there is only one."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (mine[0], mine[1]) if len(mine) > 1 else (None, None)


@dataclass
class Contestant:
    """A program to measure. `peer` names its environment; empty for our own interpreter.

    In `argv` PORT and SOCKET are replaced. `calls` is how many make one sample. `mcp`: what the load calls there,
    as `mcp_load` says; None: JSON-RPC's own `method` and `params`.
    """

    name: str
    argv: Sequence[str]
    calls: int
    peer: str = ""
    task: str = "single"
    method: str = "subtract"
    params: str = "[42,23]"
    echo: bool = False
    mcp: Mapping[str, Any] | None = None
    pid: int = 0
    figure: Figure = field(init=False)

    def __post_init__(self) -> None:
        self.figure = Figure(self.name)


class Failed(Exception):
    """A contestant or the load said why it cannot go on."""


class Talker:
    """A child process that takes one JSON order a line and answers with one."""

    def __init__(self, argv: Sequence[str], core: int | None, env: Mapping[str, str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `end`
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
            raise Failed(last_words(self.errors))
        report: dict[str, Any] = json.loads(line)
        if "error" in report:
            raise Failed(report["error"])
        return report

    def end(self) -> None:
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


def last_words(errors: IO[bytes]) -> str:
    """The last line a child wrote to its stderr."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "it ended without a word"


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Referee:
    """One run of the benchmarks: how many rounds, how many calls, which environments."""

    def __init__(self, environments: Environments, *, rounds: int, scale: float, peers: bool) -> None:
        self.environments, self.rounds, self.scale, self.peers = environments, rounds, scale, peers
        self.server_core, self.load_core = cores()

    def calls(self, contestant: Contestant) -> int:
        """How many calls make one of its samples in this run."""
        return max(10, int(contestant.calls * self.scale))

    def command(self, contestant: Contestant, **places: str) -> tuple[list[str], dict[str, str]]:
        """Its command line and environment variables. Raises Missing."""
        if contestant.peer and not self.peers:
            raise Missing("peers were left out")
        program, env = self.environments.program(contestant.peer)
        argv = [places.get(word, word) for word in contestant.argv]
        return [program, *argv], env

    # -- in process -----------------------------------------------------------------------------

    def in_process(self, contestants: Sequence[Contestant]) -> None:
        """Fill the figures of workers, in microseconds of CPU for one unit of work."""
        with contextlib.ExitStack() as ends:
            talkers: dict[str, Talker] = {}
            for one in contestants:
                try:
                    argv, env = self.command(one)
                    talker = Talker(argv, self.server_core, env)
                    ends.callback(talker.end)
                    answer = talker.ask(task=one.task, calls=max(10, self.calls(one) // 2))["answer"]
                    if "19" not in answer:
                        raise Failed(f"answered {answer}")
                    talkers[one.name] = talker
                except (Missing, Failed, OSError) as error:
                    one.figure.missing = str(error)
            for _ in range(self.rounds):
                for one in contestants:
                    if one.name in talkers:
                        calls = self.calls(one)
                        try:
                            spent = talkers[one.name].ask(task=one.task, calls=calls)["cpu"]
                            one.figure.samples.append(spent / calls * 1e6)
                        except Failed as error:
                            one.figure.missing = str(error)
                            del talkers[one.name]

    # -- over a wire ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def generator(self, program: str = "bench.load") -> Iterator[Talker]:
        """The load generator."""
        load = Talker([sys.executable, "-m", program], self.load_core, {})
        try:
            yield load
        finally:
            load.end()

    @contextlib.contextmanager
    def server(self, contestant: Contestant, wire: str = "tcp") -> Iterator[tuple[int, list[Any]]]:
        """A contestant that listens: its process id and its address. Raises Missing or Failed."""
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            path, port = str(Path(folder) / "s"), free_port()
            argv, env = self.command(contestant, PORT=str(port), SOCKET=path)
            address: list[Any] = [path] if wire == "unix" else ["127.0.0.1", port]
            with tempfile.TemporaryFile() as errors:
                child = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env={**os.environ, **env}, cwd=ROOT
                )
                try:
                    if self.server_core is not None:
                        os.sched_setaffinity(child.pid, {self.server_core})
                    await_listening(child, address, errors)
                    yield child.pid, address
                finally:
                    finish(child)

    def over_wire(
        self,
        contestants: Sequence[Contestant],
        *,
        framing: str,
        wire: str = "tcp",
        connections: int = 1,
        window: int = 32,
    ) -> None:
        """Fill the figures of servers, in microseconds of the server's CPU for one call."""
        with contextlib.ExitStack() as ends:
            load = ends.enter_context(self.generator("bench.load" if contestants[0].mcp is None else "bench.mcp_load"))
            opened: dict[str, dict[str, Any]] = {}
            for one in contestants:
                order: dict[str, Any] = {"do": "open", "name": one.name, "framing": framing, "connections": connections}
                order |= {"echo": one.echo, "method": one.method, "params": one.params, "mcp": one.mcp}
                try:
                    if wire == "stdio":
                        argv, env = self.command(one)
                        order |= {"argv": argv, "env": env, "core": self.server_core}
                    else:
                        pid, address = ends.enter_context(self.server(one, wire))
                        order |= {"pid": pid, "address": address}
                    self.sample(load, one, order, window, warm=True)
                    opened[one.name] = order
                except (Missing, Failed, OSError) as error:
                    one.figure.missing = str(error)
            for _ in range(self.rounds):
                for one in contestants:
                    if one.name in opened:
                        try:
                            self.sample(load, one, opened[one.name], window)
                        except Failed as error:
                            one.figure.missing = str(error)
                            del opened[one.name]

    def sample(self, load: Talker, one: Contestant, order: dict[str, Any], window: int, *, warm: bool = False) -> None:
        """One round of one contestant. A child on stdio stays open from the warm-up on; sockets are opened again."""
        stays = "argv" in order
        if warm or not stays:
            load.ask(**order)
        calls = self.calls(one)
        report = load.ask(do="run", name=one.name, calls=calls, window=window)
        if not warm:
            one.figure.samples.append(report["cpu"] / calls * 1e6)
        if not stays:
            load.ask(do="close", name=one.name)


def await_listening(
    child: subprocess.Popen[bytes], address: list[Any], errors: IO[bytes], patience: float = START_TIME
) -> None:
    """Return once connections are accepted there."""
    deadline = time.monotonic() + patience
    while True:
        probe = socket.socket(socket.AF_UNIX if len(address) == 1 else socket.AF_INET)
        with probe:
            try:
                probe.connect(address[0] if len(address) == 1 else tuple(address))
                return
            except OSError:
                pass
        if child.poll() is not None:
            raise Failed(last_words(errors))
        if time.monotonic() > deadline:
            raise Failed(f"does not listen after {patience:g} s")
        time.sleep(0.02)
