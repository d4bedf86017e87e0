"""Sockets that a service manager hands down (sd_listen_fds(3)): to one process and to a supervisor, by address."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from dragoman import connect
from tests.ports import free_port
from tests.skips import missing

from .conftest import Command, environment
from .test_serve import until

HAND_DOWN = """\
import os, sys
numbers, pid, count, *words = sys.argv[1:]
for at, number in enumerate(map(int, numbers.split(","))):
    os.dup2(number, 3 + at)
os.environ |= {"LISTEN_PID": pid or str(os.getpid()), "LISTEN_FDS": count}
os.execv(sys.executable, [sys.executable, "-m", "dragoman", "serve", "calculator:api", *words, "--json"])
"""


def _started(
    command: Command, opened: list[socket.socket], *words: str, pid: str = "", count: int | None = None
) -> subprocess.Popen[str]:
    """`dragoman serve` with sockets as systemd hands them down: from descriptor 3 on."""
    numbers = ",".join(str(one.fileno()) for one in opened)
    process = subprocess.Popen(
        [sys.executable, "-c", HAND_DOWN, numbers, pid, str(len(opened) if count is None else count), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[one.fileno() for one in opened],
        cwd=command.folder,
        env=environment(),
        text=True,
    )
    command.started.append(process)
    for one in opened:
        one.close()
    return process


@contextlib.contextmanager
def activated(
    command: Command, opened: list[socket.socket], *words: str, pid: str = "", count: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The same, ended as a service manager does it."""
    process = _started(command, opened, *words, pid=pid, count=count)
    yield process
    process.terminate()
    assert process.wait(20) == 0


def _listening(family: int = socket.AF_INET, address: Any = ("127.0.0.1", 0), *, only: bool = True) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    one.bind(address)
    one.listen()
    one.set_inheritable(True)
    return _above(one)


def _above(one: socket.socket) -> socket.socket:
    """The same with a high number, so that nothing is written over it."""
    number = fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 100)
    one.close()
    return socket.socket(fileno=number)


def _said(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


async def _answers(url: str) -> None:
    async with connect(url) as peer:
        assert await peer.call("subtract", [42, 23]) == 19


@pytest.mark.parametrize("workers", [(), ("--workers", "1")], ids=["alone", "workers"])
@pytest.mark.parametrize("scheme", ["tcp", "http"])
async def test_a_url_takes_the_socket_of_its_address(command: Command, scheme: str, workers: tuple[str, ...]) -> None:
    """The connection was there before the server: it waited in the socket's queue."""
    opened = _listening()
    port = opened.getsockname()[1]
    url = f"{scheme}://127.0.0.1:{port}"
    early = socket.create_connection(("127.0.0.1", port))
    with early, activated(command, [opened], url, *workers) as process:
        assert url in await asyncio.to_thread(_said, process.stdout)
        await _answers(url)
        message = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
        if scheme == "http":
            head = (
                b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            message = head % (port, len(message)) + message
        early.sendall(message + b"\n" if scheme == "tcp" else message)
        early.settimeout(20)
        assert b'"result":19' in await asyncio.to_thread(early.recv, 10_000)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""], ids=["IPv4", "IPv6", "both"])
async def test_a_socket_for_all_addresses(command: Command, host: str) -> None:
    """`ListenStream=8000` opens an IPv6 socket that takes IPv4 as well."""
    opened = _listening(socket.AF_INET6, ("::", 0), only=False)
    port = opened.getsockname()[1]
    with activated(command, [opened], f"tcp://{host}:{port}") as process:
        await asyncio.to_thread(_said, process.stdout)
        for own in ("127.0.0.1", "[::1]"):
            await _answers(f"tcp://{own}:{port}")


async def test_a_socket_at_another_address_is_named(command: Command) -> None:
    opened = _listening(socket.AF_INET, ("0.0.0.0", 0))
    port = opened.getsockname()[1]
    told = _refused(command, [opened], f"tcp://127.0.0.1:{port}")
    assert f"tcp://127.0.0.1:{port}: the service manager's socket is at 0.0.0.0:{port}; write that address" in told


