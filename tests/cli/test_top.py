"""`dragoman serve --admin` and `dragoman top`: what is told, to which user alone, and killing a call."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import Peer, RpcError, connect

from .conftest import Command, environment

SLOW = """
import asyncio
import os

from dragoman import Service
from dragoman.mcp import Server

api = Service("slow")
app = Server("slow")


@api.method
async def wait(secret: str) -> str:
    await asyncio.sleep(60)
    return secret


@api.method(inline=True)
def pid() -> int:
    return os.getpid()


@app.tool
async def nap(secret: str) -> str:
    await asyncio.sleep(60)
    return secret
"""


def folder(command: Command) -> Path:
    made = command.folder / "run"
    made.mkdir(mode=0o700)
    (command.folder / "slow.py").write_text(SLOW)
    return made


async def listed(admin: Peer, count: int) -> list[dict[str, Any]]:
    while True:
        found: list[dict[str, Any]] = (await admin.call("look"))["calls"]
        if len([one for one in found if one["state"] == "running"]) == count:
            return found
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("wire", ["tcp", "http", "ws"])
async def test_a_call_is_seen_and_killed(command: Command, wire: str) -> None:
    where = folder(command) / "admin.sock"
    _, (url,) = command.serve_of("slow:api", f"{wire}://127.0.0.1:0", "--admin", str(where))
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    async with connect(url) as peer, connect(f"unix:{where}") as admin:
        call = asyncio.ensure_future(peer.call("wait", ["hush"]))
        (one,) = await listed(admin, 1)
        assert (one["service"], one["method"], one["wire"], one["state"]) == ("slow", "wait", wire, "running")
        assert "hush" not in f"{one}"
        (served,) = (await admin.call("look"))["services"]
        assert (served["in_flight"], served["waiting"]) == (1, 0)
        await admin.call("kill", [one["id"]])
        with pytest.raises(RpcError, match="Cancelled by the operator") as raised:
            await call
        assert raised.value.code == -32800
        await listed(admin, 0)
        look = await admin.call("look")
        (summary,) = look["methods"]
        assert (summary["method"], summary["count"], summary["errors"]) == ("wait", 1, 1)
        assert look["workers"] == []


async def test_a_notification_is_killed(command: Command) -> None:
    where = folder(command) / "admin.sock"
    _, (url,) = command.serve_of("slow:api", "tcp://127.0.0.1:0", "--admin", str(where))
    async with connect(url) as peer, connect(f"unix:{where}") as admin:
        await peer.notify("wait", ["hush"])
        (one,) = await listed(admin, 1)
        assert one["kind"] == "notification"
        assert command.run("top", str(where), "--kill", f"{one['id']}").status == 0
        await listed(admin, 0)
        with pytest.raises(RpcError, match="no call 999"):
            await admin.call("kill", ["999"])


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_tool_is_killed(command: Command, revision: str) -> None:
    from dragoman.mcp import Client

    where = folder(command) / "admin.sock"
    _, (url,) = command.serve_of("slow:app", "http://127.0.0.1:0/mcp", "--admin", str(where))
    async with Client(url, revision=revision) as client, connect(f"unix:{where}") as admin:
        call = asyncio.ensure_future(client.call_tool("nap", {"secret": "hush"}))
        found = await listed(admin, 1)
        assert found[0]["name"] == "nap"
        assert "hush" not in f"{found}"
        (served,) = (await admin.call("look"))["services"]
        assert served["sessions"] == (1 if revision == "2025-11-25" else 0)
        await admin.call("kill", [found[0]["id"]])
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await call


def test_bytes_over_the_socket(command: Command) -> None:
    where = folder(command) / "admin.sock"
    command.serve_of("slow:api", "tcp://127.0.0.1:0", "--admin", str(where))
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(where))
        raw.sendall(b'{"jsonrpc":"2.0","id":1,"method":"look"}\n')
        answer = msgspec.json.decode(raw.makefile("rb").readline())
        assert (answer["result"]["calls"], answer["result"]["more"], answer["result"]["workers"]) == ([], 0, [])
    done = command.run("top", str(where), "--once", "--output", "json")
    assert set(done.json) == {"calls", "more", "methods", "services", "workers", "figures"}
    assert "calls in flight" in command.run("top", str(where)).out
    narrow = command.run("top", str(where), env={"COLUMNS": "20"}).out
    assert "calls in flight" in narrow  # a pipe has no width: nothing is cut
    assert "…" not in narrow


# -- many processes


async def test_workers_are_summed_and_the_one_with_the_call_kills_it(command: Command) -> None:
    where = folder(command) / "admin.sock"
    options = ("--admin", str(where), "--workers", "2", "--no-uvloop")
    process, (url,) = command.serve_of("slow:api", "tcp://127.0.0.1:0", *options)
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    ready(process, 2)
    peers: dict[int, Peer] = {}
    async with connect(f"unix:{where}") as admin:
        spare = []
        while len(peers) < 2:  # a connection stays with its worker
            peer = await connect(url)
            spare.append(peer)
            peers.setdefault(await peer.call("pid"), peer)
        calls = {pid: asyncio.ensure_future(peer.call("wait", ["hush"])) for pid, peer in peers.items()}
        found = await listed(admin, 2)
        assert {int(one["id"].partition(":")[0]) for one in found} == set(peers)
        look = await admin.call("look")
        assert [one["number"] for one in look["workers"]] == [1, 2]
        assert {one["pid"]: one["in_flight"] for one in look["workers"]} == dict.fromkeys(peers, 1)
        assert [one["count"] for one in look["methods"] if one["method"] == "pid"] == [len(spare)]
        first = found[0]["id"]
        await admin.call("kill", [first])
        pid = int(first.partition(":")[0])
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await calls.pop(pid)
        ((other, call),) = calls.items()
        assert [one["id"].partition(":")[0] for one in await listed(admin, 1)] == [f"{other}"]
        for unknown in (first, "1:1", "7", f"{other}:999", "x:1"):
            with pytest.raises(RpcError, match=f"no call {unknown} is in flight"):
                await admin.call("kill", [unknown])
        os.kill(other, 9)
        with pytest.raises(Exception, match=r"lost|ended|broken|closed|reset"):
            await call
        ready(process, 1)
        look = await admin.call("look")
        assert look["calls"] == []
        assert {one["pid"] for one in look["workers"]} & {other} == set()
        for peer in spare:
            await peer.close()
    process.terminate()
    assert process.wait(30) == 0
    assert not where.exists()


def ready(process: subprocess.Popen[str], count: int) -> None:
    assert process.stderr is not None
    while count:
        count -= "is ready" in process.stderr.readline()


# -- an address


def place(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The URL and the secret that the command tells."""
    assert process.stderr is not None
    found = re.fullmatch(r"admin at (http://\S+) with the secret ([0-9a-f]{64})\n", process.stderr.readline())
    assert found is not None
    return found[1], found[2]


