"""What runs a call: places given back, a wire that is full, cancels and progress, closing and losing."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from dragoman import Broken, Closed, Context, Limits, RpcError, Service, connect, serve
from dragoman.channel import Caller, ChannelError, Receiver
from dragoman.jsonrpc.codec import read
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.runner import Runner, _Plain
from tests.behind import behind

from .test_peer import Bench, raw, until

ECHO = b'{"jsonrpc":"2.0","method":"echo","params":["%b"],"id":1}'


def echoing(limits: Limits) -> Service:
    api = Service("echoing", limits=limits)

    @api.method
    async def echo(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @api.method
    async def wait() -> None:
        await asyncio.Event().wait()

    return api


# -- the host ---------------------------------------------------------------------------------------


async def test_answering_on_a_loop_keeps_the_limit_of_a_messages_size() -> None:
    size = len(ECHO % b"x" * 1)
    api = echoing(Limits(message_size=size))
    assert b'"result":"x"' in (await api.answer_async(ECHO % b"x") or b"")
    answer = await api.answer_async(ECHO % b"xx")
    assert b'"limit":"message_size"' in (answer or b"")


async def test_an_answer_that_is_cancelled_says_so_and_stops_the_handler() -> None:
    bench = Bench()
    answering = asyncio.create_task(bench.api.answer_async(b'{"jsonrpc":"2.0","method":"hold","params":["a"],"id":1}'))
    await bench.begun.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    await until(lambda: bench.cancelled == ["a"])


# -- places -----------------------------------------------------------------------------------------


async def test_notifications_give_their_places_back() -> None:
    api = Service("api", limits=Limits(calls_per_channel=4, waiting_per_channel=0))
    done: list[int] = []

    @api.method
    async def noted(n: int) -> int:
        await asyncio.sleep(0)
        done.append(n)
        return n

    async with raw(api) as (far, peer):
        for n in range(10):
            far.send(f'{{"jsonrpc":"2.0","method":"noted","params":[{n}]}}')
            await until(lambda n=n: done[-1:] == [n])  # type: ignore[misc]
        far.send('{"jsonrpc":"2.0","method":"noted","params":[10],"id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":10,"id":1}'
        await until(lambda: behind(peer)._conversation.idle)


async def test_a_notification_that_is_turned_away_does_not_end_the_channel() -> None:
    api = Service("api")
    api.method("ping")(lambda: "pong")

    def router(message: Any, caller: Any, peer: Any) -> Any:
        if message.method == "refused":
            raise RpcError("not from here", code=7)
        return behind(api)._find(message.method), message

    behind(api)._router = router
    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"refused"}')
        far.send('{"jsonrpc":"2.0","method":"ping","id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":"pong","id":1}'


# -- a wire that is full ----------------------------------------------------------------------------


class Full:
    """A channel whose far end reads when it is told to."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.caller = channel.caller
        self.duplex = True
        self.writable = False
        self.receiver: Receiver | None = None

    def open(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._channel.open(receiver)

    def send(self, message: bytes, call: Any = None) -> None:
        self._channel.send(message)

    async def flush(self) -> None:
        await self._channel.flush()

    async def close(self) -> None:
        await self._channel.close()

    def abort(self, why: ChannelError) -> None:
        self._channel.abort(why)

    def read(self) -> None:
        """The far end reads again."""
        self.writable = True
        assert self.receiver is not None
        self.receiver.resumed()


async def test_notifications_do_not_start_while_the_wire_is_full() -> None:
    api = Service("api")
    ran: list[int] = []

    @api.method
    async def noted(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    async with raw(api) as (far, peer):
        full = Full(behind(peer)._channel)
        behind(peer)._channel = full
        full.receiver = peer
        far.send('{"jsonrpc":"2.0","method":"noted","params":[1]}')
        await until(lambda: bool(behind(peer)._conversation.waiting))
        assert ran == []
        assert not behind(peer)._conversation.idle  # a waiting notification is not forgotten
        full.read()
        await until(lambda: ran == [1])


async def test_progress_to_a_slow_reader_is_dropped_and_counted() -> None:
    api = Service("api")
    told: list[bool] = []

    @api.method
    async def telling(ctx: Context) -> str:
        told.append(await ctx.progress(1))
        return "over"

    async with raw(api) as (far, peer):
        channel = behind(peer)._channel
        assert channel is not None
        begun = asyncio.Event()

        @api.method
        async def slow(ctx: Context) -> str:
            behind(peer)._channel = Full(channel)
            told.append(await ctx.progress(1))
            begun.set()
            return "over"

        far.send('{"jsonrpc":"2.0","method":"telling","id":1}')
        assert "$/progress" in await far.next()
        assert "over" in await far.next()
        assert behind(peer).dropped == 0
        far.send('{"jsonrpc":"2.0","method":"slow","id":2}')
        assert "over" in await far.next()
        assert (told, behind(peer).dropped) == ([True, False], 1)


# -- what an iterator of notifications does not get ---------------------------------------------------


async def test_a_cancel_and_progress_of_calls_reach_no_iterator() -> None:
    bench = Bench()
    async with raw(bench.api) as (far, peer):
        heard = peer.notifications()
        far.send('{"jsonrpc":"2.0","method":"hold","id":1}')
        await bench.begun.wait()
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
        assert "-32800" in await far.next()
        steps: list[Any] = []
        call = asyncio.create_task(peer.call("anything", on_progress=steps.append))
        assert '"id":1' in await far.next()
        far.send('{"jsonrpc":"2.0","method":"$/progress","params":{"token":1,"value":"half"}}')
        far.send('{"jsonrpc":"2.0","method":"$/progress","params":{"token":9,"value":"of none"}}')
        far.send('{"jsonrpc":"2.0","result":true,"id":1}')
        assert await call is True
        assert steps == ["half"]
        only = await asyncio.wait_for(anext(heard), 10)
        assert (only.method, only.params) == ("$/progress", {"token": 9, "value": "of none"})


# -- calls ------------------------------------------------------------------------------------------


async def test_a_cancelled_async_handler_sees_it_in_its_context() -> None:
    api = Service("api")
    seen: list[bool] = []
    begun = asyncio.Event()

    @api.method
    async def hold(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"hold","id":1}')
        await begun.wait()
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
        await far.next()
        await until(lambda: seen == [True])


async def test_cancelling_wakes_every_question_of_a_thread() -> None:
    """A call's first question may still be open when it asks a second, from a thread of its own."""
    import threading

    api = Service("api")
    ended: list[str] = []

    @api.method
    def asking(ctx: Context) -> None:
        def ask(name: str) -> None:
            try:
                ctx.call(name)
            except BaseException as error:
                ended.append(f"{name} {type(error).__name__}")

        threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async with raw(api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"asking","id":1}')
        asked = {(await far.next()).split('"method":"')[1][:3] for _ in range(2)}
        assert asked == {"one", "two"}
        far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
        await until(lambda: sorted(ended) == ["one CancelledError", "two CancelledError"])
        await until(lambda: not behind(peer)._runner.runs)


async def test_more_progress_from_a_thread_than_may_be_on_its_way_is_dropped() -> None:
    import dragoman.rpc.inbound as run

    api = Service("api")
    told: list[bool] = []

    @api.method
    def flooding(ctx: Context) -> int:
        assert isinstance(ctx.peer, ChannelPeer)
        ctx.peer._loop.call_soon_threadsafe(hold.wait, 10)  # the loop does nothing meanwhile
        told.extend(bool(ctx.progress(n)) for n in range(run.STEPS + 5))
        hold.set()
        return len(told)

    import threading

    hold = threading.Event()
    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"flooding","id":1}')
        got = [await far.next()]
        while '"result"' not in got[-1]:
            got.append(await far.next())
    assert told.count(True) == len(got) - 1
    assert run.STEPS <= told.count(True) < len(told)
    assert told[-1] is False


@pytest.mark.parametrize("name", ["loop", "thread"])
async def test_a_wire_without_a_way_back_says_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    api = Service("api")

    @api.method
    async def loop(ctx: Context) -> None:
        await ctx.notify("anything")

    @api.method
    def thread(ctx: Context) -> None:
        ctx.notify("anything")

    with caplog.at_level(logging.ERROR):
        answer = await api.answer_async(b'{"jsonrpc":"2.0","method":"%b","id":1}' % name.encode())
    error = json.loads(answer or b"")["error"]
    assert error == {
        "code": -32600,
        "message": "Invalid Request: this call notifies its caller, and this wire has no way for it",
    }
    assert f"{name}: this wire carries no notifications to the caller" in caplog.text


# -- closing and losing -----------------------------------------------------------------------------


async def test_closing_does_not_wait_longer_than_it_was_told() -> None:
    api = echoing(Limits())
    async with raw(api) as (far, peer):
        far.send('{"jsonrpc":"2.0","method":"wait","id":1}')
        await until(lambda: bool(behind(peer)._runner.runs))
        async with asyncio.timeout(10):
            await peer.close(0.05)
        answer = await far.next()
        assert '"code":-32001' in answer
        assert "Draining: the peer closed before the call was done" in answer


class Falling(Full):
    """A channel that breaks when something is sent."""

    def send(self, message: bytes, call: Any = None) -> None:
        self.abort(Broken("cut while sending"))
        raise Broken("cut while sending")


async def test_a_channel_that_is_lost_while_calls_are_sent_anew_is_followed_by_the_next() -> None:
    bench = Bench()
    states: list[str] = []
    url = "memory:lost-again"
    async with serve(bench.api, urls=[url]) as serving:
        peer = await connect(url, reconnect=True, idempotent=["hold"], timeout=10)

        def on_state(state: str, why: Any) -> None:
            states.append(state)
            if states == ["lost", "connected"]:
                falling = Falling(behind(peer)._channel)
                falling.writable = True
                behind(peer)._channel = falling
            raise ValueError("an on_state that raises does no harm")

        call = asyncio.create_task(peer.call("hold", ["again"]))
        await until(lambda: bench.started == ["again"])
        behind(peer).on_state = on_state
        for one in tuple(next(iter(serving.served.values())).runner.peers):  # type: ignore[attr-defined]
            one._channel.abort(Broken("cut"))
        await until(lambda: states == ["lost", "connected", "lost", "connected"])
        bench.gate.set()
        async with asyncio.timeout(10):
            assert await call == "again"
        await peer.close()
        assert states[-1] == "closed"


class Cut:
    """A channel that is lost as soon as it is written to, or carries what it is given."""

    caller = Caller()
    duplex = writable = True

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.sent: list[bytes] = []
        self.receiver: Any = None

    def open(self, receiver: Any) -> None:
        self.receiver = receiver

    def send(self, message: bytes, call: Any = None) -> None:
        self.sent.append(message)
        if not self.whole:
            self.receiver.ended(Broken("cut"))
            raise Broken("cut while sending")

    async def flush(self) -> None:
        """Nothing waits."""

    async def close(self) -> None:
        self.receiver.ended(Closed("closed"))

    def abort(self, why: Any) -> None:
        self.receiver.ended(why)


async def test_calls_that_are_sent_anew_on_a_channel_that_is_lost_again_wait_for_the_next() -> None:
    peer = ChannelPeer(Runner(behind(Service("api"))))
    peer.idempotent = frozenset({"again"})
    peer._on_lost = lambda why: True
    first, second, third = Cut(True), Cut(False), Cut(True)
    peer.attach(first)
    calls = [asyncio.ensure_future(peer.call("again", [n])) for n in range(3)]
    await until(lambda: len(first.sent) == 3)
    first.abort(Broken("cut"))
    peer.attach(second)  # raises nothing
    assert second.sent == first.sent[:1]
    assert peer._channel is None
    assert not any(call.done() for call in calls)
    peer.attach(third)
    assert third.sent == first.sent
    for n in range(3):
        third.receiver.received(b'{"jsonrpc":"2.0","result":%d,"id":%d}' % (n, n + 1))
    assert await asyncio.gather(*calls) == [0, 1, 2]
    await peer.close()


async def test_calls_of_a_closed_peer_say_that_it_was_closed() -> None:
    async with raw(Service("api")) as (far, peer):
        call: Awaitable[Any] = asyncio.ensure_future(peer.call("anything"))
        await far.next()
        await peer.close()
        with pytest.raises(Closed, match="the peer was closed"):
            await call


async def test_a_host_of_one_loop_may_be_used_on_another() -> None:
    host = Runner(behind(echoing(Limits())))
    assert b'"x"' in (await host.answer(ECHO % b"x") or b"")
    host.release()


async def test_the_threads_of_a_loop_are_the_same_from_call_to_call() -> None:
    api = Service("api", limits=Limits(threads=1))
    api.method("here")(lambda: threading.get_ident())
    host = Runner(behind(api))
    answers = {await host.answer(b'{"jsonrpc":"2.0","method":"here","id":1}') for _ in range(4)}
    assert len(answers) == 1
    host.release()


async def test_a_call_of_a_batch_that_is_turned_away_leaves_the_others() -> None:
    """The whole of an exchange's batch is one answer, whatever became of its calls."""
    bench = Bench(SERVER.but(calls=2))
    host = Runner(behind(bench.api))
    hold = '{"jsonrpc":"2.0","method":"hold","params":["%s"],"id":%s}'
    answering = asyncio.create_task(host.answer(f"[{','.join(hold % (n, n) for n in range(3))}]".encode()))
    await until(lambda: bench.started == ["0", "1"])
    assert not answering.done()
    bench.gate.set()
    first, second, third = json.loads(await answering or b"")
    assert sorted(one["id"] for one in (first, second, third)) == [0, 1, 2]
    refused = [one for one in (first, second, third) if "error" in one]
    assert [(one["id"], one["error"]["data"]["limit"]) for one in refused] == [(2, "calls")]
    await host.drain(1)


@pytest.mark.parametrize("decoded", [False, True])
async def test_a_fault_of_ours_is_the_answer_to_an_exchange(decoded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise ValueError("a fault")

    runner = Runner(behind(echoing(SERVER)))
    runner.bind()
    x = _Plain(ECHO % b"x", asyncio.get_running_loop().create_future(), Caller())
    if decoded:
        message = read(x.request, SERVER, runner.service._lenient)
        monkeypatch.setattr(runner, "call_limit", None)
        runner.take(x, message)
    else:
        monkeypatch.setattr("dragoman.rpc.runner.read", fails)
        runner.exchange(x)
    answer = json.loads(x.future.result() or b"")
    assert (answer["error"]["code"], answer["id"]) == (-32603, 1)


async def test_a_last_call_may_end_twice_before_the_draining_goes_on() -> None:
    """The elements of an accepted batch begin after the last call of another has ended."""
    runner = Runner(behind(echoing(SERVER)))
    limit = runner.call_limit
    assert limit.enter(True, 0) is None
    draining = asyncio.create_task(runner.drain(10))
    await until(lambda: limit.idle is not None)
    limit.leave(0)
    assert limit.enter(True, 0) is None
    limit.leave(0)
    await draining


async def test_what_a_runner_measures() -> None:
    async with raw(echoing(SERVER)) as (_, peer):
        assert behind(peer)._runner.measures() == {"channels": 1, "calls_waiting": 0}


async def test_a_runner_that_is_released_keeps_no_deadline() -> None:
    class Late:
        def expired(self) -> None: ...

    runner, late = Runner(behind(echoing(SERVER))), Late()
    runner.bind()
    runner.clock.set(late, 1000)
    runner.release()
    assert runner.clock.left(late) is None
