"""Calls on their way out: coming back after a loss, batches, iterators of notifications; both ends at once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec import UNSET, Struct
from msgspec import Raw as Text

from dragoman import (
    Broken,
    ChannelError,
    Closed,
    Context,
    Ended,
    Limits,
    LocalError,
    RpcError,
    Service,
    connect,
    serve,
)
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.outbound import BatchHandle, OutboundCall, decoder_of
from tests.behind import behind

from .test_dispatch import host_of, served
from .test_peer import Bench, joined, raw, until

# -- reconnection ---------------------------------------------------------------------------------


async def test_closing_while_it_redials_is_prompt_says_closed_and_ends_iterators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.connecting.PAUSES", (60.0, 60.0))
    bench = Bench()
    states: list[str] = []
    serving = serve(bench.api, urls="memory:redial")
    await serving.__aenter__()
    peer = await connect("memory:redial", reconnect=True, on_state=lambda state, why: states.append(state))
    listening = peer.notifications()
    reading = asyncio.create_task(anext(listening, "over"))
    await serving.close()
    await until(lambda: behind(peer)._channel is None)
    waiting = asyncio.create_task(peer.call("subtract", [1, 1]))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await peer.close()
        assert await reading == "over"
        with pytest.raises(Closed):
            await waiting
    assert states == ["connected", "lost", "closed"]
    assert peer.closed
    assert peer not in behind(peer)._runner.peers


async def test_a_server_that_restarts_in_good_order_is_found_again_over_tcp() -> None:
    bench = Bench()
    states: list[str] = []
    serving = serve(bench.api, urls="tcp://127.0.0.1:0")
    await serving.__aenter__()
    url = serving.urls[0]
    peer = await connect(url, reconnect=True, on_state=lambda state, why: states.append(state))
    assert await peer.call("subtract", [3, 1]) == 2
    await serving.close()
    await until(lambda: states[-1] != "connected")
    assert states == ["connected", "lost"]
    async with serve(bench.api, urls=url):
        assert await peer.call("subtract", [3, 1]) == 2
        await peer.close()


async def test_a_handler_that_asks_a_half_closed_far_end_learns_it_at_once() -> None:
    bench = Bench()
    errors: list[Exception] = []
    event = asyncio.Event()

    @bench.api.method
    async def asking(ctx: Context) -> str:
        await event.wait()
        try:
            await ctx.call("anything")
        except ChannelError as error:
            errors.append(error)
        return "asked"

    async with raw(bench.api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"asking","id":1}')
        await until(lambda: bool(behind(peer)._conversation.inbound))
        behind(peer).finished()
        event.set()
        assert await far.next() == '{"jsonrpc":"2.0","result":"asked","id":1}'
        assert isinstance(errors[0], Ended)


async def test_a_redial_that_fails_in_an_unforeseen_way_gives_up_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(target: Any, options: Any) -> Any:
        raise RuntimeError("no such thing")

    bench = Bench()
    states: list[tuple[str, Any]] = []
    serving = serve(bench.api, urls="memory:unforeseen")
    await serving.__aenter__()
    peer = await connect("memory:unforeseen", reconnect=True, on_state=lambda *state: states.append(state))
    monkeypatch.setattr("dragoman.connecting.dial", broken)
    await serving.close()
    async with asyncio.timeout(30):
        with pytest.raises(Broken, match="no such thing"):
            await peer.call("subtract", [1, 1], timeout=None)
    assert states[-1][0] == "closed"
    await peer.close()


# -- what goes out --------------------------------------------------------------------------------


async def test_declared_errors_whose_types_cannot_be_found_are_refused_immediately() -> None:
    class Local(Struct):
        item: str

    class Hidden(RpcError):
        code = 1001
        message = "Hidden"
        data: Local

    bench = Bench()
    with pytest.raises(LocalError, match=r"Hidden.*Local"):
        async with joined(bench.api, errors=[Hidden]):
            pass


async def test_a_batch_whose_channel_is_lost_while_it_is_written_is_not_sent() -> None:
    bench = Bench()
    async with serve(bench.api, urls="memory:writing") as serving:
        peer = await connect("memory:writing", reconnect=True, idempotent=["hold"], timeout=10)
        async with peer.batch() as batch:
            future = batch.call("hold", ["once"])
            next(iter(host_of(serving).peers))._channel.abort(Broken("cut"))
            await until(lambda: behind(peer)._channel is None)
            await until(lambda: behind(peer)._channel is not None)
            bench.gate.set()
        assert await future == "once"
        assert bench.started == ["once"]
        await peer.close()


@pytest.mark.parametrize("passing", [False, True], ids=["plain", "with middleware"])
@pytest.mark.parametrize("looked", [None, 0, 3], ids=["at none", "at the first", "at another"])
async def test_a_batch_whose_wire_fails_is_one_thing_to_look_at(looked: int | None, passing: bool) -> None:
    """A program that looks at any of the results has seen it; one that looks at none hears of it once."""
    loop = asyncio.get_running_loop()
    told: list[str] = []
    loop.set_exception_handler(lambda loop, about: told.append(about["message"]))

    async def pass_on(call: Call, next: Next) -> Any:
        return await next(call)

    async def run() -> None:
        async with connect("http://127.0.0.1:1", middleware=[pass_on] if passing else []) as peer:
            async with peer.batch() as batch:
                results = [batch.call("subtract", [number, 1]) for number in range(5)]
            if looked is not None:
                with pytest.raises(ChannelError):
                    results[looked].result()

    try:
        await run()
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert told == (["Future exception was never retrieved"] if looked is None else [])


async def test_a_batch_above_the_limit_stays_here() -> None:
    bench = Bench()
    async with joined(bench.api, limits=Limits(response_size=1000)) as peer:
        with pytest.raises(LocalError, match="response_size allows 1000"):
            async with peer.batch() as batch:
                futures = [batch.call("hold", ["x" * 400]) for _ in range(3)]
        assert all(future.done() for future in futures)
        assert not behind(peer)._conversation.outbound
        assert bench.started == []


async def test_outgoing_middleware_applies_inside_batches_too() -> None:
    seen: list[Any] = []

    async def signed(call: Call, next: Next) -> Any:
        await asyncio.sleep(0)  # it fetches a token, say
        seen.append(call.method)
        call.params = [*call.params, 1]
        if call.method == "forbidden":
            raise LocalError("not from here")
        answer = await next(call)
        return answer if answer is None else answer * 10

    bench = Bench()
    async with joined(bench.api, middleware=[signed]) as peer:
        async with peer.batch() as batch:
            one = batch.call("subtract", [42])
            forbidden = batch.call("forbidden", [1])
            batch.notify("subtract", [5])
            two = batch.call("subtract", [3], result=int)
        assert (one.result(), two.result()) == (410, 20)
        with pytest.raises(LocalError, match="not from here"):
            forbidden.result()
        assert sorted(seen) == ["forbidden", "subtract", "subtract", "subtract"]
        assert not behind(peer)._conversation.outbound


async def test_an_iterator_that_was_dropped_keeps_nothing() -> None:
    bench = Bench()
    async with joined(bench.api) as peer:
        for _ in range(10):
            asked = asyncio.create_task(peer.call("announce", ["tick", 1]))
            async for _note in peer.notifications("tick"):
                break
            await asked
        gc.collect()
        assert len(tuple(behind(peer)._listeners)) == 0


async def test_an_iterator_holds_no_more_bytes_than_it_may() -> None:
    async with raw(Service("api")) as (_, peer):
        listening = peer.notifications()
        text = b'{"jsonrpc":"2.0","method":"tick","params":["%b"]}' % (b"x" * 1_000_000)
        for _ in range(200):
            behind(peer).received(text)
        for _ in range(67):  # 64 MiB of them
            await anext(listening)
        with pytest.raises(LocalError, match="133 notifications were lost"):
            await anext(listening)


async def test_an_iterator_taken_after_the_loss_raises_it() -> None:
    async with raw(Service("api")) as (far, peer):
        far.near.abort(Broken("cut"))
        await until(lambda: behind(peer)._channel is None)
        with pytest.raises(Broken, match="cut"):
            await anext(peer.notifications())


# -- params ---------------------------------------------------------------------------------------


class Place(Struct):
    x: int


ALIKE = [
    (Text(b"[1]"), "[1]"),
    (Text(b'{"x":1}'), '{"x":1}'),
    (Place(1), '{"x":1}'),
    ({"x": 1}, '{"x":1}'),
    ((1,), "[1]"),
]


@pytest.mark.parametrize(("params", "text"), ALIKE)
async def test_params_are_an_array_or_an_object_however_they_are_given(params: Any, text: str) -> None:
    """ "If present, parameters for the rpc call MUST be provided as a Structured value" (JSON-RPC 2.0, 4.2)."""
    async with served(Bench().api) as (far, peer, _):
        await peer.notify("m", params)
        assert await far.next() == f'{{"jsonrpc":"2.0","method":"m","params":{text}}}'


@pytest.mark.parametrize("params", [Text(b""), Text(b"1"), Text(b'"["'), Text(b"null"), 5, "[", None])
async def test_params_that_are_neither_are_not_sent(params: Any) -> None:
    async with served(Bench().api) as (far, peer, _):
        with pytest.raises(LocalError, match="m: params are a list or a dict"):
            await peer.notify("m", params)
        assert far.got.empty()


@pytest.mark.parametrize(("params", "text"), [(UNSET, "[]"), ([1], "[1]"), ((1,), "[1]")])
async def test_a_call_of_version_1_always_has_params(params: Any, text: str) -> None:
    """1.0, 1.1: a request has `method`, `params`, "An array of objects", and `id`; null for a notification."""
    async with raw(Bench().api, v1=True) as (far, peer):
        await peer.notify("m", params)
        assert await far.next() == f'{{"method":"m","params":{text},"id":null}}'


async def test_a_batch_with_middleware_is_one_message() -> None:
    async def passing(call: Call, next: Next) -> Any:
        return await next(call)

    async with raw(Bench().api, middleware=[passing]) as (far, peer):
        async with peer.batch() as batch:
            batch.notify("a")
            batch.notify("b")
        assert await far.next() == '[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]'
        assert far.got.empty()


async def test_a_fault_of_on_progress_is_logged_and_the_call_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def breaks(value: Any) -> None:
        told.append(value)
        raise RuntimeError("a fault of the listener")

    async with joined(Bench().api) as peer:
        assert await peer.call("steps", [2], on_progress=breaks) == 2
    assert told == [{"step": 0}, {"step": 1}]
    assert [one.getMessage() for one in caplog.records if one.exc_info] == ["on_progress of 'steps' failed"]


async def test_a_long_call_is_not_a_deep_one() -> None:
    api = Service("api")
    api.method("length")(len_of)
    limits = SERVER.but(depth=8)
    async with joined(api, limits=limits) as peer:
        assert await peer.call("length", [["x"] * 100]) == 100
        with pytest.raises(LocalError, match="depth allows 8 levels"):
            await peer.call("length", [[[[[[[[["x"]]]]]]]]])


def len_of(values: list[Any]) -> int:
    return len(values)


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("ends", ["result", "error", "cancelled"])
async def test_a_call_and_its_batch_are_settled_by_their_first_end(ends: str, awaited: bool) -> None:
    async with raw(Service("api")) as (_, peer):
        call = OutboundCall(peer._conversation, peer._clock, "x", decoder_of(Any), 10.0)
        peer._register(call, UNSET)
        batch = BatchHandle([call])
        assert (call.settled, batch.settled, batch.left) == (False, False, 10.0)
        if awaited or ends == "cancelled":
            assert not call.future.done()
        if ends == "result":
            call.settle(Text(b"1"))
        elif ends == "error":
            call.fail(Broken("cut"))
        else:
            call.future.cancel()
        assert (call.settled, batch.settled) == (True, True)
        call.fail(Closed("too late"))
        call.resume()
        assert behind(peer)._clock.left(call) is None
        if ends == "cancelled":
            assert call.future.cancelled()
        elif ends == "error":
            assert isinstance(call.future.exception(), Broken)
        else:
            assert call.future.result() == 1
