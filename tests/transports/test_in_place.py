"""What is delivered inside `send`: by the channel in memory, and to a server of this process."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from dragoman import connect
from dragoman.channel import Caller, Channel, Closed, Exchange
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from dragoman.rpc.service import Service
from dragoman.transports import memory
from dragoman.transports.in_place import IN_A_ROW, NESTED, in_place
from dragoman.transports.inside import InProcessChannel
from tests.behind import behind

from .ends import Recorder, options

CALL: Any = object()
"""What comes with a message that is a call."""
COLOUR: ContextVar[str] = ContextVar("colour", default="none")


def echo(end: Recorder, message: bytes) -> None:
    end.channel.send(b"re " + message)


def faults() -> list[dict[str, Any]]:
    """What the loop's exception handler is told from now on."""
    seen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))
    return seen


async def test_a_call_and_its_answer_are_delivered_in_place() -> None:
    near, far = memory.pair()
    left, right = Recorder(near), Recorder(far, echo)
    await asyncio.sleep(0)
    near.send(b"a", CALL)
    assert (left.messages, right.messages) == ([b"re a"], [b"a"])
    near.send(b"b")  # no call: by the loop
    assert right.messages == [b"a"]
    near.send(b"c", CALL)  # behind what waits
    assert right.messages == [b"a"]
    assert await left.got(3) == [b"re a", b"re b", b"re c"]
    far.send(b"late")  # not during a call
    assert len(left.messages) == 3
    await left.got(4)
    await near.close()


async def test_nothing_is_delivered_in_place_before_open() -> None:
    near, far = memory.pair()
    Recorder(near)
    near.send(b"early", CALL)
    await asyncio.sleep(0)
    near.send(b"second", CALL)
    assert await Recorder(far).got(2) == [b"early", b"second"]
    await near.close()


async def test_only_the_first_message_that_comes_back_is_delivered_in_place() -> None:
    """What it starts on the loop comes before what the second one starts, as on other wires."""
    near, far = memory.pair()
    left = Recorder(near)

    def three(end: Recorder, message: bytes) -> None:
        for number in range(3):
            end.channel.send(b"%d" % number)

    Recorder(far, three)
    await asyncio.sleep(0)
    near.send(b"x", CALL)
    assert left.messages == [b"0"]
    assert await left.got(3) == [b"0", b"1", b"2"]
    await near.close()


async def test_a_receiver_is_not_entered_again() -> None:
    near, far = memory.pair()
    inside = {"near": 0, "far": 0}

    def bounce(name: str) -> Any:
        def take(end: Recorder, message: bytes) -> None:
            assert not inside[name]
            inside[name] += 1
            number = int(message)
            if number < 1000:
                end.channel.send(b"%d" % (number + 1), CALL)
                end.channel.send(b"%d" % 1000)
            inside[name] -= 1

        return take

    seen = faults()
    left, right = Recorder(near, bounce("near")), Recorder(far, bounce("far"))
    await asyncio.sleep(0)
    near.send(b"1", CALL)
    assert len(left.messages) + len(right.messages) < 5
    await right.got(999)
    assert [one for one in (int(message) for message in right.messages) if one != 1000] == [*range(1, 1000, 2)]
    assert not seen
    await near.close()


async def test_a_fault_of_the_receiver_is_not_the_senders() -> None:
    near, far = memory.pair()
    seen = faults()

    def fail(end: Recorder, message: bytes) -> None:
        end.channel.send(b"before")
        raise asyncio.CancelledError if message == b"cancel" else ValueError("a bug")

    left = Recorder(near)
    Recorder(far, fail)
    await asyncio.sleep(0)
    near.send(b"x", CALL)
    near.send(b"cancel", CALL)
    assert left.messages == [b"before", b"before"]
    assert [type(one["exception"]) for one in seen] == [ValueError, asyncio.CancelledError]
    await near.close()


