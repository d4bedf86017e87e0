# served: calculator:api tcp://127.0.0.1:9000
# [calls]
import asyncio

from dragoman import connect


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000") as peer:
        print(await peer.call("subtract", [42, 23]))  # 19
        print(await peer.call("subtract", {"minuend": 42, "subtrahend": 23}))  # 19
        print(await peer.call("divide", [1, 4], result=float, timeout=5))  # 0.25
        await peer.notify("sum", [1, 2, 3])  # no answer comes


asyncio.run(main())
# [/calls]
