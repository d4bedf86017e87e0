"""Three replicas behind nginx, restarted one after the other under calls of both eras: what fails, and what comes back.

The short run is part of the tests; `python -m tests.mcp.session.test_replica_nginx 60` runs as many seconds and prints
what it counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.bus.hub import open_hub
from dragoman.channel import ChannelError
from dragoman.jsonrpc.errors import CallTimeout, RpcError
from dragoman.mcp import Client
from dragoman.mcp.client.http.refusals import HttpRefused
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from tests.ports import free_port
from tests.skips import missing

EXAMPLE = Path(__file__).parents[3] / "examples" / "replicas"
ACCEPT: dict[str, Any] = {"ok": True}
PATIENCE = 30.0
RATE = 200.0
"""Calls a second, in all."""
CALLERS = 8
"""Clients of each era."""


def nginx() -> str:
    """The program; the test is skipped where there is none, and fails where all must be there."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        missing("there is no nginx: install it from the system's packages")
    return found


class Replica:
    """One replica, in a process of its own."""

    def __init__(self, port: int, bus: str) -> None:
        self.port = port
        self._bus = bus
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it is ready."""
        env = os.environ | {"DRAGOMAN_SECRET": "a-secret-that-all-replicas-have", "DRAGOMAN_BUS": self._bus}
        url = f"http://127.0.0.1:{self.port}/mcp"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dragoman", "serve", "notes.py", url, "--quiet", cwd=EXAMPLE, env=env
        )
        await ready(self.port)

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Returns when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        async with asyncio.timeout(2 * PATIENCE):  # calls in flight have as long as PATIENCE to end
            await process.wait()


async def ready(port: int) -> None:
    """Returns when the servers that are there take work."""
    async with asyncio.timeout(PATIENCE):
        while await status(port, "/ready") != 200:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.05)


async def status(port: int, path: str) -> int:
    """The status of a GET; 0 where nothing listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except OSError:
        return 0
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def balanced(bus: str | None = None) -> AsyncIterator[tuple[str, list[Replica]]]:
    """Replicas behind nginx: the URL and they. By default they share what a hub in this process holds."""
    program = nginx()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if bus is None:
            hub = await open_hub(str(folder / "bus"))
            stack.push_async_callback(hub.close)
            bus = f"unix:{folder}/bus"
        ports = [free_port() for _ in range(4)]
        text = (EXAMPLE / "nginx.conf").read_text()
        for number, port in enumerate(ports):
            text = text.replace(f"127.0.0.1:800{number}", f"127.0.0.1:{port}")
        (folder / "nginx.conf").write_text(text)
        replicas = [Replica(port, bus) for port in ports[1:]]
        for replica in replicas:
            stack.push_async_callback(replica.end)
        await asyncio.gather(*(replica.start() for replica in replicas))
        balancer = await asyncio.create_subprocess_exec(program, "-p", str(folder), "-c", "nginx.conf")

        async def stop() -> None:
            balancer.terminate()
            await balancer.wait()

        stack.push_async_callback(stop)
        await ready(ports[0])
        yield f"http://127.0.0.1:{ports[0]}/mcp", replicas


