"""The console's page over several processes and wires: two browsers at once, a worker that is killed, a broker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dragoman import Peer, RpcError, Service, connect, serve
from dragoman.mcp import Client, Server
from tests.console.test_workers import peers_of, two_workers
from tests.engines.brokers import Engine

from .browsing import looking

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
]


async def test_two_browsers_see_two_workers_and_the_end_of_one(running: Any, tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (ends, url):
        peers: list[Peer] = []
        found = await peers_of(ends, url, peers)
        first, second = found
        base = f"http://127.0.0.1:{ends.port}"
        async with looking(running, base) as one, looking(running, base) as other:
            for at in (one, other):
                await at.open(f"/#{ends.secret}", "h1:has-text('In flight')")
            calls = {pid: asyncio.ensure_future(peer.call("wait")) for pid, peer in found.items()}
            for at in (one, other):
                for pid in found:
                    await at.page.wait_for_selector(f"main tbody tr:has-text('{pid}'):has-text('program.py')")
            os.kill(first, signal.SIGKILL)
            for at in (one, other):
                await at.page.wait_for_selector(f"main tbody tr:has-text('{first}')", state="detached")
            await one.page.locator("main tbody tr input").check()
            await one.page.click("text=Stop 1 call")
            await one.page.click("dialog >> text=Stop it")
            with pytest.raises(RpcError, match="Cancelled by the operator of the server"):
                await calls[second]
            for at in (one, other):
                await at.page.wait_for_selector("text=Nothing is in flight.")
            await one.page.click("header a:has-text('Machine')")
            await one.page.wait_for_selector(f"h2:has-text('Process {second}')")
            one.fine()
            other.fine()
        await asyncio.wait([calls[first]])
        for peer in peers:
            await peer.close(0)


async def test_a_service_and_a_server_on_wires_and_at_a_broker(running: Any, redis: Engine) -> None:
    """What comes from a queue stands beside what comes over HTTP."""
    api, app = Service("orders"), Server("desk")

    @api.method
    async def wait() -> None:
        await asyncio.sleep(600)

    @app.tool
    async def look(city: str) -> str:
        return city

    queue = f"{redis.url}/orders-{os.getpid()}"
    async with (
        serve(api, urls=queue, console=0) as jobs,
        serve({"/orders": api, "/desk": app}, urls="http://127.0.0.1:0", console=0) as web,
        connect(queue, timeout=None) as caller,
        Client(f"{web.urls[0]}/desk") as client,
    ):
        assert jobs.console is not None
        assert web.console is not None
        stuck = asyncio.ensure_future(caller.call("wait"))
        await client.call_tool("look", {"city": "Lima"})
        async with looking(running, "") as at:
            await at.page.goto(jobs.console)
            await at.page.wait_for_selector("main tbody tr:has-text('wait'):has-text('redis')")
            await at.page.locator("main tbody tr input").check()
            await at.page.click("text=Stop 1 call")
            await at.page.click("dialog >> text=Stop it")
            with pytest.raises(RpcError, match="Cancelled by the operator of the server"):
                await stuck
        async with looking(running, "") as at:
            await at.page.goto(web.console)
            await at.page.click("header a:has-text('Timeline')")
            await at.page.wait_for_selector(".rows tr:has-text('look'):has-text('desk')")
            await at.page.click("header a:has-text('Try')")
            await at.page.wait_for_selector(".list code:text-is('wait')")
