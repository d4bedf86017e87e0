"""Batch files get their arguments as they are, or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dragoman.system.programs import UnsafeArgument, batch_line, runnable, search_path

SCRIPT = r"C:\Program Files\nodejs\npx.cmd"
EXTENSION = ".exe" if sys.platform == "win32" else ""


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("-y", "-y"),
        ("@scope/server@1.2.3", "@scope/server@1.2.3"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a&calc.exe", '"a&calc.exe"'),
        ("a|b<c>d^e(f)", '"a|b<c>d^e(f)"'),
        ("C:\\data\\", '"C:\\data\\\\"'),
        ("a,b;c=d", '"a,b;c=d"'),
        ("grüße", '"grüße"'),
    ],
)
def test_arguments_are_quoted(argument: str, written: str) -> None:
    assert batch_line(SCRIPT, [argument]) == f'"{SCRIPT}" {written}'


@pytest.mark.parametrize(
    "argument", ['"&calc.exe', "%PATH%", "%CMDCMDLINE:~-1%&calc.exe", "a\nb", "a\rb", "a\0b", "!x!", '{"a": 1}']
)
def test_what_cmd_would_interpret_is_refused(argument: str) -> None:
    with pytest.raises(UnsafeArgument, match=r"npx\.cmd is a batch file, and cmd\.exe would interpret"):
        batch_line(SCRIPT, ["-y", argument])


def test_a_program_is_looked_for_in_whole_paths_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / f"tool{EXTENSION}"
    program.write_text("")
    program.chmod(0o755)
    for path in ("", ".", os.pathsep, f"{os.pathsep}nowhere"):
        assert search_path("tool", path) is None
    found = search_path("tool", os.pathsep.join([".", str(tmp_path)]))
    assert found is not None
    assert Path(found).samefile(program)
    assert search_path(f"{tmp_path.name}/tool", str(tmp_path.parent)) is None


def test_a_path_that_cmd_would_interpret_is_refused() -> None:
    with pytest.raises(UnsafeArgument):
        batch_line(r"C:\100%\npx.cmd", [])


if sys.platform != "win32":

    def test_elsewhere_a_command_is_run_as_it_is(tmp_path: Path) -> None:
        assert runnable(["npx.cmd", "%a"], {}, None) == (["npx.cmd", "%a"], {})
