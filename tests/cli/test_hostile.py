"""What a peer sends that was meant to break the command: escapes, schemas that are none, notifications without end."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import msgspec
import pytest

from dragoman.cli.exit_status import Usage
from dragoman.cli.fields import arguments_of
from dragoman.cli.mcp.listing import tool_signature
from dragoman.cli.terminal import compact, show_error
from dragoman.jsonrpc.errors import RpcError

from .conftest import Command

SERVICE = """\
from dragoman import RpcError, Service

api = Service("hostile")


@api.method(inline=True)
def escapes() -> str:
    return "a\\x9b31mred\\x7f\\u202eb\\u3000c\\n"


@api.method(inline=True)
def fails() -> None:
    raise RpcError("bad \\x9b31m", code=5, data="\\x9b\\u202e")
"""

TALKER = """\
import json, sys, threading, time

said = threading.Lock()


def say(message):
    with said:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\\n")
        sys.stdout.flush()


def without_end():
    while True:
        say({"method": "notifications/message", "params": {"level": "info", "data": "hi"}})
        time.sleep(0.05)


for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        about = {"capabilities": {"logging": {}}, "serverInfo": {"name": "talker", "version": "1"}}
        say({"id": asked["id"], "result": {"protocolVersion": "2025-11-25"} | about})
        threading.Thread(target=without_end, daemon=True).start()
    elif "id" in asked:
        say({"id": asked["id"], "error": {"code": -32601, "message": "Method not found"}})
"""


@pytest.fixture
def hostile(command: Command) -> str:
    """Where the service is."""
    (command.folder / "hostile.py").write_text(SERVICE)
    return command.serve_of("hostile:api", "tcp://127.0.0.1:0")[1][0]


@pytest.mark.parametrize("words", [["escapes"], ["fails"], ["escapes", "--json"], ["fails", "--json"]])
def test_what_a_terminal_would_obey_is_escaped(command: Command, hostile: str, words: list[str]) -> None:
    done = command.run("call", hostile, *words)
    assert (done.out + done.err).replace("\n", "").isprintable()
    if words == ["escapes", "--json"]:
        assert done.json == {"result": "a\x9b31mred\x7f\u202eb\u3000c\n"}


def test_json_text_keeps_its_value_and_its_space() -> None:
    value = {"a": "x\x9b\u2028\U000e0001\t\r\n", "é": [1, "日本"]}
    text = compact(value)
    assert text.isprintable()
    assert "日本" in text
    assert msgspec.json.decode(text) == value


@pytest.mark.parametrize(("to", "status"), [("head -1", 141), ("cat >/dev/full", 0)])
def test_listening_ends_where_nobody_reads(command: Command, to: str, status: int) -> None:
    (command.folder / "talker.py").write_text(TALKER)
    far = shlex.quote(f"{shlex.quote(sys.executable)} talker.py")
    words = f"{shlex.quote(sys.executable)} -m dragoman listen {far}"
    line = f"{words} >/dev/full; echo $?" if status == 0 else f"({words}; echo $? >&2) | {to}"
    done = command.run_shell(line)
    assert "Traceback" not in done.err
    if status == 0:
        assert done.out == "74\n"
    else:
        assert done.err.strip().endswith("141")
        assert msgspec.json.decode(done.out)["method"] == "notifications/message"


@pytest.mark.parametrize(
    ("schemas", "words"),
    [
        ({"inputSchema": {"properties": {"a": {}}, "required": 5}}, "x(a?: any)"),
        ({"inputSchema": {"properties": 5}}, "x()"),
        ({"outputSchema": {"type": "object", "properties": ["result"]}}, "x() -> object"),
        ({"outputSchema": {"type": "object", "properties": 5}}, "x() -> object"),
    ],
)
def test_a_schema_that_cannot_be_is_left_out(schemas: dict[str, Any], words: str) -> None:
    assert tool_signature({"name": "x", "inputSchema": {}} | schemas) == words


def test_a_type_without_a_name() -> None:
    with pytest.raises(Usage, match="a: it must be"):
        arguments_of(["a=1"], {"type": "object", "properties": {"a": {"type": ""}}}, "x")


@pytest.mark.parametrize(
    ("message", "data", "shown"),
    [("the limit is 5", 5, "  5"), ("cannot parse {x}", {"x": "y" * 120}, "  {\n")],
)
def test_data_that_is_part_of_the_message_is_shown(
    capsys: pytest.CaptureFixture[str], message: str, data: Any, shown: str
) -> None:
    show_error(RpcError(message, code=1, data=data))
    told = capsys.readouterr().err.removeprefix(f"error 1  {message}\n")
    assert told.startswith(shown)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["stdio:", "--workers", "2"], "stdio: and several workers do not go together"),
        (["tcp://127.0.0.1:1", "tcp://127.0.0.1:1", "--workers", "2"], "stands twice"),
        (["--workers", "99999999999999999999"], "at least 1, at most 1024"),
    ],
)
@pytest.mark.parametrize("check", [["--check"], []], ids=["check", "serve"])
def test_workers_that_cannot_be(command: Command, words: list[str], sentence: str, check: list[str]) -> None:
    done = command.run("serve", *check, "calculator:api", *words)
    assert done.status == 2
    assert sentence in done.err
