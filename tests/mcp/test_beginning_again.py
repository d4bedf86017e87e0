"""A second `initialize` begins the session of its channel anew; a request without an id asks for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct
from websockets.asyncio.client import connect as connect_websocket

from dragoman import serve
from dragoman.mcp import Context, Server
from dragoman.observer import Observation, Observer, Rejection
from tests.transports.ends import until
from tests.transports.http.cases import answer, post
from tests.transports.http.ends import wire

PATIENCE = 20.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Ends:
    """The outcomes of what came in, by method."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str | None]] = []

    def came_in(self, seen: Observation) -> None: ...

    def outbound(self, seen: Observation) -> None: ...

    def started(self, seen: Observation) -> None: ...

    def ended(self, seen: Observation) -> None:
        if seen.direction == "in":
            self.outcomes.append((seen.method, seen.outcome))

    def rejected(self, seen: Rejection) -> None: ...


class City(Struct):
    city: str


class Wire:
    """Messages to a server and from it, as JSON values."""

    def __init__(self, send: Any, read: Any) -> None:
        self._send, self._read = send, read

    async def say(self, method: str, id: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        await self._send(json.dumps(message).encode())

    async def next(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return json.loads(await self._read())

    async def begin(self, id: int, version: str = "2025-11-25", **capabilities: Any) -> Any:
        client = {"name": f"client {id}", "version": "1"}
        await self.say("initialize", id, protocolVersion=version, capabilities=capabilities, clientInfo=client)
        return await self.next()


@contextlib.asynccontextmanager
async def channel(kind: str, app: Server, *observers: Observer) -> AsyncIterator[Wire]:
    async with serve(app, urls=f"{kind}://127.0.0.1:0", observers=observers) as serving:
        url = serving.urls[0]
        if kind == "ws":
            async with connect_websocket(url, subprotocols=["mcp"]) as socket:  # type: ignore[list-item]

                async def send(raw: bytes) -> None:
                    await socket.send(raw.decode())

                yield Wire(send, socket.recv)
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))

        async def write(raw: bytes) -> None:
            writer.write(raw + b"\n")

        try:
            yield Wire(write, reader.readline)
        finally:
            writer.close()


def server() -> tuple[Server, list[str]]:
    app, ran = Server("again", version="1.0.0"), []

    @app.tool
    async def ask(ctx: Context) -> str:
        ran.append("ask")
        answer = await ctx.elicit("Which city?", City)
        return str(answer)

    @app.tool
    async def quick() -> str:
        ran.append("quick")
        return "quick"

    @app.resource("note://one")
    def note() -> str:
        return "one"

    return app, ran


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_on_a_channel_initialize_is_answered_anew_and_its_state_begins_again(kind: str) -> None:
    app, _ = server()
    async with channel(kind, app) as wire:
        assert (await wire.begin(0, elicitation={}))["result"]["protocolVersion"] == "2025-11-25"
        await wire.say("notifications/initialized")
        await wire.say("resources/subscribe", 1, uri="note://one")
        assert (await wire.next())["result"] == {}
        await wire.say("tools/call", 2, name="ask", arguments={})
        question = await wire.next()
        assert question["method"] == "elicitation/create"

        cut, begun = await wire.begin(0, "2025-06-18"), await wire.next()
        assert (cut["id"], cut["error"]["code"]) == (2, -32603)
        assert "`initialize` began a new session" in cut["error"]["message"]
        assert (begun["id"], begun["result"]["protocolVersion"]) == (0, "2025-06-18")
        app.notify_resource_updated("note://one")  # of the old session's subscription nothing is left
        await wire.say(
            "tools/call", 2, name="ask", arguments={}
        )  # the new client cannot be asked, and its ids begin anew
        refused = await wire.next()
        assert refused["id"] == 2
        assert "elicit" in json.dumps(refused)
        await wire.say("tools/call", 3, name="quick", arguments={})
        assert (await wire.next())["result"]["content"][0]["text"] == "quick"


