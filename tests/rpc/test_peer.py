"""Peers, both ends at once, over the memory wire: what one end sees is what the other did."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import pytest
from msgspec import Struct

from dragoman import (
    BadAnswer,
    Broken,
    CallTimeout,
    Closed,
    Context,
    Ended,
    Limits,
    LocalError,
    MethodNotFound,
    Peer,
    RpcError,
    Service,
    connect,
    serve,
)
from dragoman.channel import Caller, ChannelError, Options, Outgoing, Receiver
from dragoman.jsonrpc.errors import PLAIN
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.peer import BatchResult
from dragoman.rpc.runner import Runner
from dragoman.rpc.tracing import Trace
from dragoman.transports.memory import pair
from tests.behind import behind

URL = "memory:test-peer"


class Shortage(Struct):
    """What is missing."""

    item: str
    missing: int


class OutOfStock(RpcError):
    """There is not enough of it."""

    code = 1001
    message = "Out of stock"
    data: Shortage


class Bench:
    """A service whose handlers tell what happens to them."""

    def __init__(self, limits: Limits = SERVER) -> None:
        self.api = Service("bench", limits=limits)
        self.started: list[Any] = []
        self.cancelled: list[Any] = []
        self.finished: list[Any] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.thread_gate = threading.Event()
        api = self.api

        @api.method(inline=True)
        def subtract(minuend: int, subtrahend: int) -> int:
            return minuend - subtrahend

        @api.method
        async def hold(tag: Any = None) -> Any:
            self.started.append(tag)
            self.begun.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(tag)
                raise
            self.finished.append(tag)
            return tag

        @api.method
        def block(ctx: Context) -> bool:
            self.started.append("block")
            while not self.thread_gate.wait(0.01):
                if ctx.cancelled:
                    self.cancelled.append("block")
                    return False
            return True

        @api.method
        async def steps(count: int, ctx: Context) -> int:
            for step in range(count):
                await ctx.progress({"step": step})
                await asyncio.sleep(0)
            return count

        @api.method
        def thread_steps(count: int, ctx: Context) -> int:
            for step in range(count):
                ctx.progress(step)
            return count

        @api.method
        async def back(method: str, params: list[Any], ctx: Context) -> Any:
            return await ctx.call(method, params)

        @api.method
        def thread_back(method: str, params: list[Any], ctx: Context) -> Any:
            return ctx.call(method, params)

        @api.method
        async def announce(method: str, count: int, ctx: Context) -> None:
            for number in range(count):
                await ctx.notify(method, [number])

        @api.method("buy", errors=[OutOfStock])
        async def buy(item: str) -> None:
            raise OutOfStock(data=Shortage(item, 3))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@asynccontextmanager
async def joined(api: Service, **options: Any) -> AsyncIterator[Peer]:
    async with serve(api, urls=[URL]), connect(URL, **options) as peer:
        yield peer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (for what no event tells)
            await asyncio.sleep(0.001)


async def test_a_call_has_its_result(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        assert await peer.call("subtract", [42, 23]) == 19
        assert await peer.call("subtract", {"minuend": 42, "subtrahend": 23}, result=int) == 19
        assert await peer.call("subtract", (42, 23), result=float) == 19.0


async def test_an_error_is_raised_with_code_message_and_data(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        with pytest.raises(RpcError) as caught:
            await peer.call("buy", ["tea"])
        assert (caught.value.code, caught.value.message, caught.value.remote) == (1001, "Out of stock", True)
        assert caught.value.data == {"item": "tea", "missing": 3}
        with pytest.raises(MethodNotFound):
            await peer.call("nothing")


async def test_declared_errors_come_back_as_their_class_with_typed_data(bench: Bench) -> None:
    async with joined(bench.api, errors=[OutOfStock]) as peer:
        with pytest.raises(OutOfStock) as caught:
            await peer.call("buy", ["tea"])
        assert caught.value.data == Shortage("tea", 3)


async def test_a_result_that_does_not_fit_is_a_bad_answer_and_the_next_call_works(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        with pytest.raises(BadAnswer, match=r"^subtract: "):
            await peer.call("subtract", [42, 23], result=str)
        assert await peer.call("subtract", [42, 23]) == 19


@pytest.mark.parametrize("params", ["text", 7, None, True])
async def test_params_that_are_not_an_array_or_object_stay_here(bench: Bench, params: Any) -> None:
    async with joined(bench.api) as peer:
        with pytest.raises(LocalError, match="a list or a dict"):
            await peer.call("subtract", params)
        with pytest.raises(LocalError, match=r"cannot|JSON|encod"):
            await peer.call("subtract", [object()])
        assert not behind(peer)._conversation.outbound


async def test_a_message_above_the_limit_stays_here(bench: Bench) -> None:
    async with joined(bench.api, limits=Limits(response_size=1000)) as peer:
        with pytest.raises(LocalError, match=r"response_size allows 1000"):
            await peer.call("hold", ["x" * 2000])


async def test_cancelling_the_awaiting_task_stops_the_handler(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        task = asyncio.create_task(peer.call("hold", ["a"]))
        await bench.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: bench.cancelled == ["a"])
        assert await peer.call("subtract", [1, 1]) == 0


async def test_a_timed_out_call_stops_the_handler(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        with pytest.raises(CallTimeout, match=r"hold: no answer within 0.05 s"):
            await peer.call("hold", ["a"], timeout=0.05)
        await until(lambda: bench.cancelled == ["a"])


async def test_in_the_plain_dialect_nothing_is_cancelled(bench: Bench) -> None:
    async with joined(bench.api, dialect="plain") as peer:
        with pytest.raises(CallTimeout):
            await peer.call("hold", ["a"], timeout=0.05)
        bench.gate.set()
        await until(lambda: bench.finished == ["a"])
        assert bench.cancelled == []


async def test_a_call_cancelled_while_it_waits_is_never_started() -> None:
    bench = Bench(Limits(calls_per_channel=1))
    async with joined(bench.api) as peer:
        first = asyncio.create_task(peer.call("hold", ["first"]))
        await bench.begun.wait()
        second = asyncio.create_task(peer.call("hold", ["second"]))
        await asyncio.sleep(0.02)
        second.cancel()
        third = asyncio.create_task(peer.call("hold", ["third"]))
        await asyncio.sleep(0.02)
        bench.gate.set()
        assert [await first, await third] == ["first", "third"]
        assert bench.started == ["first", "third"]


async def test_beyond_the_limits_calls_are_refused_as_busy_with_the_numbers() -> None:
    bench = Bench(Limits(calls_per_channel=2, waiting_per_channel=1))
    async with joined(bench.api) as peer:
        tasks = [asyncio.create_task(peer.call("hold", [n])) for n in range(4)]
        with pytest.raises(RpcError) as caught:
            await tasks[3]
        assert caught.value.code == -32000
        assert caught.value.data["limit"] == "calls_per_channel"
        assert (caught.value.data["allowed"], caught.value.data["waiting"], caught.value.data["retry_after"]) == (
            2,
            1,
            1,
        )
        bench.gate.set()
        assert await asyncio.gather(*tasks[:3]) == [0, 1, 2]


async def test_the_limit_of_calls_in_all_counts_over_channels() -> None:
    bench = Bench(Limits(calls=2))
    async with serve(bench.api, urls=[URL]), connect(URL) as one, connect(URL) as two:
        tasks = [asyncio.create_task(one.call("hold", [1])), asyncio.create_task(two.call("hold", [2]))]
        await until(lambda: len(bench.started) == 2)
        with pytest.raises(RpcError, match="calls allows 2 at once"):
            await one.call("hold", [3])
        assert await two.call("subtract", [3, 1]) == 2  # what runs in place takes no place
        bench.gate.set()
        assert await asyncio.gather(*tasks) == [1, 2]
        assert await one.call("hold", [4]) == 4


async def test_a_thread_that_cannot_be_stopped_keeps_its_place_until_it_returns() -> None:
    bench = Bench(Limits(calls_per_channel=1, waiting_per_channel=0))
    async with joined(bench.api) as peer:
        with pytest.raises(CallTimeout):
            await peer.call("block", timeout=0.05)
        await until(lambda: bench.cancelled == ["block"])
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await peer.call("hold", timeout=0.05) is None
                except RpcError:
                    continue  # its place is still taken
                except CallTimeout:
                    break  # its place was free again


async def test_progress_in_its_order_from_the_loop_and_from_a_thread(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        seen: list[Any] = []
        assert await peer.call("steps", [3], on_progress=seen.append) == 3
        assert seen == [{"step": 0}, {"step": 1}, {"step": 2}]
        seen.clear()
        assert await peer.call("thread_steps", [3], on_progress=seen.append) == 3
        assert seen == [0, 1, 2]


async def test_progress_resets_the_idle_clock_but_not_the_absolute_one(bench: Bench) -> None:
    step = asyncio.Event()

    @bench.api.method
    async def dripping(ctx: Context) -> None:
        while True:
            await step.wait()
            step.clear()
            await ctx.progress("drip")

    async with joined(bench.api) as peer:

        async def moved(total: float | None) -> float:
            """By how many seconds a step puts the end of a call off."""
            told = asyncio.Event()
            calling = asyncio.create_task(
                peer.call("dripping", timeout=20, total=total, on_progress=lambda _: told.set())
            )
            await until(lambda: bool(behind(peer)._conversation.outbound))
            (pending,) = behind(peer)._conversation.outbound.values()
            assert pending.left is not None
            before = behind(peer)._loop.time() + pending.left
            await asyncio.sleep(1)
            step.set()
            await told.wait()
            assert pending.left is not None
            after = behind(peer)._loop.time() + pending.left
            calling.cancel()
            await asyncio.wait([calling])
            return after - before

        assert await moved(None) > 0.9
        assert abs(await moved(20)) < 0.5
        with pytest.raises(CallTimeout, match=r"^dripping: no answer within its total time$"):
            await peer.call("dripping", timeout=20, total=0.05)


async def test_the_handlers_clock_ends_a_call_with_an_error() -> None:
    bench = Bench()

    @bench.api.method(timeout=0.05)
    async def brief() -> None:
        await asyncio.Event().wait()

    async with joined(bench.api) as peer:
        with pytest.raises(RpcError) as caught:
            await peer.call("brief")
        assert caught.value.code == -32002
        assert caught.value.data == {"limit": "handler_timeout", "allowed": 0.05}


@pytest.mark.parametrize("method", ["back", "thread_back"])
async def test_the_far_end_calls_back_on_the_same_channel(bench: Bench, method: str) -> None:
    me = Service("me")

    @me.method
    async def double(number: int) -> int:
        return number * 2

    async with joined(bench.api, service=me) as peer:
        assert await peer.call(method, ["double", [21]]) == 42
        with pytest.raises(MethodNotFound):
            await peer.call(method, ["nothing", []])


async def test_clocks_stand_still_while_the_far_end_asks(bench: Bench) -> None:
    me = Service("me")

    @me.method
    async def slow_person() -> str:
        await asyncio.sleep(2.5)
        return "yes"

    @bench.api.method(timeout=2)
    async def asking(ctx: Context) -> Any:
        return await ctx.call("slow_person")

    async with joined(bench.api, service=me) as peer:
        assert await peer.call("asking", timeout=2) == "yes"


async def test_300_handlers_call_back_on_the_one_channel_they_were_called_on(bench: Bench) -> None:
    me = Service("me")

    @me.method
    async def echo(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async with joined(bench.api, service=me) as peer:
        calls = [peer.call("back", ["echo", [n]]) for n in range(300)]
        assert await asyncio.gather(*calls) == list(range(300))


async def test_notifications_reach_methods_and_iterators_in_their_order(bench: Bench) -> None:
    me = Service("me")
    heard: list[int] = []

    @me.method("tick", inline=True)
    def tick(number: int) -> None:
        heard.append(number)

    async with joined(bench.api, service=me) as peer:
        ticks, all_of_them = peer.notifications("tick"), peer.notifications()
        await peer.call("announce", ["tick", 3])
        await peer.call("announce", ["tock", 1])
        assert [(await anext(ticks)).params for _ in range(3)] == [[0], [1], [2]]
        assert [(await anext(all_of_them)).method for _ in range(4)] == ["tick", "tick", "tick", "tock"]
        assert heard == [0, 1, 2]
        ticks.close()
        with pytest.raises(StopAsyncIteration):
            await anext(ticks)


async def test_an_iterator_ends_with_the_peer_and_raises_when_the_channel_is_lost(bench: Bench) -> None:
    async with serve(bench.api, urls=[URL]) as serving:
        peer = await connect(URL)
        listening = peer.notifications()
        await serving.close()
        with pytest.raises((Ended, Broken)):
            await anext(listening)
        await peer.close()
    async with joined(bench.api) as peer:
        listening = peer.notifications()
    with pytest.raises(StopAsyncIteration):
        await anext(listening)


async def test_a_batch_has_a_result_or_an_error_for_each_call(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        async with peer.batch() as batch:
            good, bad = batch.call("subtract", [42, 23], result=int), batch.call("nothing")
            batch.notify("whatever", [1])
        assert good.result() == 19
        with pytest.raises(MethodNotFound):
            await bad
        async with peer.batch():
            pass
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  (leaving the block is the point)
            async with peer.batch() as batch:
                never = batch.call("subtract", [1, 1])
                raise ZeroDivisionError
        assert never.cancelled()
        assert not behind(peer)._conversation.outbound


async def test_a_batch_that_times_out_fails_each_of_its_calls(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        async with peer.batch(timeout=0.05) as batch:
            one, two = batch.call("hold"), batch.call("hold")
        for future in (one, two):
            with pytest.raises(CallTimeout):
                future.result()


async def test_lost_channels_fail_every_pending_call_at_once_with_the_reason(bench: Bench) -> None:
    async with serve(bench.api, urls=[URL]) as serving:
        peer = await connect(URL)
        tasks = [asyncio.create_task(peer.call("hold", [n], timeout=None)) for n in range(3)]
        await until(lambda: len(bench.started) == 3)
        await serving.close(0)
        for task in tasks:
            with pytest.raises((RpcError, Ended, Broken)):
                await task
        with pytest.raises((Ended, Broken)):
            await peer.call("subtract", [1, 1])
        await peer.close()
        assert peer.closed


async def test_a_closed_peer_says_so(bench: Bench) -> None:
    async with joined(bench.api) as peer:
        pending = asyncio.create_task(peer.call("hold", timeout=None))
        await bench.begun.wait()
    with pytest.raises(Closed):
        await pending
    with pytest.raises(Closed):
        await peer.call("subtract", [1, 1])
    with pytest.raises(Closed):
        await peer.notify("x")


async def test_closing_drains_what_came_in(bench: Bench) -> None:
    """SIGTERM in short: accepted calls are answered, and new ones refused when older ones are in flight no more."""
    async with serve(bench.api, urls=[URL]) as serving, connect(URL) as peer:
        tasks = [asyncio.create_task(peer.call("hold", [n])) for n in range(50)]
        await until(lambda: len(bench.started) == 50)
        closing = asyncio.create_task(serving.close())
        await asyncio.sleep(0)
        assert await peer.call("subtract", [1, 1]) == 0
        bench.gate.set()
        assert await asyncio.gather(*tasks) == list(range(50))
        await closing


async def test_draining_ends_what_takes_too_long(bench: Bench) -> None:
    async with serve(bench.api, urls=[URL]) as serving, connect(URL) as peer:
        task = asyncio.create_task(peer.call("hold"))
        await bench.begun.wait()
        await serving.close(0.05)
        with pytest.raises(RpcError, match="Draining"):
            await task
        await until(lambda: bench.cancelled == [None])


async def test_outgoing_middleware_sees_calls_and_notifications(bench: Bench) -> None:
    seen: list[Any] = []

    async def counted(call: Call, next: Next) -> Any:
        seen.append((call.method, call.params))
        call.params = [call.params[0] + 1, *call.params[1:]]
        return await next(call)

    async with joined(bench.api, middleware=[counted]) as peer:
        assert await peer.call("subtract", [42, 23]) == 20
        await peer.notify("subtract", [1, 2])
    assert seen == [("subtract", [42, 23]), ("subtract", [1, 2])]


class Calculator(Protocol):
    async def subtract(self, minuend: int, subtrahend: int = 0) -> int: ...

    async def missing(self, *, name: str) -> str: ...


async def test_typed_and_untyped_proxies(bench: Bench) -> None:
    math = Service("math")
    math.include(bench.api, prefix="math.")
    math.include(bench.api)
    async with joined(math) as peer:
        typed = peer.proxy(Calculator)
        assert await typed.subtract(42, 23) == 19
        assert await typed.subtract(42, subtrahend=23) == 19
        with pytest.raises(LocalError, match="subtract"):
            await typed.subtract(1, 2, 3)  # type: ignore[call-arg]
        with pytest.raises(MethodNotFound):
            await typed.missing(name="x")
        with pytest.raises(AttributeError, match="it has missing, subtract"):
            typed.nothing  # type: ignore[attr-defined]  # noqa: B018
        assert await peer.proxy(Calculator, prefix="math.").subtract(3, 1) == 2
        assert await peer.proxy().math.subtract(42, 23) == 19
        assert await peer.proxy().subtract(minuend=42, subtrahend=23) == 19
        with pytest.raises(LocalError, match="by position or by name"):
            await peer.proxy().subtract(1, subtrahend=2)


# -- what comes in, byte by byte ------------------------------------------------------------------


class Raw:
    """The far end of a memory channel, as bytes."""

    def __init__(self, limits: Limits = SERVER) -> None:
        self.near, self.far = pair(limits)
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.over: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.far.open(self)

    def received(self, message: bytes, call: Any = None) -> None:
        self.got.put_nowait(message)

    def refused(self, malformed: Any) -> None: ...
    def resumed(self) -> None: ...
    def finished(self) -> None: ...
    def ended(self, why: Exception) -> None:
        self.over.set_result(why)

    def send(self, text: str) -> None:
        self.far.send(text.encode())

    async def next(self) -> str:
        async with asyncio.timeout(10):
            return (await self.got.get()).decode()


@asynccontextmanager
async def raw(service: Service, **options: Any) -> AsyncIterator[tuple[Raw, ChannelPeer]]:
    async with AsyncExitStack() as stack:
        far = Raw()
        host = Runner(behind(service))
        peer = ChannelPeer(host, **options)
        peer.attach(far.near)
        stack.push_async_callback(host.drain, 0.1)
        stack.push_async_callback(peer.close, 0.1)
        yield far, peer


async def test_a_second_call_with_an_id_in_flight_is_refused_and_the_first_goes_on(bench: Bench) -> None:
    async with raw(bench.api) as (far, _):
        for id in ("7", "7.0"):
            far.send(f'{{"jsonrpc":"2.0","method":"hold","params":["first"],"id":{id}}}')
        far.send('{"jsonrpc":"2.0","method":"hold","params":["text"],"id":"7"}')
        refusal = await far.next()
        assert '"code":-32600' in refusal
        assert '"id":null' in refusal
        assert '"id":7.0' in refusal
        bench.gate.set()
        assert {await far.next(), await far.next()} == {
            '{"jsonrpc":"2.0","result":"first","id":7}',
            '{"jsonrpc":"2.0","result":"text","id":"7"}',
        }


async def test_a_cancelled_call_is_answered_with_the_dialects_code(bench: Bench) -> None:
    async with raw(bench.api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"hold","id":"a"}')
        await bench.begun.wait()
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"a"}}')
        assert await far.next() == '{"jsonrpc":"2.0","error":{"code":-32800,"message":"Request cancelled"},"id":"a"}'
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"unknown"}}')
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":[1]}')
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest"}')
        far.send('{"jsonrpc":"2.0","method":"subtract","params":[3,1],"id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":2,"id":1}'


async def test_batches_answer_in_order_and_a_slow_element_holds_back_only_its_own(bench: Bench) -> None:
    async with raw(bench.api) as (far, _):
        far.send(
            '[{"jsonrpc":"2.0","method":"hold","params":["slow"],"id":1},'
            '{"jsonrpc":"2.0","method":"subtract","params":[3,1],"id":2},1,'
            '{"jsonrpc":"2.0","method":"subtract","params":[3,1]}]'
        )
        far.send('{"jsonrpc":"2.0","method":"subtract","params":[9,1],"id":3}')
        assert await far.next() == '{"jsonrpc":"2.0","result":8,"id":3}'
        bench.gate.set()
        assert await far.next() == (
            '[{"jsonrpc":"2.0","result":"slow","id":1},{"jsonrpc":"2.0","result":2,"id":2},'
            '{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}]'
        )


async def test_a_batch_runs_16_elements_at_once(bench: Bench) -> None:
    async with raw(bench.api) as (far, _):
        calls = ",".join(f'{{"jsonrpc":"2.0","method":"hold","params":[{n}],"id":{n}}}' for n in range(20))
        far.send(f"[{calls}]")
        await until(lambda: len(bench.started) == 16)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(bench.started) == 16
        bench.gate.set()
        await far.next()
        assert sorted(bench.finished) == list(range(20))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ('{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"x"},"id":1}', BadAnswer),
        ('{"jsonrpc":"2.0","error":{"code":"x","message":"x"},"id":1}', BadAnswer),
        ('{"jsonrpc":"2.0","error":5,"id":1}', BadAnswer),
        ('{"result":5,"id":1}', BadAnswer),
        ('{"jsonrpc":"2.0","result":[1e400],"id":1}', BadAnswer),
        ('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}', RpcError),
        ('{"jsonrpc":"2.0","error":{"code":5,"message":"no"},"id":1}', RpcError),
        ('{"jsonrpc":"2.0","error":{"code":5,"message":"no","data":[1e999]},"id":1}', BadAnswer),
    ],
)
async def test_a_reply_that_makes_no_sense_fails_its_call_at_once_and_the_next_works(
    bench: Bench, reply: str, error: type[Exception]
) -> None:
    async with raw(bench.api) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        assert await far.next() == '{"jsonrpc":"2.0","method":"anything","id":1}'
        far.send(reply)
        with pytest.raises(error):
            await call
        call = asyncio.create_task(peer.call("more"))
        await far.next()
        far.send('{"jsonrpc":"2.0","result":"fine","id":2}')
        assert await call == "fine"


@pytest.mark.parametrize("reply", ['{"jsonrpc":"2.0","result":5,"id":true}', '{"jsonrpc":"2.0","result":1}'])
async def test_an_answer_whose_id_is_none_belongs_to_no_call(bench: Bench, reply: str) -> None:
    async with raw(bench.api) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        await far.next()
        far.send(reply)
        far.send('{"jsonrpc":"2.0","result":"fine","id":1}')
        assert await call == "fine"


async def test_late_foreign_and_double_answers_are_dropped(bench: Bench) -> None:
    async with raw(bench.api) as (far, peer):
        call = asyncio.create_task(peer.call("anything"))
        await far.next()
        for id in ("99", '"1"', "1.5"):
            far.send(f'{{"jsonrpc":"2.0","result":"foreign","id":{id}}}')
        far.send('{"jsonrpc":"2.0","result":"mine","id":1}')
        far.send('{"jsonrpc":"2.0","result":"again","id":1}')
        assert await call == "mine"
        far.send('{"jsonrpc":"2.0","method":"subtract","params":[3,1],"id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":2,"id":1}'


async def test_responses_inside_a_batch_settle_our_calls(bench: Bench) -> None:
    async with raw(bench.api) as (far, peer):
        calls = [asyncio.create_task(peer.call("one")), asyncio.create_task(peer.call("two"))]
        await far.next()
        await far.next()
        far.send(
            '[{"jsonrpc":"2.0","result":2,"id":2},{"jsonrpc":"2.0","method":"subtract","params":[3,1],"id":1},'
            '{"jsonrpc":"2.0","error":{"code":1,"message":"no"},"id":1}]'
        )
        assert await far.next() == '[{"jsonrpc":"2.0","result":2,"id":1}]'
        with pytest.raises(RpcError, match="no"):
            await calls[0]
        assert await calls[1] == 2


async def test_an_error_without_id_fails_the_whole_batch_it_answers(bench: Bench) -> None:
    async with raw(bench.api) as (far, peer):

        async def send() -> list[BatchResult[Any]]:
            async with peer.batch() as batch:
                return [batch.call("a"), batch.call("b")]

        sending = asyncio.create_task(send())
        await far.next()
        far.send('{"jsonrpc":"2.0","error":{"code":-32003,"message":"Too large"},"id":null}')
        for future in await sending:
            with pytest.raises(RpcError, match="Too large"):
                future.result()


async def test_version_1_peers_by_choice() -> None:
    api = Service("old", accept_v1=True)
    heard: list[int] = []

    @api.method(inline=True)
    def add(a: int, b: int = 0) -> int:
        heard.append(a)
        return a + b

    async with raw(api, v1=True) as (far, peer):
        far.send('{"method":"add","params":[1,2],"id":1}')
        assert await far.next() == '{"result":3,"error":null,"id":1}'
        far.send('{"method":"add","params":[7],"id":null}')
        far.send('{"method":"nothing","params":[],"id":2}')
        assert await far.next() == '{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":2}'
        assert heard == [1, 7]
        call = asyncio.create_task(peer.call("getblock", ["x"]))
        assert await far.next() == '{"method":"getblock","params":["x"],"id":1}'
        far.send('{"result":null,"error":{"code":-5,"message":"Block not found"},"id":1}')
        with pytest.raises(RpcError, match="Block not found"):
            await call
        with pytest.raises(LocalError, match="positional"):
            await peer.call("x", {"a": 1})


async def test_string_codes_by_choice() -> None:
    async with joined_raw(string_codes=True) as (far, peer):
        call = asyncio.create_task(peer.call("tool"))
        await far.next()
        far.send('{"jsonrpc":"2.0","error":{"code":"TOOL_NOT_FOUND","message":"no tool"},"id":1}')
        with pytest.raises(RpcError) as caught:
            await call
        assert (caught.value.code, caught.value.name) == (-32602, "TOOL_NOT_FOUND")


@asynccontextmanager
async def joined_raw(**lenient: Any) -> AsyncIterator[tuple[Raw, ChannelPeer]]:
    async with raw(Service("lenient", **lenient)) as pair:
        yield pair


async def test_a_peer_that_floods_and_reads_nothing_is_broken_with_a_reason() -> None:
    bench = Bench(Limits(calls_per_channel=1, waiting_per_channel=0))
    far = Raw()
    far.near.writable = False  # what the wire says while its far end does not read
    host = Runner(behind(bench.api))
    peer = ChannelPeer(host)
    peer.attach(far.near)
    for id in range(10_002):
        peer.received(b'{"jsonrpc":"2.0","method":"hold","id":%d}' % id)
    assert "reads none" in str(await far.over) or "reads none" in str(peer._why)
    await peer.close(0)
    await host.drain(0)


async def test_a_half_closed_far_end_still_gets_what_is_owed(bench: Bench) -> None:
    async with raw(bench.api) as (far, peer):
        for id in range(3):
            far.send(f'{{"jsonrpc":"2.0","method":"hold","params":[{id}],"id":{id}}}')
        await until(lambda: len(bench.started) == 3)
        mine = asyncio.create_task(peer.call("too late"))
        await far.next()
        behind(peer).finished()
        with pytest.raises(Ended):
            await mine
        bench.gate.set()
        assert len({await far.next() for _ in range(3)}) == 3
        assert isinstance(await far.over, Exception)


async def test_reconnecting_tells_its_states_and_repeats_only_what_is_named_idempotent(bench: Bench) -> None:
    states: list[str] = []
    url = "memory:reconnecting"
    serving = serve(bench.api, urls=[url])
    await serving.__aenter__()
    peer = await connect(
        url, reconnect=True, idempotent=["hold"], on_state=lambda state, why: states.append(state), timeout=10
    )
    again = asyncio.create_task(peer.call("hold", ["again"]))
    lost = asyncio.create_task(peer.call("steps", [10**9]))
    await until(lambda: bench.started == ["again"])
    for one in tuple(next(iter(serving.served.values())).runner.peers):  # type: ignore[attr-defined]
        one._channel.abort(Broken("cut"))
    with pytest.raises((Broken, Ended)):
        await lost
    await until(lambda: bench.started == ["again", "again"])
    bench.gate.set()
    assert await again == "again"
    assert await peer.call("subtract", [3, 1]) == 2
    assert states == ["connected", "lost", "connected"]
    await peer.close()
    assert states[-1] == "closed"
    await serving.close()


async def test_a_call_made_while_there_is_no_channel_waits_for_the_next(bench: Bench) -> None:
    url = "memory:waiting"
    first = serve(bench.api, urls=[url])
    await first.__aenter__()
    peer = await connect(url, reconnect=True, timeout=10)
    await first.close()
    await until(lambda: behind(peer)._channel is None)
    early = asyncio.create_task(peer.call("subtract", [5, 1]))
    with pytest.raises(CallTimeout, match="not connected"):
        await peer.call("subtract", [5, 1], timeout=0.05)
    async with serve(bench.api, urls=[url]):
        assert await early == 4
        await peer.close()


async def test_nothing_leaks(bench: Bench) -> None:
    bench.gate.set()
    before = len(asyncio.all_tasks())
    async with serve(bench.api, urls=[URL]) as serving:
        host: Any = next(iter(serving.served.values())).runner  # type: ignore[attr-defined]
        for _ in range(20):
            async with connect(URL) as peer:
                await asyncio.gather(*(peer.call("hold", [n]) for n in range(20)))
                with pytest.raises(CallTimeout):
                    await peer.call("back", ["missing", []], timeout=0) if False else await peer.call(
                        "block", timeout=0.01
                    )
        bench.thread_gate.set()
        await until(lambda: not host.runs and not host.call_limit.in_flight)
        assert not host.peers
    await until(lambda: len(asyncio.all_tasks()) == before)


async def test_options_are_one_object() -> None:
    assert Options().limits == Limits()
    assert PLAIN.cancel is None


async def test_closing_inside_a_handler_answers_first(bench: Bench) -> None:
    """LSP's `exit`: a handler that closes its own peer must not wait for itself."""

    @bench.api.method
    async def leave(ctx: Context) -> str:
        assert ctx.peer is not None
        await ctx.peer.close()
        return "bye"

    async with joined(bench.api) as peer:
        assert await peer.call("leave") == "bye"
        await until(lambda: behind(peer)._channel is None)


