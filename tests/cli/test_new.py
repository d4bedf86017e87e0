"""`dragoman new`: the project's own tests pass, its README's commands run, and nothing is written over."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dragoman.cli.app import run

from .conftest import Command, environment


@pytest.mark.parametrize(("kind", "name"), [("service", "prices"), ("mcp", "my-notes")])
def test_a_project_whose_tests_pass(command: Command, kind: str, name: str) -> None:
    done = command.run("new", kind, name)
    assert done.status == 0, done.err
    folder = command.folder / name
    assert {f"{name}/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()} == set(
        done.out.splitlines()[:-1]
    )
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == name
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    assert "3 passed" in tests.stdout
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not re.search(r"\{(name|module|version|about|extras)\}", path.read_text()), path


@pytest.mark.parametrize("kind", ["service", "mcp"])
def test_the_code_is_clean(command: Command, kind: str) -> None:
    command.run("new", kind, "clean")
    for words in (
        ["check", "--select", "E,F,W,B,UP", "--line-length", "120"],
        ["format", "--check", "--line-length", "120"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "clean"],
            cwd=command.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_it_runs(command: Command) -> None:
    command.run("new", "service", "prices")
    assert command.run("call", "prices/src/prices/service.py", "divide", "1", "4").out == "0.25\n"
    assert command.run("new", "mcp", "notes", "--json").json["folder"] == "notes"
    done = command.run("tool", "notes/src/notes/server.py", "add_note", "title=tea", "text=green")
    assert done.out == "kept, 2 in all\n"


def test_nothing_is_written_over(command: Command) -> None:
    (command.folder / "prices").mkdir()
    done = command.run("new", "service", "prices")
    assert (done.status, "exists already" in done.err) == (2, True)
    assert not list((command.folder / "prices").iterdir())


def test_a_project_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write = Path.write_text

    def full(path: Path, text: str, **options: str) -> int:
        if path.name == "README.md":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    assert run(["new", "mcp", "notes"]) == 2
    assert "notes/README.md cannot be written: No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["1st", "a/b", "../x", "a b", "class", "json", "dragoman", "-x", "a--b"])
def test_names_that_are_none(command: Command, name: str) -> None:
    done = command.run("new", "mcp", name)
    assert done.status == 2
    assert [path.name for path in command.folder.iterdir()] == ["calculator.py"]
