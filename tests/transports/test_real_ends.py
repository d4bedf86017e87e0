"""The near wires between a real service and real peers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.channel import Broken, Ended
from dragoman.connecting import connect
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.context import Context
from dragoman.rpc.service import Service
from dragoman.serving import serve

from .ends import PATIENCE, until

api = Service("calculator")


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


@api.method
async def later(n: int) -> int:
    await asyncio.sleep(0.01)
    return n


@api.method(inline=True)
def big(size: int) -> str:
    return "x" * size


@api.method
async def ask_back(context: Context, n: int) -> int:
    return await context.call("double", [n], result=int)  # type: ignore[no-any-return]


caller = Service("caller")


@caller.method(inline=True)
def double(n: int) -> int:
    return 2 * n


WIRES = ["memory:calc", "tcp://127.0.0.1:0", "tcp://127.0.0.1:0?framing=content-length", "unix:{}/calc.sock"]


@pytest.mark.parametrize("url", WIRES)
async def test_calls_in_both_directions(url: str, tmp_path: Path) -> None:
    async with (
        serve(api, urls=[url.format(tmp_path)]) as serving,
        connect(serving.urls[0], service=caller) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
        calls = [peer.call("ask_back", [n]) for n in range(300)]
        assert await asyncio.gather(*calls) == [2 * n for n in range(300)]


@pytest.mark.parametrize("url", WIRES[1:])
async def test_two_peers_that_flood_each_other(url: str, tmp_path: Path) -> None:
    limits = Limits(send_queue=10_000)
    async with (
        serve(api, urls=[url.format(tmp_path)], limits=limits) as serving,
        connect(serving.urls[0], limits=limits) as peer,
    ):
        answers = await asyncio.gather(*[peer.call("big", [100_000]) for _ in range(200)])
        assert all(len(answer) == 100_000 for answer in answers)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_end_of_file_with_a_hundred_calls_queued(kind: str, tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/s" if kind == "unix" else "tcp://127.0.0.1:0"
    async with serve(api, urls=[url], limits=Limits(calls_per_channel=10)) as serving:
        if kind == "unix":
            reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(serving.urls[0].rpartition(":")[2]))
        writer.writelines(requests(100))
        writer.write_eof()
        check(await reader.read())
        writer.close()
        await writer.wait_closed()


def requests(count: int) -> list[bytes]:
    return [b'{"jsonrpc": "2.0", "method": "later", "params": [%d], "id": %d}\n' % (n, n) for n in range(count)]


def check(answers: bytes) -> None:
    found: list[Any] = [json.loads(line) for line in answers.splitlines()]
    assert sorted(answer["result"] for answer in found) == list(range(100))
    assert all(answer["result"] == answer["id"] for answer in found)


STDIO = """
import asyncio
from dragoman.serving import serve
from tests.transports.test_real_ends import api
async def main():
    await serve(api, urls=["stdio:"])
asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_end_of_file_on_stdio_with_a_hundred_calls_queued(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STDIO]
    questions = b"".join(requests(100))
    if kind == "file":
        (tmp_path / "in").write_bytes(questions)
        with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
            subprocess.run(command, stdin=stdin, stdout=stdout, cwd=ROOT, check=True, timeout=PATIENCE * 2)
        check((tmp_path / "out").read_bytes())
        return
    done = subprocess.run(command, input=questions, capture_output=True, cwd=ROOT, check=True, timeout=PATIENCE * 2)
    assert done.stderr == b""
    check(done.stdout)


async def test_a_child_and_its_death() -> None:
    async with connect([sys.executable, "-c", STDIO], cwd=str(ROOT), service=caller) as peer:
        assert await peer.call("ask_back", [21]) == 42
        calls = [asyncio.ensure_future(peer.call("later", [n])) for n in range(10)]
        await asyncio.sleep(0)
        os.kill(int(peer.caller.remote.rpartition(" ")[2].rstrip(")")), 9)
        for call in calls:
            with pytest.raises(Ended, match="was ended by SIGKILL"):
                await call


async def test_udp_without_a_far_end() -> None:
    async with serve(api, urls=["udp://127.0.0.1:0"]) as serving:
        url = serving.urls[0]
        async with connect(url) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
            with pytest.raises(Exception, match="Too large: an answer to this datagram may have 512 bytes"):
                await peer.call("big", [1000])
    async with connect(url) as peer:
        with pytest.raises(Broken, match="connection refused"):
            await peer.call("subtract", [42, 23], timeout=PATIENCE)


async def test_a_server_that_closes_answers_first() -> None:
    async with serve(api, urls=["tcp://127.0.0.1:0"]) as serving, connect(serving.urls[0]) as peer:
        calls = [asyncio.ensure_future(peer.call("later", [n])) for n in range(50)]
        await peer.call("subtract", [1, 1])  # so they have arrived
        await serving.close()
        assert await asyncio.gather(*calls) == list(range(50))
        await until(lambda: peer.closed)