async def test_a_call_that_belongs_to_no_session_goes_on() -> None:
    app, _ = server()
    go = asyncio.Event()

    @app.tool
    async def slow() -> str:
        await go.wait()
        return "slow"

    async with channel("tcp", app) as wire:
        await wire.begin(0)
        await wire.say("tools/call", 1, name="slow", arguments={}, _meta=META)
        await wire.begin(2)
        go.set()
        assert (await wire.next())["result"]["content"][0]["text"] == "slow"


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "quick", "arguments": {}}),
    ("tools/list", {}),
    ("resources/subscribe", {"uri": "note://one"}),
    ("logging/setLevel", {"level": "debug"}),
    ("ping", {}),
    ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
]


@pytest.mark.parametrize("era", ["before", "stateful", "stateless"])
@pytest.mark.parametrize(("method", "params"), REQUESTS, ids=[method for method, _ in REQUESTS])
async def test_on_a_channel_a_request_without_an_id_runs_nothing(method: str, params: dict[str, Any], era: str) -> None:
    app, ran = server()
    ends = Ends()
    async with channel("tcp", app, ends) as wire:
        if era == "stateful":
            await wire.begin(0)
            ends.outcomes.clear()
        await wire.say(method, **params, **({"_meta": META} if era == "stateless" else {}))
        if era == "stateful":
            await wire.say("ping", 1)
            assert (await wire.next())["id"] == 1
        else:  # the channel still belongs to nobody
            assert (await wire.begin(1))["id"] == 1
        await until(lambda: bool(ends.outcomes))
        assert ends.outcomes[0] == (method, "refused")
    assert ran == []


@pytest.mark.parametrize("era", ["stateful", "stateless"])
@pytest.mark.parametrize(("method", "params"), REQUESTS, ids=[method for method, _ in REQUESTS])
async def test_over_http_a_request_without_an_id_is_400(method: str, params: dict[str, Any], era: str) -> None:
    app, ran = server()
    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving:
        port = int(serving.urls[0].partition("127.0.0.1:")[2].partition("/")[0])
        async with wire(port) as (reader, writer):
            more = "Accept: application/json, text/event-stream\r\n"
            if era == "stateful":
                begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": REQUESTS[-1][1]}
                writer.write(post(json.dumps(begin).encode(), path="/mcp", more=more))
                session = (await answer(reader)).headers["mcp-session-id"]
                more += f"Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
            else:
                params = params | {"_meta": META}
                more += f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n"
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            writer.write(post(json.dumps(message).encode(), path="/mcp", more=more))
            got = await answer(reader)
    assert got.status == 400
    assert "must have an `id`" in got.body.decode()
    assert ran == []


async def test_over_http_initialize_with_a_session_begins_another() -> None:
    app, _ = server()
    async with serve(app, urls="http://127.0.0.1:0/mcp") as serving:
        port = int(serving.urls[0].partition("127.0.0.1:")[2].partition("/")[0])
        async with wire(port) as (reader, writer):
            begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": REQUESTS[-1][1]}
            more, sessions = "Accept: application/json, text/event-stream\r\n", []
            for _ in range(2):
                writer.write(post(json.dumps(begin).encode(), path="/mcp", more=more))
                got = await answer(reader)
                assert got.status == 200
                sessions.append(got.headers["mcp-session-id"])
                more += f"Mcp-Session-Id: {sessions[0]}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
            assert sessions[0] != sessions[1]
            for session in sessions:  # neither is harmed
                more = f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\n"
                writer.write(post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', path="/mcp", more=more))
                assert (await answer(reader)).status == 200


@pytest.mark.parametrize("size", [1_024, 1_025])
async def test_a_progress_token_is_as_long_as_an_id_may_be(size: int) -> None:
    app, ran = server()
    async with channel("tcp", app) as wire:
        await wire.say("tools/call", 1, name="quick", arguments={}, _meta=META | {"progressToken": "t" * size})
        got = await wire.next()
        assert ("error" in got) == (size > 1_024)
        assert ran == ([] if size > 1_024 else ["quick"])
        if size > 1_024:
            assert "progressToken" in got["error"]["message"]
