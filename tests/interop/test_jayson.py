"""jayson from npm, the most used JSON-RPC of node, over HTTP and TCP: as client of ours and as server for ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Peer, RpcError, connect, serve
from tests.calculator import calculator
from tests.npm import Node

WIRES = ["http", "tcp"]


@pytest.mark.parametrize("wire", WIRES)
async def test_it_calls_our_server(wire: str, node: Node) -> None:
    async with serve(calculator(), urls=[f"{wire}://127.0.0.1:0"]) as serving:
        port = serving.urls[0].rstrip("/").rsplit(":", 1)[1]
        judge(await node.output("jayson.cjs", "call", wire, port))


def judge(found: dict[str, Any]) -> None:
    """What jayson must have got from dragoman."""
    assert found["position"]["result"] == found["name"]["result"] == 19
    assert found["text"]["result"] == ["é中😀\n\0"]
    assert found["unknown"]["error"] == {"code": -32601, "message": "Method not found"}
    assert found["wrong"]["error"]["code"] == -32602
    assert found["declared"]["error"] == {"code": 1001, "message": "Division by zero", "data": {"dividend": 1}}
    assert found["notification"] is None
    asked = [id for id in found["batch_ids"] if id is not None]
    assert [answer["id"] for answer in found["batch"]] == asked
    assert [answer.get("result", answer.get("error")) for answer in found["batch"]] == [
        7,
        {"code": -32601, "message": "Method not found"},
        ["hello", 5],
    ]
    assert found["many"] == list(range(50))
    assert found["notified"]["result"] == [["update", 1, 2], ["update", 3]]


@pytest.fixture(params=WIRES)
async def peer(request: pytest.FixtureRequest, node: Node) -> AsyncIterator[Peer]:
    """Connected to a jayson server."""
    port = await asyncio.to_thread(node.listen, "jayson.cjs", "serve", request.param)
    async with connect(f"{request.param}://127.0.0.1:{port}") as peer:
        yield peer


async def test_our_client_calls_it(peer: Peer) -> None:
    assert await peer.call("subtract", [42, 23], result=int) == 19
    assert await peer.call("subtract", {"subtrahend": 23, "minuend": 42}) == 19
    assert await peer.call("echo", ["é中😀\n\0", 1.5, None]) == ["é中😀\n\0", 1.5, None]
    assert await asyncio.gather(*(peer.call("sum", [n, 1]) for n in range(50))) == list(range(1, 51))


async def test_its_errors_are_errors(peer: Peer) -> None:
    with pytest.raises(RpcError, match="Out of stock") as failed:
        await peer.call("fail", [])
    assert (failed.value.code, failed.value.data) == (1001, {"left": 3})
    with pytest.raises(RpcError) as unknown:
        await peer.call("nothing", [])
    assert unknown.value.code == -32601
    assert await peer.call("sum", [1, 2]) == 3


async def test_our_batches_and_notifications_reach_it(peer: Peer) -> None:
    await peer.notify("note", ["alone"])
    async with peer.batch() as batch:
        total, rest = batch.call("sum", [1, 2, 4]), batch.call("subtract", [42, 23])
        batch.notify("note", ["in a batch"])
        wrong = batch.call("nothing", [])
    assert (total.result(), rest.result()) == (7, 19)
    with pytest.raises(RpcError):
        wrong.result()
    assert await peer.call("heard", []) == [["alone"], ["in a batch"]]
