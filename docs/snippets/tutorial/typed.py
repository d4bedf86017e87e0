# served: calculator:api tcp://127.0.0.1:9000
# [typed]
import asyncio
from typing import Protocol

from dragoman import connect


class Calculator(Protocol):
    async def subtract(self, minuend: int, subtrahend: int) -> int: ...
    async def divide(self, dividend: float, divisor: float) -> float: ...


async def main() -> None:
    async with connect("tcp://127.0.0.1:9000") as peer:
        calculator = peer.proxy(Calculator)
        print(await calculator.subtract(42, 23))  # 19
        print(await calculator.divide(dividend=1, divisor=4))  # 0.25


asyncio.run(main())
# [/typed]
