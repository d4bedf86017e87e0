"""The name of a command and the cause of its end, as messages tell them."""

from __future__ import annotations

import pytest

from dragoman.net.commands import LONGEST_CAUSE, cause_of, command_name

from .stderr_endings import ENDINGS


@pytest.mark.parametrize(("text", "cause"), [row[1:] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_the_cause_comes_out_of_a_strangers_stderr(text: str, cause: str) -> None:
    found = cause_of(text.split("\n"))
    assert cause in found
    assert len(found) <= LONGEST_CAUSE
    assert bool(found) == bool(cause)


def test_an_error_of_long_ago_is_no_cause() -> None:
    log = ["ERROR: one request failed", *["GET / 200"] * 30, "shutting down"]
    assert cause_of(log) == "shutting down"


def test_a_cause_is_one_line_that_is_safe_to_print() -> None:
    assert cause_of(["Error: \x1b[31m" + "x" * 5_000]).startswith("Error: \\x1b[31mxx")
    assert len(cause_of(["x" * 5_000])) == LONGEST_CAUSE


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "server.py"], "python server.py"),
        (["/usr/bin/python", "s.py"], "/usr/bin/python s.py"),
        (["/" + "very/" * 20 + "python", "/" + "long/" * 20 + "server.py"], "python server.py"),
        (["node", "--require=/" + "deep/" * 20 + "a.js", "/srv/b.js"], "node --require=a.js b.js"),
        (["/" + "v/" * 60 + "npx", "-y", "@scope/server"], "npx -y @scope/server"),
    ],
)
def test_a_long_command_keeps_its_name(command: list[str], name: str) -> None:
    assert command_name(command) == name


def test_the_middle_of_a_longer_one_goes() -> None:
    name = command_name(["server", *[f"--option-{n}" for n in range(50)], "last"])
    assert len(name) <= 80
    assert (name[:6], name[-4:]) == ("server", "last")
    assert "..." in name
