"""How a command ends where its output cannot be written, its standard streams are closed, or Ctrl-C comes early."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PATIENCE, Command, environment

FULL = "/dev/full"
NOT_WRITTEN = 74


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A line of the shell, in which `dragoman` is the command; its stdout is a pipe, as is its stderr."""
    line = line.replace("dragoman", f"{sys.executable} -m dragoman")
    plain = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=plain, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize(
    "words", ["call calculator.py subtract 42 23", "methods calculator.py", "call --help", "--help"]
)
@pytest.mark.parametrize("json", ["", "--json"])
def test_a_full_disk_is_said_in_one_sentence(command: Command, words: str, json: str) -> None:
    done = shell(command.folder, f"dragoman {words} {json} > {FULL}")
    assert done.returncode == NOT_WRITTEN, done.stderr
    assert done.stderr.splitlines()[-1] == "dragoman: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("where", [f"2> {FULL}", f"--json > {FULL}", "2>&1 | true; exit ${PIPESTATUS[0]}"])
def test_a_failure_that_cannot_be_told_keeps_its_status(command: Command, where: str) -> None:
    done = shell(command.folder, f"dragoman call 127.0.0.1:9 subtract {where}")
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_good_as_none(command: Command, closed: str) -> None:
    done = shell(command.folder, f"dragoman call calculator.py subtract 42 23 {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "19\n")


def test_a_server_without_standard_streams(command: Command) -> None:
    """A service manager may close all three; then no socket takes their numbers."""
    line = """
        dragoman serve calculator unix:closed.sock <&- >&- 2>&- &
        until [ -S closed.sock ]; do sleep 0.05; done
        dragoman call unix:closed.sock subtract 42 23
        kill $!; wait $!
    """
    done = shell(command.folder, line)
    assert (done.returncode, done.stdout, done.stderr) == (0, "19\n", "")


def test_ctrl_c_while_the_command_is_imported(command: Command) -> None:
    (command.folder / "cyclopts.py").write_text("print('importing', flush=True)\nimport time\ntime.sleep(60)\n")
    process = command.start("call", "calculator.py", "subtract", env={"PYTHONPATH": os.fspath(command.folder)})
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("login https://mcp.example.org/mcp", "cryptography", "auth"),
        ("tokens", "cryptography", "auth"),
        ("auth server", "joserfc", "auth"),
        ("call http://127.0.0.1:1 subtract", "httptools", "http"),
    ],
)
def test_a_missing_extra(command: Command, words: str, package: str, extra: str) -> None:
    lacking = f"raise ModuleNotFoundError('No module named {package}', name={package!r})\n"
    (command.folder / f"{package}.py").write_text(lacking)
    done = command.run(*words.split(), "--json", env={"PYTHONPATH": os.fspath(command.folder)})
    assert (done.status, done.err) == (2, "")
    assert f'needs {package}: pip install "dragoman[{extra}]"' in done.json["error"]["message"]


def test_the_doctor_needs_an_extra_for_http_alone(command: Command) -> None:
    (command.folder / "httptools.py").write_text("raise ModuleNotFoundError('none', name='httptools')\n")
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    env = {"PYTHONPATH": os.fspath(command.folder)}
    assert command.run("doctor", url, env=env).status == 0
    done = command.run("doctor", url.replace("tcp:", "http:"), env=env)
    assert (done.status, "needs httptools" in done.err) == (2, True)


def test_a_faulty_file_of_options_is_told_as_json(command: Command) -> None:
    done = command.run("serve", "calculator", "--config", "none.toml", "--json")
    assert done.status == 2
    assert done.json["error"]["message"] == "--config none.toml: No such file or directory"


@pytest.mark.parametrize("files", [10, 16, 24])
@pytest.mark.parametrize(
    "words", [["tcp://127.0.0.1:0"], ["http://127.0.0.1:0"], ["tcp://127.0.0.1:0", "--workers", "2"]]
)
def test_too_few_files_are_told_in_one_sentence(command: Command, files: int, words: list[str]) -> None:
    (command.folder / "small.py").write_text("from dragoman import Service\napi = Service('small')\n")
    line = shlex.join([sys.executable, "-m", "dragoman", "serve", "small.py:api", *words])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n {files}; exec {line}"], cwd=command.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 71
    assert done.stderr == f"dragoman: too many open files: this process may have {files} of them (ulimit -n)\n"
