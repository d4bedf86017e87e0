"""What a far end and its channel may do to a peer: senseless words, words without end, a wire that is full or gone."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from dragoman import Broken, CallTimeout, Closed, Context, Limits, LocalError, RpcError, Service, connect, serve
from dragoman.channel import Caller, Channel, ChannelError, Receiver
from dragoman.jsonrpc.codec import FailedAnswer, text_of
from dragoman.jsonrpc.limits import SERVER
from dragoman.rpc.channel_peer import UNREAD, ChannelPeer
from dragoman.rpc.inbound import STEPS
from dragoman.rpc.middleware import Call, Next
from dragoman.rpc.responses import ErrorAnswers
from tests.behind import behind

from .test_peer import Bench, raw, until


class Slow:
    """A channel that takes everything, and has room again only when the test says so; it may be cut at one word."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.caller = channel.caller
        self.duplex = True
        self.writable = True
        self.flushed = asyncio.Event()
        self.cut = ""
        self.receiver: Receiver | None = None

    def open(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._channel.open(receiver)

    def send(self, message: bytes, call: Any = None) -> None:
        if self.cut and self.cut.encode() in message:
            raise Broken("cut while sending")
        self._channel.send(message)

    async def flush(self) -> None:
        await self.flushed.wait()

    async def close(self) -> None:
        await self._channel.close()

    def abort(self, why: ChannelError) -> None:
        self._channel.abort(why)


# -- words that name nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("params", ["", ',"params":[1]', ',"params":{}', ',"params":{"token":[],"id":{}}'])
@pytest.mark.parametrize("method", ["$/progress", "$/cancelRequest"])
async def test_progress_and_cancels_that_name_no_call_are_notifications_like_any_other(
    method: str, params: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Service("api")
    api.method("ping")(lambda: "pong")
    async with raw(api) as (far, peer):
        heard = peer.notifications()
        far.send(f'{{"jsonrpc":"2.0","method":"{method}"{params}}}')
        far.send('{"jsonrpc":"2.0","method":"ping","id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":"pong","id":1}'
        assert (await asyncio.wait_for(anext(heard), 10)).method == method
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("beyond", [False, True])
async def test_as_many_malformed_messages_in_a_row_as_the_limit_allows(beyond: bool) -> None:
    api = Service("api", limits=SERVER.but(malformed_in_a_row=3))
    api.method("ping", inline=True)(lambda: "pong")
    async with raw(api) as (far, peer):
        for _ in range(3 + beyond):
            far.send("{}")
        if beyond:
            await until(lambda: behind(peer)._channel is None)
            return
        far.send('{"jsonrpc":"2.0","method":"ping","id":1}')
        for _ in range(3):
            far.send("{}")  # an answer of ours between them begins the count anew
        said = [await far.next() for _ in range(7)]
        assert ['"pong"' in one for one in said] == [False] * 3 + [True] + [False] * 3


async def test_a_stranger_at_a_server_is_answered_and_may_go_on() -> None:
    """Only an end that dialled gives up at what another protocol sends."""
    async with raw(Service("api")) as (far, _):
        for _ in range(2):
            far.send('INFO {"server_id":"x"}')
            assert '"code":-32700' in await far.next()


async def test_only_a_child_is_told_to_print_to_stderr(caplog: pytest.LogCaptureFixture) -> None:
    async def answers_oddly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'hello\n{"jsonrpc":"2.0","result":1,"id":1}\n')
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answers_oddly, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with caplog.at_level(logging.DEBUG, "dragoman"):
        async with listening, connect(f"tcp://127.0.0.1:{port}") as peer:
            assert await peer.call("x") == 1
    told = [one for one in caplog.records if "what is not a message" in one.getMessage()]
    assert [one.levelno for one in told] == [logging.DEBUG]
    assert "standard output" not in told[0].getMessage()


@pytest.mark.parametrize(
    ("scheme", "alone", "levels"),
    [
        ("stdio", True, [logging.WARNING, logging.DEBUG, logging.DEBUG, logging.DEBUG]),
        ("stdio", False, [logging.DEBUG] * 4),  # a server's end, whose client is not a child
        ("tcp", True, [logging.DEBUG] * 4),
    ],
)
async def test_a_child_is_told_once_of_malformed_messages(
    scheme: str, alone: bool, levels: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(Service("far"), urls=["memory:told-once"]), connect("memory:told-once") as peer:
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        slow.caller = Caller(scheme=scheme)
        behind(peer).attach(slow)
        behind(peer).alone = alone
        with caplog.at_level(logging.DEBUG, "dragoman"):
            for word in (b"a", b"b", b"c", b'{"jsonrpc":"2.0","method":"note"}', b"d"):
                behind(peer).received(word)
    told = [one.levelno for one in caplog.records if "what is not a message" in one.getMessage()]
    assert told == levels


# -- a wire that is full, or gone --------------------------------------------------------------------


async def test_a_notification_is_sent_when_the_wire_has_taken_it() -> None:
    async with serve(Service("far"), urls=["memory:slow-notify"]), connect("memory:slow-notify") as peer:
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        behind(peer).attach(slow)
        real = slow.send

        def fills(message: bytes, call: Any = None) -> None:
            real(message, call)
            slow.writable = False

        slow.send = fills  # type: ignore[method-assign]
        telling = asyncio.create_task(peer.notify("x"))
        await until(lambda: not slow.writable)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not telling.done()
        slow.flushed.set()
        await telling
        slow.writable = True


@pytest.mark.parametrize("duplex", [True, False])
async def test_a_notification_waits_for_a_wire_that_has_room_only_where_nothing_comes_back(duplex: bool) -> None:
    """On a wire of exchanges it is told whether it has arrived."""
    async with raw(Service("api")) as (_, peer):
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        slow.duplex = duplex
        behind(peer).attach(slow)
        telling = asyncio.create_task(peer.notify("x"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert telling.done() is duplex
        slow.flushed.set()
        await telling


async def test_of_a_far_end_that_does_not_read_a_call_says_so() -> None:
    async with raw(Service("api")) as (_, peer):
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        slow.writable = False
        behind(peer).attach(slow)
        with pytest.raises(CallTimeout, match=r"^nothing could be sent within 0\.01 s: the far end does not read$"):
            await peer.call("x", timeout=0.01)
        with pytest.raises(CallTimeout, match="the far end does not read"):
            async with peer.batch(timeout=0.01) as batch:
                batch.call("x")
        slow.writable = True


async def test_what_a_listener_of_states_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fails(state: str, why: ChannelError | None) -> None:
        raise ValueError(state)

    async with raw(Service("api")) as (_, peer):
        behind(peer).on_state = fails
    assert [one.getMessage() for one in caplog.records if one.exc_info] == ["on_state failed"]


async def test_a_time_out_of_nothing_is_refused() -> None:
    async with raw(Service("api")) as (_, peer):
        with pytest.raises(LocalError, match="timeout"):
            await peer.call("x", timeout=0.0)


async def test_a_far_end_that_reads_again_may_leave_as_many_answers_unread_as_before() -> None:
    """As many unread answers as are allowed, read, and as many again: only one more ends the channel."""
    call = b'{"jsonrpc":"2.0","method":"nothing","id":1}'
    async with raw(Service("api")) as (far, peer):
        for _ in range(2):
            far.near.writable = False
            for _ in range(UNREAD):
                behind(peer).received(call)
            for _ in range(5):
                await asyncio.sleep(0)  # an end would be told by now
            assert behind(peer)._channel is not None
            far.near.writable = True
            behind(peer).resumed()
        far.near.writable = False
        for _ in range(UNREAD + 1):
            behind(peer).received(call)
        async with asyncio.timeout(10):
            await far.over
        assert "reads none" in f"{behind(peer)._why}"


async def test_an_inline_method_waits_while_the_wire_is_full() -> None:
    api = Service("api")
    ran: list[int] = []
    api.method("noted", inline=True)(_noting(ran))
    async with raw(api) as (far, peer):
        far.near.writable = False
        behind(peer).received(b'{"jsonrpc":"2.0","method":"noted","params":[1],"id":1}')
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran == []
        far.near.writable = True
        behind(peer).resumed()
        assert '"id":1' in await far.next()
        assert ran == [1]


async def test_calls_that_wait_for_the_wire_begin_one_after_the_other_however_many_they_are() -> None:
    """The beginning of a call that takes no slot begins the next: not one within the other."""
    count = 1500
    api = Service("api", limits=SERVER.but(waiting_per_channel=count, calls=2 * count))
    ran: list[int] = []

    @api.method
    async def noted(n: int) -> None:
        ran.append(n)

    core = behind(api)
    core.methods["noted"] = msgspec.structs.replace(core.methods["noted"], stream=True)  # type: ignore[index]
    async with raw(api) as (far, peer):
        far.near.writable = False
        for n in range(count):
            behind(peer).received(f'{{"jsonrpc":"2.0","method":"noted","params":[{n}],"id":{n}}}'.encode())
        far.near.writable = True
        behind(peer).resumed()
        answers = [await far.next() for _ in range(count)]
    assert not [one for one in answers if "error" in one]
    assert ran == list(range(count))


def _noting(ran: list[int]) -> Callable[[int], None]:
    def noted(n: int) -> None:
        ran.append(n)

    return noted


@pytest.mark.parametrize("id", ["", ',"id":2'])
async def test_of_a_notification_that_finds_no_place_the_log_says_so(id: str, caplog: pytest.LogCaptureFixture) -> None:
    """A call that finds none is answered, and says nothing in the log."""
    bench = Bench(SERVER.but(calls_per_channel=1, waiting_per_channel=0))
    async with raw(bench.api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"hold","id":1}')
        await bench.begun.wait()
        far.send(f'{{"jsonrpc":"2.0","method":"hold"{id}}}')
        far.send('{"jsonrpc":"2.0","method":"nothing","id":3}')
        if id:
            assert '"limit":"calls_per_channel"' in await far.next()
        assert '"id":3' in await far.next()
    dropped = [one.getMessage() for one in caplog.records if "dropped" in one.getMessage()]
    assert len(dropped) == (0 if id else 1)
    assert all("'hold' from memory:" in one and "busy" in one for one in dropped)


async def test_a_call_whose_cancel_cannot_be_sent_times_out_all_the_same() -> None:
    async with raw(Service("api")) as (far, peer):
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        slow.cut = "$/cancelRequest"
        behind(peer).attach(slow)
        with pytest.raises(CallTimeout):
            await peer.call("anything", timeout=0.05)
        assert '"anything"' in await far.next()


async def test_progress_on_a_wire_that_is_gone_is_dropped_and_the_handler_goes_on() -> None:
    api = Service("api")
    told: list[bool] = []

    @api.method
    async def telling(ctx: Context) -> str:
        told.append(await ctx.progress(1))
        return "over"

    async with raw(api) as (far, peer):
        channel = behind(peer)._channel
        assert channel is not None
        slow = Slow(channel)
        slow.cut = "$/progress"
        behind(peer).attach(slow)
        far.send('{"jsonrpc":"2.0","method":"telling","id":1}')
        assert await far.next() == '{"jsonrpc":"2.0","result":"over","id":1}'
    assert told == [False]


async def test_a_wire_with_one_far_end_has_no_broadcast() -> None:
    async with serve(Service("far"), urls=["memory:one"]), connect("memory:one") as peer:
        with pytest.raises(LocalError, match="x: memory has one far end and no broadcast"):
            await peer.notify("x", broadcast=True)


async def test_a_closed_peers_notification_says_so() -> None:
    async with raw(Service("api")) as (_, peer):
        await peer.close()
        with pytest.raises(Closed):
            await peer.notify("x")


# -- threads and their loop ----------------------------------------------------------------------------


async def test_a_thread_may_tell_any_number_of_steps_when_the_loop_keeps_pace() -> None:
    """The bound is on what is on its way, not on what a call tells in all."""
    api = Service("api")
    told: list[bool] = []

    @api.method
    def telling(ctx: Context) -> None:
        assert isinstance(ctx.peer, ChannelPeer)
        for n in range(STEPS + 100):
            told.append(bool(ctx.progress(n)))
            if n % 100 == 99:
                kept = threading.Event()
                ctx.peer._loop.call_soon_threadsafe(kept.set)
                kept.wait(10)

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"telling","id":1}')
        got = 0
        while '"result"' not in await far.next():
            got += 1
    assert (all(told), got) == (True, STEPS + 100)


@pytest.mark.parametrize("id", ["", ',"id":1'])
async def test_a_thread_that_asks_when_its_call_is_over_asks_no_one(id: str) -> None:
    """A call that was cancelled has no more to ask; a notification's handler asks as long as it runs."""
    api = Service("api")
    ended: list[Any] = []
    begun, gate = threading.Event(), threading.Event()

    @api.method
    def asking(ctx: Context) -> None:
        begun.set()
        gate.wait(10)
        try:
            ended.append(ctx.call("question"))
        except BaseException as error:
            ended.append(type(error).__name__)

    async with raw(api) as (far, _):
        far.send(f'{{"jsonrpc":"2.0","method":"asking"{id}}}')
        await until(begun.is_set)
        if id:
            far.send('{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}')
            assert "-32800" in await far.next()
        gate.set()
        if not id:
            assert '"question"' in await far.next()
            far.send('{"jsonrpc":"2.0","result":"answer","id":1}')
        await until(lambda: bool(ended))
        assert ended == (["CancelledError"] if id else ["answer"])


# -- what a handler is given -------------------------------------------------------------------------


async def test_middleware_sees_a_notification_as_a_call_without_an_id() -> None:
    seen: list[tuple[str, Any]] = []

    async def looking(call: Call, next: Next) -> Any:
        seen.append((call.method, call.id))
        return await next(call)

    api = Service("api", middleware=[looking])
    ran: list[int] = []

    @api.method("noted")
    async def noted(n: int) -> None:
        ran.append(n)

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"noted","params":[1]}')
        far.send('{"jsonrpc":"2.0","method":"noted","params":[2],"id":7}')
        assert '"id":7' in await far.next()
    assert sorted(ran) == [1, 2]
    assert sorted(str(id) for _, id in seen) == ["7", "UNSET"]


async def test_progress_of_a_call_that_is_over_is_dropped() -> None:
    api = Service("api")
    kept: list[Context] = []

    @api.method(inline=True)
    def keeping(ctx: Context) -> None:
        kept.append(ctx)

    @api.method
    async def keeping_too(ctx: Context) -> None:
        kept.append(ctx)

    async with raw(api) as (far, _):
        for number, method in enumerate(["keeping", "keeping_too"]):
            far.send(f'{{"jsonrpc":"2.0","method":"{method}","id":{number}}}')
            assert '"result":null' in await far.next()
        assert not kept[0].progress(1)
        assert not await kept[1].progress(1)
        far.send('{"jsonrpc":"2.0","method":"nothing","id":9}')
        assert '"id":9' in await far.next()  # and nothing before it


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from Python 3.12 on its call is an eager task, not in place")
@pytest.mark.parametrize("verb", ["call", "notify"])
async def test_an_async_function_that_does_not_await_is_told_what_it_forgot(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Service("api")

    @api.method
    async def forgetting(ctx: Context) -> None:
        getattr(ctx, verb)("x")

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"forgetting","id":1}')
        assert '"code":-32603' in await far.next()
    assert "forgetting: a call that awaits nothing cannot" in caplog.text


# -- batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1])
async def test_the_answers_of_a_batch_may_have_as_many_bytes_as_the_limit_and_no_more(room: int) -> None:
    batch = b'[{"jsonrpc":"2.0","method":"big","id":1},{"jsonrpc":"2.0","method":"big","id":2}]'

    async def answered(limits: Limits) -> bytes:
        api = Service("api", limits=limits)

        @api.method
        async def big() -> str:
            await asyncio.sleep(0)
            return "x" * 1000

        return await api.answer_async(batch) or b""

    whole = await answered(SERVER)
    found = await answered(SERVER.but(response_size=len(whole) - room))
    assert (found == whole) is not bool(room)
    assert (b'"limit":"response_size"' in found) is bool(room)


async def test_a_batch_whose_answers_cannot_be_put_together_is_answered_element_by_element(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its requests with an internal error, and the channel lives."""
    api = Service("api")

    @api.method
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    real, broken = ErrorAnswers.batch, [True]
    sizes: list[int] = []

    def batch(self: ErrorAnswers, answers: Sequence[bytes], size: int) -> bytes | FailedAnswer:
        if broken.pop():
            broken.append(False)
            raise ValueError("no batch today")
        broken.append(False)
        sizes.append(size - len(text_of(real(self, answers, size)) or b""))
        return real(self, answers, size)

    monkeypatch.setattr(ErrorAnswers, "batch", batch)
    one = '{"jsonrpc":"2.0","method":"later","params":[%d],"id":%d}'
    async with raw(api) as (far, _):
        for _ in range(2):
            far.send(f"[{one % (1, 1)},{one % (2, 2)}]")
        failed, done = [msgspec.json.decode(await far.next()) for _ in range(2)]
    assert [(answer["id"], answer["error"]["code"]) for answer in failed] == [(1, -32603), (2, -32603)]
    assert [(answer["id"], answer["result"]) for answer in done] == [(1, 1), (2, 2)]
    assert sizes == [0, 0]  # what it was told they take is what they take


async def test_middleware_may_try_a_call_of_a_batch_again_when_the_batch_is_gone() -> None:
    tried: list[int] = []
    api = Service("api")

    @api.method
    async def flaky() -> int:
        tried.append(len(tried))
        if len(tried) == 1:
            raise RpcError("not yet", code=7)
        return len(tried)

    async def again(call: Call, next: Next) -> Any:
        try:
            return await next(call)
        except RpcError:
            return await next(call)

    url = "memory:again"
    async with serve(api, urls=[url]), connect(url, middleware=[again]) as peer, asyncio.timeout(30):
        async with peer.batch() as batch:
            found = batch.call("flaky")
        assert (found.result(), tried) == (2, [0, 1])
