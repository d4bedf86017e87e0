"""What a tool forks gets its own signals: SIGTERM or SIGINT to such a child ends the child at once, and the server goes
on."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.mcp import Client
from tests.workers.conftest import Starter

TOOLS = """\
import asyncio, concurrent.futures, multiprocessing, os, signal, time
from dragoman import Service
from dragoman.mcp import Server

fork = multiprocessing.get_context("fork")


def nap(ready=None):
    if ready is not None:
        ready.set()
    time.sleep(60)


def process(number, started=True):
    ready = fork.Event()
    child = fork.Process(target=nap, args=(ready,), daemon=True)
    child.start()
    if started:
        ready.wait(20)
    os.kill(child.pid, number)
    child.join(20)
    return str(child.exitcode)


def pool(number):
    with fork.Pool(2) as many:  # its end terminates them
        many.apply(time.sleep, (0.01,))
        pids = [one.pid for one in many._pool]
    return str(-number)


def executor(number):
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=fork) as executor:
        pid = executor.submit(os.getpid).result()
        os.kill(pid, number)
        try:
            executor.submit(time.sleep, 60).result(20)
        except concurrent.futures.process.BrokenProcessPool:
            return str(-number)
    return "it goes on"


def bare(number):
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    os.kill(pid, number)
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


WAYS = {
    "process": process,
    "process at once": lambda number: process(number, started=False),
    "pool": pool,
    "executor": executor,
    "fork": bare,
}


def in_a_thread(way: str, number: int) -> str:
    return WAYS[way](number)


async def on_the_loop(way: str, number: int) -> str:
    return WAYS[way](number)


tools, api = Server("forks"), Service("forks")
for face in (tools.tool, api.method):
    face(in_a_thread)
    face(on_the_loop)
"""
RUN = "from forking import tools; tools.run('stdio:')"
WAYS = ["process", "process at once", "pool", "executor", "fork"]
ENDS = [signal.SIGTERM, signal.SIGINT]
EXPECTED = [str(-number) for number in ENDS]


async def ends(call: Any) -> list[str]:
    """How the children end, from a thread and from the loop, one after the other."""
    return [
        f"{place} {way}: {await call(place, way, int(number))}"
        for place in ("in_a_thread", "on_the_loop")
        for way in WAYS
        for number in ENDS
    ]


def all_of(expected: list[str]) -> list[str]:
    return [f"{place} {way}: {one}" for place in ("in_a_thread", "on_the_loop") for way in WAYS for one in expected]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(("workers", "loop"), [(1, ()), (1, ("--no-uvloop",)), (2, ())])
async def test_a_server_on_sockets(starter: Starter, workers: int, loop: tuple[str, ...]) -> None:
    (starter.folder / "counted.py").write_text(TOOLS)
    if workers == 1:
        run = starter.start(["-m", "dragoman", "serve", "counted:api", "http://127.0.0.1:0", *loop, "--json"])
        (url,) = json.loads((await run.out.until('"urls"')).string)["urls"]
    else:
        run = await starter.serve("http://127.0.0.1:0", *loop, workers=workers)
        (url,) = run.urls
    async with connect(url, timeout=60) as peer:
        assert await ends(lambda *given: peer.call(given[0], list(given[1:]), result=str)) == all_of(EXPECTED)
    run.signal(signal.SIGTERM)
    assert await run.ended() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("how", ["run", "command"])
async def test_a_server_on_stdio(tmp_path: Path, how: str) -> None:
    (tmp_path / "forking.py").write_text(TOOLS)
    code = ["-c", RUN] if how == "run" else ["-m", "dragoman", "serve", "forking:tools", "stdio:"]
    async with Client([sys.executable, *code], cwd=str(tmp_path)) as client:

        async def call(place: str, way: str, number: int) -> str:
            return (await client.call_tool(place, {"way": way, "number": number}, timeout=60)).text

        assert await ends(call) == all_of(EXPECTED)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
async def test_handlers_of_the_program_s_own_stay(starter: Starter) -> None:
    program = """\
import asyncio, os, signal, sys, time
from dragoman import Service, serve

signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
api = Service("own")

async def main():
    async with serve(api, urls="memory:own"):
        there, here = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(here, b"!")  # Python forgets a signal that comes while it forks
            while True:  # not pause(): a signal that comes just before it is handled only after it
                time.sleep(0.01)
        os.read(there, 1)
        os.kill(pid, signal.SIGUSR1)
        print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)

asyncio.run(main())
"""
    run = starter.start(["-c", program])
    await run.out.until("status 7")
    assert await run.ended() == 0
