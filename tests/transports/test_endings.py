"""How a channel is over, told each time it is asked: as an exception of its own, on every wire that has an ending."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.channel import Broken, Channel, ChannelError, Options
from dragoman.schemes import dial, listen

from .ends import PATIENCE, Echo, Recorder


async def told(channel: Channel) -> list[ChannelError]:
    """What `send` and `flush` say of a channel that is over, twice."""
    found = []
    for _ in range(2):
        with pytest.raises(ChannelError) as sent:
            channel.send(b"1")
        with pytest.raises(ChannelError) as flushed:
            await channel.flush()
        found += [sent.value, flushed.value]
    return found


@pytest.mark.parametrize("scheme", ["tcp", "ws", "udp", "memory", "http"])
async def test_each_is_an_exception_of_its_own(scheme: str) -> None:
    """One instance that is raised again and again collects tracebacks, and what their frames hold."""
    echo = Echo()
    url = "memory:endings" if scheme == "memory" else f"{scheme}://127.0.0.1:0"
    listener = await listen(url, {"": echo}, Options())
    channel = await dial(listener.url, Options())
    end = Recorder(channel)
    channel.abort(Broken("enough"))
    await end.over()
    found = await told(channel)
    assert len({id(one) for one in (*found, end.why)}) == 5
    assert {(type(one), str(one)) for one in found} == {(Broken, "enough")}
    await listener.close()
    await echo.drain(1)
    async with asyncio.timeout(PATIENCE):
        await listener.closed()
