"""Events of a server with a file: `emit`, `match`, `deliver`, `stream` (see the functions), and `receive`, which takes
what is posted to it. Each line on standard input is an order, `{"task": ..., "calls": N}`."""

from __future__ import annotations

import asyncio
import base64
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Any

from msgspec import Struct

from dragoman import serve
from dragoman.auth import Static
from dragoman.mcp import Client, Server
from dragoman.mcp.extensions.events import EventLimits, Events, EventsClient
from dragoman.mcp.extensions.events import model as m

AT_ONCE = 32
POSTS = 64
"""Events that are emitted at once, and delivered one after the other."""
GROUPS, FIELDS = 10, "abcdefghij"
"""10,000 subscriptions: for each group those to all combinations of ten further fields but 24."""
EACH = 1_000
TOKEN = "token-of-the-bench"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
LIMITS = EventLimits(events=10_000_000, events_size=1 << 33, file_size=1 << 34, subscriptions_each=10_000)
Measured = Callable[[int], Awaitable[dict[str, float]]]
"""Does something so often; returns the seconds of CPU, of which what has to be done in between is no part."""


class Shipped(Struct):
    """An event with ten further fields."""

    group: int
    order: str
    a: str = "x"
    b: str = "x"
    c: str = "x"
    d: str = "x"
    e: str = "x"
    f: str = "x"
    g: str = "x"
    h: str = "x"
    i: str = "x"
    j: str = "x"


@asynccontextmanager
async def served(folder: str, **options: Any) -> AsyncIterator[tuple[Events, str]]:
    """A server over HTTP, and its URL."""
    events = Events(
        store=f"sqlite:{folder}/events.db", keys="k" * 32, limits=LIMITS, allow_private=["127.0.0.0/8"], **options
    )
    events.event("shipped", filters=["group", *FIELDS])(Shipped)
    app = Server("bench", version="1.0.0", extensions=[events])
    async with serve(app, urls="http://127.0.0.1:0/mcp", auth=Static({TOKEN: "bench"})) as serving:
        yield events, serving.urls[0]


def client(url: str, extension: Any) -> Client:
    """A client that may subscribe."""
    return Client(url, extensions=[extension], headers={"Authorization": f"Bearer {TOKEN}"})


async def subscribe(one: Client, receiver: str, arguments: dict[str, Any]) -> None:
    """Make a subscription."""
    delivery = m.Delivery(url=receiver, secret=SECRET)
    params = m.SubscribeEventsParams(name="shipped", arguments=arguments, delivery=delivery)
    await one.request("events/subscribe", params)


# -- what is measured


async def emit(folder: str) -> None:
    """Emit 32 events at once, which nobody follows."""
    async with served(folder) as (events, _):

        async def measure(calls: int) -> dict[str, float]:
            began = time.process_time()
            for _ in range(calls):
                await asyncio.gather(*[events.emit(Shipped(0, "4711")) for _ in range(AT_ONCE)])
            return {"cpu": time.process_time() - began}

        await offer(measure)


async def match(folder: str, receiver: str) -> None:
    """Emit one event to 1,000 matching of 10,000 subscriptions: until all of them wait for a connection. That the
    receiver is looked for holds them up until then; that they are posted is not measured."""
    gate, port = asyncio.Event(), int(receiver.rpartition(":")[2].partition("/")[0])
    gate.set()

    async def resolve(host: str, _: int) -> list[str]:
        await gate.wait()
        return ["127.0.0.1"]

    async with (
        served(folder, resolve=resolve) as (events, url),
        client(url, m.DECLARED) as one,
    ):
        arguments = [chosen for n in range(len(FIELDS) + 1) for chosen in combinations(FIELDS, n)][:EACH]
        all = [{"group": group, **dict.fromkeys(chosen, "x")} for chosen in arguments for group in range(GROUPS)]
        for start in range(0, len(all), AT_ONCE):
            some = all[start : start + AT_ONCE]
            await asyncio.gather(*[subscribe(one, f"http://receiver.test:{port}/", found) for found in some])

        async def measure(calls: int) -> dict[str, float]:
            spent = 0.0
            for number in range(calls):
                gate.clear()
                there = events.measures()["event_deliveries_total"]
                began = time.process_time()
                await events.emit(Shipped(number % GROUPS, "4711"))
                for _ in range(10):  # its deliveries begin, and wait
                    await asyncio.sleep(0)
                spent += time.process_time() - began
                gate.set()
                await delivered(events, there + EACH)
            return {"cpu": spent}

        await offer(measure)


async def deliver(folder: str, receiver: str) -> None:
    """Emit 64 events at once to one subscription, until all are delivered."""
    async with served(folder) as (events, url), client(url, m.DECLARED) as one:
        await subscribe(one, receiver, {"group": 0})

        async def measure(calls: int) -> dict[str, float]:
            began = time.process_time()
            for _ in range(calls):
                there = events.measures()["event_deliveries_total"]
                await asyncio.gather(*[events.emit(Shipped(0, "4711")) for _ in range(POSTS)])
                await delivered(events, there + POSTS)
            return {"cpu": time.process_time() - began}

        await offer(measure)


async def delivered(events: Events, count: float) -> None:
    """Wait until so many events were delivered in all."""
    while events.measures()["event_deliveries_total"] < count:  # noqa: ASYNC110  (nothing tells of it)
        await asyncio.sleep(0.002)


async def stream(folder: str) -> None:
    """Emit events, one after the other, each when the one before has come to a client that follows by a stream: the
    median of the seconds for that is `median`."""
    extension = EventsClient()
    async with served(folder) as (events, url), client(url, extension), extension.listen("shipped") as found:
        first = asyncio.ensure_future(anext(found))
        while not first.done():
            await events.emit(Shipped(0, "first"))
            await asyncio.sleep(0.05)
        while True:  # what else was emitted until it began
            try:
                await asyncio.wait_for(anext(found), 0.3)
            except TimeoutError:
                break

        async def measure(calls: int) -> dict[str, float]:
            taken, cpu = [], time.process_time()
            for _ in range(calls):
                began = time.perf_counter()
                await events.emit(Shipped(0, "4711"))
                await anext(found)
                taken.append(time.perf_counter() - began)
            return {"cpu": time.process_time() - cpu, "median": statistics.median(taken)}

        await offer(measure)


async def offer(measure: Measured) -> None:
    """Serve the referee until its end of file."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"answer": "19"} | await measure(json.loads(line)["calls"])), flush=True)


# -- the receiver, in a process of its own


async def receive() -> None:
    """Accept everything at a port, which is printed, until end of file."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                if b'"type":"verification"' in body:
                    text = json.dumps({"challenge": json.loads(body)["challenge"]}).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                else:
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@asynccontextmanager
async def receiving() -> AsyncIterator[str]:
    """The URL of a receiver that accepts everything."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.servers.events", "receive", stdin=pipe, stdout=pipe
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{(await child.stdout.readline()).decode().strip()}/"
    finally:
        child.stdin.close()
        await child.wait()


async def main(task: str) -> None:
    """One of the tasks."""
    if task == "receive":
        await receive()
        return
    with tempfile.TemporaryDirectory() as folder:
        if task in ("emit", "stream"):
            await (emit if task == "emit" else stream)(folder)
            return
        async with receiving() as receiver:
            await (match if task == "match" else deliver)(folder, receiver)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
