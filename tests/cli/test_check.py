"""`dragoman check`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .conftest import Command

GOOD = '{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}\n'


def test_no_faults(command: Command, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text(GOOD + "\n" + GOOD.replace("\n", "\r\n"))
    done = command.run("check", "good.jsonl")
    assert (done.status, done.out) == (0, "")
    assert done.err == "2 messages, no errors, no warnings\n"


def test_every_fault_with_its_line(command: Command) -> None:
    done = command.run("check", "-", input=GOOD + '{"jsonrpc":"1.0","method":1,"id":true}\n\n[]\n{\n')
    assert done.status == 1
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["-:2", "-:2", "-:2", "-:4", "-:5"]
    assert [line.split()[2] for line in lines[:3]] == ["$.jsonrpc", "$.method", "$.id"]
    assert done.err == "4 messages, 5 errors, no warnings\n"


def test_json(command: Command) -> None:
    done = command.run("check", "-", "--json", input=b'\xff\n{"jsonrpc":"2.0","method":"a","id":1.5}\n')
    found = [msgspec.json.decode(line) for line in done.out.splitlines()]
    assert done.status == 1
    assert {(each["line"], each["path"], each["severity"]) for each in found} >= {
        (1, "$", "error"),
        (2, "$.id", "warning"),
    }
    assert all(set(each) == {"file", "line", "path", "message", "severity"} for each in found)
    assert done.err == ""


def test_warnings_alone_are_fine(command: Command) -> None:
    assert command.run("check", "-", input='{"jsonrpc":"2.0","method":"a","id":1.5}').status == 0


def test_no_such_file(command: Command) -> None:
    done = command.run("check", "none.jsonl")
    assert (done.status, done.err) == (2, "dragoman: none.jsonl: No such file or directory\n")
