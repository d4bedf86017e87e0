# served: calculator:api tcp://127.0.0.1:9000
# [batch]
import asyncio

from dragoman import connect


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000") as peer:
        async with peer.batch() as batch:
            total = batch.call("sum", [1, 2, 4])
            broken = batch.call("divide", [1, 0])
            batch.notify("sum", [1])
        print(total.result())  # 7
        print(broken.exception())  # Division by zero (1001)...


asyncio.run(main())
# [/batch]
