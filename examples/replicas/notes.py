"""An MCP server that runs as three replicas behind nginx: what it knows is in one place, what it serves is anywhere.

export DRAGOMAN_SECRET=$(python -c 'import secrets; print(secrets.token_urlsafe(32))')
dragoman serve notes.py http://127.0.0.1:8001/mcp --bus redis://127.0.0.1 &
dragoman serve notes.py http://127.0.0.1:8002/mcp --bus redis://127.0.0.1 &
dragoman serve notes.py http://127.0.0.1:8003/mcp --bus redis://127.0.0.1 &
nginx -p $(mktemp -d) -c $PWD/nginx.conf &
dragoman tools http://127.0.0.1:8000/mcp
"""

import asyncio
import os

from msgspec import Struct

from dragoman.mcp import Context, Server

app = Server("notes", version="1.0.0")


class Ok(Struct):
    ok: bool


@app.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


@app.tool
async def where() -> str:
    "Which replica answers."
    return str(os.getpid())


@app.tool
async def approve(what: str, ctx: Context) -> str:
    "Ask the user first: the question goes out here, its answer may come in anywhere."
    answer = await ctx.elicit(f"{what}: is that all right?", Ok)
    return "done" if answer.content is not None and answer.content.ok else "left alone"


@app.tool
async def count(to: int, ctx: Context, pause: float = 0.1) -> int:
    "Count, and say how far it is: a client that is cut off takes the stream up again, anywhere."
    for step in range(1, to + 1):
        await asyncio.sleep(pause)
        await ctx.progress(step, to)
    return to


@app.tool
async def touch(name: str, ctx: Context) -> str:
    "Change a note: its subscribers are told, whichever replica they are at."
    ctx.notify_resource_updated(f"note:///{name}")
    return name


@app.resource("note:///{name}")
async def note(name: str) -> str:
    "A note."
    return f"This is {name}."
