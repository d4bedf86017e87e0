"""An `async def` with nothing to await is answered in place; for its author nothing is different from a task."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from dragoman import Context, LocalError, Service
from dragoman.channel import Caller
from dragoman.jsonrpc.codec import read, text_of
from dragoman.jsonrpc.leniency import STRICT
from dragoman.jsonrpc.limits import SERVER
from dragoman.jsonrpc.messages import Request
from dragoman.rpc.method import may_wait
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.servable import ServableService
from tests.behind import behind

from .test_peer import raw, until

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
        seen.append((asyncio.get_running_loop(), ctx._where, VARIABLE.get()))
        VARIABLE.set(7)
        return a + 1

    @api.method
    async def fail() -> None:
        raise StopIteration("odd")

    host = ServableService(behind(api))
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

    answer = await ServableService(behind(api)).runner.answer(b'{"jsonrpc":"2.0","method":"quick","id":2}')
    assert answer == b'{"jsonrpc":"2.0","result":"done","id":2}'
    assert order == ["in", "run", "out"]


def test_without_a_loop_it_still_gets_one() -> None:
    api = Service("api")

    @api.method
    async def name() -> str:
        return type(asyncio.get_running_loop()).__name__

    assert api.answer(b'{"jsonrpc":"2.0","method":"name","id":2}') is not None


ASKING: dict[str, tuple[Callable[[Context], Any], str]] = {
    "call": (lambda context: context.call("x"), "call back"),
    "call_all": (lambda context: context.call_all([("x", [])]), "call back"),
    "notify": (lambda context: context.notify("x"), "notify"),
}


def asked(ask: Callable[[Context], Any], context: Context) -> str:
    try:
        ask(context)
    except LocalError as error:
        return str(error)
    return "asked"


@pytest.mark.parametrize("name", ASKING)
def test_a_call_without_a_wire_cannot_ask(name: str) -> None:
    ask, verb = ASKING[name]
    api = Service("api")

    @api.method
    def asks(context: Context) -> str:
        return asked(ask, context)

    answer = api.answer(b'{"jsonrpc":"2.0","method":"asks","id":1}') or b""
    assert json.loads(answer)["result"] == f"asks: there is no wire to {verb} on"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="a task may ask, also one that ends in its first step")
@pytest.mark.parametrize("name", ASKING)
async def test_a_call_in_place_cannot_ask(name: str) -> None:
    ask, verb = ASKING[name]
    api = Service("api")

    @api.method
    async def asks(context: Context) -> str:
        return asked(ask, context)

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"asks","id":1}')
        said = json.loads(await far.next())["result"]
    assert said == f"asks: a call that awaits nothing cannot {verb}: await it in an async function"


@pytest.mark.parametrize("taken", [True, False])
async def test_a_message_ahead_of_the_answer_is_sent_where_the_call_was_asked_until_it_is_answered(taken: bool) -> None:
    api = Service("api")
    contexts: list[Context] = []

    @api.method
    async def says(context: Context) -> bool:
        contexts.append(context)
        return context.speak(b"early")

    answers: list[bytes | None] = []
    said: list[bytes] = []

    def stream(message: bytes) -> bool:
        said.append(message)
        return taken

    async with raw(api) as (_, peer):
        message = read(b'{"jsonrpc":"2.0","method":"says","id":1}', SERVER, STRICT)
        assert isinstance(message, Request)
        behind(peer).take(message, lambda answer: answers.append(text_of(answer)), stream, Caller())
        await until(lambda: bool(answers))
        assert json.loads(answers[0] or b"")["result"] is taken
        assert contexts[0].speak(b"late") is False
    assert said == [b"early"]


def test_a_local_error_of_middleware_is_the_answer_of_its_call() -> None:
    async def breaks(call: Call, next: Next) -> Any:
        raise LocalError("a word that stays here")

    api = Service("api", middleware=[breaks])
    api.method("ping")(lambda: "pong")
    error = json.loads(api.answer(b'{"jsonrpc":"2.0","method":"ping","id":1}') or b"")["error"]
    assert error["code"] == -32603
    assert "a word" not in str(error)
