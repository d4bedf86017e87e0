# [amqp]
import asyncio

from calculator import api
from dragoman import connect, serve

URL = "amqp://127.0.0.1:5672/calculator"


async def main() -> None:
    async with serve(api, urls=URL):
        async with connect(URL) as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


asyncio.run(main())
# [/amqp]
