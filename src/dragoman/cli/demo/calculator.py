"""The demo's service, and an example of every kind of method.

python -m dragoman.cli.demo.calculator                    serves its own stdin and stdout
dragoman serve dragoman.cli.demo.calculator:api
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from msgspec import Struct

from ...jsonrpc.errors import RpcError
from ...rpc.context import Context
from ...rpc.service import Service
from ...serving import serve

api: Service = Service(
    "calculator", version="1.0.0", description="The methods of the examples in the JSON-RPC specification."
)
updates: list[list[int]] = []
"""The latest 100 numbers given to `update`."""


class Divided(Struct):
    """The numbers of a division by zero."""

    dividend: float
    divisor: float


class DivisionByZero(RpcError):
    """The divisor is zero."""

    code = 1001
    message = "Division by zero"
    data: Divided


@api.method(inline=True)
def subtract(minuend: int, subtrahend: int) -> int:
    """Subtract `subtrahend` from `minuend`."""
    return minuend - subtrahend


@api.method("sum", inline=True)
def total(*numbers: float) -> float:
    """Add up any number of numbers."""
    return sum(numbers)


@api.method(inline=True)
def update(*numbers: int) -> None:
    """Store some numbers; called as a notification."""
    updates.append(list(numbers))
    del updates[:-100]


@api.method(inline=True)
def get_data() -> tuple[str, int]:
    """A string and a number."""
    return "hello", 5


@api.method(inline=True, errors=[DivisionByZero])
def divide(dividend: float, divisor: float) -> float:
    """Divide `dividend` by `divisor`; the error 1001 when that is zero."""
    if divisor == 0:
        raise DivisionByZero(data=Divided(dividend, divisor))
    return dividend / divisor


@api.method
async def slow(context: Context, seconds: float = 1.0, steps: int = 10) -> str:
    """Take `seconds`, and report progress after each of `steps`."""
    for step in range(steps):
        await context.progress({"percentage": round(100 * step / steps), "message": f"step {step + 1} of {steps}"})
        await asyncio.sleep(seconds / steps)
    return "done"


@api.method
async def ask_back(context: Context, question: str) -> Any:
    """Call `answer` at the caller with `question`, and return its result; for wires on which both ends call."""
    return await context.call("answer", [question])


async def main(url: str) -> None:
    """Serve until the end of the input, or a signal."""
    await serve(api, urls=[url])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "stdio:"))
