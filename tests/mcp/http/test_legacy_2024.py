"""HTTP+SSE of 2024-11-05's basic/transports ("HTTP with SSE"), beside the endpoint of today."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman.mcp.protocol.http_options import HttpOptions
from dragoman.mcp.protocol.revisions import R2024_11
from tests.behind import behind
from tests.transports.ends import until

from ..http_tools import Stage, tools
from ..http_wire import ME, Events, Place, body, served


@pytest.fixture(params=["native", "asgi"])
async def old(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Place, Stage]]:
    """The server on either face, with the old wire."""
    server, stage = tools(http=HttpOptions(sse_2024=True, keep_alive=0.05))
    async with served(server, request.param) as place:
        yield place, stage


async def endpoint(events: Events) -> str:
    """Where to POST."""
    # "When a client connects, the server MUST send an `endpoint` event containing a URI for the client to use"
    event = await events.next()
    assert event is not None
    assert event.event == "endpoint"
    return "/" + event.data.decode()


async def test_a_conversation(old: tuple[Place, Stage]) -> None:
    place, _ = old
    async with place.stream(method="GET", path="/sse") as events:
        assert events.headers["content-type"] == "text/event-stream"
        path = await endpoint(events)

        async def say(raw: bytes) -> None:
            found = await place.ask(raw, path=path)
            assert (found.status, found.body) == (202, b"")

        params = {"protocolVersion": R2024_11.date, "capabilities": {}, "clientInfo": ME}
        await say(body("initialize", params, 0))
        event = await events.next()
        assert event is not None
        assert event.event == "message"  # "Server messages are sent as SSE `message` events"
        assert json.loads(event.data)["result"]["protocolVersion"] == R2024_11.date
        await say(body("notifications/initialized", id=None))
        call: dict[str, Any] = {"name": "talk", "arguments": {"times": 1}, "_meta": {"progressToken": 1}}
        await say(body("tools/call", call, 2))
        assert (await events.message())["method"] == "notifications/progress"
        assert (await events.message())["id"] == 2
        await say(body("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 3))
        assert (await events.message())["result"]["content"][0]["text"] == "3"
        place.server.remove_tool("add")
        assert (await events.message())["method"] == "notifications/tools/list_changed"
    await until(lambda: not behind(place.server).host.peers)
    assert (await place.ask(body("ping"), path=path)).status == 404


async def test_calls_end_with_the_stream(old: tuple[Place, Stage]) -> None:
    place, stage = old
    async with place.stream(method="GET", path="/sse") as events:
        path = await endpoint(events)
        params = {"protocolVersion": R2024_11.date, "capabilities": {}, "clientInfo": ME}
        await place.ask(body("initialize", params, 0), path=path)
        await place.ask(body("tools/call", {"name": "slow", "arguments": {}}, 1), path=path)
        await stage.started.wait()
    await stage.cancelled.wait()


async def test_refusals(old: tuple[Place, Stage]) -> None:
    place, _ = old
    assert (await place.ask(b"{}", path="/sse")).status == 405
    assert (await place.ask(method="GET", path="/messages")).status == 405
    assert (await place.ask(body("ping"), path="/messages")).status == 404
    assert (await place.ask(body("ping"), path="/messages?session=x")).status == 404
    assert (await place.ask(method="GET", path="/sse", headers={"Accept": "application/json"})).status == 406
    assert (await place.ask(method="GET", path="/sse", headers={"Origin": "http://evil.example.com"})).status == 403
    async with place.stream(method="GET", path="/sse") as events:
        path = await endpoint(events)
        assert (await place.ask(body("ping"), {"Content-Type": "text/plain"}, path=path)).status == 415
        assert (await place.ask(b"{", path=path)).status == 400
        await until(lambda: True)
        behind(place.server).host.peers.pop()._channel.abort(ConnectionError())
        assert await events.message() is None


async def test_it_is_off_unless_asked_for() -> None:
    server, _ = tools()
    async with served(server) as place:
        assert (await place.ask(method="GET", path="/sse")).status == 404
