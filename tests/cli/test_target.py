"""TARGET: what is served, and one clear sentence for what cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Service
from dragoman.cli.exit_status import Usage
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
    "factories.py": "from dragoman import Service\ndef create(name='made'):\n    return Service(name)\n"
    "def needs(x):\n    return Service(x)\nasync def co():\n    return Service('a')\n"
    "class K:\n    pass\ndef bad():\n    return 1 / 0\n",
    "none.py": "def f(): pass\n",
    "broken.py": "x = 1\ny = x / 0\n",
    "typo.py": "def f(:\n",
    "missing.py": "import nothing_of_that_name\n",
    "ends.py": "raise SystemExit(3)\n",
    "json.py": "from dragoman import Service\napi = Service('a')\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the files. What is imported from it is forgotten afterwards, and what another test of
    this process imported under one of their names is forgotten until then."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "inside.py").write_text("from dragoman import Service\napi = Service('inside')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [*(name.removesuffix(".py") for name in FILES if name != "json.py"), "deep", "deep.inside"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
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
        ("factories:create", "made"),
        ("factories.py:create", "made"),
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
        ("none:f", "none:f() returned None, which cannot be served; it must return a Service or a Server"),
        ("factories:co", "factories:co is a coroutine function; a function that makes a service is a plain one"),
        ("factories:bad", "factories:bad() failed: ZeroDivisionError: division by zero (factories.py, line 11)"),
        ("factories:needs", "factories:needs is a function and cannot be served; there is nothing to serve in"),
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


# -- each way to name a program, each command that takes one --------------------------------------

SERVERS = """\
from dragoman import Service
from dragoman.mcp import Server

app = Server("notes", version="1.0.0")
api = Service("numbers", version="1.0.0")


@app.tool
def add(text: str = "") -> str:
    return "added"


@app.resource("note:///one")
def one() -> str:
    return "one"


@app.prompt
def ask(topic: str = "") -> str:
    return "asked"


@api.method
def double(n: int) -> int:
    return 2 * n


def create_server() -> Server:
    return app


def create_service() -> Service:
    return api
"""
WAYS = [
    "here:{app}",
    "here.py:{app}",
    "here.py:create_{what}",
    "deep.installed:create_{what}",
    "file",
    "command",
    "url",
]
COMMANDS: dict[str, tuple[str, list[str], str]] = {
    "call": ("api", ["double", "21"], "42"),
    "notify": ("api", ["double", "21"], ""),
    "methods": ("api", [], "double"),
    "bench": ("api", ["double", "21", "--calls", "3"], "calls"),
    "describe": ("app", [], "add("),
    "doctor": ("app", [], "capabilities"),
    "tools": ("app", [], "add("),
    "tool": ("app", ["add"], "added"),
    "resources": ("app", [], "note:///one"),
    "read": ("app", ["note:///one"], "one"),
    "prompts": ("app", [], "ask("),
    "prompt": ("app", ["ask"], "asked"),
    "discover": ("app", [], "notes"),
    "ping": ("app", [], "notes"),
}
URLS_ALONE = {
    "login": "a login is for servers at http and https URLs",
    "logout": "a login is for servers at http and https URLs",
    "whoami": "a login is for servers at http and https URLs",
    "auth explain": "authorization is for servers at http and https URLs",
    "top": "no Unix sockets" if sys.platform == "win32" else "no such file",
}
"""Commands that cannot take a program, and what they say of one."""


@pytest.fixture
def servers(command: Command) -> Command:
    (command.folder / "here.py").write_text(SERVERS)
    (command.folder / "elsewhere" / "deep").mkdir(parents=True)
    (command.folder / "elsewhere" / "deep" / "__init__.py").touch()
    (command.folder / "elsewhere" / "deep" / "installed.py").write_text(SERVERS)
    for name in ("app", "api"):
        (command.folder / f"only_{name}.py").write_text(f"from here import {name}\n")
    return command


@pytest.mark.parametrize("way", WAYS)
def test_every_command_takes_every_way_to_name_a_server(servers: Command, way: str) -> None:
    """One command for each way, in turn, and all for the one that has most to find."""
    at = WAYS.index(way)
    for number, (name, (app, words, said)) in enumerate(COMMANDS.items()):
        if number % len(WAYS) != at and way != "deep.installed:create_{what}":
            continue
        if way == "url":
            _, (target,) = servers.serve_of(f"here:{app}", f"http://127.0.0.1:0{'/mcp' if app == 'app' else ''}")
        elif way == "file":
            target = f"only_{app}.py"
        elif way == "command":
            target = f"{sys.executable} -m dragoman serve here:{app} stdio: --quiet"
        else:
            target = way.format(app=app, what="server" if app == "app" else "service")
        done = servers.run(name, target, *words, env={"PYTHONPATH": str(servers.folder / "elsewhere")})
        assert done.status == 0, (name, done.err)
        assert said in done.out, name


@pytest.mark.parametrize("name", URLS_ALONE)
def test_what_can_take_no_program_says_so(servers: Command, name: str) -> None:
    done = servers.run(*name.split(), "here.py:app")
    assert done.status in (2, 3)
    assert URLS_ALONE[name] in done.err or "http and https" in done.err


def test_a_module_that_is_nowhere(servers: Command) -> None:
    done = servers.run("tools", "hare:app")
    assert (done.status, done.err) == (
        2,
        "dragoman: there is no module 'hare', here or installed; did you mean here?\n",
    )


@pytest.mark.parametrize("words", [[], ["--check"], ["--workers", "2"]], ids=str)
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (["mcp.json"], "dragoman tools --config NAME --config-file mcp.json uses one of them"),
        (["http://127.0.0.1:1/mcp", "stdio:"], "http://127.0.0.1:1/mcp is a URL, and serve takes first what to serve"),
        (["options.toml"], "options.toml is a file of options: dragoman serve --config options.toml"),
    ],
)
def test_what_serve_does_not_take_it_names(command: Command, target: list[str], said: str, words: list[str]) -> None:
    done = command.run("serve", *target, *words)
    assert (done.status, said in done.err) == (2, True), done.err
