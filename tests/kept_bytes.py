"""Ways to fill a server's memory by small requests, at full size: `python -m tests.kept_bytes [--uvloop] [PLAN ...]`.

A server in a process of its own, with a guard and the default limits; attackers with names of their own, and an honest
caller beside them. Each plan says how much memory the server took at most, above what it had before, and whether that
is within `kept_bytes` and 64 MiB; the exit status is 1 where it is not, or where the honest caller was not answered.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from dragoman import serve
from dragoman.cli.serving.large_blocks import return_large_blocks
from dragoman.jsonrpc.limits import MIB, SERVER
from dragoman.mcp import HttpOptions, Server
from dragoman.mcp.protocol.revisions import R2025_11
from dragoman.telemetry import Metrics

from .mcp.http_wire import ME, Place, Sitting, body, called, named_by

ROOM = SERVER.kept_bytes + 64 * MIB
ANSWER = 2_500_000
"""Characters; the answer has them twice."""
SSE = {"Accept": "text/event-stream"}


def app() -> Server:
    server = Server("full", http=HttpOptions(sessions=20_000))

    @server.tool
    async def big(n: int) -> str:
        return "x" * n

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def serve_it() -> None:
    """The server's process: it says where it is, and its metrics when a line comes."""
    return_large_blocks()  # as the command does
    metrics = Metrics()
    async with serve(app(), urls="http://127.0.0.1:0/mcp", guard=named_by(b"x-who"), observers=[metrics]) as serving:
        print(serving.urls[0], flush=True)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.readline():
            lines = metrics.text().decode().splitlines()
            print(json.dumps({line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines if "{" in line}), flush=True)


def memory(pid: int) -> int:
    """Bytes that a process has in memory."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Watched:
    """The server while it is attacked: its memory, and how an honest caller fares."""

    def __init__(self, pid: int, place: Place) -> None:
        self.pid, self.place = pid, place
        self.start = self.most = memory(pid)
        self.answered = self.failed = 0
        self.slowest = 0.0

    async def look(self) -> None:
        while True:
            self.most = max(self.most, memory(self.pid))
            await asyncio.sleep(0.02)

    async def honest(self) -> None:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(60):
                    found = await self.place.call("echo", {"text": "hi"}, headers={"X-Who": "honest"})
                    sitting = await begin(self.place, "honest")
                    kept = await sitting.post(sitting.tool("echo", text="hi"), {"X-Who": "honest"})
                good = found.status == 200 and kept.status == 200 and b"hi" in kept.body
            except (OSError, AssertionError, EOFError, TimeoutError) as error:
                print(f"honest caller: {error!r}", flush=True)
                good = False
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.answered += good
            self.failed += not good
            await asyncio.sleep(0.5)


async def begin(place: Place, who: str, **more: Any) -> Sitting:
    """A session of this caller's, in use."""
    params = {"protocolVersion": "2025-11-25", "capabilities": more, "clientInfo": ME}
    found = await place.ask(body("initialize", params, 0), {"X-Who": who})
    if found.status != 200:
        raise AssertionError(found.status)
    sitting = Sitting(place, found.headers["mcp-session-id"], R2025_11)
    sitting.headers["X-Who"] = who
    await sitting.post(body("notifications/initialized", id=None))
    return sitting


async def unread(place: Place) -> str:
    """1,000 connections with an answer each that is not read, and 2 KiB read every 5 s."""
    loop = asyncio.get_running_loop()
    raw, headers = called("big", {"n": ANSWER})
    async with AsyncExitStack() as stack:
        socks = []
        for number in range(1_000):
            sock = socket.socket()
            stack.callback(sock.close)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", place.port))
            request = place.head(headers | {"X-Who": f"mallory {number % 30}"}, len(raw)) + raw
            await loop.sock_sendall(sock, request)
            socks.append(sock)
            await asyncio.sleep(0.03)  # to make the answers takes the server's processor half a minute
        for _ in range(20):
            await asyncio.sleep(5)
            for sock in socks:
                with suppress(OSError):
                    sock.recv(2048)
        return f"1,000 connections, {1_000 * len(raw) // 1024} KiB sent"


