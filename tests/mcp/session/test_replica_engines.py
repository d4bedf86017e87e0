"""Replicas over each engine that keeps something: the workers' own, Redis, NATS. One walk through all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman.bus import Bus, open_bus
from dragoman.bus.hub import open_hub
from dragoman.mcp.protocol.revisions import R2025_03, R2025_06, R2025_11, Revision
from tests.behind import behind
from tests.transports.ends import until

from ..http_wire import body, meta, standard
from ..replicas import Ring, accepted, ring, text

ASKS: dict[str, Any] = {"elicitation": {}}
CHANGED = "notifications/tools/list_changed"


@pytest.fixture(params=["unix", "redis", "nats"])
async def three(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ring]:
    """Three replicas, each with an end of its own."""
    async with AsyncExitStack() as stack:
        if request.param == "unix":
            hub = await open_hub(str(tmp_path / "bus"))
            stack.push_async_callback(hub.close)
            url = f"unix:{tmp_path}/bus"
        else:
            url = request.getfixturevalue(request.param).url
        join: Callable[[], Awaitable[Bus]] = lambda: open_bus(url)  # noqa: E731
        yield await stack.enter_async_context(ring(3, join=join))


@pytest.mark.parametrize("revision", [R2025_03, R2025_06, R2025_11], ids=lambda one: one.date)
async def test_the_stateful_era(three: Ring, revision: Revision) -> None:
    sitting = await three.begin(revision, ASKS)
    for number in range(6):
        found = await sitting.post(sitting.tool("add", number, a=number, b=1))
        assert text(json.loads(found.body)) == str(number + 1)
    async with three.at(1, sitting).get() as home:
        if revision.primed:
            await home.next()
        else:
            await until(lambda: _homes(three))
        for number, tool in enumerate(("poll", "at_once", "marked")):
            three.servers[number].remove_tool(tool)
            assert (await home.message())["method"] == CHANGED
    if revision.order >= R2025_06.order:
        async with three.at(0, sitting).stream(sitting.tool("ask", 20)) as events:
            question = await events.message()
            assert (await three.at(2, sitting).post(accepted(question["id"], city="Ulm"))).status == 202
            assert text(await events.message()) == "Ulm"
    async with three.at(0, sitting).stream(sitting.tool("talk_and_wait", 21, "t")) as events:
        await events.message()
        last = events.parser.last_id
    async with three.at(2, sitting).get(last) as again:
        three.stages[0].go.set()
        second, answer = await again.rest()
        assert (second["params"]["progress"], text(answer)) == (2, "said")
    call = asyncio.create_task(three.at(1, sitting).post(sitting.tool("slow", 22)))
    await three.stages[1].started.wait()
    await three.at(0, sitting).post(body("notifications/cancelled", {"requestId": 22}, None))
    await three.stages[1].cancelled.wait()
    assert (await call).body == b""
    assert (await three.ask(b"", sitting.headers, method="DELETE")).status == 204
    for _ in three.places:
        assert (await sitting.post(body("ping"))).status == 404


async def test_the_stateless_era(three: Ring) -> None:
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
    raw, headers = body("subscriptions/listen", params, 9), standard("subscriptions/listen")
    async with three.places[0].stream(raw, headers) as events:
        await events.message()
        three.servers[1].remove_tool("add")
        assert (await events.message())["method"] == CHANGED
        await behind(three.servers[0]).subscriptions.close()
        assert [one.get("id") for one in await events.rest()] == [9]


def _homes(three: Ring) -> list[Any]:
    sessions: list[Any] = [peer._channel for peer in behind(three.servers[1]).host.peers]
    return [one for session in sessions for one in session.home.cursors]
