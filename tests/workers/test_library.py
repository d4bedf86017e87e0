"""`run_workers` with any program that calls `serve`, the bus between the workers, and `serve(bus=)`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from dragoman import LocalError, Service, connect, http_app, serve
from dragoman.bus import Bus, BusLost, open_bus
from dragoman.bus.memory import MemoryBus
from dragoman.rpc.peer import Peer
from dragoman.rpc.servable import ServableService
from dragoman.workers import run_workers
from tests.behind import behind

from .conftest import Starter, gone, one_for_each

PROGRAM = """\
import asyncio, os, sys
from dragoman import Service, serve

api = Service("told")
heard = []


@api.method(inline=True)
def pid() -> int:
    return os.getpid()


@api.method(inline=True)
def all_heard() -> list[str]:
    return heard


@api.method(inline=True)
def leave() -> None:
    os._exit(3)


@api.method(inline=True)
def variable(name: str) -> str | None:
    return os.environ.get(name)


async def main() -> None:
    serving = serve(api, urls=[URL])

    @api.method
    async def tell(text: str) -> None:
        await serving.bus.publish("news", text.encode())

    @api.method
    async def keep(key: str, value: str) -> bool:
        return await serving.bus.store.put_new(key, value.encode(), ttl=60)

    @api.method
    async def announces() -> bool:
        return serving.employment.announce

    async with serving:
        await serving.bus.subscribe("news", lambda message: heard.append(message.decode()))
        await serving.ended()


asyncio.run(main())
"""

SUPERVISOR = """\
import asyncio, sys
from dragoman.workers import supervisor

supervisor.START_TIME = float(sys.argv[3]) if len(sys.argv) > 3 else 60
command = [sys.executable, sys.argv[1]] if sys.argv[1].endswith(".py") else [sys.argv[1]]
sys.exit(asyncio.run(supervisor.run_workers(command, [sys.argv[2]], workers=2)))
"""


@pytest.fixture
def program(starter: Starter) -> str:
    """A program that serves on a Unix socket, and its supervisor's."""
    url = f"unix:{starter.folder}/told.sock"
    (starter.folder / "told.py").write_text(PROGRAM.replace("URL", repr(url)))
    (starter.folder / "run.py").write_text(SUPERVISOR)
    return url


async def test_workers_hear_each_other(starter: Starter, program: str, peers: list[Peer]) -> None:
    run = starter.start(["run.py", "told.py", program])
    await run.ready(2)
    found = list((await one_for_each(program, list(run.pids.values()), peers)).values())
    sent = [f"{i}" for i in range(40)]
    for number, text in enumerate(sent):
        await found[number % 2].call("tell", [text])
    for peer in found:
        async with asyncio.timeout(20):
            while len(heard := await peer.call("all_heard", result=list[str])) < len(sent):
                pass
        assert sorted(heard, key=int) == sent
    kept = await asyncio.gather(*(peer.call("keep", ["key", "mine"]) for peer in found * 5))
    assert kept.count(True) == 1
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0  # the program has no signal handlers: the line to the supervisor told it to drain
    assert not (starter.folder / "told.sock").exists()


async def test_a_program_without_signal_handlers_ends_with_its_supervisor(
    starter: Starter, program: str, peers: list[Peer]
) -> None:
    run = starter.start(["run.py", "told.py", program])
    await run.ready(2)
    run.signal(signal.SIGKILL)
    for pid in run.pids.values():
        await gone(pid)


async def test_a_worker_that_never_listens_is_killed(starter: Starter, program: str) -> None:
    (starter.folder / "told.py").write_text("import time\ntime.sleep(1000)\n")
    run = starter.start(["run.py", "told.py", program, "0.3"])
    await run.err.until(r"worker 1 \(pid \d+\) did not listen within 0.3 s")
    await run.err.until(r"worker 1 \(pid \d+\) was ended by SIGKILL before it listened")
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0


async def test_a_worker_that_cannot_be_started_harms_no_other(
    starter: Starter, program: str, peers: list[Peer]
) -> None:
    """The program is gone for a while (an update, no memory, no processes): those that serve go on."""
    run = starter.start(["run.py", str(_script(starter)), program])
    pids = await run.ready(2)
    found = await one_for_each(program, pids, peers)
    _script(starter).rename(starter.folder / "away")
    await found[run.pids[2]].notify("leave")
    for _ in range(6):  # more often than it would try if no worker served
        await run.err.until("worker 2 could not be started: .*; another starts in")
    run.signal(signal.SIGHUP)
    await run.err.until("the new worker 1 could not be started: .*; the old ones go on")
    assert await found[run.pids[1]].call("pid") == run.pids[1]
    (starter.folder / "away").rename(_script(starter))
    run.signal(signal.SIGHUP)
    await run.ready(2)
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0


