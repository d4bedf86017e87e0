"""What a service manager is told, by its protocol: datagrams to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dragoman.net.service_manager import managed, notify, watchdog_interval

PATIENCE = 60.0
SERVICE = """
from dragoman import Service
api = Service("managed")
"""


@contextmanager
def manager(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + path[1:] if path.startswith("@") else path)
        listening.settimeout(PATIENCE)
        yield listening


def told(listening: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in listening.recv(4096).decode().split("\n"))


@contextmanager
def serving(folder: Path, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "managed.py").write_text(SERVICE)
    command = [sys.executable, "-m", "dragoman", "serve", str(folder / "managed.py"), "tcp://127.0.0.1:0", *words]
    process = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("abstract", [False, True])
def test_a_server_says_that_it_is_ready_alive_and_ending(tmp_path: Path, abstract: bool) -> None:
    path = f"@dragoman-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager(path) as listening, serving(tmp_path, NOTIFY_SOCKET=path, WATCHDOG_USEC="100000") as process:
        assert told(listening) == {"READY": "1", "MAINPID": str(process.pid)}
        assert [told(listening) for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        process.send_signal(signal.SIGTERM)
        while (last := told(listening)) == {"WATCHDOG": "1"}:
            pass
        assert last == {"STOPPING": "1"}
        assert process.wait(PATIENCE) == 0


def test_a_supervisor_speaks_for_its_workers(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with manager(path) as listening, serving(tmp_path, "--workers", "2", NOTIFY_SOCKET=path) as process:
        assert told(listening) == {"READY": "1", "MAINPID": str(process.pid)}
        before = time.monotonic_ns() // 1000
        process.send_signal(signal.SIGHUP)
        reloading = told(listening)
        assert reloading["RELOADING"] == "1"
        assert before <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert told(listening) == {"READY": "1"}
        process.send_signal(signal.SIGTERM)
        assert told(listening) == {"STOPPING": "1"}
        assert process.wait(PATIENCE) == 0


def test_without_a_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert notify("READY=1") is False


@pytest.mark.parametrize(
    ("address", "words"),
    [("relative", "neither a path nor an abstract socket"), ("/no/such/socket", "was not told READY=1")],
)
def test_what_cannot_be_told_is_logged(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert notify("READY=1") is False
    assert words in caplog.text


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [
        ("2000000", "", 2.0),
        ("2000000", "ours", 2.0),
        ("2000000", "1", None),
        ("0", "", None),
        ("soon", "", None),
        ("", "", None),
    ],
)
def test_a_watchdog_is_for_one_process(
    usec: str, pid: str, interval: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "ours" else pid)
    assert watchdog_interval() == interval


async def test_a_loop_that_is_stuck_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with manager(path) as listening:
        async with managed():
            assert await asyncio.to_thread(told, listening) == {"READY": "1", "MAINPID": str(os.getpid())}
            assert await asyncio.to_thread(told, listening) == {"WATCHDOG": "1"}
            listening.setblocking(False)
            with suppress(BlockingIOError):
                while listening.recv(4096):
                    pass
            time.sleep(0.1)  # noqa: ASYNC251  (this is what holds the loop)
            with pytest.raises(BlockingIOError):
                listening.recv(4096)
        listening.settimeout(PATIENCE)
        assert told(listening)
