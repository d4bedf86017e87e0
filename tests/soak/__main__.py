"""`python -m tests.soak [--minutes N | --seconds N] [--callers N] [--seed N]`: the soak.

Three servers are called at once: one process, whose figures are compared at the end with those of its beginning;
workers that are reloaded and killed all the time; and one behind a broker. Prints what was done; exit status 1, with
the reason, when an answer was wrong or something was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import psutil

from dragoman import connect
from tests.engines import brokers
from tests.ports import free_port

from .scenes import SCENES, Turn, Wrong, lives

ROOT = Path(__file__).parents[2]
WARM = 6.0
"""Seconds before the figures are read that are compared with those of the end."""
QUIET = 30.0
"""Seconds that a server has, once its callers are gone, until it holds what it held at the beginning."""
SLACK = {"rss": 48 * 1024 * 1024, "descriptors": 2, "threads": 8, "tasks": 2, "series": 60, "channels": 0}
"""What may be more at the end than after the first seconds: pools grow to their size, and a method's first call makes
its series. What is not named here must be what it was."""
RELOAD, KILL, AFTER = 5.0, 11.0, 4.0
"""Seconds between two reloads, two kills, and after a kill in which a lost channel is excused."""


class Served(msgspec.Struct):
    """Where a server listens."""

    urls: list[str]


@asynccontextmanager
async def program(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a process of its own, with its log in sight only where it fails."""
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                status = await process.wait()
            if status:
                raise Wrong(f"{' '.join(words)} ended with {status}")
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-8000:].decode(errors="backslashreplace"))
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def first_line(process: asyncio.subprocess.Process) -> Served:
    """What a server says when it is up."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return msgspec.json.decode(await process.stdout.readline(), type=Served, strict=False)


class Soak:
    """One run."""

    def __init__(self, seconds: float, callers: int, seed: int, counts: Counter[str] | None = None) -> None:
        self._seconds = seconds
        self._until = 0.0
        self._callers = callers
        self._seed = seed
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._killed = -AFTER
        self._up: asyncio.Barrier

    def begin(self) -> None:
        """Its time runs from now on."""
        self._until = time.monotonic() + self._seconds

    async def _all_up(self) -> None:
        """Wait until every server is up; then the time begins."""
        if await self._up.wait() == 0:
            self.begin()
        await self._up.wait()

    def left(self) -> float:
        """Seconds until it is over."""
        return self._until - time.monotonic()

    async def call(self, url: str, kind: str, *, moves: bool = False) -> None:
        """Live as the callers of one URL, each scene as many times at once as was asked for."""
        async with asyncio.TaskGroup() as group:
            for scene in SCENES[kind]:
                for number in range(self._callers):
                    random = Random(f"{self._seed} {url.partition(':')[0]} {scene.__name__} {number}")
                    turn = Turn(url, random, self.counts, self._shaken if moves else lambda: False, moves)
                    group.create_task(lives(turn, scene, self.left))

    def _shaken(self) -> bool:
        return time.monotonic() - self._killed < AFTER

    async def one_process(self) -> None:
        """A server that lives as long as the soak, and must hold at its end what it held before."""
        with tempfile.TemporaryDirectory(prefix="dragoman-soak-") as folder:
            host = "127.0.0.1:0"
            urls = [f"tcp://{host}", f"ws://{host}", f"http://{host}", f"unix:{folder}/s", f"http://{host}/mcp"]
            async with program("-m", "tests.soak.served", *urls) as process:
                served = await first_line(process)
                tcp, ws, http, unix, mcp = served.urls
                async with connect(tcp) as peer:
                    warm = Soak(WARM, self._callers, self._seed + 1, self.counts)
                    warm.begin()
                    await warm.callers_of(tcp, ws, http, unix, mcp)
                    before = await self.quiet(peer, None)
                    await self._all_up()
                    await self.callers_of(tcp, ws, http, unix, mcp)
                    after = await self.quiet(peer, before)
        print("held before and after:", ", ".join(f"{k} {before[k]:,.0f} -> {after[k]:,.0f}" for k in sorted(before)))

    async def callers_of(self, tcp: str, ws: str, http: str, unix: str, mcp: str) -> None:
        """All of their callers at once."""
        async with asyncio.TaskGroup() as group:
            for url, kind in ((tcp, "tcp"), (ws, "rpc"), (http, "rpc"), (unix, "rpc"), (mcp, "mcp")):
                group.create_task(self.call(url, kind))

    async def quiet(self, peer: object, before: dict[str, float] | None) -> dict[str, float]:
        """What a server holds once it is quiet. Raises Wrong where that is more than `before`."""
        until, worse = time.monotonic() + QUIET, ["?"]
        figures: dict[str, float] = {}
        while worse and time.monotonic() < until:
            await asyncio.sleep(0.5)
            figures = await peer.call("inside", result=dict[str, float], timeout=30)  # type: ignore[attr-defined]
            least = before or dict.fromkeys(("sessions", "streams", "kept_bytes", "unsent_bytes", "subscribers"), 0.0)
            worse = [name for name, was in least.items() if figures[name] > was + SLACK.get(name, 0)]
        if worse:
            raise Wrong("left behind: " + ", ".join(f"{name} {figures[name]:,.0f}" for name in worse) + f" of {before}")
        return figures

    async def workers(self) -> None:
        """Workers that are reloaded and killed under their callers."""
        tcp, http = f"tcp://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        command = ["-m", "dragoman", "serve", "tests.soak.served:api", tcp, http, "--workers", "2", "--json"]
        async with program(*command) as process:
            await first_line(process)
            await self._all_up()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._shake(process))
                for url in (tcp, http):
                    group.create_task(self.call(url, "rpc", moves=True))

    async def _shake(self, process: asyncio.subprocess.Process) -> None:
        reload, kill = RELOAD, KILL
        began = time.monotonic()
        while self.left() > AFTER:
            await asyncio.sleep(0.25)
            passed = time.monotonic() - began
            if passed >= reload:
                process.send_signal(signal.SIGHUP)
                self.counts["reloads"] += 1
                reload += RELOAD
            if passed >= kill:
                children = [one for one in psutil.Process(process.pid).children() if one.is_running()]
                self._killed = time.monotonic()
                if children:
                    children[-1].kill()
                    self.counts["kills"] += 1
                kill += KILL

    async def broker(self, url: str) -> None:
        """A server behind a broker."""
        async with program("-m", "tests.soak.served", f"{url}/soak") as process:
            await first_line(process)
            await self._all_up()
            await self.call(f"{url}/soak", "rpc")

    async def run(self, broker: str) -> None:
        """All of it."""
        self._up = asyncio.Barrier(3)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.one_process())
            group.create_task(self.workers())
            group.create_task(self.broker(broker))


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--callers", type=int, default=2, help="callers of each kind at each URL")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args()
    seconds = given.seconds or 60 * (given.minutes or 0.5)
    print(f"seed {given.seed}: {seconds:g} seconds", flush=True)
    soak = Soak(seconds, given.callers, given.seed)
    with brokers.started("redis") as engine:
        try:
            asyncio.run(soak.run(engine.url))
        except BaseExceptionGroup as faults:
            for fault in _leaves(faults):
                if not isinstance(fault, Wrong):
                    raise
                print(f"FAILED: {fault}", flush=True)
            return 1
    print("answers:", ", ".join(f"{name} {count:,}" for name, count in sorted(soak.counts.items())))
    return 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf for one in group.exceptions for leaf in (_leaves(one) if isinstance(one, BaseExceptionGroup) else [one])
    ]


if __name__ == "__main__":
    sys.exit(main())