def _script(starter: Starter) -> Path:
    """The program `told.py` as a file that is executed itself."""
    file = starter.folder / "told"
    if not (starter.folder / "made").exists():
        file.write_text(f"#!{sys.executable}\n" + (starter.folder / "told.py").read_text())
        file.chmod(0o700)
        (starter.folder / "made").touch()
    return file


async def test_places_that_fail_again_and_again_harm_no_other(
    starter: Starter, program: str, peers: list[Peer]
) -> None:
    run = starter.start(["run.py", "told.py", program])
    pids = await run.ready(2)
    found = await one_for_each(program, pids, peers)
    (starter.folder / "told.py").write_text("import os\nos._exit(9)\n")
    await found[run.pids[2]].notify("leave")
    for _ in range(6):
        await run.err.until(r"worker 2 \(pid \d+\) ended with exit status 9 before it listened; another starts in")
    assert await found[run.pids[1]].call("pid") == run.pids[1]


async def test_a_program_that_is_not_there_is_said_once(starter: Starter, program: str) -> None:
    run = starter.start(["run.py", str(starter.folder / "none"), program])
    assert await run.ended() == 2
    assert [line for line in run.err.all if "worker" in line] == [
        f"worker 1 could not be started: {starter.folder}/none: there is no such file"
    ]


async def test_a_watch_that_fails_ends_nothing(starter: Starter, program: str) -> None:
    lines = (starter.folder / "run.py").read_text().replace("workers=2", "workers=2, changes=changes()")
    watch = "async def changes():\n    yield 'changed: a'\n    raise OSError('the folder is gone')\n\n\n"
    (starter.folder / "run.py").write_text(lines.replace("command = ", watch + "command = ", 1))
    run = starter.start(["run.py", "told.py", program])
    await run.err.until("watching for changes has failed: OSError: the folder is gone")
    await run.ready(2)
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0


async def test_what_the_supervisor_adds_to_the_environment(starter: Starter, program: str, peers: list[Peer]) -> None:
    lines = (starter.folder / "run.py").read_text()
    (starter.folder / "run.py").write_text(lines.replace("workers=2", "workers=2, env={'TOLD': 'so'}"))
    run = starter.start(["run.py", "told.py", program])
    found = await one_for_each(program, await run.ready(2), peers)
    assert [await peer.call("variable", ["TOLD"]) for peer in found.values()] == ["so", "so"]


async def test_one_worker_announces_and_no_later_one(starter: Starter, program: str, peers: list[Peer]) -> None:
    """The first to be started says what is served; it is not said again, though that one be replaced."""
    run = starter.start(["run.py", "told.py", program])
    found = await one_for_each(program, await run.ready(2), peers)
    assert {pid: await peer.call("announces") for pid, peer in found.items()} == {
        run.pids[1]: True,
        run.pids[2]: False,
    }
    await found[run.pids[1]].notify("leave")
    (again,) = await run.ready(1)
    assert await (await one_for_each(program, list(run.pids.values()), peers))[again].call("announces") is False


async def test_refused_before_anything_starts() -> None:
    with pytest.raises(LocalError, match="at least 1"):
        await run_workers(["true"], ["tcp://127.0.0.1:0"], workers=0)
    with pytest.raises(LocalError, match="needs a port"):
        await run_workers(["true"], ["tcp://127.0.0.1"], workers=1)


# -- serve(bus=) ----------------------------------------------------------------------------------


class Joining:
    """A served object that wants the bus."""

    def __init__(self) -> None:
        self._host = ServableService(behind(Service("joining")))
        self.name, self.call_limit = self._host.name, self._host.call_limit
        self.exchange, self.attach = self._host.exchange, self._host.attach
        self.routes, self.drain = self._host.routes, self._host.drain
        self.limits, self.subprotocol = self._host.limits, self._host.subprotocol
        self.restrict, self.stop = self._host.restrict, self._host.stop
        self.steps: list[str] = []
        self.buses: list[Bus] = []

    async def join(self, bus: Bus) -> None:
        self.buses.append(bus)
        self.steps.append(f"join {bus.url} {bus.alive}")

    async def start(self) -> None:
        self.steps.append("start")


