"""A server whose tools run in child processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

from msgspec import Struct

from dragoman import serve
from dragoman.mcp import Context, Elicit, Server, ToolError
from dragoman.rpc.process.declaring import in_process

print("a child prints what it imports")
app = Server("processes")


class Guest(Struct):
    """The fields of a form."""

    name: str


@app.tool
@in_process
def pid() -> int:
    """Return the number of the process."""
    print("printed")
    os.write(1, b"by number\n")
    return os.getpid()


@app.tool
@in_process
def spins(ctx: Context) -> None:
    """Report the number of the process, and never return."""
    ctx.progress(os.getpid())
    while True:
        sum(range(1000))


@app.tool
@in_process
def greets(greeting: str, ctx: Context) -> str:
    """Greet somebody whose name is asked for."""
    ctx.info({"pid": os.getpid()})
    found = ctx.elicit("Who are you?", Guest)
    assert found.content is not None
    assert type(found.content) is Guest
    return f"{greeting}, {found.content.name}"


@app.tool
@in_process
async def greets_all(ctx: Context) -> str:
    """Greet two at once, and a model."""
    one, two = await ctx.ask(Elicit("One?", Guest, key="one"), Elicit("Two?", Guest, key="two"))
    assert one.content is not None
    assert two.content is not None
    said = await ctx.sample("Say something")
    roots = await ctx.roots()
    return f"{one.content.name}, {two.content.name}, {said.text}, {roots[0].uri}"


@app.tool
@in_process
async def knows(ctx: Context) -> dict[str, Any]:
    """Return what the context says."""
    await ctx.store.set("k", 1)
    return {
        "revision": ctx.revision.date,
        "client": None if ctx.client is None else ctx.client.name,
        "principal": ctx.principal,
        "meta": sorted(ctx.meta),
        "store": await ctx.store.get("k"),
        "method": ctx.rpc.method,
        "cancelled": ctx.cancelled,
        "left": ctx.time_left is not None,
    }


@app.tool
@in_process
def fails(how: str, ctx: Context) -> None:
    """Fail."""
    if how == "tool":
        raise ToolError("in words for the model")
    if how == "dies":
        os._exit(1)
    if how == "state":
        raise ToolError(str(ctx.state))
    if how == "argument":
        ctx.info(threading.Lock())
    raise ValueError("secret")


if __name__ == "__main__":
    sys.stderr.write("serving\n")
    asyncio.run(serve(app, urls=["stdio:"]))
