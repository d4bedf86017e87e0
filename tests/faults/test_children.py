"""Child processes that die, that are told to end, and whose input ends while calls are queued."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from dragoman import CallTimeout, Peer, RpcError, connect
from dragoman.channel import Broken, Ended

from .conftest import MANY, PATIENCE, Serve, child, children, until
from .service import Counts

DRAINING = -32001


async def counted(peer: Peer, started: int) -> Counts:
    """Wait until so many calls have started there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            counts = await peer.call("counted", result=Counts)
            if counts.started >= started:
                return counts


async def drained(peer: Peer) -> None:
    """Call until the server drains: it refuses a call that it still reads, and closes a channel that has none."""
    with contextlib.suppress(Ended, Broken):
        assert (await refused(peer)).code == DRAINING


async def refused(peer: Peer) -> RpcError:
    """Call until that is refused; how."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await peer.call("later", [1])
            except RpcError as refusal:
                return refusal


async def test_kill_minus_nine_fails_every_call_at_once_with_the_reason() -> None:
    async with connect(child(), stderr=lambda line: None, timeout=None) as peer:
        calls = [asyncio.ensure_future(peer.call("hang")) for _ in range(50)]
        await counted(peer, 50)
        [process] = children()
        process.kill()
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, Ended) for answer in answers)
        assert all("was ended by SIGKILL" in str(answer) for answer in answers)
        assert peer.closed
        assert not process.is_running()
        with pytest.raises(Ended, match="SIGKILL"):
            await peer.call("subtract", [2, 1])


async def test_a_grandchild_that_holds_the_pipes_does_not_hide_the_death() -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '86397']); sys.stdin.read(1)"
    async with connect([sys.executable, "-c", code], timeout=None) as peer:
        call = asyncio.ensure_future(peer.call("hang"))
        with pytest.raises(Ended, match="exit status 0"):
            async with asyncio.timeout(PATIENCE):
                await call
    assert not [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "86397"]]


async def test_a_reconnecting_peer_comes_back_to_a_new_child() -> None:
    states: list[str] = []
    back = asyncio.Event()

    def on_state(state: str, why: object) -> None:
        states.append(state)
        if states.count("connected") == 2:
            back.set()

    async with connect(child(), stderr=lambda line: None, timeout=PATIENCE, reconnect=True, on_state=on_state) as peer:
        call = asyncio.ensure_future(peer.call("hang"))
        await counted(peer, 1)
        [process] = children()
        process.kill()
        with pytest.raises(Ended, match="SIGKILL"):
            await call
        async with asyncio.timeout(PATIENCE):
            await back.wait()
        assert await peer.call("subtract", [42, 23]) == 19
    assert states == ["connected", "lost", "connected", "closed"]


@pytest.mark.parametrize("method", ["subtract", "later", "in_thread"])
async def test_end_of_file_with_a_hundred_calls_queued_gets_a_hundred_answers(method: str) -> None:
    params = "[1,0]" if method == "subtract" else "[1]"
    lines = b"".join(
        b'{"jsonrpc":"2.0","method":"%b","params":%b,"id":%d}\n' % (method.encode(), params.encode(), n)
        for n in range(100)
    )
    server = await asyncio.create_subprocess_exec(
        *child("--limit", "calls_per_channel=3"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await server.communicate(lines)
    assert server.returncode == 0
    answers = [msgspec.json.decode(line) for line in out.splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(100))
    assert all(answer["result"] == 1 for answer in answers)


async def test_end_of_file_ends_a_server_although_its_handler_never_does() -> None:
    """A drain time is what a handler gets; then the process ends, and the call has had an answer all the same."""
    server = await asyncio.create_subprocess_exec(
        *child("--limit", "handler_timeout=0.2"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await server.communicate(b'{"jsonrpc":"2.0","method":"hang","id":1}\n')
    assert server.returncode == 0
    assert msgspec.json.decode(out)["error"]["code"] == -32002


@pytest.mark.parametrize("wire", ["tcp", "http", "ws"])
async def test_sigterm_during_fifty_calls_gets_fifty_answers(wire: str, serving: Serve, tmp_path: Path) -> None:
    server = serving(f"{wire}://127.0.0.1:0", "tcp://127.0.0.1:0")
    gate = tmp_path / "gate"
    async with connect(server.url, timeout=PATIENCE, limits=MANY) as peer, connect(server.urls[1]) as other:
        calls = [asyncio.ensure_future(peer.call("until", [str(gate)])) for _ in range(50)]
        await counted(other, 50)
        os.kill(server.process.pid, signal.SIGTERM)
        await drained(other)
        gate.touch()
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*calls) == [True] * 50
        assert await server.ended() == 0
    assert "Traceback" not in server.errors()


async def test_sigterm_to_a_child_during_fifty_calls_gets_fifty_answers(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with connect(child(), stderr=lambda line: None, timeout=PATIENCE) as peer:
        calls = [asyncio.ensure_future(peer.call("until", [str(gate)])) for _ in range(50)]
        await counted(peer, 50)
        [process] = children()
        process.terminate()
        assert (await refused(peer)).code == DRAINING
        gate.touch()
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*calls) == [True] * 50
        await until(lambda: peer.closed)
        with pytest.raises(Ended, match="exit status 0"):
            await peer.call("subtract", [2, 1])


async def test_what_outlasts_the_drain_time_is_answered_with_an_error(serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0", "--drain", "0.2")
    async with connect(server.url, timeout=PATIENCE) as peer:
        calls = [asyncio.ensure_future(peer.call("hang")) for _ in range(5)]
        await counted(peer, 5)
        os.kill(server.process.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [answer.code for answer in answers if isinstance(answer, RpcError)] == [DRAINING] * 5
        assert await server.ended() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(second: signal.Signals, serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0", "--drain", "600")
    async with connect(server.url, timeout=None) as peer, connect(server.url) as idle:
        call = asyncio.ensure_future(peer.call("hang"))
        await counted(peer, 1)
        os.kill(server.process.pid, signal.SIGTERM)
        await drained(idle)
        os.kill(server.process.pid, second)
        assert await server.ended() == 128 + second
        with pytest.raises((Ended, Broken)):
            async with asyncio.timeout(PATIENCE):
                await call


async def test_a_full_disk_under_the_trace_does_not_harm_the_wire(serving: Serve) -> None:
    server = serving("tcp://127.0.0.1:0", "http://127.0.0.1:0", "--trace", "/dev/full")
    async with connect(server.urls[0]) as peer, connect(server.urls[1]) as other:
        assert await asyncio.gather(*(peer.call("later", [n]) for n in range(100))) == list(range(100))
        assert await other.call("subtract", [42, 23]) == 19
    os.kill(server.process.pid, signal.SIGTERM)
    assert await server.ended() == 0
    errors = server.errors()
    assert "No space left on device" in errors
    assert "Traceback" not in errors


async def test_a_child_that_never_answers_costs_one_time_out_and_no_orphan() -> None:
    """It ignores everything, the end of its input and SIGTERM too, and is killed."""
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(600)"
    async with connect([sys.executable, "-c", code], timeout=0.2) as peer:
        with pytest.raises(CallTimeout):
            await peer.call("subtract", [2, 1])
