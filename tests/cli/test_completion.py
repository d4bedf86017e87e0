"""Completion that asks the server: proposals for a line, and real shells that complete and run a call."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dragoman.cli import proposing
from dragoman.cli.proposing import proposals
from tests.skips import missing

from .conftest import Command

SERVICE = """\
from typing import Literal
from dragoman import Service
api = Service("calc")

@api.method
def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend

@api.method
def greet(mood: Literal["kind", "cold"], loud: bool) -> str:
    return f"a {mood} word"
"""
EVIL = """\
from dragoman import Service
api = Service("evil")
for word in WORDS:
    api.method(word)(lambda: "it is run")
api.method("evil-good")(lambda: "it is good")
"""
EVIL_WORDS = [
    *(f"evil{sign}touch{sign}ran" for sign in "!\"#$&'()*;<>?[\\]^`{|}~ \t\n\r\x1b\u200b\u202e"),
    "evil;{touch,ran}",
    "evil`touch${IFS}ran`",
    "evil$(touch${IFS}ran)",
    "evil(touch ran)",
    "evil<(touch${IFS}ran)",
    "evil\\;touch ran",
    "evil" * 60,
    *(f"{sign}evil" for sign in "-=+%@~#!&*"),
    "--trace=ran",
]
SERVER = """\
from msgspec import Struct
from dragoman.mcp import Server
from dragoman.mcp.extensions.events import Events
events = Events()
app = Server("w", extensions=[events])

@app.tool
def forecast(city: str, days: int = 1) -> str:
    return city

@app.tool(name="a b")
def odd() -> str:
    return ""

@app.prompt
def review(language: str, style: str = "") -> str:
    return language

@app.completion("review", "language")
def languages(text: str) -> list[str]:
    return [one for one in ("python", "perl", "rust") if one.startswith(text)]

@app.resource("config://app")
def config() -> str:
    return "x"

@events.event("orders.shipped", filters=["carrier", "express"])
class OrderShipped(Struct):
    carrier: str
    express: bool
"""

LINES: list[tuple[str, list[str]]] = [
    ("call c", ["calc.py", "calc:api"]),
    ("serve we", ["weather.py", "weather:app"]),
    ("call un", ["unix:some.sock", "unix:"]),
    ("call calc.py ", ["greet", "subtract"]),
    ("call calc:api sub", ["subtract"]),
    ("notify calc.py sub", ["subtract"]),
    ("methods calc.py g", ["greet"]),
    ("bench calc.py g", ["greet"]),
    ("call --timeout=3 calc.py g", ["greet"]),
    ("call calc.py subtract m", ["minuend="]),
    ("call calc.py subtract minuend=1 ", ["subtrahend="]),
    ("call calc.py greet ", ["mood=", "mood=cold", "mood=kind", "loud=", "loud=true", "loud=false"]),
    ("call calc.py greet mood=k", ["mood=kind"]),
    ("tool weather.py ", ["forecast"]),
    ("tools weather.py f", ["forecast"]),
    ("tool weather.py forecast ", ["city=", "days="]),
    ("prompt weather.py r", ["review"]),
    ("prompt weather.py review ", ["language=", "style="]),
    ("complete weather.py review language=p", ["language=python", "language=perl"]),
    ("read weather.py ", ["config://app"]),
    ("events weather.py ", ["orders.shipped"]),
    ("events weather.py orders.shipped --watch ", ["carrier=", "express=", "express=true", "express=false"]),
    ("call calc.py nosuch ", []),
    ("call evil.py ", ["evil-good"]),
    ("call evil.py -", []),
    ("call evil.py evil;", []),
    ("call calc.py --ver", []),
    ("call 'calc.py ", []),
    ("call 'touch ran' ", []),
    ("call tcp://127.0.0.1:1 ", []),
    ("call nosuch.py ", []),
    ("check calc.py ", []),
    ("frobnicate calc.py ", []),
    ("", []),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "calc.py").write_text(SERVICE)
    (tmp_path / "weather.py").write_text(SERVER)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "evil.py").write_text(f"WORDS = {EVIL_WORDS!r}\n{EVIL}")
    (tmp_path / "other.py").write_text("open('ran', 'w')\nx = print()\n")
    (tmp_path / "some.sock").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(proposing, "PATIENCE", 60.0)
    return tmp_path


@pytest.mark.parametrize(("line", "found"), LINES, ids=[line for line, _ in LINES])
def test_proposals(folder: Path, line: str, found: list[str]) -> None:
    assert proposals(line) == found
    assert not (folder / "ran").exists()


def test_a_server_that_is_silent_proposes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "silent.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(proposing, "PATIENCE", 0.2)
    assert proposals("call silent.py ") == []


PATIENT = f"""#!{sys.executable}
from dragoman.cli import main, proposing
proposing.PATIENCE = 60.0
main()
"""
"""The command, which waits for a busy machine."""


def test_the_command_prints_them(command: Command) -> None:
    (command.folder / "calc.py").write_text(SERVICE)
    (command.folder / "patient.py").write_text(PATIENT)
    argv = [sys.executable, "patient.py", "completion", "bash", "--line", "call calc.py subtract "]
    done = subprocess.run(argv, cwd=command.folder, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "minuend=\nsubtrahend=\n"


ZSH = "autoload -Uz compinit; compinit -u;"
FILES = {"zsh": ".zfunc/_dragoman", "fish": ".config/fish/completions/dragoman.fish"}
"""Where a shell looks for the script, in the user's home."""
SHELLS: dict[str, tuple[list[str], str]] = {
    "bash": (["--norc", "--noprofile", "-i"], 'eval "$(dragoman completion bash)"'),
    "zsh": (["-f", "-i"], f'{ZSH} eval "$(dragoman completion zsh)"'),
    "zsh from a file": (["-f", "-i"], f"fpath=(~/.zfunc $fpath); {ZSH} true"),
    "fish": (["--no-config", "-i"], "dragoman completion fish | source"),
    "fish from a file": (["-i"], "true"),
}
"""How each is started, and what it is told before the first completion."""


