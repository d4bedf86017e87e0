# [udp]
import asyncio

from calculator import api
from dragoman import connect, serve


async def main() -> None:
    async with serve(api, urls="udp://127.0.0.1:9001"):
        async with connect("udp://127.0.0.1:9001", timeout=1) as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/udp]