async def test_a_child_of_reload_gets_no_sockets(command: Command) -> None:
    opened = _listening()
    told = _refused(command, [opened], f"tcp://127.0.0.1:{opened.getsockname()[1]}", "--reload")
    assert "--reload takes no sockets from a service manager; --workers 1 --reload does" in told


def _refused(command: Command, opened: list[socket.socket], *words: str) -> str:
    """What it says in place of serving."""
    process = _started(command, opened, *words)
    said, told = process.communicate(timeout=60)
    assert process.returncode == 2
    return said + told


@pytest.mark.parametrize("workers", [(), ("--workers", "1")], ids=["alone", "workers"])
async def test_a_unix_socket_keeps_its_file(command: Command, tmp_path: Path, workers: tuple[str, ...]) -> None:
    place = tmp_path / "own.sock"
    with activated(command, [_listening(socket.AF_UNIX, str(place))], f"unix:{place}", *workers) as process:
        await asyncio.to_thread(_said, process.stdout)
        await _answers(f"unix:{place}")
    assert place.is_socket()  # the manager made it, and removes it


async def test_a_unix_socket_by_a_symbolic_link(command: Command, tmp_path: Path) -> None:
    """As `/var/run` is one to `/run`, which systemd writes in its place."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to("run")
    opened = _listening(socket.AF_UNIX, str(tmp_path / "run" / "own.sock"))
    with activated(command, [opened], f"unix:{tmp_path}/var/own.sock") as process:
        await asyncio.to_thread(_said, process.stdout)
        await _answers(f"unix:{tmp_path}/run/own.sock")


async def test_the_page_of_metrics_takes_a_socket_too(command: Command) -> None:
    """Of a supervisor as well, which opens it after those of the URLs."""
    called, read = _listening(), _listening()
    url, port = f"tcp://127.0.0.1:{called.getsockname()[1]}", read.getsockname()[1]
    with activated(command, [called, read], url, "--workers", "1", "--metrics", f":{port}") as process:
        told = await asyncio.to_thread(until, process.stderr, "")
        assert f"metrics at http://127.0.0.1:{port}/metrics" in told
        await _answers(url)


@pytest.mark.parametrize("workers", [(), ("--workers", "1")], ids=["alone", "workers"])
async def test_a_socket_that_no_url_names_is_told(command: Command, workers: tuple[str, ...]) -> None:
    taken, left = _listening(), _listening()
    url, place = (f"tcp://127.0.0.1:{taken.getsockname()[1]}", f"127.0.0.1:{left.getsockname()[1]}")
    with activated(command, [taken, left], url, *workers) as process:
        told = await asyncio.to_thread(until, process.stderr, "service manager")
        assert f"opened a socket at {place}, which no URL" in told
        await _answers(url)


@pytest.mark.parametrize(("pid", "count"), [("1", 1), ("none", 1), ("", 100_000)])
async def test_what_is_not_for_this_process_is_left_alone(command: Command, pid: str, count: int) -> None:
    opened = _listening()
    port = opened.getsockname()[1]
    with activated(command, [opened], f"tcp://127.0.0.1:{free_port()}", pid=pid, count=count) as process:
        assert str(port) not in await asyncio.to_thread(_said, process.stdout)
    assert "service manager" not in (process.stderr.read() if process.stderr else "")


async def test_systemd_starts_it_at_the_first_connection(command: Command) -> None:
    program = shutil.which("systemd-socket-activate")
    if program is None:
        missing("systemd-socket-activate is not installed (Debian's package systemd)")
    port = free_port()
    words = ["-l", f"127.0.0.1:{port}", sys.executable, "-m", "dragoman", "serve", "calculator:api"]
    process = subprocess.Popen(  # noqa: ASYNC220  (it only begins here)
        [program, *words, f"http://127.0.0.1:{port}"],
        cwd=command.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command.started.append(process)
    await asyncio.to_thread(until, process.stderr, "Listening on")
    await _answers(f"http://127.0.0.1:{port}")
    process.terminate()
    assert await asyncio.to_thread(process.wait, 20) == 0
