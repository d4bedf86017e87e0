"""Two workers and their supervisor as one picture: ids name the process, and orders find it."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dragoman import Peer, RpcError, connect
from dragoman.console.asking import WorkerProcesses
from dragoman.console.endpoint import Console, new_secret
from dragoman.console.gathering import GatheredConsole, Sums
from dragoman.console.recorder import Recorder
from dragoman.console.replicas import ask_replicas
from dragoman.workers import run_workers
from dragoman.workers.supervisor import Supervisor

from .ends import Ends, listening
from .test_feed import Stream

PROGRAM = """\
import asyncio, os, sys

from dragoman import Service, serve

api = Service("counted")


@api.method(inline=True)
def pid() -> int:
    return os.getpid()


@api.method
async def wait() -> None:
    await asyncio.sleep(600)


@api.method
async def fail() -> None:
    raise ValueError("not today")


async def main() -> None:
    async with serve(api, urls=[sys.argv[1]], console=0) as serving:
        await serving.ended()


asyncio.run(main())
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def two_workers(folder: Path, bus: str = "memory:", program: str = PROGRAM) -> AsyncIterator[tuple[Ends, str]]:
    """Run two workers in processes of their own; yields their console, which asks others on the bus, too, and the URL
    at which they serve."""
    (folder / "program.py").write_text(program)
    url = f"tcp://127.0.0.1:{free_port()}"
    begun: asyncio.Future[tuple[Ends, str]] = asyncio.get_running_loop().create_future()
    secret = new_secret()

    @asynccontextmanager
    async def beside(supervisor: Supervisor) -> AsyncIterator[None]:
        workers = WorkerProcesses(supervisor)
        async with AsyncExitStack() as opened:
            far = await opened.enter_async_context(ask_replicas(bus, supervisor.group))
            assert far is not None
            source = GatheredConsole(workers, sums=Sums(supervisor), far=far, me=far.me)
            console = Console(source, secret=secret)
            port = await opened.enter_async_context(listening(console))
            begun.set_result((Ends(None, console, Recorder(), port, secret), url))  # type: ignore[arg-type]
            yield

    async def run() -> None:
        await run_workers([sys.executable, str(folder / "program.py"), url], [url], workers=2, bus=bus, beside=beside)

    work = asyncio.ensure_future(run())
    try:
        yield await begun
    finally:
        work.cancel()
        await asyncio.wait([work])


async def peers_of(ends: Ends, url: str, peers: list[Peer]) -> dict[int, Peer]:
    """One peer of each worker."""
    found: dict[int, Peer] = {}
    async with asyncio.timeout(60):
        while len((await ends.get("/api/machine"))["processes"]) < 3:
            pass
        while len(found) < 2:
            peer = await connect(url, timeout=None)
            peers.append(peer)
            found.setdefault(await peer.call("pid", result=int), peer)
    return found


async def test_two_workers_are_one_picture(tmp_path: Path) -> None:
    peers: list[Peer] = []
    async with two_workers(tmp_path) as (ends, url):
        found = await peers_of(ends, url, peers)
        pids = set(found)
        machines = (await ends.get("/api/machine"))["processes"]
        assert {one["pid"] for one in machines[1:]} == pids
        assert machines[0]["pid"] not in pids
        stream = await Stream.open(ends)
        await stream.line()
        calls = {pid: asyncio.ensure_future(peer.call("wait")) for pid, peer in found.items()}
        for peer in found.values():
            with pytest.raises(RpcError):
                await peer.call("fail")
        rows = await stream.rows(2)
        assert {one["id"].partition(":")[0] for one in rows} == {f"{pid}" for pid in pids}
        while len(now := (await ends.get("/api/now?where=1"))["calls"]) < 2 or not all(one["where"] for one in now):
            pass
        assert {one["worker"] for one in now} == {f"{pid}" for pid in pids}
        assert {one["where"]["at"]["function"] for one in now} == {"wait"}
        methods = {one["method"]: one for one in (await ends.get("/api/methods"))["methods"]}
        assert (methods["fail"]["count"], methods["fail"]["failed"]) == (2, 2)
        errors = await ends.get("/api/errors")
        assert errors["groups"][0]["count"] == 2
        assert errors["groups"][0]["text"] == "ValueError: not today"
        timeline = (await ends.get("/api/timeline?q=method:fail&limit=1"))["rows"]
        assert len(timeline) == 1
        assert "openrpc" in (await ends.get("/api/catalog"))["served"][0]
        bad = await ends.send(ends.request("/api/timeline?q=no:thing"))
        assert bad.status == 400
        # orders go to the process that has the call
        (one, other) = now
        assert await ends.post("/api/stop", one["id"], "1:1", "x", f"{one['worker']}:999999") == {
            one["id"]: "",
            "1:1": "no call 1:1 is in flight; `look` lists them",
            "x": "no call x is in flight; `look` lists them",
            f"{one['worker']}:999999": f"no call {one['worker']}:999999 is in flight; `look` lists them",
        }
        with pytest.raises(RpcError, match="Cancelled by the operator"):
            await calls[int(one["worker"])]
        assert not calls[int(other["worker"])].done()
        channels = (await ends.get("/api/connections"))["connections"]
        busy = [each for each in channels if each.get("in_flight")]
        assert len(busy) == 1
        assert busy[0]["id"].startswith(f"{other['worker']}:")
        assert await ends.post("/api/end", busy[0]["id"]) == {busy[0]["id"]: ""}
        with pytest.raises(RpcError, match="closed before"):
            await calls[int(other["worker"])]
        stream.writer.close()
        for peer in peers:
            await peer.close(0)


async def test_a_call_from_the_page_is_made_in_a_worker_and_dropped_with_the_page(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (ends, url):
        peers: list[Peer] = []
        await peers_of(ends, url, peers)
        offered = await ends.get("/api/services")
        assert offered["services"] == [{"path": "/", "name": "counted", "kind": "jsonrpc"}]
        made = await ends.send(ends.request("/api/try?at=", "POST", b'{"jsonrpc":"2.0","method":"pid","id":1}'))
        assert made.json["result"] in {await peer.call("pid") for peer in peers}
        failed = await ends.send(ends.request("/api/try?at=", "POST", b'{"jsonrpc":"2.0","method":"fail","id":1}'))
        assert failed.json["error"]["code"] == -32603
        none = await ends.send(ends.request("/api/try?at=/x", "POST", b"{}"))
        assert (none.status, none.json) == (400, {"error": "nothing is served at '/x'"})
        with socket.create_connection(("127.0.0.1", ends.port)) as page:
            page.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
            page.sendall(ends.request("/api/try?at=", "POST", b'{"jsonrpc":"2.0","method":"wait","id":1}'))
            while not (await ends.get("/api/now"))["calls"]:
                pass
        while (await ends.get("/api/now"))["calls"]:
            pass
        for peer in peers:
            await peer.close()
