"""dragoman at both ends of a broker: `worker URL` and `caller URL` (see `bench.brokers`)."""

from __future__ import annotations

import asyncio
import sys

from bench.brokers import obey, stay
from dragoman import Service, connect, serve

service = Service("calculator")


@service.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    """The one method."""
    return minuend - subtrahend


async def main(part: str, url: str) -> None:
    """Serve or call until end of file."""
    if part == "worker":
        async with serve(service, urls=url):
            await stay()
    else:
        async with connect(url) as peer:
            await obey(lambda: peer.call("subtract", [42, 23]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
