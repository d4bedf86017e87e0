"""`dragoman new`: the project's own tests pass, its README's commands run, and nothing is written over."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import msgspec
import pytest

import dragoman
from dragoman.cli.app import run
from tests.ports import free_port

from .conftest import PATIENCE, Command, environment

NAMES = {
    "prices": "prices",
    "my-notes": "my_notes",
    "msgspec": "msgspec_{}",
    "pytest": "pytest_{}",
    "json": "json_{}",
    "class": "class_{}",
    "dragoman": "dragoman_{}",
    "tests": "tests_{}",
    "test-server": "test_server_{}",
    "Rich": "rich_{}",
    "msgspec-server": "msgspec_server",
}
"""Names of projects, and their modules."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [("service", "prices"), ("service", "pytest"), ("service", "tests"), *(("mcp", name) for name in NAMES)],
)
def test_a_project_whose_tests_pass_whatever_its_name(command: Command, kind: str, name: str) -> None:
    done = command.run("new", kind, name)
    assert done.status == 0, done.err
    folder = command.folder / name
    assert {f"{name}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*") if path.is_file()} == set(
        done.out.splitlines()[:-1]
    )
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    module = NAMES[name].format("service" if kind == "service" else "server")
    assert project.replace("-", "_").lower() == module
    assert [path.name for path in (folder / "src").iterdir()] == [module]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    assert f"{3 if kind == 'service' else 5} passed" in tests.stdout
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not re.search(r"\{(name|module|version|about|extras)\}", path.read_text()), path


# -- the README, as a reader follows it ---------------------------------------------------------------


class Reader:
    """One who has made a project and installed it: an environment of its own, with the project's sources on its path as
    `pip install -e` puts them there."""

    def __init__(self, command: Command, kind: str, name: str) -> None:
        assert command.run("new", kind, name).status == 0
        self.folder = command.folder / name
        self.bin = command.folder / "venv" / "bin"
        venv.create(command.folder / "venv", with_pip=False, symlinks=True)
        (packages,) = (command.folder / "venv" / "lib").glob("python*/site-packages")
        here = {sysconfig.get_path("purelib"), str(Path(dragoman.__file__).parents[1])}
        (packages / "project.pth").write_text("\n".join([*here, str(self.folder / "src")]))
        for script, module in ("dragoman", "dragoman"), ("pytest", "pytest"):
            path = self.bin / script
            path.write_text(f'#!/bin/sh\nexec "{self.bin}/python" -m {module} "$@"\n')
            path.chmod(0o755)
        self.env = environment(command.home()) | {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def lines(self) -> list[str]:
        """The commands of the README."""
        text = (self.folder / "README.md").read_text()
        return [line.strip() for line in text.splitlines() if line.startswith("    ") and not line.startswith("    {")]

    def follow(self) -> dict[str, str]:
        """Run each command; what is served goes on until the end. What each has printed."""
        said: dict[str, str] = {}
        served: list[subprocess.Popen[str]] = []
        moved: dict[str, str] = {}
        try:
            for line in self.lines():
                shown = line
                for before in re.findall(r"127\.0\.0\.1:\d+", line):
                    line = line.replace(before, moved.setdefault(before, f"127.0.0.1:{free_port()}"))
                if line.startswith("pip install"):
                    continue
                if line.startswith("dragoman serve"):
                    process = subprocess.Popen(
                        f"exec {line}", shell=True, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True
                    )
                    served.append(process)
                    assert process.stdout is not None
                    said[shown] = "".join(iter(process.stdout.readline, "")) if process.poll() else ""
                    while not (told := process.stdout.readline()).startswith("try"):
                        assert told, f"{line}: it has ended"
                    continue
                done = subprocess.run(
                    line, shell=True, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE
                )
                assert done.returncode == 0, (line, done.stdout, done.stderr)
                said[shown] = done.stdout
        finally:
            for process in served:
                process.terminate()
                process.communicate(timeout=20)
        return said


def test_the_commands_of_a_services_readme_run(command: Command) -> None:
    said = Reader(command, "service", "prices").follow()
    assert said["dragoman call prices.service:api divide 1 4"] == "0.25\n"
    assert said["dragoman call http://127.0.0.1:8000 subtract 42 23"] == "19\n"
    assert "subtract(" in said["dragoman methods http://127.0.0.1:8000"]


@pytest.mark.parametrize("name", ["my-notes", "pytest"])
def test_the_commands_of_a_servers_readme_run(command: Command, name: str) -> None:
    reader = Reader(command, "mcp", name)
    said = reader.follow()
    module = NAMES[name].format("server")
    assert said[f"dragoman tools {module}.server:app"].startswith("add_note(")
    assert said[f'dragoman tool {module}.server:app add_note title=tea "text=two minutes"'] == "kept, 2 in all\n"
    assert said[f"dragoman read {module}.server:app note:///welcome"].startswith("Add a note")
    host = msgspec.json.decode(
        re.findall(r"^    (\{.*\})$", (reader.folder / "README.md").read_text(), re.MULTILINE)[0]
    )
    (entry,) = host["mcpServers"].values()
    done = command.run("tools", "--", f"{reader.bin}/{entry['command']}", *entry["args"])
    assert done.out.startswith("add_note(")


# -- a public judge -----------------------------------------------------------------------------------


NOT_OURS = {"readiness_2026_deprecated_features"}
"""`logging` is declared in 2026-07-28 by a server whose functions may log, as those of the template, which have a
Context."""


@pytest.mark.parametrize("wire", ["stdio", "http"])
def test_a_judge_of_servers_finds_nothing_to_better(command: Command, wire: str) -> None:
    """What hosts show and models read is all there, as mcpscore counts it; over plain HTTP it misses TLS."""
    assert command.run("new", "mcp", "notes").status == 0
    serving = [sys.executable, "-m", "dragoman", "serve", "notes/src/notes/server.py"]
    target = ["--stdio", *serving, "stdio:", "--quiet"]
    if wire == "http":
        _, target = command.serve_of("notes/src/notes/server.py", "http://127.0.0.1:0/mcp")
    done = subprocess.run(
        [Path(sys.executable).parent / "mcpscore", "--no-config", "--json", *target],
        cwd=command.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    found = msgspec.json.decode(done.stdout)
    rules = [*found["results"], *found["readiness"]["results"]]
    failed = {one["rule_id"] for one in rules if not one["passed"]} - NOT_OURS
    assert len(rules) > 50
    assert failed == (set() if wire == "stdio" else {"security_tls_enabled"}), found


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
    assert f"{Path('notes/README.md')} cannot be written: No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["1st", "a/b", "../x", "a b", "-x", "a--b"])
def test_names_that_are_none(command: Command, name: str) -> None:
    done = command.run("new", "mcp", name)
    assert done.status == 2
    assert [path.name for path in command.folder.iterdir()] == ["calculator.py"]
