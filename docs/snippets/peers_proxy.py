# [proxy]
import asyncio
from typing import Protocol

from calculator import api
from dragoman import connect, serve


class Calculator(Protocol):
    async def subtract(self, minuend: int, subtrahend: int) -> int: ...


async def main() -> None:
    async with serve(api, urls="memory:c"), connect("memory:c") as peer:
        print(await peer.proxy(Calculator).subtract(42, 23))  # 19
        print(await peer.proxy().sum(1, 2, 4))  # 7


asyncio.run(main())
# [/proxy]
