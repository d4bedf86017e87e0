"""The commands for MCP servers, against `dragoman serve`, on every wire and in both eras."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dragoman.system.sockets import UNIX

from .conftest import Command, environment
from .test_terminal import on_terminal, plain

if sys.platform != "win32":
    import pty

SERVER = '''\
import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from dragoman.mcp import Context, ForeignContent, Image, ResourceNotFound, Server, ToolAnnotations, ToolError

app = Server("weather", version="1.2.3", title="The weather", instructions="Ask for a city.")


class Forecast(Struct):
    city: str
    celsius: float


class Order(Struct):
    count: Annotated[int, Meta(ge=1, le=9, description="How many")]
    size: Literal["small", "large"] = "small"


@app.tool(inline=True, annotations=ToolAnnotations(read_only_hint=True))
def forecast(city: Annotated[str, Meta(description="A city")], country: str = "CN") -> Forecast:
    """Tomorrow's weather in a city.

    More than that it does not know.
    """
    return Forecast(f"{city}, {country}", 21.5)


@app.tool(inline=True)
def typed(count: int, flag: bool, data: dict[str, int]) -> str:
    return repr((count, flag, data))


@app.tool(inline=True)
def fail(kind: str) -> str:
    if kind == "told":
        raise ToolError("no such kind of day")
    raise ValueError("a secret of ours")


@app.tool
async def slow(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.info("halfway")
    await ctx.debug("never shown")
    return "done"


@app.tool
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("How many umbrellas?", Order)
    if answer.content is None:
        return answer.action
    return f"{answer.content.count} {answer.content.size}"


@app.tool
async def pay(ctx: Context) -> str:
    return (await ctx.elicit_url("Please pay", "https://pay.example/7")).action


@app.tool(inline=True)
def picture() -> Image:
    return Image(b"123", "image/png")


@app.tool(inline=True)
def hologram() -> list[ForeignContent]:
    return [ForeignContent("hologram", Raw(b'{"type":"hologram","data":[1]}'))]


@app.resource("weather://cities", mime_type="text/plain", inline=True)
def cities() -> str:
    "All the cities."
    return "Beijing\\nLhasa\\n"


@app.resource("weather://map", mime_type="image/png", inline=True)
def map() -> bytes:
    return bytes(range(256))


@app.resource("weather://cities/{city}", name="city", mime_type="text/plain", inline=True)
def city(city: str) -> str:
    if city == "Atlantis":
        raise ResourceNotFound("It sank")
    return f"{city}: sunny"


@app.prompt(inline=True)
def report(city: str, style: str = "short") -> str:
    "A weather report."
    return f"A {style} report of {city}, please."
'''

TOOLS = ["forecast", "typed", "fail", "slow", "order", "pay", "picture", "hologram"]
WIRES = ["http", "ws", "tcp", *["unix"] * UNIX, "child", "file"]
ERAS = ["2025-11-25", "2026-07-28"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One `dragoman serve` on several wires, and the ways to start one."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "weather.py").write_text(SERVER)
    command = Command(folder, patience=900)
    urls = ["http://127.0.0.1:0/mcp", "ws://127.0.0.1:0", "tcp://127.0.0.1:0"]
    urls += [f"unix:{folder}/w.sock"] * UNIX
    process = command.start("serve", "weather:app", *urls, "--json")
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(f"serve ended with {process.wait()}: {process.stderr.read()}")
    found = dict(zip(WIRES, msgspec.json.decode(line)["urls"], strict=False))
    found["child"] = f"{sys.executable} -m dragoman serve {folder / 'weather.py'} stdio:"
    found["file"] = str(folder / "weather.py")
    yield found
    command.end()


@pytest.fixture
def url(places: dict[str, str]) -> str:
    """The wire on which everything is tried that does not depend on the wire."""
    return places["http"]


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_tool_on_every_wire_in_both_eras(command: Command, places: dict[str, str], wire: str, revision: str) -> None:
    words = ("tool", places[wire], "forecast", "city=Lhasa", "--revision", revision)
    done = command.run(*words, "--json")
    assert done.status == 0, done.err + done.out
    assert done.json["result"]["structuredContent"] == {"city": "Lhasa, CN", "celsius": 21.5}


def test_a_command_after_dashes(command: Command, places: dict[str, str]) -> None:
    words = [sys.executable, "-m", "dragoman", "serve", places["file"], "stdio:"]
    assert command.run("tool", "forecast", "city=Lhasa", "--", *words).out == '{"city": "Lhasa, CN", "celsius": 21.5}\n'
    assert command.run("tools", "--json", "--", *words).status == 0
    done = command.run("tools", "--")
    assert (done.status, done.err) == (2, "dragoman: there is no command after --\n")


def test_a_server_of_a_host_s_file(command: Command, places: dict[str, str], url: str) -> None:
    words = [sys.executable, "-m", "dragoman", "serve", places["file"], "stdio:"]
    servers = {"child": {"command": words[0], "args": words[1:]}, "far": {"url": "${WEATHER}"}}
    (command.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert command.run("tool", "forecast", "city=Lhasa", "--config", "child").status == 0
    done = command.run("tool", "--config", "far", "forecast", "city=Lhasa", env={"WEATHER": url})
    assert done.status == 0, done.err
    (command.folder / "other.json").write_text(json.dumps({"servers": servers}))
    done = command.run("ping", "--config", "far", "--config-file", "other.json", env={"WEATHER": url})
    assert done.status == 0, done.err
    assert command.run("ping", "--config-file", "other.json").status == 2
    assert command.run("ping", "--config", "chidl").err.endswith("did you mean child?\n")


def test_arguments_are_typed_by_the_tool(command: Command, url: str) -> None:
    done = command.run("tool", url, "typed", "count=3", "flag=yes", 'data={"a":1}')
    assert done.out == "(3, True, {'a': 1})\n", done.err
    whole = '{"count": 3, "flag": false, "data": {}}'
    assert command.run("tool", url, "typed", "--arguments", whole).out == "(3, False, {})\n"
    assert command.run("tool", url, "typed", "--arguments", "-", input=whole).out == "(3, False, {})\n"
    for words, sentence in (
        (["count=x"], "count: it must be an integer, not 'x'"),
        (["cuont=1"], "did you mean count?"),
        (["1"], "write the arguments of typed by name"),
        (["--arguments", "[1]"], "--arguments: write an object"),
    ):
        done = command.run("tool", url, "typed", *words)
        assert (done.status, done.out) == (2, "")
        assert sentence in done.err
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("revision", ERAS)
def test_failures(command: Command, url: str, revision: str) -> None:
    done = command.run("tool", url, "fail", "kind=told", "--revision", revision)
    assert (done.status, done.out, done.err) == (1, "", "tool error  no such kind of day\n")
    done = command.run("tool", url, "fail", "kind=told", "--json", "--revision", revision)
    assert done.status == 1
    assert done.json["result"]["isError"] is True
    done = command.run("tool", url, "fail", "kind=other", "--revision", revision)
    assert done.status == 1
    assert "secret" not in done.err
    done = command.run("tool", url, "forecast", "--revision", revision)
    assert (done.status, done.err) == (2, "dragoman: forecast lacks city: write city=...\n")
    done = command.run("tool", url, "forecast", "--arguments", "{}", "--revision", revision)
    assert done.status == 1
    assert "city" in done.err


def test_an_unknown_tool(command: Command, url: str) -> None:
    done = command.run("tool", url, "forcast", "city=Lhasa")
    assert (done.status, done.out) == (1, "")
    assert "Unknown tool: forcast; did you mean forecast?" in done.err
    assert "error -32602" in done.err
    assert command.run("tool", url, "forcast", "--json").json["error"]["code"] == -32602
    assert command.run("tools", url, "forcast").status == 2
    assert command.run("tool", url).status == 2


def test_a_url_without_a_path(command: Command, url: str) -> None:
    """A user who forgets where MCP is on a server is told."""
    root = url.removesuffix("/mcp")
    done = command.run("tools", root)
    assert done.status == 3
    assert f"MCP is usually at {root}/mcp" in done.err


def test_tools(command: Command, url: str) -> None:
    done = command.run("tools", url)
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert [line[0].partition("(")[0] for line in lines] == TOOLS
    assert lines[0] == ["forecast(city: string, country?: string) -> Forecast", "Tomorrow's weather in a city."]
    assert [tool["name"] for tool in command.run("tools", url, "--json").json["tools"]] == TOOLS
    shown = command.run("tools", url, "forecast").out
    assert "More than that it does not know." in shown
    assert "city  string  A city" in shown
    assert 'country  string, default "CN"' in shown
    assert "readOnlyHint" in shown


def test_resources(command: Command, url: str) -> None:
    lines = [line.split("\t") for line in command.run("resources", url).out.splitlines()]
    assert [line[0] for line in lines] == ["weather://cities", "weather://map", "weather://cities/{city}"]
    assert lines[0][1:] == ["cities", "text/plain", "All the cities."]
    found = command.run("resources", url, "--json").json
    assert len(found["resources"]) == 2
    assert len(found["resourceTemplates"]) == 1


@pytest.mark.parametrize("revision", ERAS)
def test_read(command: Command, url: str, revision: str) -> None:
    era = ("--revision", revision)
    assert command.run("read", url, "weather://cities", *era).out == "Beijing\nLhasa\n"
    assert command.run("read", url, "weather://cities/Lhasa", *era).out == "Lhasa: sunny\n"
    raw = subprocess.run(
        [sys.executable, "-m", "dragoman", "read", url, "weather://map", *era], capture_output=True, check=True
    )
    assert raw.stdout == bytes(range(256))
    assert command.run("read", url, "weather://map", "--json", *era).json["result"]["contents"][0]["blob"]
    done = command.run("read", url, "weather://nothing", *era)
    assert done.status == 1
    assert done.err.startswith("error -32")
    assert "did you mean weather://map?" in done.err
    sunk = command.run("read", url, "weather://cities/Atlantis", *era)
    assert "It sank" in sunk.err
    assert "lists no resource" not in sunk.err  # it has a template
    assert command.run("read", url).status == 2


def test_prompts(command: Command, url: str) -> None:
    assert command.run("prompts", url).out == "report(city, style?)\tA weather report.\n"
    assert command.run("prompts", url, "--json").json["prompts"][0]["name"] == "report"
    assert command.run("prompt", url, "report", "city=Lhasa").out == "user: A short report of Lhasa, please.\n"
    done = command.run("prompt", url, "report", "city=Lhasa", "style=long", "--json")
    assert done.json["result"]["messages"][0]["content"]["text"] == "A long report of Lhasa, please."
    done = command.run("prompt", url, "report", "ctiy=Lhasa")
    assert (done.status, done.err) == (2, "dragoman: report has no argument 'ctiy'; did you mean city?\n")
    assert command.run("prompt", url, "report").status == 1
    assert command.run("prompt", url, "rpt").status == 1


@pytest.mark.parametrize("revision", ERAS)
def test_discover_and_ping(command: Command, url: str, revision: str) -> None:
    era = ("--revision", revision)
    done = command.run("discover", url, *era)
    assert done.status == 0, done.err
    assert done.out.startswith(f"The weather 1.2.3\n  speaks {revision}")
    assert "tools" in done.out
    assert "Ask for a city." in done.out
    found = command.run("discover", url, "--json", *era).json
    assert found["revision"] == revision
    assert found["server"]["name"] == "weather"
    assert "resources" in found["capabilities"]
    done = command.run("ping", url, *era)
    assert done.out.startswith(f"The weather 1.2.3  {revision}  ")
    assert command.run("ping", url, "--json", *era).json["ms"] > 0
    assert command.run("ping", url, "forecast").status == 2


def test_content(command: Command, url: str) -> None:
    assert command.run("tool", url, "picture").out == "[image/png, 3 bytes]\n"
    assert command.run("tool", url, "hologram").out == '{"type":"hologram","data":[1]}\n'
    assert command.run("tool", url, "hologram", "--json").json["result"]["content"] == [
        {"type": "hologram", "data": [1]}
    ]


@pytest.mark.parametrize("revision", ERAS)
def test_progress_and_logs(command: Command, url: str, revision: str) -> None:
    done = command.run("tool", url, "slow", "--log", "info", "--revision", revision)
    assert (done.status, done.out) == (0, "done\n")
    assert done.err == "info: halfway\n"


@pytest.mark.parametrize("revision", ERAS)
def test_progress_at_a_terminal(command: Command, url: str, revision: str) -> None:
    status, seen = on_terminal(command, "tool", url, "slow", "--revision", revision)
    assert status == 0
    assert plain(seen).rstrip().endswith("done")


@pytest.mark.parametrize("wire", ["http", "tcp"])
@pytest.mark.parametrize("revision", ERAS)
def test_questions_without_a_terminal(command: Command, places: dict[str, str], wire: str, revision: str) -> None:
    words = ("tool", places[wire], "order", "--revision", revision)
    done = command.run(*words)
    assert (done.status, done.out) == (0, "decline\n")
    assert done.err == "weather asks: How many umbrellas?\n  declined: there is no terminal to ask at\n"
    done = command.run(*words, "--answer", "count=3")
    assert (done.status, done.out) == (0, "3 small\n"), done.err
    done = command.run(*words, "--answer", "size=large")
    assert (done.status, done.out) == (0, "decline\n")
    done = command.run(*words, "--answer", "colour=red")
    assert (done.status, done.out) == (0, "decline\n")
    assert done.err == "weather asks: How many umbrellas?\n  declined: --answer lacks count\n"
    done = command.run("tool", places[wire], "pay", "--revision", revision)
    assert (done.status, done.out) == (0, "decline\n")
    assert "at the host pay.example" in done.err


def typed_at(command: Command, lines: list[tuple[str, str]], *words: str) -> tuple[int, str]:
    """Run at a terminal where, whenever one of the texts is shown, the line beside it is typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=command.folder,
        env=environment({"TERM": "xterm-256color", "COLUMNS": "80"}),
    )
    os.close(theirs)
    seen, at, waiting = "", 0, list(lines)
    with contextlib.suppress(OSError):
        while data := os.read(ours, 65536):
            seen += plain(data.decode())
            if waiting and waiting[0][0] in seen[at:]:
                at = len(seen)
                line = waiting.pop(0)[1]
                if line == "^C":
                    process.send_signal(signal.SIGINT)
                else:
                    os.write(ours, line.encode())
    os.close(ours)
    return process.wait(60), seen