class Load:
    """Calls of both eras, and what became of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.over = False
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def client(self, revision: Revision) -> Client:
        return Client(self.url, revision=revision, on_elicit=lambda _: ACCEPT, timeout=PATIENCE)

    async def once_more(self, kind: str, work: Callable[[], Awaitable[Any]], expected: Any) -> None:
        """A call that is safe to repeat: one retry, after a pause as clients make it, and then it has failed. At once
        it would meet the same replica, which takes connections until it stops to listen."""
        self.counts[kind] += 1
        for again in (False, True):
            try:
                found = await work()
                if found != expected:
                    self.failures.append(f"{kind}: {found!r}, not {expected!r}")
                return
            except (ChannelError, CallTimeout, RpcError, HttpRefused) as error:
                if again:
                    self.failures.append(f"{kind}: {error!r}")
                else:
                    self.counts[f"{kind} again"] += 1
                    await asyncio.sleep(0.25)

    async def call(self, revision: Revision, number: int, opened: asyncio.Event) -> None:
        """One client that calls, and every so often is asked, and counts. It is open before the first restart: nginx
        does not repeat a POST that it had sent to a replica which closes, and an opening is tried once."""
        era = "stateful" if revision.stateful else "stateless"
        pause = 2 * CALLERS / RATE
        async with self.client(revision) as client:
            opened.set()
            step = 0
            due = time.monotonic()
            while not self.over:
                step += 1
                await self.one(client, era, step, number)
                due = max(due + pause, time.monotonic() - 0.5)
                await asyncio.sleep(max(due - time.monotonic(), 0))

    async def one(self, client: Client, era: str, step: int, number: int) -> None:
        """The next call of a client."""
        if step % 10 == 0:
            what = {"what": f"{number}.{step}"}
            await self.once_more(f"{era} question", lambda: client.call_tool("approve", what, result=str), "done")
        elif step % 25 == 1:
            await self.once_more(f"{era} progress", lambda: self.counted(client), 5)
        else:
            pair = {"a": step, "b": number}
            await self.once_more(f"{era} call", lambda: client.call_tool("add", pair, result=int), step + number)

    async def counted(self, client: Client) -> int:
        found: int = await client.call_tool("count", {"to": 5, "pause": 0.02}, result=int, on_progress=lambda _: None)
        return found

    async def listen(self, revision: Revision, number: int, ready: asyncio.Event, last: asyncio.Event) -> None:
        """One client that hears of a note, to the end."""
        era = "stateful" if revision.stateful else "stateless"
        uri = f"note:///{number}"
        async with self.client(revision) as client:
            while not last.is_set():  # a server that closes ends its subscriptions in good order
                with contextlib.suppress(ChannelError, CallTimeout):
                    async with client.subscribe(uris=[uri], again=True) as events:
                        self.counts[f"{era} listening"] += 1
                        ready.set()
                        async for event in events:
                            self.counts[f"{era} told"] += 1
                            if self.over and event.uri == uri:
                                last.set()
                                return


async def restarted(seconds: float, bus: str | None = None) -> Load:
    """Replicas restarted one after the other, again and again for so long, under load."""
    async with balanced(bus) as (url, replicas):
        load = Load(url)
        listeners = [(revision, number) for revision in (R2025_11, R2026_07) for number in (1, 2)]
        ready = [asyncio.Event() for _ in listeners]
        last = [asyncio.Event() for _ in listeners]
        async with asyncio.TaskGroup() as group:
            hearing = [
                group.create_task(load.listen(*who, ready[place], last[place])) for place, who in enumerate(listeners)
            ]
            for event in ready:
                await event.wait()
            callers = [(revision, number) for revision in (R2025_11, R2026_07) for number in range(CALLERS)]
            opened = [asyncio.Event() for _ in callers]
            calling = [
                group.create_task(load.call(*who, open_now)) for who, open_now in zip(callers, opened, strict=True)
            ]
            for event in opened:
                await event.wait()
            begun = time.monotonic()
            while True:
                for replica in replicas:
                    await replica.end()
                    await replica.start()
                    load.counts["restarts"] += 1
                    await asyncio.sleep(0.3)
                if time.monotonic() - begun >= seconds:
                    break
            load.over = True
            await asyncio.wait(calling)
            load.counts["seconds"] = round(time.monotonic() - begun)
            await _touched(load, last)
            for task in hearing:
                task.cancel()
        return load


async def _touched(load: Load, last: list[asyncio.Event]) -> None:
    """After all that, everybody still hears of changes."""
    try:
        async with asyncio.timeout(PATIENCE), load.client(R2026_07) as client:
            while not all(event.is_set() for event in last):
                for number in ("1", "2"):
                    await client.call_tool("touch", {"name": number})
                await asyncio.sleep(0.5)
    except TimeoutError:
        load.failures.append("a listener heard nothing after the restarts")


@pytest.mark.slow
async def test_replicas_are_restarted_under_load(capsys: pytest.CaptureFixture[str]) -> None:
    load = await restarted(4)
    with capsys.disabled():
        print(f"\nthree replicas behind nginx: {dict(load.counts)}")
    assert load.failures == []
    assert load.counts["stateful call"] > 100
    assert load.counts["stateless call"] > 100
    assert load.counts["stateful question"] > 10
    assert load.counts["stateless question"] > 10


if __name__ == "__main__":
    found = asyncio.run(restarted(float(sys.argv[1]) if len(sys.argv) > 1 else 60, *sys.argv[2:3]))
    print(dict(found.counts))
    print(f"{len(found.failures)} failures", *found.failures[:20], sep="\n")
    sys.exit(bool(found.failures))
