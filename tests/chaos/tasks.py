"""`kill -9` of servers whose tools go on as tasks, on one file: no acknowledged task is lost, none is run twice that
may not be, and none more often than its record says."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.tasks.record import TaskRecord
from dragoman.tasks.sqlite import SqliteTasks

RATE = 50.0
"""Tasks a second."""
SERVERS = 3
SETTLED = 60.0
"""Seconds after the last kill within which every task must have ended."""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@dataclass
class Found:
    """What came of it."""

    kills: int = 0
    asked: int = 0
    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Tool and token, by the id of the task."""
    records: dict[str, TaskRecord | None] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    """How often each token was run."""

    def __str__(self) -> str:
        states = Counter("missing" if one is None else one.status for one in self.records.values())
        rerun = sum(one is not None and one.runs > 1 for one in self.records.values())
        return (
            f"{self.kills} kills, {self.asked} calls, {len(self.acknowledged)} tasks acknowledged: {dict(states)}, "
            f"{rerun} begun again"
        )


class Server:
    """One place of a server: a process, and the next one once it is killed."""

    def __init__(self, file: Path, ledger: Path) -> None:
        self._command = [sys.executable, "-m", "tests.chaos.task_server", str(file), str(ledger)]
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert process.stdout is not None
        self.url = (await process.stdout.readline()).decode().strip()
        assert self.url, "a server does not start"

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


def call(url: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Call a tool; None where there is no answer."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found.get("result")
    except (OSError, ValueError):  # killed, or refused
        return None


async def kill_servers(folder: Path, *, kills: int, seed: int, watch: Callable[[str], None] | None = None) -> Found:
    """Kill one server after another, sometimes all, under load, and start each again at once."""
    dice = random.Random(seed)
    file, ledger = folder / "tasks.db", folder / "ledger"
    ledger.touch()
    servers = [Server(file, ledger) for _ in range(SERVERS)]
    await servers[0].start()
    await asyncio.gather(*[one.start() for one in servers[1:]])
    found, over = Found(), asyncio.Event()

    async def one_call(number: int) -> None:
        tool, token = dice.choice(["once", "again"]), f"t{number}"
        server = dice.choice(servers)
        result = await asyncio.to_thread(call, server.url, tool, {"token": token, "seconds": dice.uniform(0, 2)})
        if result is not None and "taskId" in result:
            found.acknowledged[result["taskId"]] = tool, token

    async def load() -> None:
        async with asyncio.TaskGroup() as calls:
            while not over.is_set():
                found.asked += 1
                calls.create_task(one_call(found.asked))
                await asyncio.sleep(1 / RATE)

    loading = asyncio.create_task(load())
    try:
        while found.kills < kills:
            await asyncio.sleep(dice.uniform(0.1, 0.6))
            victims = servers if dice.random() < 0.1 else [dice.choice(servers)]
            await asyncio.gather(*[one.kill() for one in victims])
            found.kills += len(victims)
            await asyncio.gather(*[one.start() for one in victims])
            if watch is not None and found.kills % 10 < len(victims):
                watch(f"{found.kills} of {kills} kills, {len(found.acknowledged)} tasks")
        over.set()
        await loading
        await read_all(file, found)
    finally:
        loading.cancel()
        await asyncio.gather(*[one.kill() for one in servers])
    found.runs = Counter(line.split()[1] for line in ledger.read_text().splitlines())
    return found


async def read_all(file: Path, found: Found) -> None:
    """Wait until every acknowledged task has ended, and note what came of it."""
    store = SqliteTasks(str(file))
    try:
        async with asyncio.timeout(SETTLED):
            for id in found.acknowledged:
                record = await store.read(id)
                while record is not None and not record.ended:
                    await asyncio.sleep(0.05)
                    record = await store.read(id)
                found.records[id] = record
    except TimeoutError:
        for id in found.acknowledged.keys() - found.records.keys():
            found.records[id] = await store.read(id)
    finally:
        await store.close()


def nothing_is_lost(found: Found) -> None:
    """What holds after any number of kills."""
    print(f"\n{found}")
    for id, (tool, token) in found.acknowledged.items():
        record = found.records[id]
        assert record is not None, f"the task {id} was acknowledged, and is lost"
        assert record.ended, f"the task {id} of {tool} has not ended: {record.status}, {record.message}"
        assert found.runs[token] <= record.runs, f"{tool} {token} was run {found.runs[token]} times: {record}"
        if tool == "once":
            assert found.runs[token] <= 1
        if record.status == "completed":
            assert record.result is not None
            assert json.loads(bytes(record.result))["content"][0]["text"] == token
        else:
            assert record.status == "failed"
            assert "lost" in record.message, record.message