async def test_an_interrupt_is_everyones() -> None:
    near, far = memory.pair()

    def interrupt(end: Recorder, message: bytes) -> None:
        raise KeyboardInterrupt

    Recorder(near)
    Recorder(far, interrupt)
    await asyncio.sleep(0)
    with pytest.raises(KeyboardInterrupt):
        near.send(b"x", CALL)
    Recorder(far, echo)
    near.send(b"y", CALL)  # nothing is left under way
    await near.close()


async def test_each_delivery_has_a_context_of_its_own() -> None:
    near, far = memory.pair()
    seen: list[str] = []

    def paint(end: Recorder, message: bytes) -> None:
        seen.append(COLOUR.get())
        COLOUR.set("far")
        end.channel.send(message)

    def look(end: Recorder, message: bytes) -> None:
        seen.append(COLOUR.get())
        COLOUR.set("near")

    Recorder(near, look)
    Recorder(far, paint)
    await asyncio.sleep(0)
    COLOUR.set("sender")
    near.send(b"x", CALL)
    near.send(b"y", CALL)
    assert seen == ["sender", "far"] * 2
    assert COLOUR.get() == "sender"
    await near.close()


async def test_what_is_too_large_is_refused_in_place() -> None:
    near, far = memory.pair(Limits(), Limits(message_size=10))
    Recorder(near)
    right = Recorder(far)
    await asyncio.sleep(0)
    near.send(b"x" * 11, CALL)
    near.send(b"x" * 10, CALL)
    assert (len(right.refusals), len(right.messages)) == (1, 1)
    await near.close()


