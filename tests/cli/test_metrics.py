"""`dragoman serve --metrics`: the address, the text, and the sum over workers."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request

import pytest

from dragoman import RpcError, connect
from dragoman.cli.serving.metrics import metrics_url
from tests.telemetry.prometheus import parsed, promtool, value

from .conftest import Command


def place(process: subprocess.Popen[str]) -> str:
    """Where the metrics are, as the command says."""
    assert process.stderr is not None
    found = re.fullmatch(r"metrics at (http://127\.0\.0\.1:\d+/metrics)\n", process.stderr.readline())
    assert found is not None
    return found[1]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text: bytes = answer.read()
        return text


async def calls(url: str, count: int) -> None:
    for _ in range(count):
        async with connect(url) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
            with pytest.raises(RpcError):
                await peer.call("nothing")


async def test_calls_are_counted(command: Command) -> None:
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=("--metrics", ":0"))
    where = place(process)
    await calls(url, 3)
    text = get(where)
    found = parsed(text)
    assert value(found, "dragoman_calls_total", service="calculator", method="subtract", outcome="result") == 3
    assert value(found, "dragoman_calls_total", service="calculator", method="unknown", outcome="error") == 3
    assert value(found, "process_open_fds") > 3
    assert ("dragoman_channels", frozenset({("service", "calculator")})) in found
    promtool("check", "metrics", given=text)
    process.terminate()
    assert process.wait(20) == 0


async def test_workers_are_added_up_and_counters_never_fall(command: Command) -> None:
    options = ("--metrics", ":0", "--workers", "2", "--no-uvloop")
    process, (url,) = command.serve("tcp://127.0.0.1:0", options=options)
    where = place(process)
    assert process.stderr is not None
    while "is ready" not in process.stderr.readline():
        pass
    await calls(url, 20)

    def count() -> float:
        return value(
            parsed(get(where)), "dragoman_calls_total", service="calculator", method="subtract", outcome="result"
        )

    assert count() == 20
    found = parsed(get(where))
    assert value(found, "dragoman_bus_connected", bus="unix") == value(found, "dragoman_workers")
    process.send_signal(signal.SIGHUP)
    ready = 0
    while ready < 2:
        ready += "is ready" in process.stderr.readline()
    assert count() == 20
    found = parsed(get(where))
    assert value(found, "dragoman_workers") >= 1
    assert (value(found, "dragoman_worker_starts_total"), value(found, "dragoman_worker_failures_total")) == (4, 0)
    promtool("check", "metrics", given=get(where))
    process.terminate()
    assert process.wait(30) == 0


@pytest.mark.parametrize("text", ["9090", ":x", "http://127.0.0.1:9090", ":70000", "127.0.0.1"])
def test_a_wrong_address_is_wrong_usage(command: Command, text: str) -> None:
    done = command.run("serve", "calculator", "tcp://127.0.0.1:0", "--metrics", text)
    assert done.status == 2
    assert "write :9090 for loopback, or HOST:PORT" in done.err


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (":9090", "http://127.0.0.1:9090"),
        ("0.0.0.0:9090", "http://0.0.0.0:9090"),
        ("[::1]:9090", "http://[::1]:9090"),
        ("::1:9090", "http://[::1]:9090"),
        ("box.example:0", "http://box.example:0"),
    ],
)
def test_an_address(text: str, url: str) -> None:
    assert metrics_url(text) == url


def test_an_address_that_is_taken(command: Command) -> None:
    process, _ = command.serve("tcp://127.0.0.1:0", options=("--metrics", ":0"))
    port = place(process).split(":")[2].partition("/")[0]
    done = command.run("serve", "calculator", "tcp://127.0.0.1:0", "--metrics", f":{port}")
    assert done.status != 0
    assert port in done.err
