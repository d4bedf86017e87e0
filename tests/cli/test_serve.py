"""`dragoman serve`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from dragoman import Peer, RpcError, connect
from dragoman.system.signals import TERMINATE
from tests.gates import Gate
from tests.ports import free_port

from .conftest import Command


@pytest.fixture
def gate() -> Iterator[Gate]:
    """`hold` answers once it is closed."""
    with contextlib.closing(Gate()) as gate:
        yield gate


async def refusal(peer: Peer) -> RpcError:
    """Call until a call is refused: the first may be quicker than the signal."""
    while True:
        try:
            await peer.call("subtract", [42, 23])
        except RpcError as error:
            return error


def until(stream: IO[str] | None, text: str) -> str:
    """Read lines until one has `text` in it."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no {text!r} in {len(seen)} lines, which end so: {seen[-20:]}")


def test_it_says_where_and_what_to_try(command: Command) -> None:
    process = command.start("serve", "calculator", "http://127.0.0.1:0", "tcp://127.0.0.1:0")
    assert process.stdout is not None
    first, http, tcp, line = (process.stdout.readline() for _ in range(4))
    assert first == "calculator 1.0.0, 6 methods\n"
    assert http.startswith("  http://127.0.0.1:")
    assert tcp.startswith("  tcp://127.0.0.1:")
    assert line == f"try  dragoman call {http.strip()} subtract 1 1\n"
    words = line.split()[2:]
    done = command.run(*words)
    assert done.out == "0\n", done.err
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.mark.parametrize("loop", [(), ("--no-uvloop",)])
async def test_sigterm_drains(command: Command, gate: Gate, loop: tuple[str, ...]) -> None:
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=loop)
    async with connect(url) as peer:
        calls = [asyncio.create_task(peer.call("hold", [gate.name])) for _ in range(20)]
        for _ in calls:
            await asyncio.to_thread(until, process.stdout, "holding")
        process.terminate()
        await asyncio.to_thread(until, process.stderr, "draining")
        assert (await refusal(peer)).code == -32001
        gate.close()
        assert await asyncio.gather(*calls) == ["held"] * 20
    assert await asyncio.to_thread(process.wait, 20) == 0


@pytest.mark.parametrize("number", [TERMINATE, signal.SIGINT])
async def test_a_second_signal_ends_at_once(command: Command, gate: Gate, number: signal.Signals) -> None:
    process, (url,) = command.serve("tcp://127.0.0.1:0")
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("hold", [gate.name]))
        await asyncio.to_thread(until, process.stdout, "holding")
        process.send_signal(number)
        await asyncio.to_thread(until, process.stderr, "draining")
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, 20) == 128 + number
        with pytest.raises(ConnectionError):
            await call


async def test_drain_time_is_a_limit(command: Command, gate: Gate) -> None:
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--drain", "0.1"))
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("hold", [gate.name]))
        await asyncio.to_thread(until, process.stdout, "holding")
        process.terminate()
        with pytest.raises((RpcError, ConnectionError)):
            await call
    assert await asyncio.to_thread(process.wait, 20) == 0


def test_stdio_ends_with_its_input(command: Command) -> None:
    request = '{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}\n'
    done = command.run("serve", "calculator", "stdio:", input=request)
    assert done.status == 0
    assert done.json == {"jsonrpc": "2.0", "result": 19, "id": 1}
    assert "calculator 1.0.0" in done.err
    framed = f"Content-Length: {len(request)}\r\n\r\n{request}"
    done = command.run("serve", "calculator", "stdio:", "--framing", "content-length", input=framed)
    assert done.out.startswith("Content-Length: ")


def test_a_print_does_not_harm_stdio(command: Command) -> None:
    lines = [
        '{"jsonrpc":"2.0","method":"note","params":["stray"],"id":1}',
        '{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":2}',
    ]
    done = command.run("serve", "calculator", "stdio:", input="\n".join(lines) + "\n")
    assert [msgspec.json.decode(line)["id"] for line in done.out.splitlines()] == [1, 2]
    assert "noted stray" in done.err


def test_port_in_use(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for scheme in ("http", "tcp"):
            done = command.run("serve", "calculator", f"{scheme}://127.0.0.1:{port}")
            assert (done.status, done.out) == (2, "")
            assert str(port) in done.err
            assert done.err.count("\n") == 1
            assert "in use" in done.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["htp://127.0.0.1:0"], "htp"),
        (["tcp://127.0.0.1"], "port"),
        (["tls://127.0.0.1:0"], "cert"),
        (["--tls-cert", "none.pem", "tls://127.0.0.1:0"], "none.pem: No such file"),
        (["--tls-key", "none.pem"], "--tls-key needs --tls-cert"),
        (["--drain", "-1"], "--drain -1"),
        (["--limit", "cals=1"], "did you mean calls?"),
        (["--reload", "stdio:"], "cannot be used with"),
        (["--trace", "no/such/folder"], "No such file"),
    ],
)
def test_refused_in_one_sentence(command: Command, words: list[str], sentence: str) -> None:
    done = command.run("serve", "calculator:api", *words)
    assert (done.status, done.out) == (2, "")
    assert sentence in done.err
    assert done.err.startswith("dragoman: ")
    assert done.err.count("\n") == 1