@pytest.mark.parametrize("kind", SHELLS)
def test_a_shell_completes_and_runs_a_call(folder: Path, kind: str) -> None:
    """The shell itself, at a terminal: a method, its arguments and their values, each followed by a space."""
    shell = kind.split()[0]
    program = shutil.which(shell)
    if program is None:
        missing(f"{shell} is not installed (Debian's package {shell})")
    patient = folder / "bin" / "dragoman"  # the command, on a machine that may be busy
    patient.parent.mkdir()
    patient.write_text(PATIENT)
    patient.chmod(0o755)
    path = f"{patient.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "TERM": "dumb", "PS1": "> ", "HOME": str(folder), "LANG": "C.UTF-8"}
    options, told = SHELLS[kind]
    if "file" in kind:
        place = folder / FILES[shell]
        place.parent.mkdir(parents=True)
        script = subprocess.run([patient, "completion", shell], env=env, capture_output=True, check=True).stdout
        place.write_bytes(script)
    dialogue(program, options, told, env, TYPED)
    assert not (folder / "ran").exists()


TYPED = [
    (b"dragoman call calc.py gr\t", b"eet "),
    (b"mood=k\t", b"ind "),
    (b"loud=t\t", b"rue "),
    (b"\n", b'"a kind word"'),
    (b"dragoman call calc.py subtract minu\t", b"end="),
    (b"7 sub\t", b"trahend="),
    (b"5 --js\t", b"on "),
    (b"\n", b'{"result":2}'),
    # a server's words that a shell would run: one is left
    (b"dragoman call evil.py e\t", b"vil-good "),
    (b"\n", b"it is good"),
]


def dialogue(
    program: str, options: list[str], told: str, env: dict[str, str], steps: Sequence[tuple[bytes, bytes]]
) -> None:
    """Type into a shell at a terminal, and wait for what it then shows."""
    child, terminal = pty.fork()
    if not child:
        os.execve(program, [program, *options], env)
    try:
        shown = b""

        def until(sign: bytes) -> None:
            nonlocal shown
            while sign not in shown:
                assert select.select([terminal], [], [], 60)[0], f"{sign!r} is not in {shown!r}"
                shown += os.read(terminal, 4096)
            shown = shown.partition(sign)[2]

        os.write(terminal, f'{told}; echo re""ady\n'.encode())
        until(b"ready\r\n")
        for typed, completed in steps:
            os.write(terminal, typed)
            until(completed)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)
