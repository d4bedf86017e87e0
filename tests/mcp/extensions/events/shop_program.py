"""A shop in a process of its own: `python -m tests.mcp.extensions.events.shop_program FILE URL AHEAD`.

It keeps its events in FILE, subscribes URL ("": nobody), and its clock is AHEAD seconds ahead. Each line "N" on its
standard input lets it emit N events at once; it prints the ids, each when it is kept.
"""

from __future__ import annotations

import asyncio
import sys
import time

from dragoman.mcp.extensions.events import Clock, EventLimits

from .receiving import OrderShipped, following, shop, subscribe


class Ahead(Clock):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return time.time() + self.seconds


async def main(path: str, url: str, ahead: str) -> None:
    app, events = shop(store=f"sqlite:{path}", clock=Ahead(float(ahead)), limits=EventLimits(events=1_000_000))

    async def emit(number: int) -> None:
        print(await events.emit(OrderShipped(str(number))), flush=True)

    async with following(app) as client:
        if url:
            await subscribe(client, url, ttl_ms=None)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await asyncio.gather(*[emit(number) for number in range(int(line))])
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
