"""What every wire needs that sends: who waits until it takes more, and a watch over what does not leave.

Rules:

- A send queues and never blocks; a task that wants to wait, waits here, and is woken when the wire takes more and when
  it is over. What it finds then is its own business.
- Four looks in `limits.write_timeout`; four in a row that see no byte leave are a stalled write, which breaks the channel.
  A far end that takes a little now and then is slow, not stalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

LOOKS = 4
"""Looks in the time that a write may take: a stall is noticed a quarter of it late at most."""


class Waiters:
    """Tasks that wait for the same thing."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Until the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def wake(self) -> None:
        """Everything that waits goes on."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)


class Buffered(Protocol):
    """A transport of asyncio's."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written to it and have not left."""


class StallWatch:
    """Looks whether what was written leaves. `given`: bytes that the channel has given to the transport so far, which the
    channel counts. `stalled` is called with the seconds for which nothing left; `timeout` None: never."""

    __slots__ = ("_looking", "_stalled", "_timeout", "given")

    def __init__(self, timeout: float | None, stalled: Callable[[float], object]) -> None:
        self.given = 0
        self._timeout = timeout
        self._stalled = stalled
        self._looking: asyncio.TimerHandle | None = None

    def start(self, transport: Buffered) -> None:
        """Look from now on, until all has left or `stop`; nothing changes where it looks already."""
        if self._looking is None and self._timeout is not None:
            self._look(transport, self._timeout, 0, -1)

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def end(self) -> None:
        """The channel is over: look no more, and let go of it."""
        self.stop()
        self._timeout = None
        self._stalled = float

    def _look(self, transport: Buffered, timeout: float, idle: int, before: int) -> None:
        self._looking = None
        unsent = transport.get_write_buffer_size()
        if not unsent:
            return
        left = self.given - unsent
        idle = idle + 1 if left == before else 0
        if idle < LOOKS:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(timeout / LOOKS, self._look, transport, timeout, idle, left)
        else:
            self._stalled(timeout)