async def test_calls_in_a_row_let_the_loop_run() -> None:
    """A number of them, on whichever channels: then messages wait for it, in order."""
    ends = [memory.pair() for _ in range(2)]
    left = [Recorder(near) for near, _ in ends]
    for _, far in ends:
        Recorder(far, echo)
    await asyncio.sleep(0)
    for turn in range(3):
        for number in range(IN_A_ROW):
            ends[number % 2][0].send(b"%d" % number, CALL)
        assert len(left[0].messages) + len(left[1].messages) < (turn + 1) * IN_A_ROW
        await left[0].got((turn + 1) * IN_A_ROW // 2)
        await left[1].got((turn + 1) * IN_A_ROW // 2)
    assert left[0].messages == [b"re %d" % number for number in range(0, IN_A_ROW, 2)] * 3
    for near, _ in ends:
        await near.close()


async def test_calls_from_one_service_to_the_next_do_not_overflow_the_stack() -> None:
    seen = faults()
    depth = {"now": 0, "most": 0}
    length = 400
    ends = [memory.pair() for _ in range(length)]
    came: list[bytes] = []

    def forward(to: int) -> Any:
        def take(end: Recorder, message: bytes) -> None:
            depth["now"] += 1
            depth["most"] = max(depth["most"], depth["now"])
            if to < length:
                ends[to][0].send(message, CALL)
            else:
                came.append(message)
            depth["now"] -= 1

        return take

    lefts = [Recorder(near) for near, _ in ends]
    rights = [Recorder(far, forward(number + 1)) for number, (_, far) in enumerate(ends)]
    await asyncio.sleep(0)
    ends[0][0].send(b"x", CALL)
    await rights[-1].got(1)
    assert came == [b"x"]
    assert not seen
    assert 1 < depth["most"] <= NESTED + 1
    assert len(lefts) == length
    for near, _ in ends:
        await near.close()


async def test_the_end_comes_behind_what_was_delivered_in_place() -> None:
    near, far = memory.pair()
    leaving: list[asyncio.Task[None]] = []

    def leave(end: Recorder, message: bytes) -> None:
        end.channel.send(b"last")
        end.channel.send(b"very last")
        leaving.append(asyncio.create_task(end.channel.close()))

    left = Recorder(near)
    Recorder(far, leave)
    await asyncio.sleep(0)
    near.send(b"close", CALL)
    assert not left.endings
    await left.over()
    assert left.messages == [b"last", b"very last"]
    await leaving[0]
    with pytest.raises(Exception, match="closed the channel"):
        near.send(b"more", CALL)


async def test_abort_in_place_drops_what_waits() -> None:
    near, far = memory.pair()

    def abort(end: Recorder, message: bytes) -> None:
        end.channel.send(b"first")
        end.channel.send(b"dropped")
        end.channel.abort(Closed("enough"))

    left, right = Recorder(near), Recorder(far, abort)
    await asyncio.sleep(0)
    near.send(b"x", CALL)
    assert not left.endings
    assert not right.endings
    await left.over()
    await right.over()
    assert left.messages == [b"first"]


# -- peers ----------------------------------------------------------------------------------------


async def test_calls_for_ever_can_be_cancelled_and_let_others_run() -> None:
    service = Service("inline")

    @service.method(inline=True)
    def one() -> int:
        return 1

    listener = await memory.listen("memory:for-ever", {"": ServableService(behind(service))}, options())
    turns = 0
    async with connect("memory:for-ever") as peer:

        async def for_ever() -> None:
            while True:
                assert await peer.call("one") == 1

        task = asyncio.ensure_future(for_ever())
        while turns < 50:
            await asyncio.sleep(0)
            turns += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await for_ever()
        assert await peer.call("one") == 1
    await listener.close()


# -- a server of this process ---------------------------------------------------------------------


class Answers:
    """A servable whose exchanges a function takes."""

    name = "answers"

    def __init__(self, take: Any) -> None:
        self.exchange = take


def channel(take: Any) -> tuple[Channel, Recorder]:
    near = InProcessChannel(Answers(take))  # type: ignore[arg-type]
    return near, Recorder(near)


class Call:
    """An `Outgoing`."""

    abandon: Any = None


async def test_messages_of_a_server_keep_their_order_however_many() -> None:
    def take(x: Exchange) -> None:
        for number in range(1000):
            x.stream(b"%d" % number)
        x.respond(b"answer")

    near, left = channel(take)
    near.send(b"x", Call())  # type: ignore[arg-type]
    assert left.messages == [*(b"%d" % number for number in range(1000)), b"answer"]
    await near.close()


async def test_a_servers_fault_is_its_answer_and_its_context_its_own() -> None:
    callers: list[Caller] = []

    def take(x: Exchange) -> None:
        callers.append(x.caller)
        COLOUR.set("server")
        raise ValueError("a bug")

    near, left = channel(take)
    COLOUR.set("client")
    near.send(b'{"jsonrpc":"2.0","method":"x","id":7}', Call())  # type: ignore[arg-type]
    assert b'"code":-32603' in left.messages[0]
    assert b'"id":7' in left.messages[0]
    assert COLOUR.get() == "client"
    assert callers == [Caller(scheme="memory", remote=near.caller.remote)]
    assert near.caller.remote.startswith("memory:answers/")
    await near.close()


async def test_exchanges_in_a_row_let_the_loop_run_and_an_abandoned_one_is_not_begun() -> None:
    begun: list[bytes] = []

    def take(x: Exchange) -> None:
        begun.append(x.request)
        x.respond(x.request)

    near, left = channel(take)
    calls = [Call() for _ in range(IN_A_ROW + 2)]
    for number, call in enumerate(calls):
        near.send(b"%d" % number, call)  # type: ignore[arg-type]
    assert len(begun) <= IN_A_ROW
    calls[-1].abandon()
    await left.got(IN_A_ROW + 1)
    await asyncio.sleep(0)
    assert begun == [b"%d" % number for number in range(IN_A_ROW + 1)]
    await near.close()
    assert in_place() is in_place()


async def test_an_exchange_during_which_the_channel_ends_is_over_and_says_so() -> None:
    gone: list[bytes] = []
    exchanges: list[Exchange] = []

    def take(x: Exchange) -> None:
        exchanges.append(x)
        x.gone = lambda: gone.append(x.request)
        near.abort(Closed("enough"))

    near, left = channel(take)
    near.send(b"x", Call())  # type: ignore[arg-type]
    assert gone == [b"x"]
    exchanges[0].respond(b"late")
    assert left.messages == []
