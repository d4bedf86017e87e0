"""Help that teaches, the version, completion, and mistakes in the command line itself."""

from __future__ import annotations

import shutil
import subprocess
import sys

import msgspec
import pytest

from dragoman import __version__
from dragoman.cli.commands import COMMANDS, FAMILIES, FIRST_STEPS, SHORT

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
    assert command.run("help").out == done.out
    assert command.run("--help", "--color", "never").out == done.out


def test_help_fits_a_screen(command: Command) -> None:
    lines = command.run("--help").out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_help_begins_with_what_people_do_first(command: Command) -> None:
    shown = command.run("--help").out
    examples = [example for example, _ in FIRST_STEPS]
    assert sorted(map(shown.index, examples)) == [shown.index(example) for example in examples]
    assert shown.index(examples[-1]) < shown.index(next(iter(FAMILIES)) + "\n")


def test_help_alone_imports_no_parser() -> None:
    code = "import sys; sys.argv = ['dragoman', '--help']; from dragoman.cli import main; main(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "cyclopts", "rich", "msgspec"} & set(loaded)


@pytest.mark.parametrize("words", [("help", "call"), ("--help", "call"), ("-h", "call"), ("call", "-h")])
def test_help_of_a_command_in_any_order(command: Command, words: tuple[str, ...]) -> None:
    assert command.run(*words).out == command.run("call", "--help").out


@pytest.mark.parametrize("name", SHORT)
def test_logins_are_commands_of_auth_and_alone(command: Command, name: str) -> None:
    alone, below = command.run(name, "--help").out, command.run("auth", name, "--help").out
    assert f"Usage: dragoman {name}" in alone
    assert below == alone.replace(f"Usage: dragoman {name}", f"Usage: dragoman auth {name}")
    assert command.run("auth", "tokens").out == command.run("tokens").out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(command: Command, name: str) -> None:
    done = command.run(name, "--help", env={"COLUMNS": "80"})
    assert done.status == 0
    sentence, example, usage = done.out.split("\n\n")[:3]
    assert sentence.endswith(".")
    assert example.startswith(f"  dragoman {name}")
    assert usage.startswith(f"Usage: dragoman {name}")
    assert not set("│╭╮╰╯") & set(done.out)
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
        (["xyzzy"], "there is no command 'xyzzy' (dragoman --help lists them)"),
        (["help", "xyzzy"], "there is no command 'xyzzy' (dragoman --help lists them)"),
        (["--nope"], "there is no option '--nope' before a command"),
        (["call", "tcp://127.0.0.1:1", "m", "--nope"], "Unknown option: --nope"),
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


@pytest.mark.parametrize(
    ("words", "missing", "example"),
    [
        (["call"], "URL is missing: the server's URL", "dragoman call http://127.0.0.1:8000 subtract 42 23"),
        (["call", "tcp://127.0.0.1:1"], "METHOD is missing: the method's name", "dragoman call http://"),
        (["new", "mcp"], "NAME is missing: its name", "dragoman new service"),
        (["top"], "ENDPOINT is missing: the socket", "dragoman top run/admin.sock"),
        (["auth", "login"], "URL is missing: the server (dragoman auth login --help", "dragoman login https://"),
        (["serve"], "say what to serve", "dragoman serve calculator:api"),
        (["tools"], "say which server", "dragoman tools http://127.0.0.1:8000/mcp"),
        (["tool", "weather.py"], "say which tool: dragoman tools weather.py lists them", "dragoman tool http://"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_a_missing_argument_is_named_and_shown(command: Command, words: list[str], missing: str, example: str) -> None:
    (command.folder / "weather.py").write_text("")
    done = command.run(*words)
    assert (done.status, done.out) == (2, "")
    what, advice = done.err.splitlines()
    assert what.startswith(f"dragoman: {missing}")
    assert advice.startswith(f"  for example: {example}")


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
        'dragoman: the command needs cyclopts: pip install "dragoman[cli]", '
        'or in a clone of the source pip install -e ".[cli]"\n'
    )


def test_python_dash_m_is_the_command(command: Command) -> None:
    assert msgspec.json.decode(command.run("nope", "--json").out)["error"]["kind"] == "usage"
