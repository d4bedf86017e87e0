"""A process with tasks, for tests that kill it: it prints a line for each thing that it knows to be kept.

python -m tests.tasks.worker URL write NAME      # creates tasks and completes every second one, until it is killed
python -m tests.tasks.worker URL claim NAME      # claims tasks as a runner, until it is killed
"""

from __future__ import annotations

import asyncio
import sys

from msgspec import Raw

from dragoman.bus import Bus, open_bus
from dragoman.tasks import TaskStore, open_tasks, rules

from .table import record

LIFE = 1.0


async def write(store: TaskStore, name: str) -> None:
    await store.beat(name)

    async def one(number: int) -> None:
        id = f"{name}-{number:06}"
        await store.create(record(id, runner=name, owner=f"{name}-{number % 7}", now=await store.now()))
        print("created", id, flush=True)
        if number % 2:
            await store.change(id, lambda found: rules.completed(found, found.created + 1, Raw(b'"%d"' % number)))
            print("completed", id, flush=True)

    for number in range(0, 1_000_000, 8):
        await asyncio.gather(*[one(number + n) for n in range(8)])
        if not number % 80:
            await store.beat(name)


async def claim(store: TaskStore, name: str) -> None:
    while True:
        await store.beat(name)
        for task in await store.claim(name, "reports", 3):
            print("claimed", task.record.id, flush=True)
        await asyncio.sleep(0.02)


async def main(url: str, verb: str, name: str) -> None:
    bus: Bus | None = None
    if not url.startswith("sqlite:"):
        bus, url = await open_bus(url), "bus"
    store = open_tasks(url, bus=bus, life=LIFE)
    print("ready", name, flush=True)
    await {"write": write, "claim": claim}[verb](store, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
