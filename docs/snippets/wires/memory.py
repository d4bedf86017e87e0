# [memory]
import asyncio

from calculator import api
from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="memory:calculator"):
        async with connect("memory:calculator") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/memory]
