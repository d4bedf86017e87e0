"""What people see: the same commands with a terminal at their end."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from dragoman.cli.calls.methods import DescribedMethod, Outcome, Param, kind, signature, summary
from tests.gates import Gate

from .conftest import Command, environment

if sys.platform != "win32":
    import pty

COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(command: Command, *words: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run with a terminal of 80 columns as stdin, stdout and stderr: the status, and all that was written."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=command.folder,
        env=environment({"TERM": "xterm-256color", "COLUMNS": "80"} | (env or {})),
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while data := os.read(ours, 65536):
            seen += data
    os.close(ours)
    return process.wait(60), seen.decode()


def plain(text: str) -> str:
    """The text without its colours."""
    return COLOUR.sub("", text)


def test_colour_only_where_it_is_wanted(command: Command) -> None:
    (command.folder / "messages.jsonl").write_text("{}\n")
    status, seen = on_terminal(command, "check", "messages.jsonl")
    assert status == 1
    assert COLOUR.search(seen)
    status, seen = on_terminal(command, "check", "messages.jsonl", env={"NO_COLOR": "1"})
    assert "\x1b[31m" not in seen
    status, seen = on_terminal(command, "check", "messages.jsonl", env={"TERM": "dumb"})
    assert "\x1b" not in seen


def test_a_result_and_an_error(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    status, seen = on_terminal(command, "call", url, "echo", '{"a":[1,"x\x7f"]}')
    assert (status, plain(seen).strip()) == (0, '{"a": [1, "x\\u007f"]}')
    status, seen = on_terminal(command, "call", url, "fail", "declared")
    assert status == 1
    assert "error 7  Too short" in plain(seen)


def test_progress_is_shown_while_it_lasts(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    status, seen = on_terminal(command, "call", url, "progress")
    assert status == 0
    assert "half" in plain(seen)
    assert plain(seen).rstrip().endswith('"done"')


def test_a_call_that_takes_long_is_shown_to_be_running(command: Command) -> None:
    """Without progress from the far end the line appears by itself; the call ends after it was seen."""
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    ours, theirs = pty.openpty()
    with contextlib.closing(Gate()) as gate:
        process = subprocess.Popen(
            [sys.executable, "-m", "dragoman", "call", url, "hold", gate.name],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=command.folder,
            env=environment({"TERM": "xterm-256color", "COLUMNS": "80"}),
        )
        os.close(theirs)
        seen = b""
        while b"hold" not in seen:
            seen += os.read(ours, 65536)
    with contextlib.suppress(OSError):  # how Linux says that the other end is closed
        while data := os.read(ours, 65536):
            seen += data
    os.close(ours)
    assert process.wait(60) == 0
    assert plain(seen.decode()).rstrip().endswith('"held"')


def test_bench_shows_how_far_it_is(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    status, seen = on_terminal(command, "bench", url, "subtract", "1", "2", "--calls", "50")
    assert status == 0
    assert "50 in" in plain(seen)


def test_methods(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    status, seen = on_terminal(command, "methods", url)
    assert status == 0
    assert "subtract(minuend: integer, subtrahend: integer) -> integer" in plain(seen)
    assert "    Subtract one from the other." in plain(seen)


OFFICE = """\
from dragoman.mcp import Server

app = Server("office", instructions="Books rooms for the guests of a small office, and orders lunch for all of them.")


@app.tool
def book_room(room: str, start: str, hours: int = 1, equipment: list[str] = [], notes: str | None = None) -> str:
    "Book a room for some hours, with the equipment that is wanted there, and tell those who are invited."
    return room


@app.prompt
def invite(guest: str) -> str:
    "Write an invitation."
    return guest


@app.resource("office://hours")
def hours() -> str:
    "When each room is open."
    return ""


@app.resource("office://rooms/{room}")
def room(room: str) -> str:
    return room
"""


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_what_a_server_offers_has_headings_and_no_broken_word(command: Command, columns: int) -> None:
    (command.folder / "office.py").write_text(OFFICE)
    status, seen = on_terminal(command, "describe", "office.py", env={"COLUMNS": str(columns)})
    lines = plain(seen).splitlines()
    assert status == 0
    assert [line for line in lines if re.fullmatch(r"[A-Z][a-z ]+  \d", line)] == [
        "Tools  1",
        "Prompts  1",
        "Resources  1",
        "Resource templates  1",
    ]
    assert max(map(len, lines)) <= columns
    words = " ".join(plain(seen).split())
    assert "equipment?: [string], notes?: string | null)" in words
    assert "Books rooms for the guests of a small office, and orders lunch for all of them." in words


def test_an_entry_in_detail_has_its_arguments_in_columns(command: Command) -> None:
    (command.folder / "office.py").write_text(OFFICE)
    _, seen = on_terminal(command, "tools", "office.py", "book_room")
    lines = plain(seen).splitlines()
    assert lines[lines.index("Arguments") + 1 :][:3] == [
        "  room       string",
        "  start      string",
        "  hours      integer, default 1",
    ]


def test_an_error_is_broken_between_words(command: Command) -> None:
    _, seen = on_terminal(command, "tools", "--config", "weather", env={"COLUMNS": "60"})
    lines = plain(seen).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_the_help_has_colours_on_a_terminal_alone(command: Command, env: dict[str, str]) -> None:
    assert COLOUR.search(on_terminal(command, "--help")[1])
    assert not COLOUR.search(on_terminal(command, "--help", env=env)[1])


def test_demo(command: Command) -> None:
    status, seen = on_terminal(command, "demo")
    assert status == 0, plain(seen)
    last = plain(seen)
    assert "calls back" in last
    assert "one way" in last
    assert '← {"jsonrpc":"2.0","error":{"code":-32700' in last
    answers = [line for line in last.splitlines() if '"resultType":"complete"' in line]
    assert len(answers) == 1  # whole: the terminal breaks the line
    assert '"text":"19"' in answers[0]


def test_a_peer_that_does_not_describe_itself(command: Command) -> None:
    (command.folder / "calculator.py").write_text(
        "from dragoman import Service\napi = Service('shy', discover=False)\n"
    )
    done = command.run("methods", f"{sys.executable} -m dragoman serve calculator stdio:")
    assert done.status == 3
    assert "does not describe itself" in done.err


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"$ref": "#/components/schemas/Point"}, "Point"),
        ({"enum": ["a", 1]}, '"a" | 1'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "integer"}]}, "integer | null"),
        ({"type": "array", "items": {"type": "string"}}, "[string]"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_schemas_in_a_word(schema: Any, words: str) -> None:
    assert kind(schema) == words


def test_methods_in_a_line() -> None:
    method = DescribedMethod(
        "move", [Param("x", {"type": "number"}, True), Param("y")], Outcome({"type": "null"}), description="Go.\nMore."
    )
    assert signature(method) == "move(x: number, y?: any) -> null"
    assert signature(DescribedMethod("m")) == "m()"
    assert summary(method) == "Go."
    assert summary(DescribedMethod("m")) == ""


def test_a_terminal_that_cannot_clear_a_line_gets_none(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    assert on_terminal(command, "call", url, "progress", env={"TERM": "dumb"}) == (0, '"done"\r\n')
