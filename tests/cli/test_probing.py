"""`describe`, `listen`, `complete`, and the options of the output that all commands share."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from .conftest import Command

WEATHER = """\
import asyncio

from dragoman.mcp import Server

app = Server("weather", version="2.0.0")


@app.tool
def forecast(city: str, days: int = 1) -> str:
    "The weather of a city."
    return f"sunny in {city}"


@app.prompt
def review(language: str, framework: str = "") -> str:
    "Review code."
    return f"Review this {language}"


@app.completion("review", "language")
def languages(value: str) -> list[str]:
    return [one for one in ("python", "perl") if one.startswith(value)]


@app.resource("config://app")
def config() -> str:
    return "dark"
"""


@pytest.fixture
def weather(command: Command) -> Command:
    (command.folder / "weather.py").write_text(WEATHER)
    return command


def test_describe_a_service(command: Command) -> None:
    done = command.run("describe", "calculator.py")
    assert done.status == 0
    assert "subtract(minuend: integer, subtrahend: integer) -> integer" in done.out
    done = command.run("describe", "calculator.py", "fail")
    assert done.status == 0, done.err
    assert done.out == "fail(kind: string) -> null\n  kind  string\n  error 7  Too short\n"
    assert command.run("describe", "calculator.py", "subtract", "--json").json["name"] == "subtract"
    assert {one["name"] for one in command.run("describe", "calculator.py", "--json").json["methods"]} >= {"echo"}
    done = command.run("describe", "calculator.py", "subtrac")
    assert (done.status, "did you mean subtract?" in done.err) == (2, True)
    lines = command.run("describe", "calculator.py", "--output", "ndjson").out.splitlines()
    assert {msgspec.json.decode(line)["name"] for line in lines} >= {"echo", "subtract"}


MANY = """\
from dragoman.mcp import Server
app = Server("many")
app.add_tool(lambda a: "", name="t")
app.add_prompt(lambda a: "", name="p")
app.add_resource(lambda: "", "r:///1", name="one")
app.add_resource(lambda a: "", "r:///{a}", name="each")
@app.completion("p", "a")
def complete(value: str) -> list[str]:
    return ["x", "y"]
"""
LISTS = {
    "tools": {"t"},
    "prompts": {"p"},
    "resources": {"r:///1", "r:///{a}"},
    "describe": {"t", "p", "r:///1", "r:///{a}"},
    "complete": {"x", "y"},
}


@pytest.mark.parametrize("form", ["table", "json", "ndjson"])
@pytest.mark.parametrize("name", LISTS)
def test_every_form_has_all_lists(command: Command, name: str, form: str) -> None:
    (command.folder / "many.py").write_text(MANY)
    words = ["p", "a="] if name == "complete" else []
    done = command.run(name, "many.py", *words, "--output", form)
    assert done.status == 0, done.err
    if form != "ndjson":
        assert all(one in done.out for one in LISTS[name])
        return
    entries = [msgspec.json.decode(line) for line in done.out.splitlines()]
    assert len(entries) == len(LISTS[name])
    found = {
        one if isinstance(one, str) else one.get("uri") or one.get("uriTemplate") or one["name"] for one in entries
    }
    assert found == LISTS[name]


ODD = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    odd = {"result": [1]} if asked["method"] == "rpc.discover" else {"error": {"code": -32601, "message": "no"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | odd), flush=True)
"""


@pytest.mark.parametrize("words", [["methods"], ["describe"], ["describe", "f"]], ids=" ".join)
def test_a_description_that_is_none(command: Command, words: list[str]) -> None:
    (command.folder / "odd.py").write_text(ODD)
    done = command.run(words[0], f"{sys.executable} odd.py", *words[1:])
    assert (done.status, "answered to rpc.discover is not an OpenRPC document" in done.err) == (3, True), done.err


EXACT = """\
import json, sys
for line in sys.stdin:
    method = '{"name": "f", "params": [], "x-most": 12345678901234567890123.50, "x-far": 1e400}'
    head = '{"jsonrpc": "2.0", "id": %s, "result": ' % json.dumps(json.loads(line)["id"])
    print(head + '{"info": {}, "methods": [%s]}}' % method, flush=True)
"""


