"""What every wire that sends needs: tasks that wait until the wire takes more, and a watch for stalled writes.

Rules:

- A send queues and never blocks. A task that wants to wait waits here, and wakes when the wire takes more and when
  the channel is over; it checks which of the two.
- The watch checks four times in `limits.write_timeout`; if no byte has left in four checks in a row, the write is
  stalled, which breaks the channel. A far end that takes a little from time to time is slow, not stalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

LOOKS = 4
"""Checks in the time that a write may take: a stall is noticed at most a quarter of it late."""


class Waiters:
    """Tasks that wait for the same event."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] | None = None  # most channels never have one

    async def wait(self) -> None:
        """Until the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(waiter)
        await waiter

    def wake(self) -> None:
        """Wake all tasks."""
        if self._waiting:
            waiting, self._waiting = self._waiting, None
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)


class Buffered(Protocol):
    """A transport of asyncio's."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written to it and have not left."""


class StallWatch:
    """Watches whether written bytes leave. `given`: the bytes that the channel has given to the transport so far, which
    the channel counts. `stalled` is called with the seconds for which nothing left; `timeout` None: never."""

    __slots__ = ("_looking", "_stalled", "_timeout", "given")

    def __init__(self, timeout: float | None, stalled: Callable[[float], object]) -> None:
        self.given: int = 0
        self._timeout = timeout
        self._stalled = stalled
        self._looking: asyncio.TimerHandle | None = None

    def start(self, transport: Buffered) -> None:
        """Watch from now on, until all bytes have left or `stop`; no effect if it already watches."""
        if self._looking is None and self._timeout is not None:
            self._look(transport, self._timeout, 0, -1)

    def stop(self) -> None:
        """Stop watching."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def end(self) -> None:
        """The channel is over: stop watching and drop the reference to it."""
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
