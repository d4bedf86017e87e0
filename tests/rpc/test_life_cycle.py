"""The life of calls and peers: places given back once, closing that ends, nothing left in a circle."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from typing import Any

import msgspec
import pytest

from dragoman import BadAnswer, Context, Limits, LocalError, RpcError, Service
from dragoman.channel import Caller, Exchange
from dragoman.jsonrpc.codec import AnyAnswer, FailedAnswer, text_of
from dragoman.jsonrpc.errors import CallRefused, Refusal
from dragoman.rpc.deadlines import DeadlineClock
from dragoman.rpc.inbound import InboundCall
from dragoman.rpc.method import Method, method_of
from dragoman.rpc.runner import Runner
from tests.behind import behind, limited

from .test_peer import Bench, joined, raw, until


class Once:
    """An exchange that keeps what it was answered."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.caller = Caller()
        self.gone: Any = None
        self.answers: list[bytes | None] = []
        self.refusals: list[Refusal | None] = []
        self.ended: list[str] = []

    def respond(self, answer: AnyAnswer) -> None:
        self.answers.append(text_of(answer))
        failed = answer if isinstance(answer, FailedAnswer) else None
        self.refusals.append(None if failed is None else failed.refusal)
        self.ended += [failed.ended.kind] if failed is not None and failed.ended is not None else []

    def stream(self, message: bytes) -> bool:
        return False


def _exchange(host: Runner, request: bytes) -> Once:
    x = Once(request)
    taken: Exchange = x
    host.exchange(taken)
    return x


# -- what a wire is told of an error ------------------------------------------------------------------


def inline() -> int:
    raise CallRefused(FULL)


async def waits() -> int:
    raise CallRefused(FULL)


def plain() -> int:
    raise CallRefused(FULL)


FULL = Refusal("busy", "Busy: no room")


@pytest.mark.parametrize("function", [inline, waits, plain])
async def test_what_a_function_refuses_is_a_refusal_to_its_wire(function: Any) -> None:
    api = Service("api")
    api.method(name="f", inline=function is inline)(function)
    x = _exchange(Runner(behind(api)), b'{"jsonrpc":"2.0","method":"f","id":1}')
    await until(lambda: bool(x.answers))
    assert json.loads(x.answers[0] or b"")["error"] == {"code": -32000, "message": "Busy: no room"}
    assert x.refusals == [FULL]


@pytest.mark.parametrize("data", [{"limit": "x" * 400}, {"limit": object()}], ids=["too large", "no JSON"])
async def test_a_refusal_whose_data_cannot_be_sent_is_one_to_its_wire(data: Any) -> None:
    api = Service("api", limits=Limits(response_size=300))
    full = Refusal("busy", "Busy", data)

    @api.method
    async def f() -> None:
        raise CallRefused(full)

    x = _exchange(Runner(behind(api)), b'{"jsonrpc":"2.0","method":"f","id":1}')
    await until(lambda: bool(x.answers))
    assert len(x.answers[0] or b"") <= 300
    assert x.refusals == [full]


async def test_what_was_ended_while_it_ran_is_no_refusal() -> None:
    """A refusal says that nothing was begun."""
    api = Service("api")

    @api.method(timeout=0.01)
    async def sleeps() -> None:
        await asyncio.sleep(60)

    x = _exchange(Runner(behind(api)), b'{"jsonrpc":"2.0","method":"sleeps","id":1}')
    await until(lambda: bool(x.answers))
    assert (json.loads(x.answers[0] or b"")["error"]["code"], x.refusals) == (-32002, [None])
    assert x.ended == ["timed_out"]


# -- places -----------------------------------------------------------------------------------------


def streaming(function: Any, **options: Any) -> tuple[Service, Method]:
    """A service whose one method lives long, as MCP's `subscriptions/listen` does."""
    api = Service("api", limits=Limits(calls_per_channel=1, waiting_per_channel=0))
    method = method_of(function, "flow", **options)
    method.stream = True
    behind(api)._put(method)
    return api, method


@pytest.mark.parametrize("concurrency", [None, 1])
async def test_a_stream_that_ends_in_its_first_step_gives_its_place_back_once(concurrency: int | None) -> None:
    async def flow(fail: bool = False) -> str:
        if fail:
            raise RpcError("too many", code=7)
        return "over"

    api, _ = streaming(flow, concurrency=concurrency)
    async with raw(api) as (far, peer):
        for id, params in enumerate(["[]", "[true]", "[]"]):
            far.send(f'{{"jsonrpc":"2.0","method":"flow","params":{params},"id":{id}}}')
            await far.next()
        await until(lambda: not behind(peer)._runner.runs)
        assert (behind(peer)._conversation.running, behind(peer)._runner.call_limit.in_flight) == (0, 0)
        assert behind(peer)._conversation.idle


