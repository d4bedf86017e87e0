"""The one service that the wire cases are about: the specification's examples and a few methods that misbehave.

Every test makes its own with `calculator()`, so that what one test changes no other sees.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from dragoman.jsonrpc.errors import RpcError
from dragoman.rpc.context import Context
from dragoman.rpc.service import Service


class Division(Struct, frozen=True):
    """What could not be divided."""

    dividend: float


class DivisionByZero(RpcError):
    """There is no such number."""

    code = 1001
    message = "Division by zero"
    data: Division


def subtract(minuend: int, subtrahend: int) -> int:
    """Subtract `subtrahend` from `minuend`."""
    return minuend - subtrahend


def add(*numbers: int) -> int:
    """The sum of all arguments."""
    return sum(numbers)


def get_data() -> list[Any]:
    """The specification's example of a method without parameters."""
    return ["hello", 5]


def echo(*values: Any, **named: Any) -> Any:
    """The arguments as they came: an array, or an object when there are named ones."""
    return named or list(values)


def divide(dividend: float, divisor: float) -> float:
    """Divide, or fail with a declared error that has data."""
    if divisor == 0:
        raise DivisionByZero(data=Division(dividend))
    return dividend / divisor


def fail(message: str = "secret") -> None:
    """Raise what is not declared."""
    raise RuntimeError(message)


async def slow(steps: int, context: Context) -> int:
    """Count to `steps`, one turn of the loop each, telling the progress; give back how far it came."""
    for step in range(steps):
        await context.progress({"done": step, "of": steps})
        await asyncio.sleep(0)
    return steps


def unencodable() -> Any:
    """Return what no JSON can hold."""
    return object()


def calculator(**options: Any) -> Service:
    """A new calculator; `options` are those of `Service`. Its plain functions are inline but for `in_thread`."""
    api = Service("calculator", version="1.0.0", **options)
    heard: list[Any] = []

    def update(*values: Any) -> None:
        heard.append(["update", *values])

    def notify_hello(value: Any) -> None:
        heard.append(["notify_hello", value])

    def notify_sum(*values: int) -> None:
        heard.append(["notify_sum", *values])

    def notified() -> list[Any]:
        """Every notification so far: the method, then its arguments."""
        return heard

    async def later(value: Any) -> Any:
        """The argument, after a turn of the loop."""
        await asyncio.sleep(0)
        return value

    def in_thread(value: Any) -> Any:
        """The argument, from a worker thread."""
        return value

    for function in (subtract, get_data, echo, fail, unencodable, update, notify_hello, notify_sum, notified):
        api.method(inline=True)(function)
    api.method("sum", inline=True)(add)
    api.method(inline=True, errors=[DivisionByZero])(divide)
    for patient in (slow, later, in_thread):
        api.method(patient)
    return api
