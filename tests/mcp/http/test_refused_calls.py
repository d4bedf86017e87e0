"""What middleware refuses has its status over HTTP: at a service's endpoint, and in both eras of MCP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman import RpcError, Service, connect
from dragoman.channel import Options
from dragoman.jsonrpc.call_limit import busy
from dragoman.jsonrpc.errors import CallRefused
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07
from dragoman.middleware import rate_limit, size_limit
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.servable import ServableService
from tests.behind import behind
from tests.transports.http.cases import answer, post
from tests.transports.http.ends import face, wire

from ..http_wire import served

KINDS = ["native", "asgi"]


async def full(call: Call, next: Next) -> Any:
    """Middleware that has no room."""
    raise CallRefused(busy("rooms", 3))


def limits() -> list[tuple[str, Any, int, str | None]]:
    return [
        ("rate", rate_limit(0.25, burst=1, clock=lambda: 5.0), 429, "4"),
        ("busy", full, 503, "1"),
        ("size", size_limit(30), 413, None),
    ]


LIMITS = [one[0] for one in limits()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LIMITS)
async def test_at_a_service(kind: str, name: str) -> None:
    [(_, middleware, status, after)] = [one for one in limits() if one[0] == name]
    api = Service("api", middleware=[middleware])

    @api.method
    async def say(text: str) -> str:
        return text

    async with face(kind, {"": ServableService(behind(api))}, Options()) as port, wire(port) as (reader, writer):
        for turn in (1, 2):
            writer.write(post(b'{"jsonrpc":"2.0","method":"say","params":["%b"],"id":1}' % (b"x" * 25 * turn)))
            found = await answer(reader)
            if turn == 1 and name != "busy":
                assert found.status == 200
        assert (found.status, found.headers.get("retry-after")) == (status, after)
        assert found.headers["content-type"] == "application/json"
        told = json.loads(found.body)
        assert told["id"] == 1
        assert told["error"]["code"] == {"size": -32003}.get(name, -32000)
        writer.write(post(b'[{"jsonrpc":"2.0","method":"say","params":["' + b"x" * 50 + b'"],"id":1}]'))
        assert (await answer(reader)).status == 200, "a batch is several answers"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LIMITS)
async def test_at_an_mcp_server(kind: str, name: str) -> None:
    def made() -> Server:
        [(_, middleware, *_)] = [one for one in limits() if one[0] == name]

        async def of_tools(call: Call, next: Next) -> Any:
            return await (middleware(call, next) if call.method == "tools/call" else next(call))

        server = Server("tools", middleware=[of_tools])

        @server.tool
        async def say(text: str) -> str:
            return text

        return server

    status, after = next(one[2:] for one in limits() if one[0] == name)
    async with served(made(), kind) as place:
        await place.call("say", {"text": "x"})
        found = await place.call("say", {"text": "x" * 50})
        assert (found.status, found.headers.get("retry-after")) == (status, after)
        assert json.loads(found.body)["id"] == 1
    async with served(made(), kind) as place:
        session = await place.begin()
        alone = {"Accept": "application/json"}
        await session.post(session.tool("say", text="x"), alone)
        found = await session.post(session.tool("say", id=2, text="x" * 50), alone)
        assert (found.status, found.headers.get("retry-after")) == (status, after)
        assert json.loads(found.body)["id"] == 2
        async with session.stream(session.tool("say", id=3, text="x" * 50)) as events:
            assert events.status in (200, status)
            if events.status == 200:  # the stream had begun before the middleware ran
                assert [one["error"]["message"][:4] for one in await events.rest()]


@pytest.mark.parametrize("kind", KINDS)
async def test_clients_see_the_error(kind: str) -> None:
    def limited() -> Any:
        return rate_limit(0.25, burst=2, by=lambda call: call.method, clock=lambda: 5.0)

    api = Service("api", middleware=[limited()])

    @api.method
    async def say(text: str) -> str:
        return text

    async with (
        face(kind, {"": ServableService(behind(api))}, Options()) as port,
        connect(f"http://127.0.0.1:{port}") as peer,
    ):
        assert [await peer.call("say", ["x"]) for _ in range(2)] == ["x", "x"]
        with pytest.raises(RpcError, match="Busy") as refused:
            await peer.call("say", ["x"])
        assert refused.value.data["retry_after"] == 4
    for revision in (R2026_07, R2025_11):
        server = Server("tools", middleware=[limited()])

        @server.tool
        async def tell(text: str) -> str:
            return text

        async with (
            served(server, kind) as place,
            Client(f"http://127.0.0.1:{place.port}/mcp", revision=revision) as client,
        ):
            for _ in range(2):
                await client.call_tool("tell", {"text": "x"})
            with pytest.raises(RpcError, match="Busy"):
                await client.call_tool("tell", {"text": "x"})
