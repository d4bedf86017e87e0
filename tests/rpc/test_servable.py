"""A service that is served as it is, by `serve`: under its own limits, and under others."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dragoman import Limits, RpcError, Service, connect, serve
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.dispatch import Dispatcher
from dragoman.rpc.runner import Runner
from dragoman.rpc.servable import ServableService
from tests.behind import behind

SMALL = SERVER.but(message_size=300, response_size=300, calls=1)


def holding(limits: Limits = SERVER) -> tuple[Service, asyncio.Event]:
    api, gate = Service("holding", limits=limits), asyncio.Event()

    @api.method
    async def hold(text: str = "") -> int:
        await gate.wait()
        return len(text)

    @api.method
    async def big() -> str:
        return "x" * 400

    return api, gate


@pytest.mark.parametrize("its_own", [True, False])
@pytest.mark.parametrize("url", ["memory:wrapped", "http://127.0.0.1:0"])
async def test_limits_hold_for_what_is_wrapped_already(url: str, its_own: bool) -> None:
    """Its own, and those of `serve(limits=)`: of a message's size and of calls at once."""
    api, gate = holding(SMALL if its_own else SERVER)
    served = ServableService(behind(api))
    async with (
        serve(served, urls=[url], limits=None if its_own else SMALL) as serving,
        connect(serving.urls[0]) as peer,
    ):
        with pytest.raises(RpcError) as caught:
            await peer.call("hold", ["x" * 400])
        assert (caught.value.data["limit"], caught.value.data["allowed"]) == ("message_size", 300)
        with pytest.raises(RpcError) as caught:
            await peer.call("big")
        assert (caught.value.data["limit"], caught.value.data["allowed"]) == ("response_size", 300)
        first = asyncio.create_task(peer.call("hold", ["xyz"]))
        while not served.call_limit.in_flight:  # noqa: ASYNC110  (for what no event tells)
            await asyncio.sleep(0)
        with pytest.raises(RpcError) as caught:
            await peer.call("hold")
        assert (caught.value.code, caught.value.data["limit"]) == (-32000, "calls")
        gate.set()
        assert await first == 3


@pytest.mark.parametrize("url", ["memory:sizes", "tcp://127.0.0.1:0", "ws://127.0.0.1:0", "http://127.0.0.1:0"])
async def test_the_params_of_calls_in_flight_are_bounded_together(url: str) -> None:
    """Whether they run or wait. The size of a call that has ended, or whose caller is gone, is free again."""
    api, gate = holding(Limits(calls_size=1_000, calls_per_channel=1))
    served = ServableService(behind(api))
    async with serve(served, urls=[url]) as serving, connect(serving.urls[0]) as peer:
        one, two = (asyncio.create_task(peer.call("hold", ["x" * 400])) for _ in range(2))
        while served.call_limit.size < 800:  # noqa: ASYNC110  (for what no event tells)
            await asyncio.sleep(0)
        with pytest.raises(RpcError) as caught:
            await peer.call("hold", ["x" * 400])
        assert (caught.value.code, caught.value.data) == (
            -32000,
            {"limit": "calls_size", "allowed": 1_000, "retry_after": 1},
        )
        two.cancel()
        while served.call_limit.size > 800 or served.call_limit.in_flight > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        last = asyncio.create_task(peer.call("hold", ["x" * 500]))
        while served.call_limit.in_flight < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        gate.set()
        assert (await one, await last) == (400, 500)
        assert await peer.call("hold", ["x" * 2_000]) == 2_000, "beside no other a call may be of any size"
        assert (served.call_limit.in_flight, served.call_limit.size) == (0, 0)


def routed() -> Service:
    """A service that turns one method away before it is looked up."""
    api = Service("routed")

    @api.method
    async def ping() -> str:
        await asyncio.sleep(0)
        return "pong"

    def router(message: Any, caller: Any, peer: Any) -> Any:
        if message.method == "refused":
            raise RpcError("not from here", code=7)
        return behind(api)._find(message.method), message

    behind(api)._router = router
    return api


async def test_an_element_that_is_turned_away_is_one_answer_of_its_batch() -> None:
    batch = b'[{"jsonrpc":"2.0","method":"refused","id":1},{"jsonrpc":"2.0","method":"ping","id":2}]'
    refused, answered = msgspec.json.decode(await routed().answer_async(batch) or b"")
    assert (refused["id"], refused["error"]["code"]) == (1, 7)
    assert (answered["id"], answered["result"]) == (2, "pong")


async def test_a_batch_that_comes_while_draining_is_refused_as_one() -> None:
    runner = Runner(behind(routed()))
    await runner.drain(0)
    found = msgspec.json.decode(await runner.answer(b'[{"jsonrpc":"2.0","method":"ping","id":2}]') or b"")
    assert (found["id"], found["error"]["code"]) == (None, -32001)
    assert await runner.answer(b'{"jsonrpc":"2.0","method":"ping"}') is None


async def test_an_exchange_whose_dispatch_raises_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(behind(routed()))

    def broken(*arguments: Any) -> None:
        raise ValueError("no dispatch today")

    monkeypatch.setattr(Dispatcher, "dispatch", broken)
    found = msgspec.json.decode(await runner.answer(b'{"jsonrpc":"2.0","method":"ping","id":2}') or b"")
    assert (found["id"], found["error"]["code"]) == (2, -32603)
    runner.release()


class Failing:
    """What a lifespan opens, counted; `fails`: opening raises."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.fails = False

    @asynccontextmanager
    async def open(self, service: Service) -> AsyncIterator[None]:
        if self.fails:
            raise OSError("the database is away")
        self.opened += 1
        yield
        self.closed += 1


async def test_each_start_is_a_user_of_the_lifespan_and_each_stop_one_less() -> None:
    life = Failing()
    served = ServableService(behind(Service("counted", lifespan=life.open)))
    for _ in range(3):
        await served.start()
    for _ in range(2):
        await served.stop()
    assert (life.opened, life.closed) == (1, 0)
    await served.stop()
    assert (life.opened, life.closed) == (1, 1)
    await served.stop()  # of no one
    await served.start()
    assert (life.opened, life.closed) == (2, 1)
    await served.stop()
    assert (life.opened, life.closed) == (2, 2)


async def test_a_stop_ends_no_other_s_use_of_the_lifespan() -> None:
    """Two wrappers of one service: what the one never started it does not stop."""
    life = Failing()
    api = Service("shared", lifespan=life.open)
    first, second = ServableService(behind(api)), ServableService(behind(api))
    await first.start()
    await second.stop()
    assert life.closed == 0
    life.fails = True
    await first.stop()
    assert life.closed == 1
    with pytest.raises(OSError, match="the database is away"):
        await second.start()
    life.fails = False
    await first.start()
    await second.stop()  # it never began
    assert life.closed == 1
    await first.stop()
    assert life.closed == 2


async def test_without_a_lifespan_there_is_nothing_to_start_or_stop() -> None:
    served = ServableService(behind(Service("plain")))
    await served.start()
    await served.stop()


async def test_its_document_is_what_the_method_tells() -> None:
    api = Service("documented")

    @api.method
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    async with (
        serve(ServableService(behind(api)), urls=["http://127.0.0.1:0"]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        told = await peer.call("rpc.discover")
        assert [one["name"] for one in told["methods"]] == ["add"]
        where = f"{serving.urls[0].rstrip('/')}/openrpc.json"
        with await asyncio.to_thread(urllib.request.urlopen, where) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            assert json.load(answer) == told
