"""What the fuzzer calls: the calculator without what waits, counts long or remembers. `api` is for `dragoman serve`."""

from __future__ import annotations

import asyncio
from typing import Any

from dragoman import Limits, Service
from tests.calculator import DivisionByZero, add, divide, echo, fail, get_data, subtract, unencodable

FAILING = ("fail", "unencodable")
"""Methods whose failures stand in the log with a traceback."""


def fuzzed() -> Service:
    """A new service, of every kind of method."""
    api = Service(
        "fuzzed", version="1.0.0", limits=Limits(malformed_in_a_row=1_000_000)
    )  # one input may be a thousand lines
    for function in (subtract, get_data, echo, fail, unencodable):
        api.method(inline=True)(function)
    api.method("sum", inline=True)(add)
    api.method(inline=True, errors=[DivisionByZero])(divide)

    @api.method(inline=True)
    def update(*values: Any) -> None:
        """Forget the arguments."""

    @api.method
    async def later(value: Any) -> Any:
        """The argument, after a turn of the loop."""
        await asyncio.sleep(0)
        return value

    @api.method
    def in_thread(value: Any) -> Any:
        """The argument, from a worker thread."""
        return value

    return api


api = fuzzed()
