"""Servers as processes that are killed, one after another and sometimes all, and the calls that they get meanwhile."""

from __future__ import annotations

import asyncio
import ctypes
import json
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .journal import Journal
from .nursery import ROOT

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
TOKEN = "token-of-ada"
_DIE_WITH_PARENT = 1


def end_with_parent() -> None:
    """Let this process be killed when the program that started it is gone, however that ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


class KilledServer:
    """One place of a server: a process that prints its URL, and the next one once it is killed. `log`: gets what they
    say; `url`: "" while there is none."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self._log = log
        self._command = [sys.executable, "-m", f"tests.chaos.{module}", *arguments]
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = process = await asyncio.create_subprocess_exec(
                *self._command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
            )
        assert process.stdout is not None
        self.url = (await process.stdout.readline()).decode().strip()
        assert self.url, f"a server does not start: {self._log.read_text()[-1000:]}"

    async def kill(self) -> None:
        """`kill -9`."""
        self.url = ""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def kill_servers(
    servers: Sequence[KilledServer],
    journal: Journal,
    dice: random.Random,
    *,
    kills: int,
    pauses: tuple[float, float],
    watch: Callable[[str], None] | None = None,
) -> None:
    """Kill one server after another, sometimes all, until the journal has so many kills; start each again at once."""
    while (left := kills - journal.kills) > 0:
        await asyncio.sleep(dice.uniform(*pauses))
        victims = dice.sample(servers, min(left, len(servers) if dice.random() < 0.1 else 1))
        await asyncio.gather(*[one.kill() for one in victims])
        journal.write("kill", count=len(victims))
        await asyncio.gather(*[one.start() for one in victims])
        if watch is not None and journal.kills % 10 < len(victims):
            watch(f"{journal.kills} of {kills} kills, {len(journal.of('acknowledged'))} acknowledged")


class NoResult(Exception):
    """A request has no result: its server was killed, or has refused it. The text says which."""


def request(url: str, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request. Raises NoResult."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {TOKEN}",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": name,
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise NoResult(f"HTTP {error.code}") from error
    except (OSError, ValueError) as error:
        raise NoResult("the server was killed") from error
    if "result" not in found or found["result"].get("isError"):
        raise NoResult(str(found.get("error", found.get("result")))[:100])
    result: dict[str, Any] = found["result"]
    return result
