"""supergateway from npm, a bridge that keeps one stdio child for all of its clients: each of them begins there."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.mcp import Client
from tests.npm import Node, installed
from tests.ports import free_port

PINNED = ["supergateway@3.4.3", "@modelcontextprotocol/sdk@1.20.0"]
CHILD = Path(__file__).parent / "bridged.py"


@pytest.fixture(scope="module")
def gateway(request: pytest.FixtureRequest) -> Iterator[Node]:
    program = shutil.which("node")
    modules = installed(request, PINNED)
    assert program is not None
    node = Node(program, modules, Path(__file__).parent)
    yield node
    node.end()


async def test_one_child_serves_two_clients(gateway: Node) -> None:
    port = free_port()
    script = str(gateway.modules / "supergateway" / "dist" / "index.js")
    bridge = gateway.start(script, "--stdio", f"{sys.executable} {CHILD}", "--port", str(port))
    assert bridge.stdout is not None
    while "Listening on port" not in (line := await asyncio.to_thread(bridge.stdout.readline)):
        assert line, "the bridge has ended"
    url = f"http://127.0.0.1:{port}/sse"
    for a in range(3):  # one after another: two at once are more than its own server takes
        async with Client(url, revision="2025-06-18") as client:
            assert [tool.name for tool in await client.list_tools()] == ["add"]
            assert (await client.call_tool("add", {"a": a, "b": 2})).text == str(a + 2)
