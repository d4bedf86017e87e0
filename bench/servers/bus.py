"""The bus of workers in processes of their own: `hub PATH` holds it, `hear PATH` answers, `tell PATH` measures.

`tell` takes the order `{"calls": N}`: so many messages, each sent when the one before was heard, and answers with the
median seconds from before `publish` to the other process's subscriber. All clocks are the machine's one.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

from dragoman.bus import Bus, open_bus
from dragoman.bus.hub import open_hub


async def hub(path: str) -> None:
    """Hold it."""
    held = await open_hub(path)
    await _orders(None)
    await held.close()


async def hear(url: str) -> None:
    """Say how long each message took."""
    bus = await open_bus(url)
    saying: set[asyncio.Task[None]] = set()

    def take(message: bytes) -> None:
        taken = time.monotonic_ns() - int(message)
        task = asyncio.ensure_future(bus.publish("back", b"%d" % taken))
        saying.add(task)
        task.add_done_callback(saying.discard)

    await bus.subscribe("there", take)
    await _orders(None)
    await bus.close()


async def tell(url: str) -> None:
    """Publish, one after the other."""
    bus = await open_bus(url)
    await _orders(bus)
    await bus.close()


async def _orders(bus: Bus | None) -> None:
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[int] = asyncio.Queue()
    if bus is not None:
        await bus.subscribe("back", lambda message: heard.put_nowait(int(message)))
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        taken = []
        for _ in range(json.loads(line).get("calls", 0)):
            if bus is not None:
                await bus.publish("there", b"%d" % time.monotonic_ns())
                taken.append(await heard.get())
        print(json.dumps({"seconds": statistics.median(taken) / 1e9 if taken else 0}), flush=True)


if __name__ == "__main__":
    asyncio.run({"hub": hub, "hear": hear, "tell": tell}[sys.argv[1]](sys.argv[2]))
