# served: calculator:api tcp://127.0.0.1:9000
# [progress]
import asyncio

from dragoman import connect


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000") as peer:
        print(await peer.call("mean", {"numbers": [1, 2, 6]}, on_progress=print))


asyncio.run(main())
# [/progress]
# It prints three values, then the result: print(...)  # {'done': 1, 'total': 3}
