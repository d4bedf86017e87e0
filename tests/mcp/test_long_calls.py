"""A tool that works longer than either end waits, and reports progress, ends in its result: nobody has to
look at the progress."""

from __future__ import annotations

import asyncio
import sys

from dragoman import serve
from dragoman.mcp import Client, Context, Server
from dragoman.mcp.client import blocking

PATIENCE = 5.0
"""Seconds of both ends without progress: what a busy machine may hold either up is less."""
STEPS = 40
LENGTH = 1.5 * PATIENCE
"""Seconds that the work takes."""


def working() -> Server:
    server = Server("working")

    @server.tool(timeout=PATIENCE)
    async def work(ctx: Context) -> str:
        for step in range(STEPS):
            await ctx.progress(step + 1, STEPS)
            await asyncio.sleep(LENGTH / STEPS)
        return "done"

    @server.resource("work://page", timeout=PATIENCE)
    async def page(ctx: Context) -> str:
        return await work(ctx)

    @server.prompt(timeout=PATIENCE)
    async def letter(ctx: Context) -> str:
        return await work(ctx)

    return server


async def called(target: str | Server, revision: str) -> str:
    async with Client(target, revision=revision, timeout=PATIENCE) as client:
        found, read, asked = await asyncio.gather(
            client.call_tool("work"), client.read_resource("work://page"), client.get_prompt("letter")
        )
        return f"{found.text} {read.contents[0].text} {asked.messages[0].content.text}"  # type: ignore[union-attr]


def blocked(url: str) -> str:
    with blocking.connect(url, timeout=PATIENCE) as client:
        return client.call_tool("work").text


async def commanded(*words: str) -> str:
    command = [sys.executable, "-m", "dragoman", *words, "--timeout", str(PATIENCE)]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await child.communicate()
    return said.decode().strip()


async def test_progress_keeps_a_long_call_alive_at_both_ends() -> None:
    server = working()
    async with serve(server, urls=["http://127.0.0.1:0/mcp"]) as serving:
        url = serving.urls[0]
        found = await asyncio.gather(
            called(server, "2026-07-28"),
            called(server, "2025-11-25"),
            called(url, "2026-07-28"),
            called(url, "2025-11-25"),
            asyncio.to_thread(blocked, url),
            commanded("tool", url, "work"),
            commanded("prompt", url, "letter"),
            commanded("read", url, "work://page"),
        )
    assert found[:5] == ["done done done"] * 4 + ["done"]
    assert all("done" in said for said in found[5:]), found[5:]
