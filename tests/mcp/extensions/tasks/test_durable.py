"""Tasks outlive processes: restarts, kills, several processes on one file, and on a bus."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.engines.wires import until

ROOT = Path(__file__).parents[4]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}},
        "elicitation": {"form": {}},
    },
}


class Process:
    """One server."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process, self.url = process, url

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request over HTTP."""
        name = params.get("taskId") or params.get("name", "")
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": name,
        }
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)

        def send() -> bytes:
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                return error.read()

        return dict(json.loads(await asyncio.to_thread(send)))

    async def begin(self, tool: str, **arguments: Any) -> str:
        return str((await self.ask("tools/call", name=tool, arguments=arguments))["result"]["taskId"])

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """Poll a task until it has one of these statuses."""
        async with asyncio.timeout(30):
            while True:
                found = (await self.ask("tasks/get", taskId=id))["result"]
                if found["status"] in statuses:
                    return dict(found)
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def served(file: Path, *more: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.mcp.extensions.tasks.program",
        str(file),
        str(file.with_suffix(".log")),
        *more,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"DRAGOMAN_SECRET": "a-secret-of-this-test-alone"},
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    assert url
    try:
        yield Process(process, url)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def runs(file: Path) -> list[str]:
    return [line.split()[0] for line in file.with_suffix(".log").read_text().splitlines()]


async def test_a_result_is_there_after_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with served(file) as one:
        id = await one.begin("again", seconds=0)
        await one.until(id, "completed")
        await one.kill()
    async with served(file) as two:
        found = await two.until(id, "completed")
        assert found["result"]["content"][0]["text"] == "slept again"
    assert runs(file) == ["again"]


async def test_an_orphan_is_run_again_only_if_its_tool_says_so(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with served(file) as one, served(file) as two:
        first = await one.begin("once", seconds=60)
        second = await one.begin("again", seconds=0.5)
        for id in (first, second):
            assert (await two.ask("tasks/get", taskId=id))["result"]["status"] == "working"
        await one.kill()
        failed = await two.until(first, "failed")
        assert "may not be run again" in failed["statusMessage"]
        assert failed["error"]["code"] == -32603
        done = await two.until(second, "completed")
        assert done["result"]["content"][0]["text"] == "slept again"
    assert sorted(runs(file)) == ["again", "again", "once"]


async def test_a_question_of_a_task_is_answered_at_another_process(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with served(file) as one, served(file) as two:
        id = await one.begin("name")
        state = await two.until(id, "input_required")
        [key] = state["inputRequests"]
        answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
        await two.ask("tasks/update", taskId=id, inputResponses=answer)
        done = await two.until(id, "completed")
        assert done["result"]["content"][0]["text"] == "called Ada"
    assert runs(file) == ["name"]


async def test_a_task_is_cancelled_at_another_process(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with served(file) as one, served(file) as two:
        id = await one.begin("once", seconds=60)
        await two.ask("tasks/cancel", taskId=id)
        await two.until(id, "cancelled")
        assert (await one.ask("tasks/get", taskId=id))["result"]["status"] == "cancelled"


async def test_a_deploy_hands_over_what_may_be_run_again(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    async with served(file) as one, served(file) as two:
        first = await one.begin("once", seconds=60)
        second = await one.begin("again", seconds=0.2)
        third = await one.begin("again", seconds=60)
        await one.until(second, "completed")
        assert one.process.stdin is not None
        one.process.stdin.close()
        await one.process.wait()
        assert "stopped" in (await two.until(first, "failed"))["statusMessage"]
        await two.until(third, "working")
        await until(lambda: runs(file).count("again") == 3)
        await two.ask("tasks/cancel", taskId=third)
        await two.until(third, "cancelled")
