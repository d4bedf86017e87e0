"""What the soak calls: a service and an MCP server. `python -m tests.soak.served URL...` serves both at these URLs, and
writes where they listen as a line of JSON."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack

import msgspec
import psutil

from dragoman import Context as RpcContext
from dragoman import RpcError, Service, serve
from dragoman.mcp import Context, Server
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.telemetry import Metrics

SESSION_IDLE = 8.0
"""Seconds: a client that goes without a word leaves a session, which must be gone before the figures are compared."""
RESUME = 8.0

numbers = itertools.count()
metrics = Metrics()
api = Service("rpc")


class Odd(RpcError):
    code = 7
    message = "Odd"


@api.method(inline=True)
def add(left: int, right: int) -> int:
    return left + right


@api.method
async def later(value: object, seconds: float = 0.0) -> object:
    await asyncio.sleep(seconds)
    return value


@api.method
def threaded(text: str) -> str:
    return text[::-1]


@api.method(errors=[Odd])
async def fail(number: int) -> None:
    raise Odd(data=number)


@api.method
async def ask_back(value: int, ctx: RpcContext) -> int:
    assert ctx.peer is not None
    return int(await ctx.peer.call("double", [value]))


@api.method(inline=True)
def inside() -> dict[str, float]:
    "What this process holds."
    gc.collect()
    process = psutil.Process()
    series = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    gauges = ("sessions", "streams", "kept_bytes", "unsent_bytes", "subscribers", "channels", "calls_waiting")
    read = {name: sum(_value(line) for line in series if line.startswith(f"dragoman_{name}{{")) for name in gauges}
    return read | {
        "rss": process.memory_info().rss,
        "descriptors": process.num_fds(),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "series": len(series),
    }


def _value(line: str) -> float:
    return float(line.rpartition(" ")[2])


app = Server("mcp", http=HttpOptions(session_idle=SESSION_IDLE, resume=RESUME, retry=100))


class Name(msgspec.Struct):
    name: str


@app.tool
def join(left: str, right: str) -> str:
    return left + right


@app.tool
async def count(up_to: int, ctx: Context) -> int:
    for number in range(up_to):
        await ctx.progress(number, up_to)
    return up_to


@app.tool
async def greet(greeting: str, ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", Name)
    return f"{greeting}, {answer.content.name if answer.content is not None else 'nobody'}"


@app.tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@app.tool
async def resumed(ctx: Context) -> str:
    "Its stream is closed before its answer, which comes when the client has come back for it."
    await ctx.progress(1)
    await ctx.close_stream(0.05)
    return "resumed"


@app.tool
def change() -> str:
    "Adds a tool that was never there, and takes it away."
    number = next(numbers)

    def added() -> int:
        return number

    app.add_tool(added, name=f"added_{number}")
    app.remove_tool(f"added_{number}")
    app.notify_resource_updated("soak://changed")
    return "changed"


@app.resource("soak://changed")
def changed() -> str:
    return "text"


async def main(urls: list[str]) -> None:
    """Serve until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with AsyncExitStack() as stack:
        listening: list[str] = []
        for served, of_mcp in ((api, False), (app, True)):
            if its := [url for url in urls if url.endswith("/mcp") is of_mcp]:
                listening += (await stack.enter_async_context(serve(served, urls=its, observers=[metrics]))).urls
        sys.stdout.buffer.write(msgspec.json.encode({"pid": os.getpid(), "urls": listening}) + b"\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