def test_the_numbers_of_a_description_stay_as_they_are_written(command: Command) -> None:
    (command.folder / "exact.py").write_text(EXACT)
    done = command.run("methods", f"{sys.executable} exact.py", "--output", "ndjson")
    assert (done.status, '"x-most": 12345678901234567890123.50, "x-far": 1e400' in done.out) == (0, True), done.err


def test_describe_a_server_of_mcp(weather: Command) -> None:
    done = weather.run("describe", "weather.py")
    assert done.status == 0
    for part in (
        "weather 2.0.0",
        "speaks 2026-07-28",
        "forecast(city: string, days?: integer)",
        "review(",
        "config://",
    ):
        assert part in done.out
    assert "days  integer, default 1" in weather.run("describe", "weather.py", "forecast").out
    assert "framework, may be left out" in weather.run("describe", "weather.py", "review").out
    assert "config://app" in weather.run("describe", "weather.py", "config://app").out
    there = weather.run("describe", "weather.py", "--json").json
    assert [one["name"] for one in there["tools"]] == ["forecast"]
    assert weather.run("describe", "weather.py", "review", "--json").json["name"] == "review"
    done = weather.run("describe", "weather.py", "forcast")
    assert (done.status, "did you mean forecast?" in done.err) == (2, True)


def test_complete(weather: Command) -> None:
    done = weather.run("complete", "weather.py", "review", "language=p")
    assert (done.status, done.out) == (0, "python\nperl\n")
    assert weather.run("complete", "weather.py", "review", "language=py", "--json").json["completion"]["values"] == [
        "python"
    ]
    assert weather.run("complete", "weather.py", "review", "language=x").err == "the server proposes nothing\n"
    done = weather.run("complete", "weather.py", "revew", "language=x")
    assert (done.status, "did you mean review?" in done.err) == (1, True)
    done = weather.run("complete", "weather.py", "review")
    assert (done.status, "ARGUMENT=BEGINNING" in done.err) == (2, True)


def test_listen_to_a_service(command: Command, tmp_path: Path) -> None:
    (command.folder / "talker.txt").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    said = json.loads(line)\n"
        "    if said['method'] == 'server/discover' or said['method'] == 'initialize':\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': said['id'],\n"
        "                          'error': {'code': -32601, 'message': 'no'}}), flush=True)\n"
    )
    talker = command.folder / "ticks.txt"
    talker.write_text(
        (command.folder / "talker.txt")
        .read_text()
        .replace("for line", "PRINT\nfor line", 1)
        .replace(
            "PRINT",
            "for n in range(3):\n"
            "    print(json.dumps({'jsonrpc': '2.0', 'method': 'tick', 'params': [n]}), flush=True)",
        )
    )
    done = command.run("listen", f"python {talker}", "--count", "2")
    assert done.status == 0, done.err
    assert [msgspec.json.decode(line) for line in done.out.splitlines()] == [
        {"method": "tick", "params": [0]},
        {"method": "tick", "params": [1]},
    ]
    assert command.run("listen", "calculator.py", "file:///x").status == 2
    assert command.run("listen", "calculator.py", "--count", "0").status == 2


def test_listen_over_http_to_a_service_is_refused(command: Command) -> None:
    _, urls = command.serve("http://127.0.0.1:0")
    done = command.run("listen", urls[0])
    assert done.status == 2
    assert "listen on ws://, tcp:// or unix:" in done.err


CHANGING = """\
from dragoman.mcp import Context, Server

app = Server("changing")


@app.resource("config://app")
def config() -> str:
    return "dark"


@app.tool
async def change(context: Context) -> str:
    app.notify_resource_updated("config://app")
    return "done"
"""


def test_listen_to_a_server_of_mcp(command: Command) -> None:
    (command.folder / "changing.py").write_text(CHANGING)
    process = command.start("serve", "changing:app", "http://127.0.0.1:0/mcp", "--json")
    assert process.stdout is not None
    url = msgspec.json.decode(process.stdout.readline())["urls"][0]
    listening = command.start("listen", url, "config://app", "-v")
    assert listening.stderr is not None
    for line in listening.stderr:  # until the subscription stands
        if "acknowledged" in line:
            break
    assert command.run("tool", url, "change").status == 0
    assert listening.stdout is not None
    said = msgspec.json.decode(listening.stdout.readline())
    while said["method"] != "notifications/resources/updated":
        said = msgspec.json.decode(listening.stdout.readline())
    assert said["params"]["uri"] == "config://app"
    listening.send_signal(signal.SIGINT)
    assert listening.wait() == 0