@pytest.mark.parametrize("revision", ERAS)
def test_questions_at_a_terminal(command: Command, url: str, revision: str) -> None:
    words = ("tool", url, "order", "--revision", revision)
    lines = [("count: ", "12\n"), ("count: ", "3\n"), ("size [small]: ", "\n"), ("send this?", "a\n")]
    status, seen = typed_at(command, lines, *words)
    assert status == 0, seen
    assert "weather asks: How many umbrellas?" in seen
    assert "How many  (integer, from 1, to 9)" in seen
    assert "must be from 1 to 9" in seen
    assert seen.rstrip().endswith("3 small")
    status, seen = typed_at(command, [("count: ", "!d\n")], *words)
    assert (status, seen.rstrip().splitlines()[-1]) == (0, "decline")
    status, seen = typed_at(command, [("count: ", "\x04")], *words)
    assert (status, seen.rstrip().endswith("cancel")) == (0, True)
    status, seen = typed_at(command, [("[c]ancel: ", "a\n")], "tool", url, "pay", "--revision", revision)
    assert (status, seen.rstrip().splitlines()[-1]) == (0, "accept")


def test_ctrl_c_ends_a_question(command: Command, url: str) -> None:
    status, seen = typed_at(command, [("count: ", "^C")], "tool", url, "order")
    assert status == 130
    assert "Traceback" not in seen


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://127.0.0.1:1/mcp", 3),
        ("tcp://127.0.0.1:1", 3),
        ("127.0.0.1:8000", 2),
        ("no-such-command-anywhere here", 2),
        (f"{sys.executable} -c pass", 3),
    ],
)
def test_a_missing_far_end(command: Command, target: str, status: int) -> None:
    done = command.run("tools", target, "--timeout", "20", "--json")
    assert (done.status, done.err) == (status, "")
    assert done.json["error"]["kind"] == ("usage" if status == 2 else "no_answer")


