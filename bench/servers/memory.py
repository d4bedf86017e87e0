"""Peer to peer in memory: an awaited call, then 32 of them at a time. Both peers live in this process."""

from __future__ import annotations

import asyncio

from bench.servers.calculator import calculator
from bench.worker import offer_async
from dragoman import connect, serve


async def main() -> None:
    """Until end of file."""
    async with serve(calculator(), urls=["memory:bench"]), connect("memory:bench") as peer:

        async def awaited() -> object:
            return await peer.call("subtract", [42, 23])

        async def coroutine() -> object:
            return await peer.call("subtract_async", [42, 23])

        async def together() -> object:
            return await asyncio.gather(*[peer.call("subtract", [42, 23]) for _ in range(32)])

        await offer_async({"single": awaited, "async": coroutine, "together": together})


if __name__ == "__main__":
    asyncio.run(main())