def test_debug_shows_what_is_masked(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0", options=("--debug",))
    assert "a secret of ours" in command.run("call", url, "fail", "secret").err


def test_limits_of_the_server(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0", options=("--limit", "message_size=200"))
    done = command.run("call", url, "echo", "x" * 300, "--json")
    assert done.status == 1
    assert done.json["error"]["data"]["limit"] == "message_size"


def test_trace_of_the_server(command: Command, tmp_path: Path) -> None:
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--trace", "trace.jsonl"))
    command.run("call", url, "subtract", "42", "23")
    process.terminate()
    assert process.wait(20) == 0
    lines = [msgspec.json.decode(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert any(line["direction"] == "in" and "subtract" in str(line) for line in lines)


def test_origins_and_cors(command: Command) -> None:
    _, (url,) = command.serve(
        "http://127.0.0.1:0", options=("--cors", "https://app.example", "--host-allowed", "rpc.test")
    )
    assert command.run("call", url, "subtract", "42", "23").status != 0
    assert command.run("call", url, "subtract", "42", "23", "-H", "Host: rpc.test").out == "19\n"


def test_reload(command: Command, tmp_path: Path) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    process = command.start("serve", "calculator", url, "--reload", "--json")
    until(process.stdout, "urls")
    assert command.run("call", url, "subtract", "42", "23").out == "19\n"
    service = tmp_path / "calculator.py"
    service.write_text(service.read_text().replace("minuend - subtrahend", "subtrahend - minuend"))
    until(process.stderr, "changed: calculator.py")
    until(process.stdout, "urls")
    assert command.run("call", url, "subtract", "42", "23").out == "-19\n"
    service.write_text("def broken(:\n")
    until(process.stdout, "could not be imported")
    service.write_text("from dragoman import Service\napi = Service('new')\n")
    assert '"new"' in until(process.stdout, "urls")
    process.terminate()
    ended = 1 if sys.platform == "win32" else 0  # a test has no console there, and without one the server cannot drain
    assert process.wait(20) == ended


async def test_told_to_end_while_the_old_child_drains(command: Command, gate: Gate) -> None:
    """One that drains for a reload is left to drain, and no new one is started."""
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--reload",))
    async with connect(url) as peer:
        call = asyncio.create_task(peer.call("hold", [gate.name]))
        await asyncio.to_thread(until, process.stdout, "holding")
        with (command.folder / "calculator.py").open("a") as service:
            service.write("\n")
        await asyncio.to_thread(until, process.stderr, "draining")
        process.terminate()
        assert (await refusal(peer)).code == -32001
        gate.close()
        assert await call == "held"
    assert await asyncio.to_thread(process.wait, 20) == 0
    assert process.stdout is not None
    assert process.stdout.read() == ""


def test_reload_without_the_extra(command: Command) -> None:
    (command.folder / "sitecustomize.py").write_text("import sys\nsys.modules['watchfiles'] = None\n")
    done = command.run("serve", "calculator", "--reload", env={"PYTHONPATH": str(command.folder)})
    assert done.status == 2
    assert done.err.startswith('dragoman: --reload needs watchfiles: pip install "dragoman[reload]", or in a clone')


FAILING = '{"jsonrpc":"2.0","method":"fail","params":["other"],"id":N}\n'


def test_a_log_that_is_not_read_blocks_nothing(command: Command) -> None:
    """Each of these calls logs a traceback; a pipe holds 64 KiB."""
    process = command.start("serve", "calculator", "stdio:")
    assert process.stdin is not None
    assert process.stdout is not None
    for n in range(1_000):
        process.stdin.write(FAILING.replace("N", str(n)))
        process.stdin.flush()
        assert msgspec.json.decode(process.stdout.readline())["id"] == n
    assert "lines were dropped here: stderr was not read" in until(process.stderr, "dropped")
    process.stdin.close()
    assert process.wait(20) == 0


def test_the_last_lines_of_a_log_are_written(command: Command) -> None:
    given = "".join(FAILING.replace("N", str(n)) for n in range(50))
    done = command.run("serve", "calculator", "stdio:", input=given)
    assert done.status == 0
    assert done.err.count("ValueError: a secret of ours") == 50


def test_a_closed_pipe_is_not_a_fault(command: Command) -> None:
    process = command.start("check", "-")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write('{"jsonrpc":"1.0","method":1,"id":true}\n' * 100)
    process.stdin.close()
    assert process.wait(20) == 141
    assert process.stderr.read() == ""


def test_ctrl_c_ends_a_call(command: Command) -> None:
    silent = f'{sys.executable} -c "import time; time.sleep(60)"'
    process = command.start("call", silent, "subtract", "--trace", "-")
    until(process.stderr, "subtract")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
