"""The access log: what its lines say, what they never say, and that no one forges one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider

from dragoman import LocalError, RpcError, Service, connect, serve
from dragoman.channel import Admitted, Caller, Handshake, Identity
from dragoman.jsonrpc.limits import SERVER
from dragoman.mcp import Client, Server
from dragoman.observer import Rejection
from dragoman.telemetry import AccessLog, Traces
from dragoman.telemetry.log_line import log_line

LINE = re.compile(
    r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO access: (call|refused)( \w+=([^\s"=]+|"([^"\\]|\\.)*"))+\n'
)


def api() -> Service:
    made = Service("calculator")

    @made.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @made.method
    async def login(password: str) -> str:
        raise RpcError("no such user", code=7)

    return made


async def admit(asked: Handshake) -> Admitted:
    return Admitted(identity=Identity(subject="ada lovelace", claims={"secret": "s3cret"}))


def read(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


async def test_a_line_for_each_call_in_the_order_of_their_ends() -> None:
    lines: list[str] = []
    async with (
        serve(
            api(), urls="tcp://127.0.0.1:0", guard=admit, observers=[AccessLog(lines.append, format="json")]
        ) as serving,
        connect(serving.urls[0]) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
        with pytest.raises(RpcError):
            await peer.call("login", {"password": "hunter2"})
        with pytest.raises(RpcError):
            await peer.call("nothing")
        async with peer.batch() as batch:
            batch.call("subtract", [1, 1])
    found = [read(line) for line in lines]
    assert [(one["method"], one["outcome"], one.get("code")) for one in found] == [
        ("subtract", "result", None),
        ("login", "error", 7),
        ("nothing", "error", -32601),
        ("subtract", "result", None),
    ]
    assert found[0]["in"] == 61
    assert found[0]["out"] == 36
    assert found[0]["ms"] >= 0
    assert {(one["wire"], one["subject"], one["service"]) for one in found} == {("tcp", "ada lovelace", "calculator")}
    assert not any(word in line for line in lines for word in ("hunter2", "s3cret", "[42", "23]"))


async def test_as_text() -> None:
    lines: list[str] = []
    async with (
        serve(api(), urls="tcp://127.0.0.1:0", guard=admit, observers=[AccessLog(lines.append)]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        await peer.call("subtract", [42, 23])
        with pytest.raises(RpcError):
            await peer.call("x\n2026-11-22T00:00:00.000Z INFO access: call method=forged \x1b[2J\u2028")
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) for line in lines)
    assert 'subject="ada lovelace"' in lines[0]
    assert r'method="x\n2026-11-22T00:00:00.000Z INFO access: call method=forged \u001b[2J\u2028"' in lines[1]


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.parametrize("sampled", ["00", "01"])
@pytest.mark.parametrize("traced", [False, True])
async def test_the_trace_of_a_call_is_named(traced: bool, sampled: str) -> None:
    """The one that its sender names, with and without spans here, and whether it is sampled or not."""
    lines: list[str] = []
    observers: list[Any] = [AccessLog(lines.append, format="json"), *([Traces(TracerProvider())] if traced else [])]
    headers = {"traceparent": PARENT.removesuffix("01") + sampled}
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=observers) as serving,
        connect(serving.urls[0], headers=headers) as peer,
        connect(serving.urls[0]) as other,
    ):
        await peer.call("subtract", [42, 23])
        await other.call("subtract", [42, 23])
    first, second = map(read, lines)
    assert first["trace"] == TRACE
    assert ("trace" in second, second.get("trace") != TRACE) == (traced, True)


async def test_a_tool_is_named() -> None:
    lines: list[str] = []
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return city

    server.observe(AccessLog(lines.append, format="json"))
    async with Client(server) as client:
        await client.call_tool("forecast", {"city": "Beijing"})
    (call,) = [read(line) for line in lines if '"tools/call"' in line]
    assert (call["name"], call["outcome"]) == ("forecast", "result")
    assert "Beijing" not in "".join(lines)


async def test_refusals_have_their_reason() -> None:
    lines: list[str] = []
    limits = SERVER.but(message_size=100)
    log = AccessLog(lines.append, format="json")
    async with (
        serve(api(), urls="tcp://127.0.0.1:0", limits=limits, observers=[log]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        with pytest.raises(RpcError):
            await peer.call("subtract", ["x" * 100])
    (line,) = map(read, lines)
    assert (line["message"], line["outcome"], line["code"]) == ("refused", "refused", -32003)
    assert "message_size allows 100" in line["reason"]


def rejection(number: int) -> Rejection:
    caller = Caller(scheme="http", remote=f"192.0.2.1:{number}")
    return Rejection(kind="not_found", reason=f"There is nothing at /{number}", place="/", caller=caller, status=404)


@pytest.mark.parametrize("allowed", [0, 1, 7])
def test_many_refusals_are_counted(allowed: int) -> None:
    lines: list[str] = []
    log = AccessLog(lines.append, format="json", refusals=allowed)
    for number in range(100):
        log.rejected(rejection(number))
    log.flush()
    found = [read(line) for line in lines]
    written = [one for one in found if one["message"] == "refused"]
    left_out = sum(one["count"] for one in found if one["message"] == "refusals left out")
    assert len(written) + left_out == 100
    assert len(written) < 100
    assert all((one["status"], one["kind"]) == (404, "not_found") for one in written)


def test_a_long_reason_is_cut() -> None:
    lines: list[str] = []
    log = AccessLog(lines.append, format="json")
    log.rejected(Rejection(kind="malformed", reason="x" * 10_000, place="/", caller=Caller()))
    assert read(lines[0])["reason"] == "x" * 200 + "..."


@given(st.dictionaries(st.sampled_from(["method", "reason", "caller"]), st.text() | st.integers(), min_size=1))
def test_no_value_forges_a_line_or_a_member(members: dict[str, Any]) -> None:
    text = log_line("text", 1.0, "info", "access", "call", members)
    assert LINE.fullmatch(text)
    assert text.isascii()
    line = log_line("json", 1.0, "info", "access", "call", members)
    assert line.count("\n") == 1
    assert line.isascii()
    assert {name: read(line)[name] for name in members} == members


@pytest.mark.parametrize("options", [{"format": "xml"}, {"refusals": -1}, {"write": "stderr"}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(LocalError, match=f"AccessLog.*{next(iter(options))}"):
        AccessLog(**options)


def test_without_a_place_it_writes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog()
    log.rejected(rejection(1))
    log.flush()
    assert LINE.fullmatch(capfd.readouterr().err)