async def test_two_functions_of_one_name_have_places_of_their_own() -> None:
    gate = asyncio.Event()
    began: list[str] = []

    def held(tag: str, concurrency: int) -> Method:
        async def function() -> str:
            began.append(tag)
            await gate.wait()
            return tag

        return method_of(function, "same", concurrency=concurrency)

    api = Service("api")
    found = {"narrow": held("narrow", 1), "wide": held("wide", 2)}
    for method in found.values():
        behind(api)._link(method)
    behind(api)._router = lambda message, caller, peer: (found[message.method], message)
    async with raw(api) as (far, peer):
        for id, name in enumerate(["narrow", "wide", "wide"]):
            far.send(f'{{"jsonrpc":"2.0","method":"{name}","id":{id}}}')
        await until(lambda: sorted(began) == ["narrow", "wide", "wide"])
        gate.set()
        await until(lambda: not behind(peer)._runner.runs)
        assert not behind(peer)._runner._concurrency_limits  # none is kept for a method that does not run


# -- closing ----------------------------------------------------------------------------------------


async def test_two_handlers_that_close_their_peer_do_not_wait_for_each_other() -> None:
    api = Service("api")
    both = asyncio.Barrier(2)

    @api.method
    async def leave(ctx: Context) -> str:
        await both.wait()
        assert ctx.peer is not None
        await ctx.peer.close()
        return "left"

    async with raw(api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"leave","id":1}')
        far.send('{"jsonrpc":"2.0","method":"leave","id":2}')
        assert "left" in await far.next()
        assert "left" in await far.next()
        async with asyncio.timeout(10):
            await far.over
            await peer.close()
        assert peer.closed


async def test_the_shortest_patience_of_several_closers_counts() -> None:
    bench = Bench()
    async with raw(bench.api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"hold","id":1}')
        await bench.begun.wait()
        patient = asyncio.create_task(peer.close(1000))
        await until(lambda: behind(peer).closing)
        async with asyncio.timeout(10):
            await peer.close(0.01)
            await patient
        assert "-32001" in await far.next()
        assert bench.cancelled == [None]


# -- deadlines --------------------------------------------------------------------------------------


async def test_one_deadline_that_fails_does_not_lose_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = DeadlineClock(asyncio.get_running_loop())
    late: list[str] = []

    class Deadline:
        def __init__(self, name: str) -> None:
            self.name = name

        def expired(self) -> None:
            late.append(self.name)
            if self.name == "bad":
                raise ValueError("of its own")

    for name in ("first", "bad", "last"):
        clock.set(Deadline(name), 0.001)
    with caplog.at_level(logging.ERROR):
        await until(lambda: len(late) == 3)
    assert late == ["first", "bad", "last"]
    assert "of its own" in caplog.text


# -- answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["1.0", "1e0", "10e-1"])
async def test_an_answer_whose_id_is_the_same_number_written_otherwise_is_taken(id: str) -> None:
    async with raw(Service("api")) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        await far.next()
        far.send(f'{{"jsonrpc":"2.0","result":"mine","id":{id}}}')
        async with asyncio.timeout(10):
            assert await call == "mine"


async def test_a_response_with_neither_result_nor_error_fails_its_call_at_once_and_is_not_answered() -> None:
    async with raw(Service("api")) as (far, peer):
        call = asyncio.create_task(peer.call("anything", timeout=1000))
        await far.next()
        far.send('{"jsonrpc":"2.0","id":1}')
        async with asyncio.timeout(10):
            with pytest.raises(BadAnswer, match="`method` is missing"):
                await call
        far.send('{"jsonrpc":"2.0","id":7}')  # nothing of ours has this id: no request either
        assert "-32600" in await far.next()
        assert far.got.empty()


async def test_awaiting_a_call_inside_its_batch_says_why_that_would_never_end() -> None:
    async with joined(Bench().api) as peer:
        async with asyncio.timeout(10), peer.batch() as batch:
            total = batch.call("subtract", [42, 23])
            with pytest.raises(LocalError, match="at the end of its block"):
                await total
            with pytest.raises(LocalError, match="at the end of its block"):
                total.result()
            with pytest.raises(LocalError, match="at the end of its block"):
                total.exception()

            async def later() -> Any:
                return await total

            waiting = asyncio.create_task(later())  # another task may wait: the block goes on without it
            await asyncio.sleep(0)
            assert not waiting.done()
        assert (await waiting, await total, total.result()) == (19, 19, 19)


