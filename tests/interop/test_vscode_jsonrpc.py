"""vscode-jsonrpc from npm, what editors speak: as client of a dragoman server and as server of a dragoman client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Peer, RpcError, connect, serve
from dragoman.channel import Ended
from tests.npm import PATIENCE, Node

from .served import caller, interop


def judge(found: dict[str, Any]) -> None:
    """What vscode-jsonrpc must have got from dragoman."""
    assert found["position"] == found["name"] == 19
    assert found["text"] == ["é中😀\n\0"]
    assert found["unknown"]["code"] == -32601
    assert found["wrong"]["code"] == -32602
    assert [error["field"] for error in found["wrong"]["data"]["errors"]] == ["minuend", "subtrahend"]
    assert found["declared"] == {"code": 1001, "message": "Division by zero", "data": {"dividend": 1.0}}
    assert found["many"] == list(range(200))
    assert found["notified"] == [["update", 1, 2]]
    assert found["asked"] == 43
    assert found["told"] == [[21, "number"]]
    assert found["steps"] == 3
    assert [progress["value"] for progress in found["progress"]] == [{"done": n, "of": 3} for n in range(3)]
    assert len({progress["token"] for progress in found["progress"]}) == 1
    assert found["cancelled"]["code"] == -32800
    assert found["stopped"] == 1
    assert found["alive"] == 1


async def test_it_calls_our_server_on_a_socket(node: Node) -> None:
    async with serve(interop(), urls=["tcp://127.0.0.1:0?framing=content-length"]) as serving:
        port = serving.urls[0].split("?")[0].rsplit(":", 1)[1]
        judge(await node.output("vscode.cjs", "call", port))


async def test_it_calls_our_server_that_it_has_started(node: Node) -> None:
    ours = [sys.executable, "-m", "tests.interop.served"]
    found = await node.output("vscode.cjs", "start", *ours)
    judge(found)
    assert found["status"] == 0


@pytest.fixture(params=["stdio", "socket"])
async def peer(request: pytest.FixtureRequest, node: Node) -> AsyncIterator[Peer]:
    """Connected to vscode-jsonrpc as a server, on either wire."""
    target: str | list[str] = node.command("vscode.cjs", "stdio")
    if request.param == "socket":
        target = f"tcp://127.0.0.1:{await asyncio.to_thread(node.listen, 'vscode.cjs', 'listen')}"
    async with connect(target, service=caller(), framing="content-length", env=node.environment) as peer:
        yield peer


async def test_our_client_calls_it_and_is_called(peer: Peer) -> None:
    assert await peer.call("subtract", [42, 23], result=int) == 19
    assert await peer.call("named", {"minuend": 42, "subtrahend": 23}) == 19
    assert await peer.call("ask", {"number": 21}) == 43
    assert await asyncio.gather(*(peer.call("subtract", [n, 1]) for n in range(200))) == list(range(-1, 199))
    with pytest.raises(RpcError, match="Out of stock") as failed:
        await peer.call("fail")
    assert (failed.value.code, failed.value.data) == (1001, {"left": 3})
    with pytest.raises(RpcError) as unknown:
        await peer.call("nothing")
    assert unknown.value.code == -32601
    await peer.notify("note", ["é中😀", 2])
    assert await peer.call("heard") == [["é中😀", 2]]


async def test_a_cancelled_call_is_cancelled_there(peer: Peer) -> None:
    waiting = asyncio.ensure_future(peer.call("wait", {}))
    assert await peer.call("started") is True
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await peer.call("cancelled") == 1


async def test_its_progress_is_read_by_its_token(peer: Peer) -> None:
    told = peer.notifications("$/progress")
    assert await peer.call("steps", {"token": "mine", "count": 3}) == 3
    async with asyncio.timeout(PATIENCE):
        values = [(await anext(told)).params for _ in range(3)]
    told.close()
    assert values == [{"token": "mine", "value": {"step": step}} for step in range(3)]


async def test_calls_fail_at_once_when_it_exits(peer: Peer) -> None:
    waiting = asyncio.ensure_future(peer.call("wait", {}, timeout=None))
    assert await peer.call("started") is True
    await peer.notify("exit")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Ended):
            await waiting
