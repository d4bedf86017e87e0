from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Broken, Channel, Closed, Ended, Listener, Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.limits import Limits
from dragoman.transports import memory

from .ends import Echo, Recorder, options, until


def test_the_contract_is_kept() -> None:
    async def look() -> None:
        near, far = memory.pair()
        assert isinstance(near, Channel)
        assert near.caller.scheme == "memory"
        await asyncio.gather(near.close(), far.close())

    asyncio.run(look())


async def test_messages_go_both_ways_in_order() -> None:
    near, far = memory.pair()
    left, right = Recorder(near), Recorder(far, lambda end, message: end.channel.send(b"re " + message))
    for i in range(1000):
        near.send(b"%d" % i)
    assert not right.messages  # never from inside `send`
    assert await left.got(1000) == [b"re %d" % i for i in range(1000)]
    await near.close()
    assert isinstance(left.why, Closed)
    assert isinstance(await right.over(), Ended)
    with pytest.raises(Closed):
        near.send(b"late")
    with pytest.raises(Ended):
        far.send(b"late")


async def test_nothing_is_delivered_before_open() -> None:
    near, far = memory.pair()
    near.send(b"early")
    await asyncio.sleep(0)
    assert await Recorder(far).got(1) == [b"early"]
    await near.close()


async def test_what_was_sent_before_close_arrives() -> None:
    near, far = memory.pair()
    Recorder(near)
    for i in range(600):
        near.send(b"%d" % i)
    right = Recorder(far)
    await near.close()
    await right.over()
    assert len(right.messages) == 600


async def test_too_large_is_refused_and_the_channel_lives_on() -> None:
    near, far = memory.pair(Limits(), Limits(message_size=10))
    right = Recorder(far)
    near.send(b"x" * 11)
    near.send(b"x" * 10)
    await right.got(1)
    (refused,) = right.refusals
    assert refused.kind == "too_large"
    assert refused.refusal is not None
    assert refused.refusal.data == {"limit": "message_size", "allowed": 10, "received": 11}
    await near.close()


async def test_the_sender_is_held_back_and_resumed() -> None:
    near, far = memory.pair(Limits(send_queue=1000))
    left = Recorder(near)
    for _ in range(11):
        near.send(b"x" * 100)
    assert not near.writable
    right = Recorder(far)
    await near.flush()
    assert near.writable
    assert left.resumptions == 1
    await right.got(11)
    await near.close()
    with pytest.raises(Closed):
        await near.flush()


async def test_abort_drops_what_is_queued() -> None:
    near, far = memory.pair()
    left, right = Recorder(near), Recorder(far)
    near.send(b"lost")
    near.abort(Broken("enough"))
    near.abort(Broken("again"))
    assert not left.endings  # never from inside
    assert str(await left.over()) == "enough"
    assert isinstance(await right.over(), Broken)
    assert not right.messages
    await near.close()
    await far.close()


async def test_closing_both_ends_at_once() -> None:
    near, far = memory.pair()
    left, right = Recorder(near), Recorder(far)
    await asyncio.gather(near.close(), far.close(), near.close())
    assert isinstance(left.why, Closed)
    assert isinstance(right.why, Closed | Ended)


async def test_a_flood_lets_others_run() -> None:
    near, far = memory.pair()
    left = Recorder(near, lambda end, message: end.channel.send(message))
    Recorder(far, lambda end, message: end.channel.send(message))
    near.send(b"for ever")
    for _ in range(20):
        await asyncio.sleep(0)
    assert 100 < len(left.messages) < 20 * 256
    near.abort(Closed("done"))
    await near.close()


async def test_a_failing_receiver_does_not_stop_the_others() -> None:
    near, far = memory.pair()
    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))

    def fail(end: Recorder, message: bytes) -> None:
        if message == b"bad":
            raise ValueError("a bug")

    right = Recorder(far, fail)
    for message in (b"a", b"bad", b"c"):
        near.send(message)
    await right.got(3)
    assert isinstance(seen[0]["exception"], ValueError)
    await near.close()


async def opened(**limits: object) -> tuple[Echo, Listener]:
    echo = Echo()
    return echo, await memory.listen("memory:here", {"": echo}, options(**limits))


async def test_listen_and_dial() -> None:
    echo, listener = await opened()
    assert listener.url == "memory:here"
    near = await memory.dial("memory:here", Options())
    left = Recorder(near)
    near.send(b"hello")
    assert await left.got(1) == [b"hello"]
    await listener.close()
    with pytest.raises(Broken, match="nothing listens on it"):
        await memory.dial("memory:here", Options())
    near.send(b"still there")
    await left.got(2)
    await near.close()
    await listener.closed()
    assert isinstance(echo.ends[0].why, Ended)


async def test_a_name_is_taken_once_and_free_again() -> None:
    _, listener = await opened()
    with pytest.raises(LocalError, match="Cannot listen on memory:here: the name is in use"):
        await opened()
    await listener.close()
    await listener.closed()
    _, listener = await opened()
    await listener.close()


async def test_limits_channels() -> None:
    _, listener = await opened(channels=1)
    near = await memory.dial("memory:here", Options())
    with pytest.raises(Broken, match="channels already"):
        await memory.dial("memory:here", Options())
    await near.close()
    await listener.closed()
    await (await memory.dial("memory:here", Options())).close()
    await listener.close()


async def test_wrong_use() -> None:
    with pytest.raises(LocalError, match="serves one object, not 2"):
        await memory.listen("memory:x", {"/a": Echo(), "/b": Echo()}, Options())
    with pytest.raises(LocalError, match="takes no query"):
        await memory.dial("memory:x?a=b", Options())


async def test_an_ended_channel_that_is_opened_late_says_so() -> None:
    near, far = memory.pair()
    Recorder(near)
    await near.close()
    late = Recorder(far)
    assert isinstance(await late.over(), Ended)
    await until(lambda: late.endings)
