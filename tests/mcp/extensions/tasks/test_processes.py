"""Tasks whose functions run in child processes."""

from __future__ import annotations

import json
import os

import pytest

from dragoman import Service
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Server
from dragoman.mcp.extensions.tasks.model import TASKS
from dragoman.mcp.protocol.revisions import R2026_07
from tests.mcp.calling import calling
from tests.mcp.server.test_processes import gone, until_gone

from .crunching import api, app
from .lab import DECLARED, ELICITS, becomes, ended


async def test_a_cancelled_task_ends_its_process() -> None:
    async with calling(app, R2026_07, **DECLARED) as calls:
        id = (await calls.unchecked("tools/call", name="spin", arguments={}))["result"]["taskId"]
        store = app._extending.all[0].access.runner.store  # type: ignore[attr-defined]
        record = await store.read(id)
        while record.progress is None:
            record = await store.read(id)
            await becomes(calls, id, "working")
        assert not gone(int(record.progress))
        await calls.unchecked("tasks/cancel", taskId=id)
        assert (await ended(calls, id))["status"] == "cancelled"
        await until_gone(int(record.progress))


async def test_a_task_asks_from_its_process() -> None:
    async with calling(app, R2026_07, **DECLARED, **ELICITS) as calls:
        id = (await calls.unchecked("tools/call", name="ask", arguments={}))["result"]["taskId"]
        [key] = (await becomes(calls, id, "input_required"))["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        await calls.unchecked("tasks/update", taskId=id, inputResponses=answers)
        text = (await ended(calls, id))["result"]["content"][0]["text"]
        assert text.startswith("Ada in ")
        assert text != f"Ada in {os.getpid()}"


async def test_the_option_of_a_method() -> None:
    answer = await api.answer_async(b'{"jsonrpc":"2.0","method":"where","id":1}')
    assert json.loads(answer or b"")["result"] != os.getpid()


def test_what_cannot_be() -> None:
    with pytest.raises(LocalError, match="leave one out"):
        Service("s").method(process=True, inline=True)(test_what_cannot_be)
    with pytest.raises(LocalError, match="lambda"):
        Service("s").method(name="f", process=True)(lambda: 1)
    with pytest.raises(LocalError, match="process"):
        Service("s").method(process="yes")(test_what_cannot_be)  # type: ignore[call-overload]
    with pytest.raises(LocalError, match="process"):
        Server("s", extensions=[TASKS]).add_method(test_what_cannot_be, "tasks/get", process=True)  # type: ignore[call-arg]
