"""An `async def` with nothing to await is answered in place; for its author nothing is different from a task."""

from __future__ import annotations

import asyncio
import functools
import sys
from contextvars import ContextVar
from typing import Any

import pytest

from dragoman import Context, Service
from dragoman.rpc.method import may_wait
from dragoman.rpc.servable import ServableService

VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=0)


async def never(a: int) -> int:
    return a + 1


async def awaits() -> None:
    await asyncio.sleep(0)


async def loops() -> None:
    async for _ in _numbers():
        pass


async def enters() -> None:
    async with asyncio.Lock():
        pass


async def comprehends() -> list[int]:
    return [one async for one in _numbers()]


async def _numbers() -> Any:
    yield 1


class Calls:
    async def never(self, a: int) -> int:
        return a


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="eager tasks cost no scheduling")
def test_what_may_wait() -> None:
    assert not may_wait(never)
    assert not may_wait(Calls().never)
    for function in (awaits, loops, enters, comprehends, functools.partial(never, 1)):
        assert may_wait(function)


async def test_it_is_a_call_like_any_other() -> None:
    api = Service("api")
    seen: list[object] = []

    @api.method
    async def increment(a: int, ctx: Context) -> int:
        seen.append((asyncio.get_running_loop(), ctx.where, VARIABLE.get()))
        VARIABLE.set(7)
        return a + 1

    @api.method
    async def fail() -> None:
        raise StopIteration("odd")

    host = ServableService(api)
    for _ in range(2):
        assert await host.runner.answer(b'{"jsonrpc":"2.0","method":"increment","params":[1],"id":1}') == (
            b'{"jsonrpc":"2.0","result":2,"id":1}'
        )
    assert seen == [(asyncio.get_running_loop(), "async", 0)] * 2  # what it set in its context stays there
    answer = await host.runner.answer(b'{"jsonrpc":"2.0","method":"fail","id":2}')
    assert answer is not None
    assert b"-32603" in answer


async def test_middleware_and_places_are_kept() -> None:
    api = Service("api")
    order: list[str] = []

    @api.use
    async def around(call: Any, next: Any) -> Any:
        order.append("in")
        result = await next(call)
        order.append("out")
        return result

    @api.method(concurrency=1)
    async def quick() -> str:
        order.append("run")
        return "done"

    answer = await ServableService(api).runner.answer(b'{"jsonrpc":"2.0","method":"quick","id":2}')
    assert answer == b'{"jsonrpc":"2.0","result":"done","id":2}'
    assert order == ["in", "run", "out"]


def test_without_a_loop_it_still_gets_one() -> None:
    api = Service("api")

    @api.method
    async def name() -> str:
        return type(asyncio.get_running_loop()).__name__

    assert api.answer(b'{"jsonrpc":"2.0","method":"name","id":2}') is not None
