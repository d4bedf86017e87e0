"""A channel over one stream of bytes: over a socket here, over two pipes in `stdio`.

Rules:

- One small object a channel, no task of its own: an idle channel costs its socket and a few hundred bytes.
- Reading is never paused for calls in flight: answers, cancels and pings are always taken.
- All that is sent in one turn of the loop goes out in one write.
- The far end's end of file ends what it sends, not what it receives: `Receiver.finished`. Our own end is orderly too:
  after the last byte we send an end of file and wait a moment for that of the far end, since closing a socket with
  unread bytes resets it, which can destroy answers still under way.
- What is kept of a message whose rest has not come is reported to the listener, which bounds it in time and in all.
- What the far end does not read in time breaks the channel, and counts in the server's budget (`net.sending`).
- A half-closed far end may have died, which its silence does not show. While calls run for it, white space is written
  in front of their answers where the framing allows that: a far end that is gone resets the channel. In any case the
  calls end `limits.half_closed_timeout` after the end of file (`HalfClosedWatch`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol, cast

from ...channel import Broken, Budget, Caller, ChannelError, Closed, Ended, Outgoing, Receiver, again
from ...jsonrpc.framing import Framing
from ...jsonrpc.limits import Limits
from ...jsonrpc.messages import Malformed
from ...net.guarding import LetsFinish
from ...net.read_buffer import read_buffer, take_turns
from ...net.sending import PIECE, SendWatch, Waiters, end_writing
from ...net.sockets import in_words, reason_of

_AT_ONCE = 64 * 1024
"""Bytes that wait for the end of this turn of the loop; more are written before it."""
_LINGER = 1.0
"""Seconds for the far end to end its side after we have ended ours."""
_RELEASE = 10.0
"""Seconds for a wire to end once it is being closed; then it is cut."""
PROBE = 1.0
"""Seconds from the end of file to the first probe, and between the first two: a reset comes as the answer to one, and
is noticed at the next."""
LONGEST_PAUSE = 10.0
"""The longest pause between two probes, in seconds."""


class StreamWire(Protocol):
    """What a channel needs of an asyncio transport; `pipe.Pipe` is one too."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_reading(self) -> bool: ...
    def is_closing(self) -> bool: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ChannelOwner(Protocol):
    """The listener of a channel. `budget`: that of the server. A Protocol, because the listener makes its channels."""

    budget: Budget

    def admit(self, channel: StreamChannel, wire: StreamWire) -> None:
        """Serve a channel whose wire has come, or abort it."""

    def kept(self, channel: StreamChannel, size: int, message: int) -> None:
        """Note that a channel keeps `size` bytes of a message whose rest has not come."""

    def left(self, channel: StreamChannel) -> None:
        """Forget a channel that is over."""


