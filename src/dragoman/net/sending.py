"""What every wire that sends needs: tasks that wait until the wire takes more, and a watch on what has not left.

Rules:

- A send queues and never blocks. A task that wants to wait waits here, and wakes when the wire takes more and when
  the channel is over; it checks which of the two.
- A transport reports when bytes stay behind and when all have left, so what is written at once costs nothing. While
  bytes stay they count in the server's budget (`jsonrpc.budget`), and the watch looks now and then how many have left.
  If that is none in `limits.write_timeout`, or fewer than `limits.read_rate` allows, the far end is too slow and the
  channel is broken. What the system still holds has not left either, as far as it says so.
- TLS lets its transport take a write of any size at once and does not report it, so it gets large ones in pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from ..jsonrpc.budget import Account, Budget
from ..jsonrpc.limits import Limits
from ..system.sockets import unsent

LOOKS = 4
"""How often the watch looks within the time that a write may take: a stall is noticed at most a quarter of it late."""
_MOMENT = 0.001
"""The least time, in seconds, that unsent bytes count as waiting: of the newest the reader with most bytes is
slowest."""
PIECE = 64 * 1024
"""Bytes of one write to a transport of TLS."""


class Waiters:
    """Tasks that wait for the same event."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] | None = None  # most channels never have one

    async def wait(self) -> None:
        """Wait until the next `wake`."""
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


class BufferedTransport(Protocol):
    """A transport that keeps what it has not sent, as those of asyncio do."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were written to it and have not left."""


class WritableTransport(Protocol):
    """A transport by which the far end may be told that nothing follows, as those of asyncio are."""

    def can_write_eof(self) -> bool:
        """Whether it can; TLS cannot."""

    def write_eof(self) -> None:
        """Tell it so, once all has left."""


def end_writing(transport: WritableTransport) -> bool:
    """Tell the far end that nothing follows; False where the wire cannot say so. One that has reset the connection,
    which may not have shown yet, is not told."""
    if not transport.can_write_eof():
        return False
    with contextlib.suppress(OSError):
        transport.write_eof()
    return True