async def test_a_batch_taken_before_draining_is_answered_whole(bench: Bench) -> None:
    async with raw(bench.api) as (far, peer):
        calls = ",".join(f'{{"jsonrpc":"2.0","method":"hold","params":[{n}],"id":{n}}}' for n in range(40))
        far.send(f"[{calls}]")
        await until(lambda: len(bench.started) == 16)
        behind(peer).drain()
        bench.gate.set()
        assert "error" not in await far.next()
        far.send(f"[{calls}]")
        assert (await far.next()).count("-32001") == 40


async def test_a_closed_peer_gives_its_threads_back(bench: Bench) -> None:
    me = Service("me")
    me.method("where")(lambda: threading.get_ident())
    async with joined(bench.api, service=me) as peer:
        assert await peer.call("back", ["where", []]) != threading.get_ident()
        pool: Any = behind(peer)._runner.pool
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(print, ())


class Posting:
    """A channel whose far end only answers, by hand."""

    duplex = False
    writable = True

    def __init__(self) -> None:
        self.caller = Caller()
        self.sent: list[tuple[bytes, Outgoing | None]] = []
        self.receiver: Receiver

    def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        self.sent.append((message, call))

    async def flush(self) -> None:
        pass

    async def close(self) -> None:
        self.receiver.ended(Closed("closed"))

    def abort(self, why: ChannelError) -> None:
        self.receiver.ended(why)


