"""A `Server` as a whole: served twice, its lifespan, its middleware, what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dragoman import RpcError, Service, connect, serve
from dragoman.mcp import Client, Context, Server, ToolError
from dragoman.mcp import revisions as r
from dragoman.rpc.middleware import Call, Next

ALL = list(r.REVISIONS.values())
EVERY = pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


async def test_a_server_is_served_a_second_time() -> None:
    app = Server("twice")

    @app.tool
    def thread(a: int) -> int:
        return a + 1

    for _ in range(2):
        async with serve(app, urls=["tcp://127.0.0.1:0"]) as serving, Client(serving.urls[0]) as client:
            assert await client.call_tool("thread", {"a": 1}, result=int) == 2


@EVERY
async def test_a_lifespan_is_around_the_calls(revision: r.Revision) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[dict[str, int]]:
        seen.append(f"begin {server.name}")
        yield {"answer": 42}
        seen.append("end")

    app = Server("living", lifespan=life)

    @app.tool
    async def ask(ctx: Context) -> int:
        found: int = ctx.state["answer"]
        return found

    async with serve(app, urls=["tcp://127.0.0.1:0"]) as serving:
        assert seen == ["begin living"], "before the first call"
        async with Client(serving.urls[0], revision=revision) as client:
            assert text(await client.call_tool("ask")) == "42"
    assert seen == ["begin living", "end"]


async def test_a_lifespan_that_fails_is_told_at_the_start() -> None:
    @asynccontextmanager
    async def life(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with serve(Server("failing", lifespan=life), urls=["tcp://127.0.0.1:0"]):
            pass


@EVERY
async def test_middleware_is_around_every_method(revision: r.Revision) -> None:
    seen: list[str] = []
    app = Server("watched")

    @app.use
    async def watch(call: Call, next: Next) -> Any:
        seen.append(call.method)
        return await next(call)

    @app.tool
    async def early() -> str:
        return "early"

    app.add_tool(lambda: "late", name="late", description="added after")
    async with Client(app, revision=revision) as client:
        await client.list_tools()
        assert text(await client.call_tool("early")) == "early"
        assert text(await client.call_tool("late")) == "late"
    assert [name for name in seen if name.startswith("tools/")] == ["tools/list", "tools/call", "tools/call"]


@EVERY
async def test_what_is_not_registered_is_not_declared(revision: r.Revision) -> None:
    async with Client(Server("empty"), revision=revision) as client:
        found = client.capabilities
        assert found is not None
        assert not found.tools
        assert not found.resources
        assert not found.prompts
        assert not found.completions


@EVERY
async def test_an_unknown_tool_is_a_protocol_error(revision: r.Revision) -> None:
    """server/tools, "Error Handling": unknown tools are protocol errors, -32602."""
    async with Client(Server("empty"), revision=revision) as client:
        with pytest.raises(RpcError, match="nothing") as error:
            await client.call_tool("nothing")
        assert error.value.code == -32602


@EVERY
async def test_a_tool_error_reaches_the_model(revision: r.Revision) -> None:
    app = Server("failing")

    @app.tool
    async def fails() -> None:
        raise ToolError("the printer is out of paper")

    async with Client(app, revision=revision) as client:
        result = await client.call_tool("fails")
        assert result.is_error is True
        assert text(result) == "the printer is out of paper"


@EVERY
async def test_methods_of_a_service_are_tools(revision: r.Revision) -> None:
    api = Service("calculator")

    @api.method
    def subtract(minuend: int, subtrahend: int) -> int:
        "Subtract."
        return minuend - subtrahend

    app = Server("both")
    app.include(api, prefix="math_")
    async with serve({"/rpc": api, "/mcp": app}, urls=["http://127.0.0.1:0"]) as serving:
        async with connect(serving.urls[0] + "/rpc") as peer:
            assert await peer.call("subtract", [42, 23]) == 19
        async with Client(serving.urls[0] + "/mcp", revision=revision if revision.streamable else None) as client:
            assert text(await client.call_tool("math_subtract", {"minuend": 42, "subtrahend": 23})) == "19"


@pytest.mark.parametrize("revision", [one for one in ALL if one.stateful], ids=lambda one: one.date)
async def test_an_error_for_an_id_that_is_none(revision: r.Revision) -> None:
    """basic/index: a request's id "MUST NOT be `null`". Its error has the id null before 2025-11-25, and none since."""
    async with serve(Server("strict"), urls=["tcp://127.0.0.1:0"]) as serving:
        host, _, port = serving.urls[0].removeprefix("tcp://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        who = '{"name": "tester", "version": "1"}'
        params = f'{{"protocolVersion": "{revision.date}", "capabilities": {{}}, "clientInfo": {who}}}'
        writer.write(f'{{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {params}}}\n'.encode())
        assert revision.date.encode() in await reader.readline()
        for id in ("null", "1.5"):
            writer.write(f'{{"jsonrpc": "2.0", "id": {id}, "method": "ping"}}\n'.encode())
            answer = msgspec.json.decode(await reader.readline())
            assert answer["error"]["code"] == -32600
            if revision.null_error_id and id == "null":
                assert answer["id"] is None
            elif not revision.null_error_id:
                assert "id" not in answer
        writer.close()


async def test_a_cancelled_call_stops_its_handler_and_gets_no_answer() -> None:
    """basic/utilities/cancellation: stop, and do not answer."""
    app = Server("slow")
    begun, stopped = asyncio.Event(), asyncio.Event()

    @app.tool
    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    @app.tool
    async def quick() -> None: ...

    for revision in ALL:
        begun.clear()
        stopped.clear()
        async with Client(app, revision=revision) as client:
            call = asyncio.ensure_future(client.call_tool("slow"))
            await begun.wait()
            call.cancel()
            async with asyncio.timeout(5):
                await stopped.wait()
            assert not (await client.call_tool("quick")).is_error
            assert app.gate.in_flight == 0


@EVERY
async def test_a_reserved_code_never_crosses(revision: r.Revision) -> None:
    """2026-07-28 basic/index, "Error Codes": implementations MUST NOT emit any code of -32020 to -32099 that the
    specification does not define. A method's declared error is a tool's failure; another one is masked."""

    class Busy(RpcError):
        code = -32050
        message = "Busy"

    api = Service("coded")

    @api.method(errors=[Busy])
    def declared() -> None:
        raise Busy

    app = Server("coded")
    app.include(api)

    @app.tool
    async def undeclared() -> None:
        raise Busy

    async with Client(app, revision=revision) as client:
        result = await client.call_tool("declared")
        assert result.is_error is True
        assert "Busy" in text(result)
        with pytest.raises(RpcError) as error:
            await client.call_tool("undeclared")
        assert error.value.code == -32603
