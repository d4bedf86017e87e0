"""A shop over HTTP in a process of its own: `python -m tests.mcp.extensions.events.shop_server PORT FILE`. Each line on
its standard input is an order that it ships."""

from __future__ import annotations

import asyncio
import sys

from dragoman import serve

from .receiving import OrderShipped, shop


async def main(port: str, path: str) -> None:
    app, events = shop(store=f"sqlite:{path}", poll_again=0.01)
    async with serve(app, urls=f"http://127.0.0.1:{port}/mcp"):
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await events.emit(OrderShipped(line.strip()))
            print("kept", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
