"""One MCP server, unchanged, from four workers: any of them serves any session, and one that is killed takes none
along."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import pytest

from dragoman import ChannelError
from dragoman.mcp import Client
from dragoman.mcp.client.subscriptions import Changed

from .conftest import PATIENCE, Starter, gone

SERVICE = """\
import os
from dragoman.mcp import Server

api = Server("counted", version="1.0.0")


@api.tool
async def pid() -> int:
    return os.getpid()


@api.resource("note://today")
def today() -> str:
    return "sunny"


@api.tool
async def change() -> None:
    api.notify_resource_updated("note://today")
"""
REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18"]


async def pid(client: Client, failed: Counter[str]) -> int:
    """The worker that answers; a call that was on its way to a worker that died is made once more."""
    try:
        result: Any = await client.call_tool("pid", {})
    except ChannelError:
        failed["in flight"] += 1
        result = await client.call_tool("pid", {})
    return int(result.content[0].text)


async def test_sessions_outlive_their_workers(starter: Starter) -> None:
    starter.file.write_text(SERVICE)
    run = await starter.serve("http://127.0.0.1:0/mcp", workers=4)
    (url,) = run.urls
    clients = [Client(url, revision=revision) for revision in REVISIONS for _ in range(3)]
    answered: Counter[int] = Counter()
    failed: Counter[str] = Counter()
    for client in clients:
        await client.__aenter__()
    try:
        for victim in (1, 2, 3, 4):
            calls = [pid(client, failed) for client in clients for _ in range(8)]
            tasks = [asyncio.create_task(call) for call in calls]
            os.kill(run.pids[victim], signal.SIGKILL)
            answered.update(await asyncio.gather(*tasks))
            await run.ready(1)
        for client in clients:
            answered[await pid(client, failed)] += 1
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)
    assert sum(answered.values()) == 9 * 8 * 4 + 9
    assert len(answered) > 4  # those that died, and those that came after them
    assert failed["in flight"] <= 9 * 8 * 4
    assert set(run.pids.values()) & set(answered)
    print(f"{sum(answered.values())} calls in 9 sessions over {len(answered)} workers, {dict(failed)} made twice")


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_lasting_subscription_goes_on_over_rolling_reloads(starter: Starter, revision: str) -> None:
    starter.file.write_text(SERVICE)
    run = await starter.serve("http://127.0.0.1:0/mcp", workers=2)
    (url,) = run.urls
    changed = Changed("resource", "note://today")
    async with (
        Client(url, revision=revision) as client,
        client.subscribe(["note://today"], again=True) as changes,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(2):
            before = dict(run.pids)
            run.signal(signal.SIGHUP)
            await run.ready(2)
            for one in before.values():
                await gone(one)
            async with Client(url) as other:
                heard = asyncio.ensure_future(anext(changes))
                while not heard.done() or heard.result() != changed:
                    if heard.done():
                        heard = asyncio.ensure_future(anext(changes))
                    await other.call_tool("change", {})
                    await asyncio.wait([heard], timeout=0.05)
