"""Channels within one process: `memory:name`, and `pair()` for two ends without a name.

Rules:

- Messages are passed as they are; the limits of size apply as on every wire.
- Both ends share one pump: one turn of the loop carries messages to the far end and its answers back. After a number of
  messages it lets other tasks run.
- A call is delivered by `send` itself, in place (see `in_place`), if no message waits, and so is the first message that
  comes back meanwhile: an answer that is ready at once costs no turn of the loop. All else is delivered by the pump, so
  the order of messages, and of what they start, is that of other wires. A receiver is never called
  from within a call of it.
- A name is known only in the event loop that listens on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..channel import (
    Broken,
    Caller,
    Channel,
    ChannelError,
    Closed,
    Ended,
    Listener,
    Options,
    Outgoing,
    Receiver,
    Servable,
    again,
)
from ..jsonrpc.dropped import overlong
from ..jsonrpc.errors import LocalError, too_large
from ..jsonrpc.limits import Limits
from ..net.sending import Waiters
from ..net.sockets import cannot_listen, sole_service
from ..net.urls import Url, parse
from .in_place import in_place

if TYPE_CHECKING:
    from .in_place import InPlace

_BURST = 256
"""Messages of one run of the pump."""


class MemoryChannel:
    """One end of a `Channel` within the process."""

    __slots__ = (
        "_awaiting",
        "_closing",
        "_delivering",
        "_ended",
        "_inbox",
        "_limits",
        "_listener",
        "_pump",
        "_queued",
        "_receiver",
        "_waiters",
        "_why",
        "caller",
        "far",
        "writable",
    )

    duplex = True

    def __init__(self, limits: Limits, caller: Caller, pump: _Pump) -> None:
        self.caller: Caller = caller
        self.writable: bool = True
        self.far: MemoryChannel = self  # set by `pair`
        self._limits = limits
        self._pump = pump
        self._inbox: deque[bytes] = deque()
        self._queued = 0  # bytes in `_inbox`
        self._delivering = False  # the receiver takes a message in place
        self._awaiting = False  # a call of ours is delivered in place, and no message has come back
        self._receiver: Receiver | None = None
        self._why: ChannelError | None = None  # if set, the channel is over, or will be when the inbox is empty
        self._ended = False  # `Receiver.ended` was called
        self._closing = False  # by us: the inbox is not delivered any more
        self._waiters = Waiters()
        self._listener: MemoryListener | None = None

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._pump.start()

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if self._why is not None:
            raise again(self._why)
        far, pump = self.far, self._pump
        is_call, receiver = call is not None, far._receiver
        if (is_call or far._awaiting) and not (pump.running or far._delivering) and receiver is not None:
            far._awaiting, self._awaiting, far._delivering = False, is_call, True
            take = receiver.received if len(message) <= far._limits.message_size else far._refuse
            try:
                if pump.in_place.deliver(take, message):
                    return
            finally:
                self._awaiting = far._delivering = False
        far._inbox.append(message)
        far._queued += len(message)
        if far._queued > self._limits.send_queue:
            self.writable = False
        if not pump.running:
            pump.start()

    async def flush(self) -> None:
        while not self.writable and self._why is None:
            await self._waiters.wait()
        if self._why is not None:
            raise again(self._why)

    async def close(self) -> None:
        if not self._closing:
            far = self.far
            self._closing = True
            self._why = self._why or Closed(f"The channel to {self.caller.remote} was closed here: connect anew")
            far._why = far._why or Ended(f"{far.caller.remote} closed the channel")
            self._pump.start()
        if not self._ended:
            await self._waiters.wait()

    def abort(self, why: ChannelError) -> None:
        if self._ended:
            return
        self._closing = True
        self._why = self._why or why
        far = self.far
        far._inbox.clear()
        far._queued = 0
        far._why = far._why or Broken(f"{far.caller.remote} broke the channel")
        self._pump.start()

    # -- for the pump and the far end --

    def _deliver(self, most: int) -> int:
        """Deliver up to `most` messages of the inbox; return their number."""
        receiver, inbox = self._receiver, self._inbox
        if receiver is None:
            return 0
        done = 0
        while inbox and done < most and not self._closing:
            message = inbox.popleft()
            self._queued -= len(message)
            done += 1
            take = receiver.received if len(message) <= self._limits.message_size else self._refuse
            take(message)
        far = self.far
        if not far.writable and self._queued <= far._limits.send_queue // 4:
            far._resume()
        return done

    def _refuse(self, message: bytes) -> None:
        """Report a message that is too long for the receiver."""
        if self._receiver is not None:
            self._receiver.refused(
                overlong(message, too_large("message_size", self._limits.message_size, len(message)))
            )

    def _resume(self) -> None:
        self.writable = True
        self._waiters.wake()
        if self._receiver is not None and self._why is None:
            self._receiver.resumed()

    def _settle(self) -> None:
        """Report the end, once the channel is over."""
        if self._ended:
            return
        if self._closing:
            self._inbox.clear()
        elif self._inbox:
            return
        if self._receiver is None and not self._closing:
            return  # the peer that opens it learns it then
        assert self._why is not None
        self._ended = True
        self._waiters.wake()
        if self._listener is not None:
            self._listener.left(self)
        if self._receiver is not None:
            self._receiver.ended(self._why)


class _Pump:
    """Carries the messages of two ends, both ways, until there are none."""

    __slots__ = ("_loop", "ends", "in_place", "running")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ends: tuple[MemoryChannel, ...] = ()
        self.running: bool = False
        """A run is due, or under way: the messages that it delivers come first."""
        self.in_place: InPlace = in_place()

    def start(self) -> None:
        if not self.running:
            self.running = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        left, before = _BURST, 0
        try:
            while 0 < left != before:
                before = left
                for end in self.ends:
                    if end._inbox:
                        left -= end._deliver(left)
        except BaseException:  # a fault of a receiver; the other messages are still delivered
            left = 0
            raise
        finally:
            self.running = False
            if left <= 0:
                self.start()
        for end in self.ends:
            if end._why is not None:
                end._settle()


def pair(
    limits: Limits | None = None, far_limits: Limits | None = None, *, name: str = "pair"
) -> tuple[MemoryChannel, MemoryChannel]:
    """Two ends of one channel: what one end sends, the other receives. Each end has limits of its own for what it
    receives. Call it on a running loop."""
    limits = limits or Limits()
    pump = _Pump()
    caller = Caller(scheme="memory", remote=f"memory:{name}")
    near, far = MemoryChannel(limits, caller, pump), MemoryChannel(far_limits or limits, caller, pump)
    near.far, far.far = far, near
    pump.ends = (near, far)
    return near, far


class MemoryListener:
    """A `Listener` under a name."""

    def __init__(self, url: Url, served: Servable, limits: Limits) -> None:
        self.url: str = url.shown
        self._name = url.path
        self._served = served
        self._limits = limits
        self._names = _names()
        self._channels: set[MemoryChannel] = set()
        self._left = Waiters()
        if self._name in self._names:
            raise cannot_listen(url, "the name is in use")
        self._names[self._name] = self

    async def close(self) -> None:
        if self._names.get(self._name) is self:
            del self._names[self._name]

    async def closed(self) -> None:
        while self._channels:
            await self._left.wait()

    def connect(self, limits: Limits) -> MemoryChannel:
        """The caller's end of a new channel. Raises Broken above the limit of channels."""
        if len(self._channels) >= self._limits.channels:
            raise Broken(f"Cannot connect to {self.url}: it has its {self._limits.channels} channels already")
        near, far = pair(limits, self._limits, name=self._name)
        far._listener = self
        self._channels.add(far)
        self._served.attach(far)
        return near

    def left(self, channel: MemoryChannel) -> None:
        """Forget a channel that is over."""
        self._channels.discard(channel)
        self._left.wake()


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, MemoryListener]] = WeakKeyDictionary()


def _names() -> dict[str, MemoryListener]:
    return _LOOPS.setdefault(asyncio.get_running_loop(), {})


async def dial(url: str, options: Options) -> Channel:
    """Connect to a `memory:name` URL. Raises Broken when nothing in this event loop listens on the name."""
    where = _where(url)
    listener = _names().get(where.path)
    if listener is None:
        raise Broken(f"Cannot connect to {where.shown}: nothing listens on it in this event loop")
    return listener.connect(options.limits)


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
    """Serve one object under a `memory:name` URL. Raises LocalError."""
    where = _where(url)
    return MemoryListener(where, sole_service(where, served), options.limits)


def _where(url: str) -> Url:
    where = parse(url)
    if where.query:
        raise LocalError(f"{where.shown}: memory: takes no query")
    return where
