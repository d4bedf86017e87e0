"""What `dragoman serve` logs: levels, formats, a line for each call, and that a slow reader blocks nothing."""

from __future__ import annotations

import json
import signal
import socket
from typing import Any

import pytest

from .conftest import Command

CALL = '{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}\n'
FORGED = '{"jsonrpc":"2.0","method":"a\\nb INFO access: call","id":2}\n'
FAILING = '{"jsonrpc":"2.0","method":"fail","params":["other"],"id":3}\n'


def served(command: Command, *options: str, given: str = CALL) -> list[str]:
    done = command.run("serve", "calculator", "stdio:", "--quiet", *options, input=given)
    assert done.status == 0, done.err
    return done.err.splitlines()


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("options", [("-v",), ("--log-level", "info"), ("--log-level", "debug")])
def test_a_good_call_is_a_line(command: Command, options: tuple[str, ...]) -> None:
    lines = [line for line in served(command, *options) if " access: " in line]
    (line,) = lines
    assert " INFO access: call method=subtract outcome=result ms=" in line
    assert line.endswith('in=61 out=36 service=calculator wire=stdio caller="standard input and output"')


@pytest.mark.parametrize(
    "options", [(), ("--log-level", "warning"), ("--log-level", "error"), ("-v", "--log-level", "error")]
)
def test_it_is_silent_where_nothing_is_asked_for(command: Command, options: tuple[str, ...]) -> None:
    assert served(command, *options) == []


def test_every_line_is_json(command: Command) -> None:
    lines = parsed(served(command, "--log-level", "info", "--log-format", "json", given=CALL + FORGED + FAILING))
    calls = {one["method"]: one for one in lines if one["logger"] == "access"}
    assert set(calls) == {"subtract", "a\nb INFO access: call", "fail"}
    (fault,) = [one for one in lines if one["level"] == "error"]
    assert "a secret of ours" in fault["exception"]
    assert all(one["time"].endswith("Z") for one in lines)


def test_a_fault_has_a_time_and_its_traceback_follows(command: Command) -> None:
    first, *rest = served(command, given=FAILING)
    assert " ERROR dragoman: method 'fail' failed, reference " in first
    assert first.startswith("20")
    assert rest[0] == "Traceback (most recent call last):"


def test_what_the_command_says_itself_is_json_too(command: Command) -> None:
    process, (url,) = command.serve("http://127.0.0.1:0", options=("--log-level", "info", "--log-format", "json"))
    assert process.stderr is not None
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 404")
    line = json.loads(process.stderr.readline())
    assert (line["message"], line["status"], line["kind"]) == ("refused", 404, "not_found")
    assert "There is nothing at /nothing" in line["reason"]
    process.send_signal(signal.SIGTERM)
    assert json.loads(process.stderr.readline())["message"].startswith("draining: ")
    assert process.wait(20) == 0


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=str)
def test_every_line_of_a_start_is_json(command: Command, workers: tuple[str, ...]) -> None:
    options = ("--log-format", "json", "--metrics", ":0", *workers)
    process = command.start("serve", "calculator", "tcp://127.0.0.1:0", *options)
    assert process.stderr is not None
    assert process.stdout is not None
    serving = json.loads(process.stdout.readline())
    assert (serving["level"], serving["logger"], serving["message"]) == ("info", "dragoman.command", "serving")
    assert (serving["service"], serving["pid"]) == ("calculator", process.pid)
    assert serving["urls"][0].startswith("tcp://127.0.0.1:")
    wanted = {"metrics at"} | ({"worker 1", "worker 2"} if workers else set())
    while wanted:
        line = json.loads(process.stderr.readline())
        assert (line["level"], line["logger"]) == ("info", "dragoman.command")
        wanted -= {words for words in wanted if line["message"].startswith(words)}
    process.send_signal(signal.SIGTERM)
    assert parsed(process.stderr.readlines())[0]["level"] == "warning"
    assert process.wait(20) == 0
    assert process.stdout.read() == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=str)
def test_what_is_for_information_is_not_told_to_who_wants_warnings(
    command: Command, form: str, workers: tuple[str, ...]
) -> None:
    options = ("--log-level", "warning", "--log-format", form, "--metrics", ":0", *workers)
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=options)
    host, _, port = url.removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(CALL.encode())
        assert b"19" in sock.recv(100)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    (line,) = process.stderr.readlines()
    assert "draining: " in line
    assert process.wait(20) == 0


def test_an_announcement_is_for_information(command: Command) -> None:
    done = command.run("serve", "calculator", "stdio:", "--log-level", "warning")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_a_log_that_is_not_read_blocks_no_call(command: Command) -> None:
    process = command.start("serve", "calculator", "stdio:", "--log-level", "info", "--log-format", "json")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    for _ in range(3_000):
        process.stdin.write(CALL)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
    written = dropped = 0
    while not dropped:
        line = process.stderr.readline()
        if line.startswith("{"):
            found = json.loads(line)
            written += found["logger"] == "access"
            dropped = found.get("count", 0)
    assert 0 < written < 3_000
    assert written + dropped <= 3_000
    process.stdin.close()
    process.stderr.read()
    assert process.wait(20) == 0


def test_an_unknown_level_is_wrong_usage(command: Command) -> None:
    done = command.run("serve", "calculator", "--log-level", "loud")
    assert done.status == 2
    assert "--log-level" in done.err
