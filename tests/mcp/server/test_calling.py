"""A server that is called without a wire."""

from __future__ import annotations

import asyncio

import pytest

from dragoman import RpcError
from dragoman.mcp import Server


async def test_the_error_of_a_call_has_its_data() -> None:
    app = Server("shop")

    @app.tool
    def refuse(how: str) -> str:
        raise RpcError("No such shelf", {"shelf": how} if how else None, code=4007)

    with pytest.raises(RpcError) as caught:
        await app.call_tool("refuse", {"how": "north"})
    assert (caught.value.code, caught.value.message, caught.value.data) == (4007, "No such shelf", {"shelf": "north"})
    with pytest.raises(RpcError) as caught:
        await app.call_tool("refuse", {"how": ""})
    assert (caught.value.code, caught.value.data) == (4007, None)
    with pytest.raises(RpcError) as caught:
        await app.call_tool("nothing")
    assert caught.value.code == -32602


async def test_a_cancelled_call_cancels_its_tool_and_is_cancelled() -> None:
    app, began, ended = Server("shop"), asyncio.Event(), asyncio.Event()

    @app.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    call = asyncio.create_task(app.call_tool("wait"))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await ended.wait()


async def test_all_pages_of_tools_are_listed() -> None:
    app = Server("shop", page_size=2)

    def nothing() -> None: ...

    for number in range(5):
        app.add_tool(nothing, name=f"tool{number}")
    assert [one.name for one in await app.list_tools()] == [f"tool{number}" for number in range(5)]