async def test_what_is_served_joins_before_it_starts() -> None:
    joining = Joining()
    async with serve({"/a": joining, "/b": joining}, urls="http://127.0.0.1:0", bus="memory:joined") as serving:
        assert serving.bus is not None
        assert serving.bus.alive
        bus = serving.bus
    assert joining.steps == ["join memory:joined True", "start", "start"]
    assert not bus.alive  # what was opened here is closed here


async def test_a_bus_of_the_callers_own_stays_open() -> None:
    bus = await open_bus("memory:own")
    joining = Joining()
    async with serve(joining, urls="tcp://127.0.0.1:0", bus=bus) as serving:
        assert serving.bus is bus
    assert joining.steps == ["join memory:own True", "start"]
    assert bus.alive
    await bus.close()


async def test_the_environment_names_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_BUS", "memory:environment")
    async with serve(Service("a"), urls="tcp://127.0.0.1:0") as serving:
        assert serving.bus is not None
        assert serving.bus.url == "memory:environment"
    monkeypatch.setenv("DRAGOMAN_BUS", "")
    async with serve(Service("a"), urls="tcp://127.0.0.1:0") as serving:
        assert serving.bus is None


async def test_a_bus_without_its_holder(tmp_path: Path) -> None:
    with pytest.raises(BusLost, match="no process holds it"):
        async with serve(Service("a"), urls="tcp://127.0.0.1:0", bus=f"unix:{tmp_path}/none"):
            pass
    with pytest.raises(LocalError, match="is not a bus"):
        async with serve(Service("a"), urls="tcp://127.0.0.1:0", bus="http://127.0.0.1:1"):
            pass


async def test_an_asgi_server_opens_and_closes_it() -> None:
    joining = Joining()
    app = http_app(joining, bus="memory:asgi")
    told: asyncio.Queue[str] = asyncio.Queue()
    said: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()

    async def receive() -> dict[str, Any]:
        return {"type": await told.get()}

    life = asyncio.create_task(app({"type": "lifespan"}, receive, said.put))
    told.put_nowait("lifespan.startup")
    assert await said.get() == {"type": "lifespan.startup.complete"}
    assert joining.steps == ["join memory:asgi True", "start"]
    told.put_nowait("lifespan.shutdown")
    assert await said.get() == {"type": "lifespan.shutdown.complete"}
    await life
    with pytest.raises(BusLost, match="closed"):
        await joining.buses[0].publish("topic", b"")


# -- /ready ---------------------------------------------------------------------------------------


async def get(url: str, path: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_not_ready_while_the_bus_is_gone() -> None:
    bus = MemoryBus("ready")
    async with serve(Service("a"), urls="http://127.0.0.1:0", bus=bus) as serving:
        (url,) = serving.urls
        assert await get(url, "/ready") == (200, b'{"status":"ready"}')
        bus.disconnect()
        assert await get(url, "/ready") == (503, b'{"status":"the bus is gone"}')
        assert await get(url, "/live") == (200, b'{"status":"live"}')
        bus.connect_again()
        assert await get(url, "/ready") == (200, b'{"status":"ready"}')
    await bus.close()


async def test_not_ready_while_draining() -> None:
    api = Service("a")
    begun, over = asyncio.Event(), asyncio.Event()

    @api.method
    async def hold() -> str:
        begun.set()
        await over.wait()
        return "held"

    async with serve(api, urls="http://127.0.0.1:0") as serving:
        (url,) = serving.urls
        host, _, port = url.removeprefix("http://").partition(":")
        async with connect(url) as peer:
            reader, writer = await asyncio.open_connection(host, int(port))
            get_ready = f"GET /ready HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            writer.write(get_ready[:-2])  # a request that is not whole yet keeps its wire open
            call = asyncio.create_task(peer.call("hold"))
            await begun.wait()
            closing = asyncio.create_task(serving.close())
            while not serving.served[""].call_limit.draining:  # noqa: ASYNC110
                await asyncio.sleep(0)
            writer.write(get_ready[-2:])
            assert b"503" in await reader.readline()
            assert b'{"status":"draining"}' in await reader.read()
            writer.close()
            over.set()
            assert await call == "held"
            await closing
