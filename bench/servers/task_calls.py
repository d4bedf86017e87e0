"""Tools whose calls go on as tasks in a file: `tools/call` of 2026-07-28, bytes to bytes, 32 at once; `tasks/get`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from typing import Any

from bench.servers.mcp import Bytes
from bench.worker import offer_async
from dragoman import serve
from dragoman.mcp import Server, TaskPolicy, Tasks
from dragoman.tasks import TaskLimits

AT_ONCE = 32
MANY = 100_000_000
KEY = "io.modelcontextprotocol"
META = {
    f"{KEY}/protocolVersion": "2026-07-28",
    f"{KEY}/clientCapabilities": {"extensions": {f"{KEY}/tasks": {}}},
}


async def main() -> None:
    """Until end of file."""
    limits = TaskLimits(tasks=MANY, tasks_each=MANY, total=MANY * MANY, total_each=MANY * MANY)
    with tempfile.TemporaryDirectory() as folder:
        tasks = Tasks(f"sqlite:{folder}/tasks.db", keys=(), limits=limits)
        app = Server("bench", version="1.0.0", extensions=[tasks])

        @app.tool(task=TaskPolicy())
        async def subtract(minuend: int, subtrahend: int) -> int:
            return minuend - subtrahend

        async def ask(method: str, **params: Any) -> bytes:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
            exchange = Bytes(json.dumps(request).encode())
            app.__servable__().exchange(exchange)
            return await exchange.answer or b""

        async def call() -> str:
            answer = await ask("tools/call", name="subtract", arguments={"minuend": 42, "subtrahend": 23})
            return str(json.loads(answer)["result"]["taskId"])

        async def calls() -> object:
            """Until all have ended."""
            ids = await asyncio.gather(*[call() for _ in range(AT_ONCE)])
            while tasks.access.runner.running:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.001)
            return f"19 {ids[-1]}"

        async def status() -> object:
            return b'"text":"19"' in await ask("tasks/get", taskId=known) and "19"

        async with serve(app, urls="http://127.0.0.1:0/mcp"):
            known = await call()
            while tasks.access.runner.running:  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.001)
            await offer_async({"calls": calls, "status": status})


if __name__ == "__main__":
    asyncio.run(main())
