"""Calls on their way in: places, clocks, what a far end may send, handlers that ask; both ends at once."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dragoman import (
    CallTimeout,
    ChannelError,
    Context,
    Limits,
    LocalError,
    Peer,
    RpcError,
    Service,
    connect,
    serve,
)
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.openrpc import document
from dragoman.rpc.runner import Runner
from dragoman.rpc.servable import ServableService
from tests.behind import behind

from .test_peer import Bench, Raw, joined, raw, until

CANCEL = '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%s}}'
FOREIGN = '{"jsonrpc":"2.0","error":{"code":1,"message":"foreign"},"id":%s}'
HOLD = '{"jsonrpc":"2.0","method":"hold","params":["%s"],"id":%s}'


def host_of(serving: Any) -> Runner:
    served = next(iter(serving.served.values()))
    assert isinstance(served, ServableService)
    return served.runner


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[tuple[Raw, Peer, Runner]]:
    """A peer at the end of a raw channel, and its host."""
    async with raw(service) as (far, peer):
        yield far, peer, behind(peer)._runner


# -- places and counts ----------------------------------------------------------------------------


async def test_a_call_cancelled_in_the_same_breath_gives_its_place_back() -> None:
    bench = Bench()
    async with served(bench.api) as (far, peer, host):
        for id in range(5):
            behind(peer).received((HOLD % ("x", id)).encode())
            behind(peer).received(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}' % id)
        for _ in range(5):
            assert "-32800" in await far.next()
        await until(lambda: not host.runs)
        assert (host.call_limit.in_flight, behind(peer)._conversation.running) == (0, 0)
        assert bench.started == bench.cancelled


async def test_a_method_with_a_concurrency_of_its_own_never_runs_more_at_once_than_that() -> None:
    api = Service("api")
    now: list[int] = []
    most: list[int] = []
    events = [asyncio.Event() for _ in range(6)]

    @api.method(concurrency=1)
    async def narrow(n: int) -> int:
        now.append(n)
        most.append(len(now))
        await events[n].wait()
        now.remove(n)
        return n

    async with served(api) as (_, peer, host):
        for n in range(2):
            behind(peer).received(b'{"jsonrpc":"2.0","method":"narrow","params":[%d],"id":%d}' % (n, n))
        await until(lambda: now == [0])
        for _ in range(5):
            await asyncio.sleep(0)
        events[0].set()  # call 0 ends in the same turn of the loop in which call 1, that waits for it, is cancelled
        behind(peer).received(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
        for n in range(2, 5):
            behind(peer).received(b'{"jsonrpc":"2.0","method":"narrow","params":[%d],"id":%d}' % (n, n))
        for event in events:
            event.set()
            for _ in range(5):
                await asyncio.sleep(0)
        await until(lambda: not host.runs)
        assert max(most) == 1
        assert host.slots(api.methods["narrow"]).free == 1


async def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_gives_none_away() -> None:
    api = Service("api")
    began: list[int] = []
    door = asyncio.Event()

    @api.method(concurrency=1)
    async def narrow(n: int) -> None:
        began.append(n)
        await door.wait()

    async with served(api) as (far, _, host):
        for n in range(2):
            far.send(f'{{"jsonrpc":"2.0","method":"narrow","params":[{n}],"id":{n}}}')
        await until(lambda: began == [0] and len(host.slots(api.methods["narrow"]).queue) == 1)
        far.send(CANCEL % 1)
        assert "-32800" in await far.next()
        await until(lambda: len(host.runs) == 1)
        far.send('{"jsonrpc":"2.0","method":"narrow","params":[2],"id":2}')
        await until(lambda: len(host.slots(api.methods["narrow"]).queue) == 1)
        assert began == [0]
        door.set()
        await until(lambda: not host.runs)
        assert began == [0, 2]
        assert host.slots(api.methods["narrow"]).free == 1


async def test_middleware_that_gives_up_on_threads_and_tries_again_counts_its_call_once() -> None:
    release = threading.Event()
    tries: list[int] = []

    async def stubborn(call: Call, next: Next) -> Any:
        for _ in range(2):
            try:
                async with asyncio.timeout(0.05):
                    return await next(call)
            except TimeoutError:
                pass
        return "gave up"

    api = Service("api", middleware=[stubborn])

    @api.method
    def stuck() -> str:
        tries.append(1)
        release.wait(10)
        return "late"

    async with served(api) as (far, peer, host):
        far.send('{"jsonrpc":"2.0","method":"stuck","id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":"gave up","id":1}'
        assert (len(tries), host.call_limit.in_flight, behind(peer)._conversation.running) == (2, 1, 1)
        release.set()
        await until(lambda: not host.runs)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert (host.call_limit.in_flight, behind(peer)._conversation.running) == (0, 0)


async def test_a_handler_that_raises_what_is_not_an_exception_still_answers(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(BaseException):
        pass

    api = Service("api")

    @api.method
    async def odd() -> None:
        raise Odd("inside")

    @api.method
    def odd_thread() -> None:
        raise GeneratorExit

    async with served(api) as (far, _, host):
        for method in ("odd", "odd_thread"):
            far.send(f'{{"jsonrpc":"2.0","method":"{method}","id":1}}')
            answer = await far.next()
            assert '"code":-32603' in answer
            assert "inside" not in answer
        await until(lambda: not host.runs)
        assert host.call_limit.in_flight == 0


async def test_draining_answers_what_still_waits_and_never_starts_it() -> None:
    bench = Bench(Limits(calls_per_channel=1))
    async with serve(bench.api, urls="memory:queue") as serving, connect("memory:queue") as peer:
        running = asyncio.create_task(peer.call("hold", ["running"]))
        await bench.begun.wait()
        waiting = [asyncio.create_task(peer.call("hold", [n])) for n in range(3)]
        await until(lambda: len(next(iter(host_of(serving).peers))._conversation.waiting) == 3)
        await serving.close(0.01)
        for task in (running, *waiting):
            with pytest.raises(RpcError, match="Draining"):
                await task
        assert bench.started == ["running"]


# -- clocks ---------------------------------------------------------------------------------------


async def test_a_calls_clock_stands_still_until_its_last_question_is_answered() -> None:
    me = Service("me")
    event = asyncio.Event()

    @me.method
    async def quickly() -> str:
        return "yes"

    @me.method
    async def slowly() -> str:
        await event.wait()
        return "at last"

    api = Service("api")

    @api.method(timeout=1.5)
    async def both(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.call("quickly"), ctx.call("slowly")))

    async with joined(api, service=me) as peer:
        call = asyncio.create_task(peer.call("both"))
        await asyncio.sleep(2)
        event.set()
        assert await call == ["yes", "at last"]


async def test_a_thread_of_ours_that_never_ends_does_not_stop_the_clocks_of_our_calls() -> None:
    release = threading.Event()
    me = Service("me")

    @me.method(timeout=0.02)
    def never() -> None:
        release.wait(10)

    bench = Bench()
    async with joined(bench.api, service=me) as peer:
        try:
            with pytest.raises(RpcError):
                await peer.call("back", ["never", []])
            assert behind(peer)._conversation.running == 1
            async with asyncio.timeout(30):
                with pytest.raises(CallTimeout):
                    await peer.call("hold", timeout=0.05)
        finally:
            release.set()
            await until(lambda: not behind(peer)._conversation.running)


async def test_the_total_time_counts_the_wait_for_a_channel_too() -> None:
    bench = Bench()
    serving = serve(bench.api, urls="memory:total")
    await serving.__aenter__()
    peer = await connect("memory:total", reconnect=True)
    await serving.close()
    await until(lambda: behind(peer)._channel is None)
    async with asyncio.timeout(30):
        with pytest.raises(CallTimeout):
            await peer.call("subtract", [1, 1], timeout=None, total=0.05)
    await peer.close()


# -- what a far end may send ----------------------------------------------------------------------


@pytest.mark.parametrize("id", ["[1]", "{}", "true", "null", '{"a":[]}', "1e400", '"x"', "-1"])
async def test_a_cancel_with_a_senseless_id_is_passed_over(id: str) -> None:
    bench = Bench()
    async with served(bench.api) as (far, peer, _):
        far.send(HOLD % ("a", 1))
        await bench.begun.wait()
        behind(peer).received(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%b}}' % id.encode())
        bench.gate.set()
        assert await far.next() == '{"jsonrpc":"2.0","result":"a","id":1}'


@pytest.mark.parametrize("id", ["1" * 40, "-" + "1" * 40, "1.0", '"a\\u0041"', "null", "1.5"])
async def test_a_cancel_finds_its_call_by_any_id(id: str) -> None:
    bench = Bench()
    async with served(bench.api) as (far, _, __):
        far.send(HOLD % ("a", id))
        await bench.begun.wait()
        far.send(CANCEL % id)
        assert "-32800" in await far.next()


async def test_a_failure_with_a_foreign_id_settles_no_call() -> None:
    async with raw(Service("api")) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        await far.next()
        for id in ("1.5", "99", '"1"', "1" * 40):
            far.send(FOREIGN % id)
        far.send('{"jsonrpc":"2.0","result":"mine","id":1}')
        assert await call == "mine"


@pytest.mark.parametrize(
    "reply",
    [
        '{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"x"},"id":null}',
        '{"jsonrpc":"2.0","result":1,"id":null}',
    ],
)
async def test_a_senseless_reply_with_id_null_belongs_to_no_call(reply: str) -> None:
    async with raw(Service("api")) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        await far.next()
        far.send(reply)
        far.send('{"jsonrpc":"2.0","result":"fine","id":1}')
        async with asyncio.timeout(30):
            assert await call == "fine"


@pytest.mark.parametrize(
    ("message", "times"),
    [
        (b"{", 10_001),
        (b'{"jsonrpc":"2.0","method":"nothing","id":1}', 10_001),
        (b"[" + b",".join([b"1"] * 900) + b"]", 12),
        (b'{"jsonrpc":"2.0","method":"hold","id":1}', 10_001),
    ],
    ids=["garbage", "unknown", "batches", "duplicates"],
)
async def test_a_far_end_that_floods_and_reads_no_answer_is_cut_off_whatever_it_sends(
    message: bytes, times: int
) -> None:
    bench = Bench()
    async with raw(bench.api) as (far, peer):
        behind(peer).received(b'{"jsonrpc":"2.0","method":"hold","id":1}')
        far.near.writable = False  # what the wire says while its far end does not read
        for _ in range(times):
            behind(peer).received(message)
        async with asyncio.timeout(10):
            await far.over
        ended = f"{await far.over} {behind(peer)._why}"
        assert ("limit malformed_in_a_row" if message == b"{" else "reads none") in ended


async def test_a_refused_notification_or_response_is_not_answered_on_a_wire_of_exchanges() -> None:
    bench = Bench(Limits(calls=1))
    host = Runner(behind(bench.api))
    holding = asyncio.create_task(host.answer(b'{"jsonrpc":"2.0","method":"hold","id":1}'))
    await bench.begun.wait()
    assert b"-32000" in (await host.answer(b'{"jsonrpc":"2.0","method":"hold","id":2}') or b"")
    assert await host.answer(b'{"jsonrpc":"2.0","method":"hold"}') is None
    assert await host.answer(b'{"jsonrpc":"2.0","result":1,"id":1}') is None
    assert await host.answer(b'{"jsonrpc":"2.0","result":1,"error":1,"id":1}') is None
    assert b"-32700" in (await host.answer(b"{") or b"")
    bench.gate.set()
    await holding
    await host.drain(1)


async def test_answers_of_a_batch_beyond_the_limit_are_not_piled_up_first() -> None:
    api = Service("api", limits=Limits(response_size=100_000))

    @api.method(inline=True)
    def big() -> str:
        return "x" * 50_000

    batch = b"[" + b",".join(b'{"jsonrpc":"2.0","method":"big","id":%d}' % n for n in range(1000)) + b"]"
    tracemalloc.start()
    try:
        for answer in (api.answer(batch), await api.answer_async(batch)):
            assert b"response_size" in (answer or b"")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 5_000_000


# -- handlers that ask ----------------------------------------------------------------------------


async def test_an_inline_function_cannot_notify_in_silence() -> None:
    api = Service("api")
    said: list[str] = []

    @api.method(inline=True)
    def hasty(ctx: Context) -> None:
        try:
            ctx.notify("x")
        except LocalError as error:
            said.append(str(error))

    async with served(api) as (far, _, __):
        far.send('{"jsonrpc":"2.0","method":"hasty","id":1}')
        assert '"result":null' in await far.next()
    assert "must not wait" in said[0]


async def test_a_thread_that_asks_wakes_up_when_its_call_is_cancelled() -> None:
    woken: list[BaseException] = []
    api = Service("api")

    @api.method
    def asking(ctx: Context) -> Any:
        try:
            return ctx.call("anything", timeout=None)
        except BaseException as error:
            woken.append(error)
            raise

    async with served(api) as (far, peer, host):
        far.send('{"jsonrpc":"2.0","method":"asking","id":7}')
        assert '"method":"anything"' in await far.next()
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}')
        assert "-32800" in await far.next()
        await until(lambda: not host.runs)
        assert len(woken) == 1
        assert not behind(peer)._conversation.outbound


async def test_progress_that_is_not_json_fails_where_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Exception] = []
    api = Service("api")

    @api.method
    def telling(ctx: Context) -> str:
        try:
            ctx.progress(object())
        except LocalError as error:
            seen.append(error)
        return "done"

    async with joined(api) as peer:
        assert await peer.call("telling", on_progress=lambda value: None) == "done"
    assert "JSON" in str(seen[0])
    assert "Exception in callback" not in caplog.text


def test_a_thread_that_outlives_its_loop_can_still_tell_and_ask() -> None:
    begun, over = threading.Event(), threading.Event()
    seen: list[Any] = []
    api = Service("api")

    @api.method
    def outliving(ctx: Context) -> None:
        begun.set()
        over.wait(10)
        seen.append(bool(ctx.progress(1)))
        for ask in (ctx.call, ctx.notify):
            try:
                ask("anything")
            except (LocalError, ChannelError) as error:
                seen.append(type(error))

    async def main() -> None:
        peer = await connect("memory:outliving", timeout=None)
        call = asyncio.create_task(peer.call("outliving"))
        await asyncio.to_thread(begun.wait, 10)
        call.cancel()
        await asyncio.sleep(0)
        await peer.close(0)

    async def both() -> None:
        async with serve(api, urls="memory:outliving") as serving:
            await main()
            await serving.close(0)

    asyncio.run(both())
    over.set()
    deadline = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert seen[0] is False
    assert len(seen) == 3


# -- services -------------------------------------------------------------------------------------


def test_asking_for_the_document_again_and_again_makes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(methods: Any, **described: Any) -> Any:
        made.append(methods)
        return document(methods, **described)

    monkeypatch.setattr("dragoman.rpc.openrpc.document", counted)
    api = Service("api")
    for n in range(50):
        api.method(f"m{n}")(lambda a, b=1: None)
    batch = b"[" + b",".join(b'{"jsonrpc":"2.0","method":"rpc.discover","id":%d}' % n for n in range(100)) + b"]"
    assert (api.answer(batch) or b"").count(b'"m49"') == 100
    assert len(made) == 1
    api.method("late")(lambda: None)
    assert (api.answer(batch) or b"").count(b'"late"') == 100


def test_a_queue_without_a_concurrency_is_refused() -> None:
    api = Service("api")
    with pytest.raises(LocalError, match=r"queue.*concurrency"):
        api.method(queue=3)(lambda: None)


async def test_two_closings_at_once_both_end() -> None:
    bench = Bench()
    async with AsyncExitStack() as stack:
        far, peer = await stack.enter_async_context(raw(bench.api))
        far.send(HOLD % ("a", 1))
        await bench.begun.wait()
        closings = [asyncio.create_task(peer.close(5)) for _ in range(2)]
        await asyncio.sleep(0)
        bench.gate.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*closings)
