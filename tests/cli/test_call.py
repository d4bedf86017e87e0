"""`dragoman call`, `notify`, `methods` and `bench`, against `dragoman serve`, on every wire."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from .conftest import SERVICE, Command

OPEN = ["http", "ws", "tcp", "content-length", "udp"] + ["unix"] * hasattr(socket, "AF_UNIX")
SEALED = ["https", "wss", "tls"]


class Place(msgspec.Struct):
    """A wire where the calculator answers, and the options to reach it."""

    url: str
    options: list[str]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """One `dragoman serve` on every wire there is."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "calculator.py").write_text(SERVICE)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "own.pem"))
    command = Command(folder, patience=900)
    _, plain = command.serve(*(_listen(wire, folder) for wire in OPEN))
    _, secure = command.serve(*(_listen(wire, folder) for wire in SEALED), options=("--tls-cert", "own.pem"))
    found = {wire: Place(url, []) for wire, url in zip(OPEN, plain, strict=True)}
    found |= {wire: Place(url, ["--ca", str(folder / "ca.pem")]) for wire, url in zip(SEALED, secure, strict=True)}
    found["child"] = Place(f"{sys.executable} -m dragoman serve {folder / 'calculator.py'} stdio:", [])
    yield found
    command.end()


def _listen(wire: str, folder: Path) -> str:
    if wire == "unix":
        return f"unix:{folder}/calc.sock"
    return "tcp://127.0.0.1:0?framing=content-length" if wire == "content-length" else f"{wire}://127.0.0.1:0"


@pytest.fixture
def place(places: dict[str, Place]) -> Place:
    """The wire on which everything is tried that does not depend on the wire."""
    return places["tcp"]


@pytest.mark.parametrize("wire", [*OPEN, *SEALED, "child"])
def test_call_on_every_wire(command: Command, places: dict[str, Place], wire: str) -> None:
    place = places[wire]
    done = command.run("call", place.url, "subtract", "42", "23", *place.options)
    assert (done.status, done.out) == (0, "19\n"), done.err
    done = command.run("call", place.url, "subtract", "minuend=42", "subtrahend=x", "--json", *place.options)
    assert done.status == 1, done.err
    assert done.json["error"]["code"] == -32602
    assert done.json["error"]["data"]["errors"][0]["field"] == "subtrahend"


def test_what_went_comes_back_as_it_was(command: Command, place: Place) -> None:
    given = '[{"a":[1,2.5,null]},1.0,1234567890123456789012345678901234567890,"42","text with é"]'
    assert command.run("call", place.url, "echo", f"value={given}", "--json").out == f'{{"result":{given}}}\n'


def test_params_from_stdin_and_file(command: Command, place: Place, tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text("[42, 23]")
    assert (
        command.run("call", place.url, "subtract", "--params", "-", input='{"minuend":1,"subtrahend":2}').out == "-1\n"
    )
    assert command.run("call", place.url, "subtract", "--params", "@params.json").out == "19\n"
    assert command.run("call", place.url, "subtract", "--params", "[-1,-2]").out == "1\n"


def test_error_for_people(command: Command, place: Place) -> None:
    done = command.run("call", place.url, "fail", "declared")
    assert (done.status, done.out, done.err) == (1, "", 'error 7  Too short\n  {"least": 3}\n')
    done = command.run("call", place.url, "subtract", "x=1")
    assert done.status == 1
    assert done.err.startswith("error -32602  Invalid params\n")
    assert {line.split(":")[0].strip() for line in done.err.splitlines()[1:]} == {"minuend", "subtrahend", "x"}


def test_what_was_not_declared_is_masked(command: Command, place: Place) -> None:
    done = command.run("call", place.url, "fail", "secret", "--json")
    assert done.status == 1
    assert done.json["error"]["code"] == -32603
    assert "secret of ours" not in done.out + done.err


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("tcp://127.0.0.1:1", 3),
        ("http://127.0.0.1:1", 3),
        ("ws://127.0.0.1:1", 3),
        ("unix:none.sock", 3),
        ("127.0.0.1:8000", 2),
        ("ftp://127.0.0.1/", 2),
        ("tcp://127.0.0.1", 2),
        ("no-such-command-anywhere here", 2),
        (f"{sys.executable} -c pass", 3),
    ],
)
def test_a_missing_far_end(command: Command, url: str, status: int) -> None:
    done = command.run("call", url, "subtract", "42", "23", "--timeout", "20", "--json")
    assert (done.status, done.err) == (status, "")
    assert done.json["error"]["kind"] == ("usage" if status == 2 else "no_answer")


