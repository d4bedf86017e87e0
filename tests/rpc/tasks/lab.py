"""A service with long methods, which wait for `go`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from msgspec import UNSET, Struct

from dragoman import Context, RpcError, Service, TaskHandle, TaskPolicy, TaskStatus
from dragoman.jsonrpc.errors import CallRefused, Refusal
from dragoman.jsonrpc.limits import SERVER

QUICK = SERVER.but(drain_timeout=0.2)
"""A server that ends does not wait long for its calls."""


class Report(Struct):
    rows: int


class OutOfPaper(RpcError):
    code = 1001
    message = "Out of paper"
    data: Report


class Lab:
    """The service `api`. `policy`: of all its long methods; `options`: of the service."""

    def __init__(self, policy: TaskPolicy | bool = True, **options: Any) -> None:
        self.api = api = Service("lab", **{"limits": QUICK, **options})
        self.go = asyncio.Event()
        self.may_end = threading.Event()
        self.began: list[str] = []
        self.stopped: list[str] = []

        @api.method(task=policy)
        async def train(rows: int, context: Context) -> Report:
            """Train a model."""
            self.began.append("train")
            await context.progress({"done": 1, "of": rows})
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append("train")
                raise
            return Report(rows)

        @api.method(task=policy)
        def crunch(rows: int, context: Context) -> int:
            """Work in a thread."""
            context.progress(1)
            while not self.may_end.wait(0.01):
                if context.cancelled:
                    self.stopped.append("crunch")
                    break
            return rows

        @api.method(task=policy)
        async def print_it() -> None:
            raise OutOfPaper(data=Report(3))

        @api.method(task=policy)
        async def break_down() -> None:
            raise ValueError("a detail that callers must not see")

        @api.method(task=policy)
        async def refuse() -> None:
            raise CallRefused(Refusal("rate_limited", "Too many"))

        @api.method(task=policy)
        async def count(to: int) -> list[int]:
            return list(range(to))

        @api.method
        async def add(a: int, b: int) -> int:
            return a + b


async def becomes(task: TaskHandle[Any], status: str) -> TaskStatus:
    """Follow a task until it has this status."""
    async with asyncio.timeout(20):
        async for one in task.follow():
            if one.status == status:
                return one
    raise AssertionError(f"it has ended otherwise than {status}")


async def reports(task: TaskHandle[Any]) -> TaskStatus:
    """Follow a task until it has reported its progress."""
    async with asyncio.timeout(20):
        async for one in task.follow():
            if one.progress is not UNSET:
                return one
    raise AssertionError("it has ended without progress")
