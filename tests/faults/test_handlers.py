"""Handlers that never return, that block, and hundreds that call back on the one channel they were called on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dragoman import Context, Limits, Peer, RpcError, Service, connect, serve
from dragoman.rpc.servable import ServableService

from .conftest import MANY, PATIENCE, Serve, child, until
from .service import Counts, doubling, faulty

TIMED_OUT = -32002
WIRES = ["tcp", "ws", "http"]


def hosted(serving: Any) -> ServableService:
    """The one host that is served."""
    host = serving.served[""]
    assert isinstance(host, ServableService)
    return host


# -- handlers that do not end ---------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_a_handler_that_never_returns_is_timed_out_while_others_go_on(wire: str) -> None:
    limits = Limits(handler_timeout=2.0)
    async with serve(faulty(), urls=[f"{wire}://127.0.0.1:0"], limits=limits) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], timeout=PATIENCE, limits=MANY) as peer:
            hanging = [asyncio.ensure_future(peer.call("hang")) for _ in range(50)]
            await until(lambda: host.call_limit.in_flight == 50)
            assert await asyncio.gather(*(peer.call("later", [n]) for n in range(50))) == list(range(50))
            answers = await asyncio.gather(*hanging, return_exceptions=True)
            assert [answer.code for answer in answers if isinstance(answer, RpcError)] == [TIMED_OUT] * 50
            await until(lambda: not host.call_limit.in_flight)
            counts = await peer.call("counted", result=Counts)
            assert (counts.started, counts.ended, counts.cancelled) == (50, 50, 50)


async def test_a_handler_that_swallows_its_cancellation_still_costs_only_its_own_place() -> None:
    api = faulty()
    let_go = asyncio.Event()

    @api.method(timeout=0.1)
    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async with serve(api, urls=["tcp://127.0.0.1:0"]) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0]) as peer:
            with pytest.raises(RpcError) as late:
                await peer.call("stubborn")
            assert late.value.code == TIMED_OUT
            assert host.call_limit.in_flight == 1, "its place is free although it still runs"
            assert await peer.call("subtract", [42, 23]) == 19
            let_go.set()
            await until(lambda: not host.call_limit.in_flight)
            assert await peer.call("subtract", [42, 23]) == 19, "its late answer was sent"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_handler_that_blocks_takes_one_thread_and_nothing_else(wire: str) -> None:
    limits = Limits(handler_timeout=2.0, threads=3)
    async with serve(faulty(), urls=[f"{wire}://127.0.0.1:0"], limits=limits) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], timeout=PATIENCE) as peer:
            blocked = [asyncio.ensure_future(peer.call("block")) for _ in range(2)]
            await until(lambda: host.call_limit.in_flight == 2)
            assert await asyncio.gather(*(peer.call("later", [n]) for n in range(50))) == list(range(50))
            assert await asyncio.gather(*(peer.call("in_thread", [n]) for n in range(50))) == list(range(50))
            for answer in await asyncio.gather(*blocked, return_exceptions=True):
                assert isinstance(answer, RpcError)
                assert answer.code == TIMED_OUT
            assert host.call_limit.in_flight == 2, "a thread cannot be stopped, so its place stays taken"
            await peer.call("release")
            await until(lambda: not host.call_limit.in_flight)
            assert (await peer.call("counted", result=Counts)).ended == 2


async def test_when_every_thread_is_blocked_waiting_calls_time_out_and_the_loop_goes_on() -> None:
    limits = Limits(handler_timeout=1.5, threads=2)
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], timeout=PATIENCE) as peer:
            answers = await asyncio.gather(*(peer.call("block") for _ in range(20)), return_exceptions=True)
            assert {answer.code for answer in answers if isinstance(answer, RpcError)} == {TIMED_OUT}
            assert len(answers) == 20
            assert await peer.call("later", [1]) == 1
            counts = await peer.call("counted", result=Counts)
            assert counts.started == 2, "what timed out while it waited for a thread was run all the same"
            assert host.call_limit.in_flight == 2
            await peer.call("release")
            await until(lambda: not host.call_limit.in_flight)
            assert await peer.call("in_thread", [1]) == 1


async def test_a_cancelled_call_that_waits_is_never_started() -> None:
    limits = Limits(calls_per_channel=1)
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], timeout=PATIENCE) as peer:
            first = asyncio.ensure_future(peer.call("hang"))
            await until(lambda: host.call_limit.in_flight == 1)
            waiting = [asyncio.ensure_future(peer.call("hang")) for _ in range(50)]
            await until(lambda: host.call_limit.in_flight == 51)
            for call in waiting:
                call.cancel()
            await until(lambda: host.call_limit.in_flight == 1)
            first.cancel()
            await until(lambda: host.call_limit.in_flight == 0)
            assert (await peer.call("counted", result=Counts)).started == 1


@pytest.mark.parametrize("wire", ["tcp", "ws", "http"])
async def test_a_caller_that_goes_away_stops_its_handlers(wire: str) -> None:
    async with serve(faulty(), urls=[f"{wire}://127.0.0.1:0"]) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], timeout=None, limits=MANY) as peer:
            calls = [asyncio.ensure_future(peer.call("hang")) for _ in range(20)]
            await until(lambda: host.call_limit.in_flight == 20)
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: not host.call_limit.in_flight)
        assert not host.runner.runs


# -- calls back -----------------------------------------------------------------------------------

BACK = 300
"""More than the calls that run at once on one channel, and far more than there are threads."""


async def ask_them_all(peer: Peer, method: str) -> None:
    """Every call is answered, each after a call back."""
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*(peer.call(method, [n], timeout=PATIENCE) for n in range(BACK)))
    assert answers == [2 * n + 1 for n in range(BACK)]


@pytest.mark.parametrize("wire", ["tcp", "ws", "stdio"])
@pytest.mark.parametrize("method", ["ask", "ask_in_thread"])
async def test_three_hundred_handlers_call_back_on_one_channel(wire: str, method: str, serving: Serve) -> None:
    target: Any = child() if wire == "stdio" else serving(f"{wire}://127.0.0.1:0").url
    async with connect(target, service=doubling(), stderr=lambda line: None) as peer:
        await ask_them_all(peer, method)


@pytest.mark.parametrize("method", ["ask", "ask_in_thread"])
async def test_the_same_with_both_ends_in_one_process(method: str) -> None:
    async with serve(faulty(), urls=["memory:calling-back"]) as serving:
        async with connect("memory:calling-back", service=doubling()) as peer:
            await ask_them_all(peer, method)
        await until(lambda: not hosted(serving).call_limit.in_flight)


async def test_a_call_that_goes_back_and_forth_a_hundred_times() -> None:
    """Each handler waits for the other end's, on one channel, as deep as the calls that run at once."""
    api = Service("deep")

    async def down(left: int, context: Context) -> int:
        """How deep it went."""
        if not left:
            return 0
        below: int = await context.call("down", [left - 1], result=int)
        return below + 1

    api.method(down)
    ours = Service("deep too")
    ours.method(down)
    async with serve(api, urls=["tcp://127.0.0.1:0"]) as serving, connect(serving.urls[0], service=ours) as peer:
        assert await peer.call("down", [200], result=int, timeout=PATIENCE) == 200


async def test_a_caller_that_never_answers_the_call_back_costs_a_time_out_not_a_deadlock() -> None:
    silent = Service("silent")
    asked = threading.Event()

    @silent.method
    async def double(number: int) -> int:
        asked.set()
        await asyncio.Event().wait()
        return number

    limits = Limits(call_timeout=0.3, threads=2)
    async with serve(faulty(), urls=["tcp://127.0.0.1:0"], limits=limits) as serving:
        host = hosted(serving)
        async with connect(serving.urls[0], service=silent, timeout=PATIENCE) as peer:
            answers = await asyncio.gather(
                *(peer.call(method, [n]) for n in range(10) for method in ("ask", "ask_in_thread")),
                return_exceptions=True,
            )
            assert all(isinstance(answer, RpcError) and answer.code == -32603 for answer in answers)
            assert asked.is_set()
            await until(lambda: not host.call_limit.in_flight)
            assert await peer.call("subtract", [42, 23]) == 19
