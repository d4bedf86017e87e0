"""The two ends of a wire for tests of wires alone: a receiver that remembers, and a served object that echoes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.channel import Channel, ChannelError, Exchange, Options, Outgoing
from dragoman.jsonrpc.limits import Limits
from dragoman.jsonrpc.messages import Malformed
from tests.servable import Idle

PATIENCE = 20.0
"""Seconds before a test that waits gives up; never reached when all is well."""


def options(**limits: object) -> Options:
    """Options with some limits changed."""
    return Options(limits=Limits().but(**limits))


async def until(done: Callable[[], object]) -> None:
    """Let the loop run until `done()`; for what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Recorder:
    """A Receiver that remembers everything; `on_message` may answer."""

    def __init__(self, channel: Channel, on_message: Callable[[Recorder, bytes], None] | None = None) -> None:
        self.channel = channel
        self.messages: list[bytes] = []
        self.refusals: list[Malformed] = []
        self.resumptions = 0
        self.is_finished = False
        self.endings: list[ChannelError] = []
        self.on_message = on_message
        self.on_finished: Callable[[Recorder], None] | None = None
        self._changed = asyncio.Event()
        channel.open(self)

    def received(self, message: bytes, call: Outgoing | None = None) -> None:
        assert not self.endings
        self.messages.append(message)
        if self.on_message is not None:
            self.on_message(self, message)
        self._changed.set()

    def refused(self, malformed: Malformed) -> None:
        assert not self.endings
        self.refusals.append(malformed)
        self._changed.set()

    def resumed(self) -> None:
        self.resumptions += 1
        self._changed.set()

    def finished(self) -> None:
        assert not self.is_finished
        self.is_finished = True
        if self.on_finished is not None:
            self.on_finished(self)
        self._changed.set()

    def ended(self, why: ChannelError) -> None:
        self.endings.append(why)
        self._changed.set()

    @property
    def why(self) -> ChannelError:
        """How it ended."""
        assert len(self.endings) == 1, self.endings
        return self.endings[0]

    async def until(self, done: Callable[[Recorder], object]) -> None:
        """Until `done(self)`, looked at whenever something has come."""
        async with asyncio.timeout(PATIENCE):
            while not done(self):
                self._changed.clear()
                await self._changed.wait()

    async def got(self, count: int) -> list[bytes]:
        """The first `count` messages."""
        await self.until(lambda self: len(self.messages) >= count)
        return self.messages[:count]

    async def over(self) -> ChannelError:
        """How it ended, when it has."""
        await self.until(lambda self: self.endings)
        return self.why


class Echo(Idle):
    """A Served that sends every message back, and (by choice) closes when the far end has finished."""

    name = "echo"

    def __init__(self, on_message: Callable[[Recorder, bytes], None] | None = None, *, closes: bool = True) -> None:
        super().__init__()
        self.closes = closes
        self.ends: list[Recorder] = []
        self.exchanges: list[Exchange] = []
        self.on_message = on_message or (lambda end, message: end.channel.send(message))
        self._closing: set[asyncio.Task[None]] = set()

    def attach(self, channel: Channel) -> None:
        end = Recorder(channel, self.on_message)
        end.on_finished = self._close if self.closes else None
        self.ends.append(end)

    def _close(self, end: Recorder) -> None:
        task = asyncio.ensure_future(end.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def exchange(self, x: Exchange) -> None:
        self.exchanges.append(x)
        x.respond(x.request)

    async def drain(self, timeout: float) -> None:
        # together: each may wait a second for its far end
        await asyncio.gather(*(end.channel.close() for end in self.ends if not end.endings))