class SendWatch:
    """Watches what one transport has not sent. `too_slow` is called once, with words that follow the far end's name: it
    reads too slowly, or there is no room for it in the budget; the owner closes the channel then.

    `budget`: None for a program's own calls. `owner`: returns the owner of its account there. `patient`: only what is
    above the high-water mark has to leave in time, for a far end that started this process.
    """

    __slots__ = (
        "_account", "_before", "_budget", "_given", "_idle", "_limits", "_loop", "_owner", "_patient", "_since", "_timer",
        "_too_slow", "_transport", "_window", "beside", "full", "on",
    )  # fmt: skip

    def __init__(
        self,
        limits: Limits,
        too_slow: Callable[[str], object],
        *,
        budget: Budget | None = None,
        owner: Callable[[], str] = str,
        patient: bool = False,
    ) -> None:
        self.on: bool = False
        """Something is unsent."""
        self.full: bool = False
        """More than `limits.send_queue` is unsent."""
        self.beside: int = 0
        """Bytes for the same far end that the transport was not given yet."""
        self._limits = limits
        self._too_slow: Callable[[str], object] | None = too_slow
        self._budget = budget
        self._owner = owner
        self._patient = patient
        self._account: Account | None = None
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._given = self._idle = 0
        self._since = 0.0
        self._before: int | None = None
        self._window: tuple[float, int] | None = None

    # -- called by its owner

    def start(self, transport: BufferedTransport) -> None:
        """Watch bytes that have stayed behind (a transport's `pause_writing`). If it watches already, they are
        counted."""
        if self._too_slow is None:
            return
        if not self.on:
            self.on = True
            self._transport = transport
            self._since = self._loop.time()
            self._before = self._window = None
            self._idle = 0
            if self._timer is None:
                self._later()
        self.count()

    def write(self, transport: Any, data: bytes, *, tls: bool = False) -> None:
        """Write to the transport, and count the bytes."""
        self._given += len(data)
        if tls and len(data) > PIECE:
            for at in range(0, len(data), PIECE):
                transport.write(data[at : at + PIECE])
        else:
            transport.write(data)
        if self.on:
            self.count()

    def added(self, size: int) -> None:
        """Count bytes that the owner has itself given to the transport."""
        self._given += size

    def count(self) -> None:
        """Bring the account in the budget up to date with what is unsent."""
        size = self._transport.get_write_buffer_size() if self.on else 0
        if size > self._limits.send_queue and not self.full:
            self._mark(full=True)
        if self._account is not None and self._account.size:
            self._account.set(size + self.beside)
        elif self._budget is not None and size + self.beside:  # a new account: the owner may be another now
            if not self.on:
                self._since = self._loop.time()
            self._account = self._budget.account(self._owner(), reader=self)
            self._account.set(size + self.beside)

    def resumed(self) -> None:
        """Go on after some bytes have left (a transport's `resume_writing`)."""
        if self.full:
            self._mark(full=False)  # which reports at once that bytes stay behind, if they do
        if self.on:
            if self._transport.get_write_buffer_size():
                self.count()
            else:
                self.stop()

    def stop(self) -> None:
        """Stop watching for now: all bytes have left."""
        self.on = False
        self._transport = None
        if self._account is not None:
            self._account.set(self.beside)

    def end(self) -> None:
        """Stop watching for good: the channel is over. References to it are dropped."""
        self.beside = 0
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._too_slow = self._account = self._budget = None
        self._owner = str

    def _mark(self, *, full: bool) -> None:
        """Choose what a transport reports next: that there is room again, or that all has left."""
        self.full = full
        if (choose := getattr(self._transport, "set_write_buffer_limits", None)) is not None:
            high = self._limits.send_queue
            choose(high=max(high, 1), low=high // 4) if full else choose(high=1, low=0)

    # -- what it finds out

    def _later(self) -> None:
        limits = self._limits
        times = [limits.write_timeout, limits.read_rate_over if limits.read_rate is not None else None]
        if given := [time for time in times if time is not None]:
            self._timer = self._loop.call_later(min(given) / LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.on:
            return
        self.count()
        transport = self._transport
        if not transport.get_write_buffer_size():  # TLS does not report it
            self.stop()
            return
        why = None if self._patient and not self.full else self._verdict(self._loop.time())
        if why is None:
            self._later()
        elif self._too_slow is not None:
            self._too_slow(why)

    def _verdict(self, now: float) -> str | None:
        """Why the far end is too slow; None if it is not."""
        limits, left = self._limits, self._given - self._transport.get_write_buffer_size() - self._in_system()
        self._idle = self._idle + 1 if left == self._before or self._before is None else 0
        self._before = left
        timeout, rate = limits.write_timeout, limits.read_rate
        if timeout is not None and self._idle * self._every() >= timeout:
            return f"took nothing of what was sent to it for {timeout:g} s (limit write_timeout)"
        if rate is None or now - self._since < limits.read_grace:
            return None
        if self._window is None:
            self._window = now, left
        elif (seconds := now - self._window[0]) >= limits.read_rate_over:
            if left - self._window[1] < rate * seconds:
                return (
                    f"took less than {rate} bytes a second of what was sent to it for {seconds:.0f} s (limit read_rate)"
                )
            self._window = now, left
        return None

    def _every(self) -> float:
        """Seconds between two looks."""
        limits = self._limits
        over = limits.read_rate_over if limits.read_rate is not None else None
        return min(time for time in (limits.write_timeout, over) if time is not None) / LOOKS

    def _in_system(self) -> int:
        """Return the bytes that the system has not sent, or whose arrival is not confirmed."""
        about = getattr(self._transport, "get_extra_info", None)
        sock = None if about is None else about("socket")
        return 0 if sock is None else unsent(sock)

    # -- as the budget's reader

    def slowness(self) -> float:
        """Return the unsent bytes times the seconds that they have waited, divided by the bytes that have left."""
        self.count()
        size = 0 if self._account is None else self._account.size
        waited = max(self._loop.time() - self._since, _MOMENT)
        left: int = max(self._given - self._transport.get_write_buffer_size(), 0) if self.on else 0
        return waited * size / (left + 1)

    def cut_off(self, why: str) -> None:
        if self._too_slow is not None:
            self._too_slow(why)