def test_wrong_usage(command: Command, url: str) -> None:
    for words, sentence in (
        (["tools"], "say which server"),
        (["tools", url, "--revision", "2025-01-07"], "the revisions are 2024-11-05"),
        (["tools", url, "--timeout", "0"], "a time-out is above 0"),
        (["tools", url, "a", "b"], "is too much"),
        (["resources", url, "x"], "dragoman read"),
        (["tool", url, "order", "--answer", "count=x"], "--answer count: it must be an integer"),
    ):
        done = command.run(*words)
        assert (done.status, done.out) == (2, ""), done.err
        assert sentence in done.err


def test_trace(command: Command, url: str) -> None:
    done = command.run("tool", url, "forecast", "city=Lhasa", "--trace", "trace.jsonl")
    assert done.status == 0
    lines = (command.folder / "trace.jsonl").read_text().splitlines()
    assert any("tools/call" in line for line in lines)


def test_call_says_what_would_do(command: Command, url: str) -> None:
    done = command.run("call", url, "forecast", "city=Lhasa")
    assert done.status != 0
    assert f"this looks like MCP: dragoman tools {url} lists what it can do" in done.err


def test_serve_says_what_it_serves(command: Command) -> None:
    (command.folder / "weather.py").write_text(SERVER)
    process = command.start("serve", "weather", "http://127.0.0.1:0/mcp", "tcp://127.0.0.1:0")
    assert process.stdout is not None
    title, http, tcp, line = (process.stdout.readline() for _ in range(4))
    assert title == "weather 1.2.3, 8 tools, 2 resources, 1 resource template, 1 prompt\n"
    assert http.startswith("  http://127.0.0.1:")
    assert http.endswith("/mcp\n")
    assert tcp.startswith("  tcp://127.0.0.1:")
    assert line == f"try  dragoman tool {http.strip()} forecast city=text\n"
    done = command.run(*line.split()[2:])
    assert done.status == 0, done.err
    process.terminate()
    assert process.wait(20) == 0


def test_serve_on_stdio_keeps_stdout_clean(command: Command) -> None:
    (command.folder / "weather.py").write_text(SERVER + "print('a stray line')\n")
    hello: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}]
    done = command.run("serve", "weather.py", "stdio:", input="".join(json.dumps(one) + "\n" for one in lines))
    assert done.status == 0
    answer = msgspec.json.decode(done.out.splitlines()[-1])
    assert answer["result"]["serverInfo"]["name"] == "weather"


def test_debug_shows_what_is_masked(command: Command) -> None:
    (command.folder / "weather.py").write_text(SERVER)
    target = f"{sys.executable} -m dragoman serve weather.py stdio: --debug"
    assert "a secret of ours" in command.run("tool", target, "fail", "kind=x").err
