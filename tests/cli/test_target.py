"""TARGET: what is served, and one clear sentence for what cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Service
from dragoman.cli.ends import Usage
from dragoman.cli.serving.announce import line_to_try
from dragoman.cli.target import folder_of, load

from .conftest import SERVICE, Command

FILES = {
    "calculator.py": SERVICE,
    "two.py": "from dragoman import Service\na = Service('a')\nb = Service('b')\nclass Inner:\n    api = a\n",
    "parts.py": "from dragoman import Service\na = Service('a')\nb = Service('b')\nc = Service('c')\n"
    "b.include(a)\nc.include(b)\n",
    "mcp_parts.py": "from dragoman.mcp import Server\na = Server('a')\nb = Server('b')\nb.include(a)\n",
    "alias.py": "from dragoman import Service\napi = app = Service('a')\n",
    "none.py": "def f(): pass\n",
    "broken.py": "x = 1\ny = x / 0\n",
    "typo.py": "def f(:\n",
    "missing.py": "import nothing_of_that_name\n",
    "ends.py": "raise SystemExit(3)\n",
    "json.py": "from dragoman import Service\napi = Service('a')\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the files; what is imported from it is forgotten afterwards."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "inside.py").write_text("from dragoman import Service\napi = Service('inside')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("calculator:api", "calculator"),
        ("calculator", "calculator"),
        ("calculator.py", "calculator"),
        ("calculator.py:api", "calculator"),
        ("./calculator.py:api", "calculator"),
        ("two:b", "b"),
        ("two:Inner.api", "a"),
        ("alias", "a"),
        ("parts", "c"),
        ("parts:a", "a"),
        ("mcp_parts", "b"),
        ("deep/inside.py", "inside"),
        ("deep.inside:api", "inside"),
    ],
)
def test_targets(folder: Path, target: str, name: str) -> None:
    assert load(target).name == name


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("calculater:api", "there is no module 'calculater'; did you mean calculator?"),
        ("xyzzy", "there is no module 'xyzzy'; in this folder there are alias, broken"),
        ("xyzzy.py", "there is no file xyzzy.py"),
        ("calculator:apo", "calculator has no 'apo'; did you mean calculator:api?"),
        ("calculator:xyzzy", "calculator has no 'xyzzy'; there is calculator:api to serve"),
        ("calculator:subtract", "calculator:subtract is a function and cannot be served; there is calculator:api"),
        ("two", "two has more than one service; say which: two:a or two:b"),
        ("two:Inner", "is a class and cannot be served"),
        ("none", "none has nothing to serve; write api = Service('none') in it"),
        ("none:f", "there is nothing to serve in none"),
        ("broken", "broken could not be imported: ZeroDivisionError: division by zero (broken.py, line 2)"),
        ("typo", "typo could not be imported: SyntaxError"),
        ("missing", "missing could not be imported: No module named 'nothing_of_that_name'"),
        ("ends", "importing ends ended the program"),
        ("json.py", "the name of a module that Python needs itself"),
        (":api", "is not a target"),
        ("calculator:", "is not a target"),
    ],
)
def test_bad_targets(folder: Path, target: str, sentence: str) -> None:
    with pytest.raises(Usage) as refused:
        load(target)
    assert sentence in str(refused.value)


def test_folder_to_watch(folder: Path) -> None:
    assert folder_of("calculator:api") == folder
    assert folder_of("deep/inside.py:api") == folder / "deep"


def test_line_to_try() -> None:
    api = Service("a")

    @api.method
    def difficult(what: dict[str, int] | list[int]) -> None: ...

    @api.method
    def greet(name: str, *, times: int, loud: bool = False) -> None: ...

    assert line_to_try(api, "tcp://h:1") == "dragoman call tcp://h:1 greet name=text times=1"


def test_one_sentence_and_status_2(command: Command) -> None:
    done = command.run("serve", "calculater:api")
    assert (done.status, done.out) == (2, "")
    assert done.err == "dragoman: there is no module 'calculater'; did you mean calculator?\n"
