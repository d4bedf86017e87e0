"""python-lsp-jsonrpc, which many language servers in Python are built on: threads and blocking streams."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import Any

import pytest
from pylsp_jsonrpc.endpoint import Endpoint  # type: ignore[import-untyped]
from pylsp_jsonrpc.exceptions import JsonRpcException  # type: ignore[import-untyped]
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter  # type: ignore[import-untyped]

from dragoman import RpcError, connect, serve

from .served import caller, interop

PATIENCE = 60.0


def call(port: int) -> dict[str, Any]:
    """Call our server, in a thread of its own; what came of it."""
    found: dict[str, Any] = {}
    told: list[Any] = []
    with socket.create_connection(("127.0.0.1", port)) as wire, wire.makefile("rwb") as stream:
        writer = JsonRpcStreamWriter(stream)
        endpoint = Endpoint({"double": lambda params: params[0] * 2, "told": told.append}, writer.write)
        reading = threading.Thread(target=JsonRpcStreamReader(stream).listen, args=(endpoint.consume,))
        reading.start()
        found["name"] = endpoint.request("subtract", {"minuend": 42, "subtrahend": 23}).result(PATIENCE)
        found["text"] = endpoint.request("echo", ["é中😀\n\0"]).result(PATIENCE)
        with pytest.raises(JsonRpcException) as unknown:
            endpoint.request("nothing", {}).result(PATIENCE)
        found["unknown"] = unknown.value.code
        found["many"] = [future.result(PATIENCE) for future in [endpoint.request("later", [n]) for n in range(100)]]
        found["asked"] = endpoint.request("ask", [21]).result(PATIENCE)
        endpoint.notify("update", [1, 2])
        found["notified"] = endpoint.request("notified").result(PATIENCE)
        found["told"] = told
        wire.shutdown(socket.SHUT_WR)  # and the answer to that is the end of the other side
        reading.join(PATIENCE)
        endpoint.shutdown()
    return found


async def test_it_calls_our_server() -> None:
    async with serve(interop(), urls=["tcp://127.0.0.1:0?framing=content-length"]) as serving:
        port = int(serving.urls[0].split("?")[0].rsplit(":", 1)[1])
        found = await asyncio.to_thread(call, port)
    assert found == {
        "name": 19,
        "text": ["é中😀\n\0"],
        "unknown": -32601,
        "many": list(range(100)),
        "asked": 43,
        "notified": [["update", 1, 2]],
        "told": [[21, "number"]],
    }


async def test_our_client_calls_it_and_is_called() -> None:
    command = [sys.executable, "-m", "tests.interop.pylsp_peer"]
    async with connect(command, service=caller(), framing="content-length", stderr=lambda line: None) as peer:
        assert await peer.call("subtract", {"minuend": 42, "subtrahend": 23}, result=int) == 19
        assert await peer.call("echo", {"text": "é中😀\n\0"}) == {"was": {"text": "é中😀\n\0"}}
        with pytest.raises(RpcError) as unknown:
            await peer.call("nothing", {})
        assert unknown.value.code == -32601
        with pytest.raises(RpcError) as failed:
            await peer.call("fail", {})
        assert failed.value.code in (-32602, -32603)
        assert await asyncio.gather(*(peer.call("ask", {"number": n}) for n in range(5))) == [1, 3, 5, 7, 9]
        await peer.notify("note", {"said": True})
        assert await peer.call("heard") == [{"said": True}]
