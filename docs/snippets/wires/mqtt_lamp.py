# [mqtt]
import asyncio

from calculator import api
from dragoman import connect, serve

URL = "mqtt://127.0.0.1:1883/home/calculator"


async def main() -> None:
    async with serve(api, urls=URL):
        async with connect(URL) as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/mqtt]
