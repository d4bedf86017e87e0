"""The examples of each command's help: all are read as command lines, and those that need no foreign host are run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from dragoman.cli.app import build, run
from dragoman.cli.commands import COMMANDS
from dragoman.system.sockets import UNIX

from .conftest import Command

PYTHON = Path(sys.executable).as_posix()  # its backslashes are a shell's, and JSON's
FILES = {
    "calculator.py": """\
from dragoman import Service
api = Service("calculator")

@api.method
def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend

@api.method("sum")
def total(*numbers: float) -> float:
    return sum(numbers)

@api.method
def greet(name: str, tags: list[str] = []) -> str:
    return name
""",
    "weather.py": """\
from dragoman.mcp import Server
app = Server("weather")

@app.tool
def forecast(city: str, country: str = "CN") -> str:
    return city

@app.resource("config://app")
def config() -> str:
    return "dark"

@app.prompt
def review(language: str, code: str = "") -> str:
    return language

if __name__ == "__main__":
    app.run()
""",
    "review.py": """\
from dragoman.mcp import Server
app = Server("review")

@app.prompt
def review(language: str, code: str = "", framework: str = "") -> str:
    return language

@app.completion("review", "language")
def languages(text: str) -> list[str]:
    return ["python"]

@app.completion("review", "framework")
def frameworks(text: str) -> list[str]:
    return ["flask"]

if __name__ == "__main__":
    app.run()
""",
    "files.py": """\
from dragoman.mcp import Server
app = Server("files")

@app.resource("file:///notes/today.txt")
def today() -> str:
    return "rain"

@app.resource("file:///logo.png", mime_type="image/png")
def logo() -> bytes:
    return b"x"

@app.resource("file:///{path}")
def file(path: str) -> str:
    return path

@app.completion("file:///{path}", "path")
def paths(text: str) -> list[str]:
    return ["readme"]
""",
    "shop.py": """\
from msgspec import Struct
from dragoman.mcp import Context, Server
from dragoman.mcp.extensions.events import Events
events = Events()
app = Server("shop", extensions=[events])

@events.event("orders.shipped", filters=["carrier"])
class OrderShipped(Struct):
    order: str
    carrier: str

@app.tool
def order(item: str, count: int = 1, tags: list[str] = [], gift: bool = False) -> str:
    return item
""",
    "lab.py": """\
from dragoman.mcp import Server, Tasks
app = Server("lab", extensions=[Tasks()])

@app.tool(task=True)
def train(rows: int) -> str:
    return f"{rows} rows"
""",
    "mcp.json": '{"mcpServers": {'
    + ", ".join(
        f'"{name}": {{"command": "{PYTHON}", "args": ["-m", "dragoman", "serve", "{name}.py", "stdio:", "--quiet"]}}'
        for name in ("weather", "files", "review")
    )
    + "}}",
    "messages.jsonl": '{"jsonrpc":"2.0","method":"x","id":1}\n',
    "traffic.jsonl": '{"jsonrpc":"2.0","method":"x","id":1}\n',
}
SERVER = "from calculator import api\napi.run('stdio:')\n"
RUN_ON = ("serve", "listen", "bench", "demo", "auth", "console")
"""Commands that end by a signal, measure, or open a browser at another server."""
FOREIGN = (
    "example.org",
    "npx",
    "pylsp",
    "redis:",
    ":8332",
    "report.json",
    "> ~/",
    "--install",
    "--kill",
    "--secret",
    " ID",
    "--watch",
    "/hooks",
)
"""Examples that need what a test has not: another host, a program, the user's home folder, a call, a task, an event, a
receiver of webhooks."""


def examples() -> list[str]:
    """The command lines of every help, without what explains them and what the shell does with their output."""
    found = []
    for name in COMMANDS:
        app = build()[name]
        text = str(app.help_epilogue).replace("\\\n", " ")
        for line in text.splitlines():
            if (match := re.match(r"  (?:.*\| )?dragoman (.+)", line)) is not None:
                words = re.split(r"(?<=\S) {2,}(?=[A-Za-z{])| \| | > ", match[1])[0]
                if not words.startswith("--install"):
                    found.append(words if words.split()[0] == name else "")
    return found


EXAMPLES = examples()


def test_each_command_has_three() -> None:
    assert "" not in EXAMPLES
    few = {name for name in COMMANDS if sum(line.split()[0] == name for line in EXAMPLES) < 3}
    assert not few


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Command, dict[str, str]]]:
    """A folder with what the examples name, and the places of its servers in the place of those of the examples."""
    folder = tmp_path_factory.mktemp("examples")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "server.py").write_text(SERVER)
    command = Command(folder, patience=600)
    wires = ["http://127.0.0.1:0", "tcp://127.0.0.1:0", "ws://127.0.0.1:0", "udp://127.0.0.1:0"]
    options = []
    if UNIX:
        (folder / "run").mkdir(mode=0o700)
        wires += ["unix:calc.sock"]
        options += ["--admin", "run/admin.sock"]
    _, service = command.serve(*wires, options=tuple(options))
    process = command.start("serve", "weather:app", "http://127.0.0.1:0/mcp", "--json")
    assert process.stdout is not None
    mcp = "http://" + process.stdout.readline().partition("http://")[2].partition('"')[0]
    was = ("http://127.0.0.1:8000", "tcp://127.0.0.1:9000", "ws://127.0.0.1:8001", "udp://127.0.0.1:9001")
    yield command, {"http://127.0.0.1:8000/mcp": mcp, **dict(zip(was, service[:4], strict=True))}
    command.end()


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line)
    if "--" in words:  # a command to start, which the command reads as an option
        words = words[: words.index("--")]
    build().parse_args(words, print_error=False, exit_on_error=False)


RUN = [line for line in EXAMPLES if line.split()[0] not in RUN_ON and not any(sign in line for sign in FOREIGN)]


@pytest.mark.parametrize("line", RUN)
def test_an_example_runs(
    places: tuple[Command, dict[str, str]],
    line: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command, places_of = places
    monkeypatch.chdir(command.folder)
    monkeypatch.setenv("COLUMNS", "80")
    for name, value in command.home().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(FILES["messages.jsonl"].encode())))
    for was, place in places_of.items():
        line = re.sub(rf"{re.escape(was)}(?![\d/])", place, line)
    status = run(shlex.split(line.replace("python ", f"{PYTHON} ")))
    said = capfd.readouterr()
    assert status == 0, said.err
