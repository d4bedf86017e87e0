"""Tools in child processes: in both eras, in one process and over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragoman import RpcError
from dragoman.mcp import Client
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision

from .process_tools import app

ROOT = Path(__file__).parents[3]
eras = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
everywhere = pytest.mark.parametrize("wire", ["memory", "stdio"])


@asynccontextmanager
async def opened(wire: str, revision: Revision, **options: Any) -> AsyncIterator[Client]:
    target: Any = app if wire == "memory" else [sys.executable, "-m", "tests.mcp.server.process_tools"]
    async with Client(target, revision=revision, **options) as client:
        yield client


def gone(pid: int) -> bool:
    """Whether a process has ended; it may wait for its new parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while not gone(pid):  # noqa: ASYNC110  (for what no event tells)
            await asyncio.sleep(0.01)


async def test_the_listing_is_that_of_the_function() -> None:
    async with opened("memory", R2026_07) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        greets = tools["greets"]
        assert greets.description == "Greet somebody whose name is asked for."
        assert greets.input_schema["required"] == ["greeting"]
        assert list(greets.input_schema["properties"]) == ["greeting"]


@everywhere
@eras
async def test_a_question_is_answered(wire: str, revision: Revision) -> None:
    names = {"Who are you?": "Ada", "One?": "Bob", "Two?": "Eve"}
    options: dict[str, Any] = {
        "on_elicit": lambda question: {"name": names[question.message]},
        "on_sample": lambda question: "hm",
        "roots": ["file:///tmp"],
    }
    async with opened(wire, revision, **options) as client:
        assert (await client.call_tool("greets", {"greeting": "Hello"})).text == "Hello, Ada"
        assert (await client.call_tool("greets_all")).text == "Bob, Eve, hm, file:///tmp"


@everywhere
@eras
async def test_the_context_is_that_of_the_call(wire: str, revision: Revision) -> None:
    async with opened(wire, revision, name="me") as client:
        found = (await client.call_tool("knows")).structured_content
        assert isinstance(found, dict)
        found.pop("meta")
        assert found == {
            "revision": revision.date,
            "client": "me",
            "principal": None,
            "store": 1,
            "method": "tools/call",
            "cancelled": False,
            "left": True,
        }


@everywhere
@eras
async def test_progress_arrives_and_a_cancel_kills_the_process(wire: str, revision: Revision) -> None:
    pids: asyncio.Queue[float] = asyncio.Queue()
    async with opened(wire, revision) as client:
        call = asyncio.create_task(client.call_tool("spins", on_progress=lambda step: pids.put_nowait(step.progress)))
        pid = int(await asyncio.wait_for(pids.get(), 30))
        assert not gone(pid)
        assert (await client.call_tool("pid")).text != str(pid)  # others are served meanwhile
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until_gone(pid)


@eras
async def test_how_it_fails(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    async with opened("memory", revision) as client:

        async def text(how: str) -> str:
            result = await client.call_tool("fails", {"how": how})
            assert result.is_error is True
            return result.text

        assert await text("tool") == "in words for the model"
        assert (await text("secret")).startswith("fails failed (reference ")
        assert (await text("argument")).startswith("fails failed (reference ")
        assert (await text("state")).startswith("fails failed (reference ")
        assert "ctx.state is not there in a child process" in caplog.text
        with pytest.raises(RpcError) as error:
            await client.call_tool("fails", {"how": "dies"})
        assert (error.value.code, error.value.data) == (-32603, None)
        assert "secret" not in str(error.value)
        assert "ended with exit status 1" in caplog.text


async def test_nothing_of_a_child_is_on_the_servers_standard_output() -> None:
    """basic/transports/stdio: "The server MUST NOT write anything to its `stdout` that is not a valid MCP message"."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": R2026_07.date,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid", "_meta": meta}}
    module = "tests.mcp.server.process_tools"
    for command in (["-m", module], ["-m", "dragoman", "serve", f"{module}:app", "stdio:"]):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, *command],
            cwd=ROOT,
            input=json.dumps(call) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
        *before, line = done.stdout.splitlines()
        assert before in ([], ["a child prints what it imports"])  # the program's own, before it serves
        assert json.loads(line)["result"]["structuredContent"] not in (os.getpid(), None)
        for text in ("a child prints what it imports", "printed", "by number"):
            assert text in done.stderr