@pytest.mark.parametrize(
    "reply",
    [
        b'{"jsonrpc":"2.0","resu',
        b'{"jsonrpc":"2.0","method":"subtract","params":[3,1],"id":5}',
        b'{"jsonrpc":"2.0","method":"hold","params":[1],"id":5}',
        b'{"jsonrpc":"2.0","method":"nothing","id":5}',
        b"[1]",
    ],
)
async def test_a_far_end_that_only_answers_is_not_answered(bench: Bench, reply: bytes) -> None:
    bench.gate.set()
    posting = Posting()
    async with ChannelPeer(Runner(behind(bench.api))) as peer:
        peer.attach(posting)
        posting.receiver.received(reply)
        await asyncio.wait([peer.idle()])
    assert posting.sent == []


@pytest.mark.parametrize("traced", [False, True])
async def test_a_wire_may_ask_how_long_an_answer_is_waited_for(bench: Bench, traced: bool) -> None:
    posting = Posting()
    if traced:
        bench.api.observe(Trace(lambda event: None))
    async with ChannelPeer(Runner(behind(bench.api))) as peer:
        peer.attach(posting)
        calls = [
            asyncio.create_task(peer.call("x", timeout=timeout, total=total))
            for timeout, total in [(20, None), (20, 10), (None, 10), (None, None)]
        ]
        await until(lambda: len(posting.sent) == 4)
        sent = [call for _, call in posting.sent if call is not None]
        assert [one.left and round(one.left) for one in sent] == [20, 10, 10, None]
        assert [one.settled for one in sent] == [False] * 4
        posting.receiver.received(b'{"jsonrpc":"2.0","result":1,"id":1}')
        assert [one.settled for one in sent] == [True, False, False, False]
        assert await calls[0] == 1

        async def many() -> None:
            async with peer.batch(timeout=30) as batch:
                batch.call("x")
                batch.call("y")

        calls.append(asyncio.create_task(many()))
        await until(lambda: len(posting.sent) == 5)
        both = posting.sent[-1][1]
        assert both is not None
        assert both.left is not None
        assert round(both.left) == 30
        posting.receiver.received(b'{"jsonrpc":"2.0","result":1,"id":5}')
        assert not both.settled
        posting.receiver.received(b'{"jsonrpc":"2.0","result":1,"id":6}')
        assert both.settled
        await calls[4]
    ends = await asyncio.gather(*calls[1:4], return_exceptions=True)
    assert [type(end) for end in ends] == [Closed] * 3
