"""Long tools on hosts that know no tasks: each gets every result, whatever it waits for an answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman import serve
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, Revision
from dragoman.tasks.sqlite import SqliteTasks
from tests import skips
from tests.interop.mcp import environments
from tests.interop.mcp.running import listening
from tests.ports import free_port

from .hosts.long_tools import long_tools
from .hosts.playing import Host, HttpWire, HurryingLoop, StdioWire

PROGRAMS = "tests.mcp.extensions.tasks.hosts"
LIMITS = {10.0: 8.0, 60.0: 50.0, 300.0: 250.0}
"""The seconds that hosts wait, and an `answer_within` for each."""
LENGTHS = (0.3, 0.75, 0.95, 1.5, 3.2)
"""How long the tools take, as parts of a limit."""
revisions = pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)


def hurry(test: Coroutine[Any, Any, None]) -> None:
    """Run a test whose minutes pass at once."""
    loop = HurryingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test)
        loop.hurrying.pending += 1  # from 3.12 on the runner waits for threads no longer than minutes


async def use_all(host: Host, tool: str, limit: float, count: int, progress: bool) -> None:
    """Use a tool so often at once; each result is the right one."""
    uses = [
        host.use(tool, {"number": number, "seconds": limit * LENGTHS[number % len(LENGTHS)]}, progress)
        for number in range(count)
    ]
    results = await asyncio.gather(*uses, return_exceptions=True)
    assert [one for one in results if isinstance(one, BaseException)] == []
    assert results == [{"number": number} for number in range(count)]


def port_of(url: str) -> int:
    """The port of a URL."""
    return urlsplit(url).port or 0


async def over_http(revision: Revision, limit: float, progress: bool) -> None:
    store = SqliteTasks(":memory:")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HurryingLoop)
    for name in ("write", "run"):
        setattr(store._database, name, loop.counted(getattr(store._database, name)))
    async with serve(long_tools([LIMITS[limit]], store), urls="http://127.0.0.1:0/mcp") as serving:
        wire = HttpWire(port_of(serving.urls[0]), revision)
        await wire.begin()
        host = Host(wire, revision, limit)
        await use_all(host, "work_0", limit, 200, progress)
        assert host.waits >= 200 * 2 / len(LENGTHS)
    await store.close()


@pytest.mark.parametrize("progress", [False, True], ids=["", "progress"])
@pytest.mark.parametrize("limit", LIMITS)
@revisions
def test_every_result_reaches_a_host_over_http(revision: Revision, limit: float, progress: bool) -> None:
    hurry(over_http(revision, limit, progress))


@pytest.mark.slow
@revisions
async def test_every_result_reaches_a_host_over_stdio(revision: Revision) -> None:
    """A host that waits 30 seconds, and 3 of `answer_within`: 50 calls at once, half of them with progress."""
    words = ["-m", f"{PROGRAMS}.long_tools", "stdio", "3"]
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    wire = StdioWire(child, revision)
    await wire.begin()
    host = Host(wire, revision, 30.0)
    await asyncio.gather(*(use_all(host, "work_0", 4.0, 25, progress) for progress in (False, True)))
    assert host.waits >= 50 * 2 / len(LENGTHS)
    await wire.end()


async def leave_early(revision: Revision) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with serve(long_tools([50.0], ended=ended), urls="http://127.0.0.1:0/mcp") as serving:
        wire = HttpWire(port_of(serving.urls[0]), revision)
        await wire.begin()
        with pytest.raises(TimeoutError):
            await Host(wire, revision, 10.0).call("work_0", {"number": 1, "seconds": 1000.0}, True)
        assert await ended == 1


@revisions
def test_a_host_that_waits_less_than_answer_within_cancels_the_call(revision: Revision) -> None:
    """It gets no handle, and the tool ends: `answer_within` has to be below its limit."""
    hurry(leave_early(revision))


PEERS = ("mcp2", "mcp1", "fastmcp", "ts2", "ts1", "aisdk")
HOSTS = [
    (peer, wire, era)
    for peer in PEERS
    for wire in ("stdio", "http")
    for era in (("auto",) if peer in ("mcp1", "ts1") else ("auto", "legacy"))
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("peer", "wire", "era"), HOSTS, ids=["-".join(host) for host in HOSTS])
async def test_every_result_reaches_a_real_host(peer: str, wire: str, era: str) -> None:
    """Its calls end at its limit, though it gets progress, and it checks what is structured against the schema. The AI
    SDK does neither."""
    limit, within, seconds, count = 30, 3, 7, 20
    serving = [sys.executable, "-m", f"{PROGRAMS}.long_tools"]
    try:
        program = await asyncio.to_thread(environments.program, peer)
    except environments.Missing as missing:
        skips.missing(f"{peer}: {missing}")
    suffix = "mjs" if peer in environments.NODE else "py"
    script = [*program, str(Path(__file__).parent / "hosts" / f"host_{peer}.{suffix}")]
    words = [era, *(str(one) for one in (limit, seconds, count))]
    if wire == "stdio":
        found = await said(*script, *words, *serving, "stdio", str(within))
    else:
        port = free_port()
        with listening([*serving, "http", str(port), str(within)], port, {}):
            found = await said(*script, *words, f"http://127.0.0.1:{port}/mcp")
    assert [one["structured"] for one in found] == [{"number": number} for number in range(count)]
    assert all(one["handles"] for one in found)
    assert peer == "aisdk" or all(one["progress"] for one in found)


async def said(*command: str) -> list[dict[str, Any]]:
    """What a host prints."""
    child = await asyncio.create_subprocess_exec(
        *command, env=environments.variables(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, words = await child.communicate()
    assert child.returncode == 0, words.decode()[-2000:]
    found: list[dict[str, Any]] = json.loads(out)
    return found