def posted(url: str, headers: dict[str, str]) -> tuple[int, str]:
    request = urllib.request.Request(
        url, b'{"jsonrpc":"2.0","id":1,"method":"look"}', {"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize("options", [("--quiet",), ("--log-level", "error"), ("--workers", "1", "--quiet")])
def test_an_address_asks_for_the_secret(command: Command, options: tuple[str, ...]) -> None:
    folder(command)
    process = command.start("serve", "slow:api", "tcp://127.0.0.1:0", "--admin", ":0", *options)
    url, secret = place(process)
    proof = {"Authorization": f"Bearer {secret}"}
    host = url.removeprefix("http://")
    assert posted(url, proof)[0] == 200
    for headers, status in [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {secret}"}, 401),
        (proof | {"Host": "evil.example"}, 421),
        (proof | {"Origin": "http://evil.example"}, 403),
        (proof | {"Origin": url}, 403),
        (proof | {"Host": f"localhost:{host.partition(':')[2]}"}, 200),
    ]:
        found, text = posted(url, headers)
        assert found == status, (headers, text)
        assert secret not in text
    assert command.run("top", host, "--json", "--secret", secret).status == 0
    assert command.run("top", url, "--json", env={"DRAGOMAN_ADMIN_SECRET": secret}).status == 0
    without = command.run("top", host)
    assert without.status == 2
    assert "--secret TEXT, or DRAGOMAN_ADMIN_SECRET" in without.err
    _, (other,) = command.serve("http://127.0.0.1:0")
    assert f"{other} answers, and is no address of serve --admin" in command.run("top", other).err
    wrong = command.run("top", host, "--secret", "wrong")
    assert wrong.status != 0
    assert "secret that dragoman serve --admin told" in wrong.err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("open/a.sock", "chmod 700"),
        ("none/a.sock", "mkdir -m 700"),
        ("unix:open/a.sock", "chmod 700"),
        ("tcp://127.0.0.1:1", "the path of a Unix socket"),
        ("", "the path of a Unix socket"),
        ("0.0.0.0:9091", "0.0.0.0 is not loopback"),
        ("[::]:9091", "[::] is not loopback"),
        ("192.0.2.1:9091", "192.0.2.1 is not loopback"),
        ("example.org:9091", "example.org is not loopback"),
        ("127.evil.example:9091", "127.evil.example is not loopback"),
        (":70000", "a port is at most 65535"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--workers", "2"), ("--check",)], ids=str)
def test_what_is_refused(command: Command, path: str, said: str, options: tuple[str, ...]) -> None:
    (command.folder / "open").mkdir()
    (command.folder / "open").chmod(0o755)
    done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", "--admin", path, *options)
    assert done.status == 2
    assert said in done.err


# -- the live table


async def test_the_live_table_takes_keys(command: Command) -> None:
    where = folder(command) / "admin.sock"
    _, (url,) = command.serve_of("slow:api", "tcp://127.0.0.1:0", "--admin", str(where))
    async with connect(url) as peer, connect(f"unix:{where}") as admin:
        call = asyncio.ensure_future(peer.call("wait", ["hush"]))
        await listed(admin, 1)
        screen = await asyncio.to_thread(driven, command, str(where))
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await call
    assert "hush" not in screen


def driven(command: Command, where: str) -> str:
    """Press keys in a terminal, each when the screen says what the one before has done."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", "top", where, "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=command.folder,
        env=environment({"TERM": "xterm", "LINES": "40"}),
    )
    os.close(theirs)
    shown = ""

    def until(words: str) -> None:
        nonlocal shown
        start = len(shown)
        while words not in shown[start:]:
            assert select.select([ours], [], [], 30)[0], f"{words!r} is not in {shown[start:]!r}"
            shown += os.read(ours, 65536).decode(errors="replace")

    try:
        until("sorted by calls")
        for key, said in [
            (b"s", "sorted by rate"),
            (b"k", "select a call first"),
            (b" ", "paused"),
            (b"\x1b[B", "\x1b[7m"),
            (b"k", "kill call 1?"),
            (b"n", "q quit"),
            (b"k", "kill call 1?"),
            (b"y", "call 1 is ended"),
            (b" ", "sorted by rate"),
        ]:
            os.write(ours, key)
            until(said)
        os.write(ours, b"q")
        try:
            while select.select([ours], [], [], 30)[0]:
                shown += os.read(ours, 65536).decode(errors="replace")
        except OSError:  # no process has the terminal any more
            pass
        assert process.wait(30) == 0
        return shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
