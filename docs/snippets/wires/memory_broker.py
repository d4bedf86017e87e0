# [broker]
import asyncio

from calculator import api
from dragoman import connect, serve
from dragoman.transports.broker.memory import broker

URL = "memory+broker:calculator"


async def main() -> None:
    async with serve(api, urls=URL):
        pass  # a worker came and went: there is a queue
    async with connect(URL) as peer:
        call = asyncio.create_task(peer.call("subtract", [42, 23]))
        async with serve(api, urls=URL):  # another worker takes what waited
            print(await call)  # 19
        print(len(broker().queues["calculator"].dead))  # 0


asyncio.run(main())
# [/broker]
