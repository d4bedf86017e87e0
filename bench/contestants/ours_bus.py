"""The bus of workers in processes of their own: the hub, one that hears (`worker`), and one that tells (`caller`). A trip
is from before `publish` to the other process's subscriber; all clocks are the machine's one."""

from __future__ import annotations

import asyncio
import time

from bench.worker import measure_trips, stay
from dragoman.bus import open_bus
from dragoman.bus.hub import open_hub


async def hub(path: str) -> None:
    held = await open_hub(path)
    await stay()
    await held.close()


async def worker(url: str) -> None:
    """Say how long each message took."""
    bus = await open_bus(url)
    saying: set[asyncio.Task[None]] = set()

    def take(message: bytes) -> None:
        taken = time.monotonic_ns() - int(message)
        task = asyncio.ensure_future(bus.publish("back", b"%d" % taken))
        saying.add(task)
        task.add_done_callback(saying.discard)

    await bus.subscribe("there", take)
    await stay()
    await bus.close()


async def caller(url: str) -> None:
    """Publish, each message when the one before was heard."""
    bus = await open_bus(url)
    heard: asyncio.Queue[int] = asyncio.Queue()
    await bus.subscribe("back", lambda message: heard.put_nowait(int(message)))

    async def trip() -> float:
        await bus.publish("there", b"%d" % time.monotonic_ns())
        return await heard.get() / 1e9

    await measure_trips(trip)
    await bus.close()
