"""What a server keeps for its callers, or has not sent to them, has one bound (`limits.kept_bytes`): the ways to fill
it, in small, each with an honest caller beside it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman.channel import Options
from dragoman.jsonrpc.budget import Budget
from dragoman.jsonrpc.limits import Limits
from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2025_11, Revision
from dragoman.mcp.server.context import Context
from dragoman.mcp.server.server import Server
from dragoman.mcp.session.log import ENTRY, LOG
from tests.behind import behind
from tests.transports.ends import until

from ..http_wire import ME, Place, body, called, named_by, served

KIB = 1024
KEPT = 512 * KIB
LARGE = 100 * KIB
LIMITS = Limits(kept_bytes=KEPT, response_size=KEPT, send_queue=16 * KIB)


def big() -> Server:
    server = Server("big", http=HttpOptions(json=False), limits=LIMITS)

    @server.tool
    def large(size: int = LARGE) -> str:
        return "x" * size

    @server.tool
    async def said(ctx: Context) -> str:
        await ctx.log("info", "x" * LARGE)
        return "done"

    return server


@asynccontextmanager
async def place(kind: str = "native") -> AsyncIterator[tuple[Place, Budget]]:
    server = big()
    async with served(server, kind, Options(limits=LIMITS, guard=named_by(b"x-who"))) as found:
        yield found, behind(server).call_limit.budget


async def honest(there: Place) -> None:
    """Another caller is answered, in both eras."""
    found = await there.call("large", {"size": 10}, headers={"X-Who": "honest"})
    assert json.loads(found.body)["result"]["content"][0]["text"] == "x" * 10
    sitting = await there.begin()
    sitting.headers["X-Who"] = None
    assert b"x" * 10 in (await sitting.post(sitting.tool("large", size=10))).body


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_answers_that_are_not_read(kind: str) -> None:
    """The slowest readers are closed, and what the system holds is the system's."""
    async with place(kind) as (there, budget), AsyncExitStack() as stack:
        raw, headers = called("large", {"size": 400 * KIB})
        request = there.head(headers, len(raw)) + raw
        writers = []
        for _ in range(40):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", there.port))
            stack.callback(sock.close)
            writers.append(sock)
            for _ in range(20):
                await asyncio.get_running_loop().sock_sendall(sock, request)
        most = 0
        async with asyncio.timeout(60):
            while not budget.measures()["slow_readers_closed_total"]:
                most = max(most, budget.used)
                await asyncio.sleep(0)
        await honest(there)
        assert budget.used <= budget.most
        assert most <= budget.most + 500 * KIB


@pytest.mark.parametrize("tool", ["large", "said"])
async def test_streams_that_are_kept_for_a_returning_client(tool: str) -> None:
    async with place() as (there, budget):
        sittings = [await there.begin() for _ in range(4)]
        first = None
        for _ in range(6):
            for sitting in sittings:
                async with sitting.stream(sitting.tool(tool)) as events:
                    if first is None:
                        event = await events.next()
                        assert event is not None
                        first = sitting, event.id
                    await events.rest()
                assert 0 < budget.used <= KEPT
        assert first is not None
        sitting, id = first
        assert budget.measures()["kept_dropped_total"] > 10
        async with sitting.get(id) as again:  # the oldest has gone
            assert again.status == 400
        await honest(there)
        for one in sittings:
            assert (await there.ask(headers=one.headers, method="DELETE")).status == 204
        await until(lambda: budget.used < KIB * 8)


async def test_messages_without_a_reader_are_dropped_and_the_stream_ends() -> None:
    """The log of a call that goes on: who returns to a part that was dropped is told so."""
    async with place() as (there, budget):
        go = asyncio.Event()

        @there.server.tool
        async def talks(ctx: Context) -> str:
            for _ in range(4):
                await ctx.log("info", "y" * LARGE)
            await go.wait()
            return "done"

        sitting = await there.begin()
        async with sitting.stream(sitting.tool("talks")) as events:
            first = await events.next()
            assert first is not None
        await until(lambda: budget.used > 4 * LARGE)
        other = await there.begin()
        await other.post(other.tool("large", size=2 * LARGE))
        assert budget.used <= KEPT
        async with sitting.get(first.id) as again:
            assert again.status == 400
        go.set()
        await until(lambda: not behind(there.server).call_limit.in_flight)
        assert (await sitting.post(body("ping"))).status == 200


def introduction(size: int, revision: Revision = R2025_11) -> bytes:
    capabilities = {"experimental": {"x": {"y": "a" * size}}}
    return body("initialize", {"protocolVersion": revision.date, "capabilities": capabilities, "clientInfo": ME}, 0)


async def test_what_a_client_says_of_itself_is_bounded_and_counted() -> None:
    async with place() as (there, budget):
        found = await there.ask(introduction(64 * KIB))
        assert found.status == 413
        said = json.loads(found.body)["error"]["data"]
        assert (said["limit"], said["allowed"]) == ("client_info_size", 64 * KIB)
        assert budget.used == 0
        for _ in range(30):  # none of them is used: the oldest give way
            assert (await there.ask(introduction(40 * KIB), {"X-Who": "mallory"})).status in (200, 503)
            assert budget.used <= budget.share
        for who in map(str, range(30)):
            assert (await there.ask(introduction(40 * KIB), {"X-Who": who})).status == 200
            assert budget.used <= budget.most
        await honest(there)


async def test_a_caller_s_sessions_take_no_more_than_its_share() -> None:
    async with place() as (there, budget):
        for number in range(5):
            headers: dict[str, str | None] = {"X-Who": "mallory"}
            found = await there.ask(introduction(20 * KIB), headers)
            if number >= 2:
                assert (found.status, found.headers["retry-after"]) == (503, "1")
                assert json.loads(found.body)["error"]["data"]["limit"] == "kept_bytes"
                continue
            assert found.status == 200
            headers |= {"Mcp-Session-Id": found.headers["mcp-session-id"], "MCP-Protocol-Version": R2025_11.date}
            assert (await there.ask(body("ping"), headers)).status == 200
        assert budget.measures()["kept_refused_total"] == 3
        assert (await there.ask(introduction(20 * KIB), {"X-Who": "bob"})).status == 200
        await honest(there)


async def test_a_kept_stream_counts_with_what_it_takes_beside_its_messages() -> None:
    async with place() as (there, budget):
        sitting = await there.begin()
        before = budget.used
        found = await sitting.post(sitting.tool("large", size=1))
        data = next(line for line in found.body.splitlines() if line.startswith(b"data: {"))[6:]
        assert budget.used - before == len(data) + 2 * ENTRY + LOG


def shown(metrics: Any) -> dict[str, float]:
    return {
        line.split("{")[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.text().decode().splitlines()
        if "{" in line
    }


async def test_metrics_show_it() -> None:
    from dragoman import serve
    from dragoman.telemetry import Metrics

    metrics, server = Metrics(), big()
    async with serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving:
        there = Place(int(serving.urls[0].split(":")[2].split("/")[0]), server)
        sitting = await there.begin()
        await sitting.post(sitting.tool("large", size=1_000))
        found = shown(metrics)
        assert found["dragoman_kept_bytes"] > 1_000
        assert found["dragoman_unsent_bytes"] == 0
        assert found["dragoman_slow_readers_closed_total"] == 0
