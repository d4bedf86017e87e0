"""The official requester of tasks, npm `@modelcontextprotocol/ext-tasks`, at our server in both generations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import serve
from tests.conformance.server import server
from tests.npm import Node, installed

PINNED = ["@modelcontextprotocol/ext-tasks@0.2.2", "@modelcontextprotocol/client@2.4.0"]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Node with the packages, and the scripts of this folder."""
    found = Node("node", installed(request, PINNED), Path(__file__).parent)
    yield found
    found.end()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_official_requester(node: Node, revision: str) -> None:
    async with serve(server(), urls=["http://127.0.0.1:0/mcp"]) as serving:
        done: dict[str, Any] = await node.output("ext_tasks.mjs", serving.urls[0], revision)
    modern = revision == "2026-07-28"
    assert done["capabilities"]["execution"] is True
    assert done["capabilities"]["cancellation"] is True
    assert (done["greet"]["text"], done["greet"]["task"]) == ("Hello, Ada!", False)
    assert (done["slow_compute"]["text"], done["slow_compute"]["task"]) == ("peer: waited 0.3 s", True)
    # a failed tool is a failed task in 2025-11-25, a completed one in 2026-07-28
    assert done["failing_job"]["status"] == ("completed" if modern else "failed")
    assert done["protocol_error_job"]["status"] == "failed"
    assert done["asked"] == ["Delete a.txt?", "What is your name?", "Are you sure?"]
    assert done["confirm_delete"]["text"] == "a.txt is deleted"
    assert done["multi_input"]["text"] == "Ada: True"
    assert done["cancelled"]["status"] == "cancelled"
    assert modern or done["listed"] == 6
