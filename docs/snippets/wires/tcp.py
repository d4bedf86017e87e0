# [tcp]
import asyncio

from calculator import api
from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="tcp://127.0.0.1:9000"):
        async with connect("tcp://127.0.0.1:9000") as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/tcp]