# -- options --------------------------------------------------------------------------------------


def test_the_form_of_the_output(weather: Command) -> None:
    assert msgspec.json.decode(weather.run("tools", "weather.py", "--output", "json").out)["tools"][0]["name"]
    lines = weather.run("methods", "calculator.py", "--output", "ndjson").out.splitlines()
    assert {msgspec.json.decode(line)["name"] for line in lines} >= {"subtract", "echo"}
    assert "\t" not in weather.run("methods", "calculator.py", "--output", "table").out
    assert "\t" in weather.run("methods", "calculator.py").out
    done = weather.run("methods", "calculator.py", "--output", "table", "--json")
    assert (done.status, "exclude each other" in done.out + done.err) == (2, True)
    done = weather.run("call", "--output=json")
    assert (done.status, done.err, done.json["error"]["kind"]) == (2, "", "usage")
    assert weather.run("call", "calculator.py", "subtract", "5", "3", "--output", "ndjson").out == '{"result":2}\n'


def test_colours(command: Command) -> None:
    words = ("call", "calculator.py", "echo", '{"a": 1}')
    assert command.run(*words).out == '{"a": 1}\n'
    assert "\x1b[" in command.run(*words, "--color", "always").out
    assert "\x1b[" in command.run(*words, "--color=always", env={"NO_COLOR": "1"}).out
    assert "\x1b[" in command.run(*words, env={"FORCE_COLOR": "1"}).out
    assert command.run(*words, "--color", "never", env={"FORCE_COLOR": "1"}).out == '{"a": 1}\n'
    assert "\x1b[" in command.run("call", "nosuch://x", "y", "--color", "always").err


def test_the_exchange_is_shown(weather: Command) -> None:
    done = weather.run("call", "calculator.py", "subtract", "5", "3", "-v")
    assert done.out == "2\n"
    sent, came = (line for line in done.err.splitlines() if line.startswith(("-->", "<--")))
    assert sent == '--> {"jsonrpc": "2.0", "method": "subtract", "params": [5, 3], "id": 1}'
    assert came.startswith('<-- {"jsonrpc": "2.0", "result": 2, "id": 1}  ')
    done = weather.run("call", "calculator.py", "echo", 'value={"password": "hidden"}', "-v")
    assert "hidden" not in done.err
    assert "***" in done.err
    assert '"method": "tools/call"' in weather.run("tool", "weather.py", "forecast", "city=x", "-v").err
    assert '--> {"jsonrpc": "2.0", "method": "note"' in weather.run("notify", "calculator.py", "note", "x", "-v").err


# -- bench ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--revision", "2025-11-25", "--sessions", "3")])
def test_bench_calls_tools(weather: Command, options: tuple[str, ...]) -> None:
    process = weather.start("serve", "weather:app", "http://127.0.0.1:0/mcp", "--json")
    assert process.stdout is not None
    url = msgspec.json.decode(process.stdout.readline())["urls"][0]
    done = weather.run("bench", url, "forecast", "city=x", "-n", "20", "-c", "4", "--json", *options)
    assert (done.status, done.json["calls"], done.json["errors"], done.json["failures"]) == (0, 20, {}, {})
    assert weather.run("bench", url, "-n", "5", "--json", *options).json["calls"] == 5


def test_bench_of_a_tool_that_fails(weather: Command) -> None:
    (weather.folder / "failing.py").write_text(
        "from dragoman.mcp import Server, ToolError\napp = Server('f')\n"
        "@app.tool\ndef fail(why: str) -> str:\n    raise ToolError(why)\n"
    )
    done = weather.run("bench", "failing.py", "fail", "why=no", "--mcp", "-n", "3", "--json")
    assert (done.status, done.json["errors"]) == (1, {"tool error no": 3})
    done = weather.run("bench", "failing.py", "fial", "--mcp", "-n", "3")
    assert (done.status, "did you mean fail?" in done.err) == (2, True)
    assert weather.run("bench", "failing.py", "fail", "--mcp", "--sessions", "0").status == 2