async def test_a_caller_that_leaves_its_batch_cancels_no_call_that_is_over() -> None:
    """What a handler began and left behind looks at its context, which tells of its own call."""
    api, known = Service("api"), dict[str, Context]()

    @api.method
    async def quick(ctx: Context) -> None:
        known["quick"] = ctx
        await asyncio.sleep(0)  # a handler that never waits is not a call in flight

    @api.method
    async def hold(ctx: Context) -> None:
        known["hold"] = ctx
        await asyncio.Event().wait()

    host = Runner(behind(api))
    x = _exchange(host, b'[{"jsonrpc":"2.0","method":"quick","id":1},{"jsonrpc":"2.0","method":"hold","id":2}]')
    await until(lambda: len(known) == 2 and host.call_limit.in_flight == 1)
    assert x.gone is not None
    x.gone()
    await until(lambda: not host.call_limit.in_flight)
    assert [known["quick"].cancelled, known["hold"].cancelled] == [False, True]
    host.release()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_a_draining_service_refuses_in_the_callers_version(version: str) -> None:
    api = Service("api", accept_v1=True)
    api.method("hold")(asyncio.Event().wait)
    host = Runner(behind(api))
    host.call_limit.draining = True
    head = b'"jsonrpc":"2.0",' if version == "2.0" else b""
    x = _exchange(host, b'{%b"method":"hold","params":[],"id":5}' % head)
    answer = msgspec.json.decode(x.answers[0] or b"")
    assert (answer["error"]["code"], answer["id"]) == (-32001, 5)
    assert answer.get("jsonrpc") == ("2.0" if version == "2.0" else None)
    assert ("result" in answer) == (version == "1.0")
    host.release()


def test_a_number_that_no_double_holds_is_refused_in_the_callers_version() -> None:
    api = Service("api", accept_v1=True)
    answer = api.answer(b'{"method":"nothing","params":[1e400],"id":1}')
    assert answer is not None
    assert msgspec.json.decode(answer)["result"] is None


def test_debug_that_is_set_later_counts_under_other_limits_too() -> None:
    api = Service("api")
    other = limited(api, Limits(calls=5))
    api.debug = True
    answer = other.answer(b'{"jsonrpc":"2.0","method":"nothing","id":1}')
    assert answer is not None
    assert b"there is no method" in answer
    assert other.debug
    other.debug = False
    assert not api.debug


# -- notifications ----------------------------------------------------------------------------------


async def test_two_readers_of_one_iterator_both_wake() -> None:
    async with raw(Service("api")) as (far, peer):
        heard = peer.notifications()
        readers = [asyncio.create_task(anext(heard)) for _ in range(2)]
        await asyncio.sleep(0)
        far.send('{"jsonrpc":"2.0","method":"one"}')
        far.send('{"jsonrpc":"2.0","method":"two"}')
        async with asyncio.timeout(10):
            assert {(await reader).method for reader in readers} == {"one", "two"}
        readers = [asyncio.create_task(anext(heard)) for _ in range(2)]
        await asyncio.sleep(0)
        heard.close()
        for reader in readers:
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(reader, 10)


# -- memory -----------------------------------------------------------------------------------------


def calls_of(runner: Runner) -> list[Any]:
    """Its calls and their contexts that are in memory. Other tests' are, too: their threads may outlive them."""
    found = gc.get_objects()  # weak proxies, too, whose object may have ended: these have a type of their own
    calls = [one for one in found if issubclass(type(one), InboundCall) and one.runner is runner]
    return calls + [one for one in found if issubclass(type(one), Context) and one._site in calls]


@pytest.mark.parametrize("name", ["alone", "told", "in_thread"])
async def test_answered_calls_leave_nothing_to_the_garbage_collector(name: str) -> None:
    api = Service("api")

    @api.method
    async def alone() -> int:
        await asyncio.sleep(0)
        return 1

    @api.method
    async def told(ctx: Context) -> int:
        await asyncio.sleep(0)
        return 0 if ctx.cancelled else 1

    @api.method
    def in_thread(ctx: Context) -> int:
        return 0 if ctx.cancelled else 1

    async with raw(api) as (far, peer):
        gc.collect()
        gc.disable()
        try:
            for id in range(20):
                far.send(f'{{"jsonrpc":"2.0","method":"{name}","id":{id}}}')
                await far.next()
                assert await behind(peer)._runner.answer(b'{"jsonrpc":"2.0","method":"%b","id":1}' % name.encode())
            await until(lambda: not behind(peer)._runner.runs)
            # by reference counts alone; a thread of the pool may hold its last work a moment longer
            await until(lambda: not calls_of(behind(peer)._runner))
        finally:
            gc.enable()


# -- threads ----------------------------------------------------------------------------------------


async def test_work_that_waits_for_a_thread_and_is_cancelled_never_runs() -> None:
    api = Service("api", limits=Limits(threads=1))
    release, ran = threading.Event(), []

    @api.method
    def block() -> None:
        release.wait(10)

    @api.method
    def late() -> None:
        ran.append(1)

    async with raw(api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"block","id":1}')
        far.send('{"jsonrpc":"2.0","method":"late","id":2}')
        await until(lambda: len(behind(peer)._runner.runs) == 2)
        await asyncio.sleep(0)
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}')
        assert "-32800" in await far.next()
        await until(lambda: len(behind(peer)._runner.runs) == 1)
        release.set()
        assert '"id":1' in await far.next()
        assert ran == []