def test_no_answer_in_time(command: Command, place: Place, tmp_path: Path) -> None:
    silent = f'{sys.executable} -c "import sys; sys.stdin.read()"'
    done = command.run("call", silent, "subtract", "42", "23", "--timeout", "0.3")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("dragoman: ")


@pytest.mark.parametrize("scheme", ["tcp", "tls", "http", "ws"])
def test_a_listener_that_is_silent(command: Command, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        done = command.run("call", url, "subtract", "42", "23", "--timeout", "0.3")
    assert (done.status, done.out) == (3, "")
    assert done.err.startswith("dragoman: ")
    assert done.err.count("\n") == (2 if scheme in ("tls", "ws") else 1)  # the handshake failed, or the call


def test_notify(command: Command) -> None:
    process, urls = command.serve("tcp://127.0.0.1:0", "udp://127.0.0.1:0", "http://127.0.0.1:0")
    assert process.stdout is not None
    for url in urls:
        done = command.run("notify", url, "note", f"text={url}")
        assert (done.status, done.out, done.err) == (0, "", "")
        assert process.stdout.readline() == f"noted {url}\n"
    assert command.run("notify", urls[0], "note", "again", "--json").json == {"sent": True}


def test_methods(command: Command, place: Place) -> None:
    done = command.run("methods", place.url)
    assert done.status == 0
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert ["subtract(minuend: integer, subtrahend: integer) -> integer", "Subtract one from the other."] in lines
    document = command.run("methods", place.url, "--json").json
    assert document["info"]["title"] == "calculator"


def test_trace(command: Command, place: Place, tmp_path: Path) -> None:
    done = command.run("call", place.url, "subtract", "42", "23", "--trace", "trace.jsonl")
    assert (done.out, done.err) == ("19\n", "")
    lines = [msgspec.json.decode(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert any("subtract" in str(line) for line in lines)
    done = command.run("call", place.url, "subtract", "42", "23", "--trace", "-")
    assert done.out == "19\n"
    assert len(done.err.splitlines()) == len(lines)
    assert command.run("call", place.url, "subtract", "--trace", "none/trace.jsonl").status == 2


def test_limits_of_the_caller(command: Command, place: Place) -> None:
    done = command.run("call", place.url, "echo", "x" * 500, "--limit", "response_size=300")
    assert done.status == 2
    assert "response_size" in done.err


def test_bench(command: Command, place: Place) -> None:
    found = command.run("bench", place.url, "subtract", "42", "23", "--calls", "200", "--concurrency", "8", "--json")
    assert found.status == 0
    assert found.json["calls"] == 200
    assert found.json["errors"] == found.json["failures"] == {}
    assert found.json["latency_ms"]["p50"] <= found.json["latency_ms"]["p99"] <= found.json["latency_ms"]["max"]
    done = command.run("bench", place.url, "subtract", "42", "-n", "20")
    assert done.status == 1
    assert "calls/s" in done.out
    assert "20  -32602 Invalid params" in done.out
    assert command.run("bench", place.url, "--seconds", "0.2", "--json").json["calls"] > 0
    assert command.run("bench", place.url, "--concurrency", "0").status == 2
    assert command.run("bench", "tcp://127.0.0.1:1").status == 3


def test_headers_and_authorization_reach_http(command: Command, tmp_path: Path) -> None:
    (tmp_path / "calculator.py").write_text(
        "from dragoman import Context, Service\n"
        "api = Service('headers')\n"
        "@api.method(inline=True)\n"
        "def header(name: str, context: Context) -> str | None:\n"
        "    return context.headers.get(name)\n"
    )
    _, (url, socket) = command.serve("http://127.0.0.1:0", "ws://127.0.0.1:0")

    def said(*words: str, env: dict[str, str] | None = None) -> Any:
        return command.run("call", *words, "--json", env=env).json["result"]

    assert said(url, "header", "x-one", "--header", "X-One: 1", "--header", "X-Two: 2") == "1"
    assert said(socket, "header", "x-two", "-H", "X-Two: 2") == "2"
    assert said(url, "header", "authorization", "--user", "ada:love") == "Basic YWRhOmxvdmU="
    assert said(url, "header", "authorization", env={"DRAGOMAN_BEARER": "token"}) == "Bearer token"
    assert said(url, "header", "authorization", env={"DRAGOMAN_USER": "ada:love"}) == "Basic YWRhOmxvdmU="


def test_json_rpc_1_0(command: Command) -> None:
    _, (strict,) = command.serve("tcp://127.0.0.1:0")
    assert command.run("call", strict, "subtract", "42", "23", "--1.0").status != 0
    _, (lenient,) = command.serve("tcp://127.0.0.1:0", options=("--lenient",))
    assert command.run("call", lenient, "subtract", "42", "23", "--1.0").out == "19\n"
