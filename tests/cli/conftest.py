"""The real command in processes of its own: run to its end, or started and stopped."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.cli import lines, terminal

from ..signalled import SignalledProcess

PATIENCE = 60.0
"""Seconds after which a command is killed, so that a fault is a failed test and no standstill."""

SERVICE = """\
import contextlib
import socket

from dragoman import Context, RpcError, Service

api = Service("calculator", version="1.0.0")


class Short(RpcError):
    code = 7
    message = "Too short"


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    "Subtract one from the other."
    return minuend - subtrahend


@api.method(inline=True)
def echo(value: object = None) -> object:
    return value


@api.method(inline=True)
def note(text: str) -> None:
    print("noted", text, flush=True)


@api.method(inline=True, errors=[Short])
def fail(kind: str) -> None:
    if kind == "declared":
        raise Short(data={"least": 3})
    raise ValueError("a secret of ours")


@api.method
async def progress(context: Context) -> str:
    await context.progress({"percentage": 50, "message": "half"})
    return "done"


@api.method
def hold(gate: str) -> str:
    "Answers when a gate of the test is opened."
    print("holding\\n", end="", flush=True)  # in one piece: there are many threads
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(gate.rpartition(":")[2]))) as waiting:
        waiting.recv(1)
    return "held"
"""


class Done(msgspec.Struct):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote to stdout, as JSON."""
        return msgspec.json.decode(self.out)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what changes how the command speaks."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("DRAGOMAN_", "FORCE_COLOR", "NO_COLOR"))}
    return plain | {"COLUMNS": "200"} | dict(extra or {})


class Command:
    """Runs `dragoman` in `folder`, where the service file `calculator.py` is."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        self.folder = folder
        self.patience = patience
        self.started: list[subprocess.Popen[str]] = []
        self.guards: list[threading.Timer] = []

    def home(self) -> dict[str, str]:
        """The environment in which logins are kept beside the test and not in the user's home and keyring."""
        return {
            "XDG_STATE_HOME": str(self.folder / ".state"),
            "LOCALAPPDATA": str(self.folder / ".state"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }

    def run(self, *words: str, input: str | bytes = "", env: Mapping[str, str] | None = None) -> Done:
        """Run to the end."""
        given = input.encode() if isinstance(input, str) else input
        return self._run([sys.executable, "-m", "dragoman", *words], given, env)

    def run_shell(self, line: str) -> Done:
        """Run a line of a shell to its end."""
        return self._run(["sh", "-c", line], b"", None)

    def _run(self, argv: list[str], given: bytes, env: Mapping[str, str] | None) -> Done:
        done = subprocess.run(
            argv,
            input=given,
            capture_output=True,
            cwd=self.folder,
            env=environment(self.home() | dict(env or {})),
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start, to be ended by the fixture at the latest."""
        return self.start_python("-m", "dragoman", *words, env=env)

    def start_python(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """As `start`, for any program in Python."""
        process = SignalledProcess(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=environment(self.home() | dict(env or {})),
            text=True,
        )
        self.started.append(process)
        guard = threading.Timer(self.patience, process.kill)
        guard.daemon = True
        guard.start()
        self.guards.append(guard)
        return process

    def serve(self, *urls: str, options: tuple[str, ...] = ()) -> tuple[subprocess.Popen[str], list[str]]:
        """Serve the calculator; the process, and the URLs where it really listens."""
        return self.serve_of("calculator:api", *urls, *options)

    def serve_of(self, target: str, *words: str) -> tuple[subprocess.Popen[str], list[str]]:
        """Serve a target; the process, and the URLs where it really listens."""
        process = self.start("serve", target, *words, "--json")
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            pytest.fail(f"serve ended with {process.wait()}: {process.stderr.read()}")
        return process, msgspec.json.decode(line)["urls"]

    def end(self) -> None:
        """Kill what still runs and close every pipe."""
        for guard in self.guards:
            guard.cancel()
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@pytest.fixture(autouse=True)
def _look_of_its_own() -> Iterator[None]:
    """A command that runs in this process says how it writes, and what of the log, for this test alone."""
    logger = logging.getLogger("dragoman")
    kept: list[tuple[Any, str]] = [(lines._Form, name) for name in ("format", "least")] + [(lines.lines, "dropped")]
    for console in (terminal.out, terminal.err):
        kept += [(console, name) for name in ("no_color", "_color_system", "_force_terminal")]
    level, values = logger.level, [getattr(owner, name) for owner, name in kept]
    yield
    logger.setLevel(level)
    for (owner, name), value in zip(kept, values, strict=True):
        setattr(owner, name, value)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The command, in a folder with a service file."""
    (tmp_path / "calculator.py").write_text(SERVICE)
    command = Command(tmp_path)
    yield command
    command.end()