class StreamChannel(asyncio.BufferedProtocol):
    """A `Channel` over one stream of bytes."""

    __slots__ = (
        "_buffer",
        "_early",
        "_finished",
        "_flushing",
        "_framing",
        "_gone",
        "_half_closed",
        "_held",
        "_limits",
        "_listener",
        "_loop",
        "_parting",
        "_pending",
        "_pending_size",
        "_receiver",
        "_unsent",
        "_waiters",
        "_why",
        "_wire",
        "caller",
        "writable",
    )

    duplex = True

    def __init__(self, framing: Framing, limits: Limits, caller: Caller, listener: ChannelOwner | None = None) -> None:
        self.caller: Caller = caller
        self.writable: bool = True
        self._framing = framing
        self._limits = limits
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._buffer = read_buffer()
        self._wire: StreamWire | None = None  # None before it is there and after it is gone
        self._receiver: Receiver | None = None
        self._early: list[bytes] | None = None  # what came before `open`
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._held = 0  # bytes of a message whose rest has not come, as the listener knows
        self._flushing = False  # a callback will write what is pending
        self._half_closed: HalfClosedWatch | None = None
        self._finished = False  # the far end sends no more
        self._parting: tuple[bytes, ChannelError] | None = None  # the last message of a channel that lapses, and why
        self._why: ChannelError | None = None  # set: closing, or over
        self._gone: asyncio.Future[None] | None = None  # for `close` to wait on
        self._waiters = Waiters()
        self._unsent: SendWatch | None = None  # made when something first stays behind

    # -- Channel --

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._early is not None or self._finished or (self._wire is None and self._why is not None):
            self._early = self._early or []
            self._loop.call_soon(self._catch_up)
        if self._wire is not None and not self._wire.is_reading():
            self._wire.resume_reading()

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        data = self._framing.wrap(message)
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > _AT_ONCE:
            self._write()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def flush(self) -> None:
        if self._why is not None:
            raise again(self._why)
        self._write()
        await self._drained()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        if self._parting is not None:
            await self.end(*self._parting)
            return
        await self._close(Closed(f"The channel to {self.caller.remote} was closed here: connect anew"))

    def lapse(self, notice: bytes, why: ChannelError) -> bool:
        """Have the receiver finish what runs and close, with this message at the end: the far end's admission is over.
        False if the receiver does not do that."""
        if self._why is not None or not isinstance(self._receiver, LetsFinish):
            return False
        self._parting = notice, why
        self._receiver.lapse()
        return True

    async def end(self, notice: bytes, why: ChannelError) -> None:
        """Send one message more and then `close`, for this reason."""
        if self._why is None:
            self.send(notice)
        await self._close(why)

    async def _close(self, why: ChannelError) -> None:
        gone = self._gone
        if gone is None:
            gone = self._gone = self._loop.create_future()
        wire = self._wire
        if wire is None:
            return
        if self._why is not None:
            await asyncio.wait([gone])
            return
        self._write()
        self._why = self._ended() if self._finished else why
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.write_timeout):
                    while self._unsent is not None and self._unsent.on and self._wire is not None:
                        await self._waiters.wait()
                if not self._finished and self._receiver is not None and end_writing(wire):
                    await asyncio.wait([gone], timeout=_LINGER)
                wire.close()
                await asyncio.wait([gone], timeout=_RELEASE)
        finally:
            if not gone.done():
                wire.abort()
        await asyncio.wait([gone])

    async def gone(self) -> None:
        """Wait until the channel is over."""
        if self._gone is None:
            self._gone = self._loop.create_future()
        await asyncio.wait([self._gone])

    def abort(self, why: ChannelError) -> None:
        if self._why is None:
            self._why = why
        self._pending.clear()
        if self._wire is not None:
            self._wire.abort()

    def cut_off(self, why: str) -> None:
        self.abort(Broken(f"The channel to {self.caller.remote} was cut off: {why}"))

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self._wire = cast(StreamWire, transport)
        wire.set_write_buffer_limits(high=1, low=0)  # reports when anything stays behind, and when all is sent
        if self._listener is not None:
            self._listener.admit(self, wire)
        if self._receiver is None and not wire.is_closing():
            wire.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))
        take_turns(self._wire, nbytes, self._read_on)

    def _read_on(self) -> None:
        """Read on after the others had their turn, if there is a receiver."""
        if self._wire is not None and self._receiver is not None and not self._wire.is_closing():
            self._wire.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes that were read elsewhere."""
        if self._why is not None or self._finished:
            return
        if self._receiver is None or self._early is not None:
            self._early = [*(self._early or ()), data]
            if self._receiver is None and self._wire is not None and self._wire.is_reading():
                self._wire.pause_reading()  # uvloop forgets the pause of connection_made
            return
        framing = self._framing
        self._deliver(framing.feed(data))
        if framing.held or self._held:
            self._held = framing.held
            if self._listener is not None:
                self._listener.kept(self, framing.held, framing.begun)
        if framing.lost and self._why is None:
            self._finish()

    def rest_received(self) -> None:
        """Take what has come of a message as the whole of it, where the framing allows that."""
        if self._why is None and not self._finished and self._early is None:
            self._deliver(self._framing.end())

    def eof_received(self) -> bool:
        if self._why is not None:
            return False
        if self._receiver is None or self._early is not None:
            self._finished = True  # `open` comes back to it
        elif not self._finished:
            self._deliver(self._framing.end())
            self._finish()
        return not self.caller.tls  # asyncio's TLS has no half-closed state

    def connection_lost(self, exc: Exception | None) -> None:
        if self._why is None:
            if isinstance(exc, ChannelError):
                self._why = exc
            elif exc is None:
                self._why = self._ended()
            else:
                self._why = Broken(f"The channel to {self.caller.remote} broke: {in_words(exc)}").because(
                    reason_of(exc)
                )
        self._wire = None
        self._pending.clear()
        if self._unsent is not None:
            self._unsent.end()
        if self._half_closed is not None:
            self._half_closed.end()
        self._waiters.wake()
        if self._gone is None:
            self._gone = self._loop.create_future()
        if not self._gone.done():
            self._gone.set_result(None)
        if self._listener is not None:
            self._listener.left(self)
        if self._receiver is not None and self._early is None:
            self._receiver.ended(self._why)

    def pause_writing(self) -> None:
        if self._wire is not None:
            self._watched().start(self._wire)
            self._fill()

    def resume_writing(self) -> None:
        unsent = self._watched()
        unsent.resumed()
        self._waiters.wake()
        if not self.writable and not unsent.full:
            self.writable = True
            if self._receiver is not None and self._why is None:
                self._receiver.resumed()

    def _watched(self) -> SendWatch:
        if self._unsent is None:
            listener, patient = self._listener, self.caller.scheme == "stdio"
            budget = None if listener is None else listener.budget
            self._unsent = SendWatch(self._limits, self._too_slow, budget=budget, owner=self._owner, patient=patient)
        return self._unsent

    def _fill(self) -> None:
        if self._unsent is not None and self._unsent.full:
            self.writable = False

    # -- within --

    def _ended(self) -> Ended:
        return Ended(f"{self.caller.remote} closed the channel").because("hung_up")

    def _deliver(self, found: list[bytes | Malformed]) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        self._flushing = True  # what is answered meanwhile goes out together, at the end
        try:
            for message in found:
                if type(message) is bytes:
                    receiver.received(message)
                else:
                    receiver.refused(cast(Malformed, message))
                if self._why is not None and self._wire is not None:
                    break  # closed by what was delivered
        finally:
            self._flushing = False
            self._write()

    def _catch_up(self) -> None:
        """Deliver what came before `open`."""
        early, self._early = self._early, None
        finished, self._finished = self._finished, False
        for data in early or ():
            self._deliver(self._framing.feed(data))
        if finished:
            self.eof_received()
        if self._wire is None and self._why is not None and self._receiver is not None:
            self._receiver.ended(self._why)

    def _finish(self) -> None:
        self._finished = True
        if self._why is None and self._receiver is not None:
            if self._listener is not None:
                self._half_closed = HalfClosedWatch(self._limits.half_closed_timeout, self._framing.gap, self)
            self._receiver.finished()

    def _flush(self) -> None:
        self._flushing = False
        self._write()

    def _write(self) -> None:
        pending = self._pending
        if not pending:
            return
        data = pending[0] if len(pending) == 1 else b"".join(pending)
        pending.clear()
        self._pending_size = 0
        if self._wire is not None and not self._wire.is_closing():
            unsent = self._unsent
            if len(data) > PIECE or (unsent is not None and unsent.on):
                self._watched().write(self._wire, data, tls=self.caller.tls)
                self._fill()
            else:
                self._wire.write(data)

    async def _drained(self) -> None:
        """Wait until the wire takes more, or is gone."""
        while not self.writable and self._wire is not None:
            await self._waiters.wait()

    def probe(self, gap: bytes) -> None:
        """Write `gap`, which a far end ignores, to find out whether it still exists."""
        if self._why is None and self._wire is not None and not self._pending and self.writable:
            if self._unsent is not None and self._unsent.on:
                self._unsent.write(self._wire, gap)
            else:
                self._wire.write(gap)

    def _too_slow(self, why: str) -> None:
        self.abort(Broken(f"{self.caller.remote} {why}"))

    def _owner(self) -> str:
        return self.caller.owner


class HalfClosedWatch:
    """Probes a half-closed channel with `gap`, and cuts it off after `seconds`, until `end`."""

    __slots__ = ("_channel", "_gap", "_last", "_loop", "_pause", "_timer")

    def __init__(self, seconds: float | None, gap: bytes, channel: StreamChannel) -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._gap = gap
        self._pause = PROBE
        self._timer = self._loop.call_later(PROBE, self._probe) if gap else None
        words = f"it had closed its sending side for {seconds} s (limit half_closed_timeout)"
        self._last = None if seconds is None else self._loop.call_later(seconds, channel.cut_off, words)

    def end(self) -> None:
        """Stop probing: the channel is over."""
        for timer in (self._timer, self._last):
            if timer is not None:
                timer.cancel()

    def _probe(self) -> None:
        self._channel.probe(self._gap)
        self._timer = self._loop.call_later(self._pause, self._probe)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
