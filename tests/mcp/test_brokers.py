"""MCP over every broker, in both eras: the server speaks ahead of its answer, asks, and tells unasked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from dragoman import serve
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client, Context, ElicitRequestParams, Server, ToolError
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, Revision
from dragoman.rpc.tracing import Event
from tests.engines.brokers import name


@pytest.fixture(params=["rabbitmq", "mosquitto", "nats", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """An address on each broker that no other test uses."""
    return f"{request.getfixturevalue(request.param).url}/{name('mcp')}"


class City(Struct):
    """What is asked for."""

    city: str


class Town:
    """A server, and what its handlers saw."""

    def __init__(self) -> None:
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()
        self.server = server = Server("town", version="1.0.0")

        @server.tool
        async def count(ctx: Context, to: int) -> int:
            for number in range(1, to + 1):
                await ctx.progress(number, to)
            return to

        @server.tool
        async def visit(ctx: Context) -> str:
            answer = await ctx.elicit("Which city?", City)
            return answer.action if answer.content is None else str(answer.content.city)

        @server.tool
        async def fail() -> str:
            raise ToolError("closed today")

        @server.tool
        async def linger() -> str:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"


async def to_ulm(asked: ElicitRequestParams) -> dict[str, Any]:
    """Answers every question."""
    return {"city": "Ulm"}


@pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)
async def test_a_client_s_day(url: str, revision: Revision) -> None:
    town, progress = Town(), list[float]()
    async with (
        serve(town.server, urls=url),
        Client(
            url, revision=revision, on_elicit=to_ulm, on_progress=lambda told: progress.append(told.progress)
        ) as client,
    ):
        assert client.revision is revision
        assert await client.call_tool("count", {"to": 3}, result=int) == 3
        assert progress == [1, 2, 3]
        assert await client.call_tool("visit", result=str) == "Ulm"
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert "closed today" in failed.content[0].text  # type: ignore[union-attr]
        assert await asyncio.gather(*(client.call_tool("count", {"to": 1}, result=int) for _ in range(20))) == [1] * 20
        lingering = asyncio.create_task(client.call_tool("linger"))
        async with asyncio.timeout(20):
            await town.begun.wait()
            lingering.cancel()
            await town.cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await lingering


async def test_what_changes_is_told_in_both_eras(url: str) -> None:
    town = Town()
    async with (
        serve(town.server, urls=url),
        Client(url, revision=R2025_11) as old,
        Client(url, revision=R2026_07) as new,
        old.subscribe(tools=True) as told,
        new.subscribe(tools=True) as heard,
    ):
        town.server.remove_tool("fail")
        async with asyncio.timeout(20):
            assert (await anext(told)).kind == (await anext(heard)).kind == "tools"
        assert "fail" not in {tool.name for tool in await old.list_tools()}


async def test_two_clients_have_two_sessions(url: str) -> None:
    """A session that ends leaves the others alone; a client that connects again has a new one; everything is traced."""
    town, told = Town(), list[Event]()
    async with (
        serve(town.server, urls=url, trace=told.append),
        Client(url, revision=R2025_11, on_elicit=to_ulm) as stays,
    ):
        for _ in range(3):
            async with Client(url, revision=R2025_11) as goes:
                assert await goes.call_tool("count", {"to": 1}, result=int) == 1
                with pytest.raises(RpcError, match="has not declared elicitation"):
                    await goes.call_tool("visit")
        assert await stays.call_tool("visit", result=str) == "Ulm"
    assert {event.method for event in told if event.direction == "out"} == {
        "elicitation/create",
        "notifications/progress",
    }
