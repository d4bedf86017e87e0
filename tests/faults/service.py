"""What the fault tests call: methods that wait, block, answer much, and call back. `api` is for `dragoman serve`."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman import Context, Service


class Census(Struct):
    """What a server process holds on to."""

    tasks: int
    threads: int
    descriptors: int
    children: int


class Counts(Struct):
    """What the waiting and blocking methods did so far."""

    started: int = 0
    ended: int = 0
    cancelled: int = 0


def faulty() -> Service:
    """A new service."""
    api = Service("faulty", version="1.0.0")
    counts = Counts()
    released = threading.Event()

    @api.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @api.method(inline=True)
    def census() -> Census:
        """What this process holds on to now, one task more for this look."""
        pid = os.getpid()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        descriptors = len(os.listdir("/proc/self/fd"))
        return Census(len(asyncio.all_tasks()), threading.active_count(), descriptors, len(children))

    @api.method(inline=True)
    def counted() -> Counts:
        return counts

    @api.method
    async def later(value: Any) -> Any:
        """The argument, after a turn of the loop."""
        await asyncio.sleep(0)
        return value

    @api.method
    def in_thread(value: Any) -> Any:
        """The argument, from a worker thread."""
        return value

    @api.method
    async def text(size: int) -> str:
        """As many letters."""
        counts.started += 1
        return "x" * size

    @api.method(inline=True)
    def length(text: str) -> int:
        return len(text)

    @api.method
    async def hang() -> None:
        """Never answers."""
        counts.started += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            counts.cancelled += 1
            raise
        finally:
            counts.ended += 1

    @api.method
    async def until(path: str) -> bool:
        """Answers when a file is there."""
        counts.started += 1
        while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
        return True

    @api.method
    def block() -> bool:
        """Blocks its thread until `release`."""
        counts.started += 1
        released.wait()
        counts.ended += 1
        return True

    @api.method(inline=True)
    def release() -> None:
        released.set()

    @api.method
    async def ask(number: int, context: Context) -> int:
        """One more than the caller's `double` of it."""
        double: int = await context.call("double", [number], result=int)
        return double + 1

    @api.method
    def ask_in_thread(number: int, context: Context) -> int:
        """The same, blocking a thread meanwhile."""
        double: int = context.call("double", [number], result=int)
        return double + 1

    return api


def doubling() -> Service:
    """What a caller offers to be called back: `double` on the loop, `double_in_thread`."""
    api = Service("doubling")

    @api.method
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    return api


api = faulty()