async def each(count: int, work: Callable[[int], Awaitable[Any]]) -> int:
    """Run this many, 20 at once; gives how many were refused."""
    refused, numbers = 0, iter(range(count))

    async def run() -> None:
        nonlocal refused
        for number in numbers:
            try:
                await work(number)
            except AssertionError:
                refused += 1

    await asyncio.gather(*(run() for _ in range(20)))
    return refused


async def introductions(place: Place) -> str:
    """2,000 sessions, each in use, whose clients say as much of themselves as they may."""
    refused = await each(
        2_000, lambda number: begin(place, f"mallory {number % 30}", experimental={"x": {"y": "a" * 60_000}})
    )
    return f"2,000 sessions with 60 KB of capabilities, {refused} refused"


async def objects(place: Place) -> str:
    """The same with as many objects as fit."""
    many: dict[str, Any] = {f"{number}": {} for number in range(5_000)}
    refused = await each(1_000, lambda number: begin(place, f"mallory {number % 30}", experimental=many))
    return f"1,000 sessions with 5,000 objects each, {refused} refused"


async def sessions(place: Place) -> str:
    """10,000 ordinary sessions, each in use, of one caller."""
    refused = await each(10_000, lambda number: begin(place, "mallory"))
    return f"10,000 sessions, {refused} refused"


async def streams(place: Place) -> str:
    """Finished streams that are kept for a returning client: 64 of 1 MB for each of 50 sessions."""

    async def one(number: int) -> None:
        sitting = await begin(place, f"mallory {number % 30}")
        for id in range(64):
            async with sitting.stream(sitting.tool("big", id, n=1_000_000), SSE):
                pass  # it goes before it has read it

    await each(50, one)
    return "3,200 streams of 1 MB"


PLANS = {one.__name__: one for one in (unread, introductions, objects, sessions, streams)}


async def attack(name: str, loop: list[str]) -> bool:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.kept_bytes",
        "serve",
        *loop,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode()
        place = Place(int(url.split(":")[2].split("/")[0]), app())
        for _ in range(20):
            await place.call("echo", {"text": "warm"}, headers={"X-Who": "honest"})
        watched = Watched(process.pid, place)
        tasks = [asyncio.create_task(watched.look()), asyncio.create_task(watched.honest())]
        began = time.monotonic()
        words = await PLANS[name](place)
        seconds = time.monotonic() - began
        for task in tasks:
            task.cancel()
        process.stdin.write(b"\n")
        shown = json.loads(await process.stdout.readline())
        more = watched.most - watched.start
        good = more < ROOM and watched.answered > 0 and not watched.failed
        print(
            f"{name}: {words} in {seconds:.0f} s. Memory {watched.start // MIB} MiB, at most {more // MIB} MiB more "
            f"({ROOM // MIB} allowed); honest caller: {watched.answered} answered, {watched.failed} not, slowest "
            f"{watched.slowest:.2f} s; kept {int(float(shown['dragoman_kept_bytes'])) // 1024} KiB, dropped "
            f"{shown['dragoman_kept_dropped_total']}, refused {shown['dragoman_kept_refused_total']}, closed "
            f"{shown['dragoman_slow_readers_closed_total']}: {'good' if good else 'TOO MUCH'}",
            flush=True,
        )
        return good
    finally:
        process.kill()
        await process.wait()


async def main(plans: list[str], loop: list[str]) -> int:
    good = [await attack(plan, loop) for plan in plans or PLANS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    given = sys.argv[1:]
    fast = ["--uvloop"] if "--uvloop" in given else []
    given = [one for one in given if one != "--uvloop"]
    if given[:1] == ["serve"]:
        if fast:
            import uvloop

            uvloop.run(serve_it())
        else:
            asyncio.run(serve_it())
    else:
        sys.exit(asyncio.run(main(given, fast)))
