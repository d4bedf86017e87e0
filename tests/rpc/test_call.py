"""A call that takes time: its clock after it has asked, its place while threads of it go on, the end of the program."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman import Context, Service, connect, serve
from dragoman.rpc.middleware import Call, Next
from tests.behind import behind

from .test_observers import SHORT, Recorder
from .test_peer import raw, until


def call(method: str, id: int) -> str:
    return f'{{"jsonrpc":"2.0","method":"{method}","id":{id}}}'


def result(value: str, id: int) -> str:
    return f'{{"jsonrpc":"2.0","result":{value},"id":{id}}}'


async def test_the_clock_of_a_call_goes_on_when_its_question_is_answered() -> None:
    api = Service("api")

    @api.method(timeout=0.1)
    async def asking(ctx: Context) -> None:
        await ctx.call("question")
        await asyncio.Event().wait()

    async with raw(api) as (far, _):
        far.send(call("asking", 1))
        asked = await far.next()
        assert '"method":"question"' in asked
        far.send(result("2", int(asked.rpartition('"id":')[2].rstrip("}"))))
        answer = await far.next()
        assert '"data":{"limit":"handler_timeout","allowed":0.1}' in answer
        assert answer.endswith(',"id":1}')


async def test_a_call_keeps_the_place_of_its_method_while_any_of_it_goes_on() -> None:
    """Threads that were given up go on, and so does what gave them up, whichever ends first."""
    gates = [threading.Event(), threading.Event()]
    tries = list(gates)
    hold = asyncio.Event()

    async def stubborn(call: Call, next: Next) -> Any:
        if call.method != "narrow" or not tries:
            return await next(call)
        for left in range(len(gates) - 1, -1, -1):
            running = asyncio.ensure_future(next(call))
            await until(lambda: len(tries) == left)  # noqa: B023
            running.cancel()
            await asyncio.wait([running])
        await hold.wait()
        return "gave up"

    api = Service("api", middleware=[stubborn])

    @api.method(concurrency=1, queue=0)
    def narrow() -> str:
        if not tries:
            return "alone"
        tries.pop().wait(10)
        return "late"

    @api.method
    def after() -> None: ...

    async with raw(api) as (far, peer):

        async def turned_away(id: int) -> None:
            far.send(call("after", id))  # what its thread tells comes behind what the others have told
            assert await far.next() == result("null", id)
            far.send(call("narrow", id))
            assert '"limit":"concurrency of narrow","allowed":1' in await far.next()

        far.send(call("narrow", 1))
        await until(lambda: not tries)
        await turned_away(2)
        gates[1].set()
        await turned_away(3)
        hold.set()
        assert await far.next() == result('"gave up"', 1)
        await turned_away(4)
        gates[0].set()
        await until(lambda: not behind(peer)._runner.runs)
        far.send(call("narrow", 5))
        assert await far.next() == result('"alone"', 5)


def test_an_interrupt_ends_the_program_and_its_call_has_no_answer() -> None:
    api = Service("api")
    told, got = Recorder(), list[Any]()

    @api.method
    async def stop() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    async def main() -> None:
        # the loop would write to the log what the task ended with, in whichever test it is collected
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with (
            serve(api, urls="memory:interrupt", observers=[told], limits=SHORT),
            connect("memory:interrupt", timeout=10) as peer,
        ):
            got.append(await peer.call("stop"))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    outcomes = [one.outcome for one in told.ends if one.method == "stop"]
    assert outcomes == ["lost"]
    assert got == []
