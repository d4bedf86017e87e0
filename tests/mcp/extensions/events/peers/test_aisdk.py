"""The AI SDK as the client of our events and as the receiver of our webhooks: it verifies, deduplicates and refuses as
that package has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import serve
from dragoman.auth import Static
from dragoman.mcp import Server
from tests import skips
from tests.interop.mcp import environments

from ..receiving import PATIENCE, OrderShipped, shop

TOKEN = "token-of-ada"


class Peer:
    """The program: what is said to it, and what it says."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def said(self) -> dict[str, Any]:
        """The next line."""
        assert self._child.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self._child.stdout.readline()
        assert line, "it has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    async def do(self, step: str) -> dict[str, Any]:
        """Make a step, and return what came of it."""
        assert self._child.stdin is not None
        self._child.stdin.write(step.encode() + b"\n")
        return await self.said()


@asynccontextmanager
async def peer(app: Server) -> AsyncIterator[Peer]:
    """The program, as a client of this server."""
    try:
        program = await asyncio.to_thread(environments.program, "aisdk")
    except environments.Missing as missing:
        skips.missing(f"aisdk: {missing}")
    async with serve(app, urls="http://127.0.0.1:0/mcp", auth=Static({TOKEN: "ada"})) as serving:
        child = await asyncio.create_subprocess_exec(
            *program,
            str(Path(__file__).parent / "aisdk.mjs"),
            serving.urls[0],
            TOKEN,
            env=environments.variables(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Peer(child)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            await child.wait()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["chatgpt", "both"])
async def test_the_ai_sdk_follows_our_events(profile: Any) -> None:
    app, events = shop(profile=profile)
    async with peer(app) as host:
        [listed] = (await host.said())["listed"]
        assert listed["name"] == "order_shipped"
        assert "webhook" in listed["delivery"]
        assert "error" in await host.do('subscribe {"carrier": 7}')  # our error, raised by its client
        first = (await host.do('subscribe {"carrier": "DHL"}'))["found"]
        ids = []
        for number in range(20):
            await events.emit(OrderShipped(f"u{number}", "UPS"))
            ids.append(await events.emit(OrderShipped(f"d{number}", "DHL")))
        got = [(await host.said())["event"] for _ in range(20)]
        assert [one["eventId"] for one in got] == ids
        assert got[0]["data"] == {"order": "d0", "carrier": "DHL"}
        again = (await host.do("refresh"))["found"]
        assert (again["id"], again["truncated"]) == (first["id"], False)
        await events.emit(OrderShipped("last", "DHL"))
        assert (await host.said())["event"]["data"]["order"] == "last"
        assert "unsubscribed" in await host.do("unsubscribe")
        await events.emit(OrderShipped("later", "DHL"))
        assert "error" in await host.do("refresh"), "it has forgotten the subscription, and nothing came between"
