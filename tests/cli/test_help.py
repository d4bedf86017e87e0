"""Help that teaches, the version, completion, and mistakes in the command line itself."""

from __future__ import annotations

import shutil
import subprocess
import sys

import msgspec
import pytest

from dragoman import __version__
from dragoman.cli.app import COMMANDS

from .conftest import Command


def test_version(command: Command) -> None:
    assert command.run("--version").out == f"dragoman {__version__}\n"
    assert command.run("-V").out == f"dragoman {__version__}\n"


def test_version_imports_nothing_big() -> None:
    code = (
        "import sys; sys.argv = ['dragoman', '--version']; from dragoman.cli import main; main(); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "cyclopts", "rich", "msgspec"} & set(loaded)


def test_help_lists_the_commands(command: Command) -> None:
    done = command.run("--help")
    assert done.status == 0
    assert all(name in done.out for name in COMMANDS)
    assert "\x1b" not in done.out
    assert command.run().out == done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(command: Command, name: str) -> None:
    done = command.run(name, "--help", env={"COLUMNS": "80"})
    assert done.status == 0
    usage, _, examples = done.out.partition("Examples:")
    assert usage.startswith(f"Usage: dragoman {name}")
    assert f"dragoman {name}" in examples
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(command: Command, shell: str) -> None:
    done = command.run("completion", shell)
    assert done.status == 0
    assert "dragoman" in done.out
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=done.out, text=True, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "found"),
    [(["ca"], ["call"]), (["serve", "--rel"], ["--reload"]), (["completion", "f"], ["fish"])],
)
def test_bash_completes(command: Command, words: list[str], found: list[str]) -> None:
    script = command.run("completion", "bash").out
    line = f"COMP_WORDS=(dragoman {' '.join(words)}); COMP_CWORD={len(words)}; _dragoman; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["cal"], "there is no command 'cal'; did you mean call?"),
        (["xyzzy"], "there is no command 'xyzzy'; there are serve, call,"),
        (["call", "tcp://127.0.0.1:1", "m", "--nope"], "Unknown option: --nope"),
        (["call", "tcp://127.0.0.1:1"], "METHOD"),
        (["call", "tcp://127.0.0.1:1", "m", "--timeout", "soon"], "--timeout"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_mistakes_are_one_sentence(command: Command, words: list[str], sentence: str) -> None:
    done = command.run(*words)
    assert (done.status, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.startswith("dragoman: ")
    assert done.err.count("\n") == 1


def test_mistakes_with_json(command: Command) -> None:
    done = command.run("call", "tcp://127.0.0.1:1", "--json")
    assert (done.status, done.err) == (2, "")
    assert set(done.json["error"]) == {"kind", "message"}
    assert done.json["error"]["kind"] == "usage"


def test_without_the_extra(command: Command) -> None:
    code = "import sys; sys.modules['cyclopts'] = None; sys.argv = ['dragoman', 'demo']; from dragoman.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "dragoman: the command needs cyclopts: pip install 'dragoman[cli]', "
        "or in a clone of the source pip install -e '.[cli]'\n"
    )


def test_python_dash_m_is_the_command(command: Command) -> None:
    assert msgspec.json.decode(command.run("nope", "--json").out)["error"]["kind"] == "usage"
