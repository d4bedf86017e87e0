"""Channels over streams of bytes: TCP, TLS and Unix sockets; and over pipes, which `stdio` brings.

Rules:

- One small object a channel, no task of its own: an idle channel costs its socket and a few hundred bytes.
- Reading is never paused for calls in flight: answers, cancels and pings are always taken.
- All that is sent in one turn of the loop goes out in one write.
- The far end's end of file ends what it says, not what it hears: `Receiver.finished`. Our own end is decent too:
  after the last byte we say so and wait a moment for the far end to do the same, since closing a socket with
  unread bytes resets it, which can destroy answers still under way.
- A write that makes no headway for `limits.write_timeout` above the high-water mark breaks the channel.
- What a peer can cause at will (refused handshakes, one channel too many) is one escaped line at debug level.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, cast

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
    Served,
)
from ..jsonrpc.errors import LocalError
from ..jsonrpc.framing import Framing, framing
from ..jsonrpc.limits import Limits
from ..jsonrpc.messages import Malformed
from .sockets import BACKLOG, bind, bind_unix, cannot_dial, cannot_listen, in_words, keep_alive, place, sole
from .urls import Url, parse, printable

log = logging.getLogger("dragoman.wire")

_AT_ONCE = 64 * 1024
"""So many bytes waiting for the end of this turn of the loop are written before it."""
_LINGER = 1.0
"""Seconds for the far end to end its side after we have ended ours."""
_RELEASE = 10.0
"""Seconds for a wire to let go once it was told to close; then it is cut."""
_TLS_GOODBYE = 2.0
"""Seconds for the far end to answer our TLS close_notify."""

_NOBODY = Caller()
FramingName = Literal["newline", "content-length"]


class Wire(Protocol):
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


class StreamChannel(asyncio.Protocol):
    """A `Channel` over one stream of bytes."""

    __slots__ = (
        "_door",
        "_early",
        "_finished",
        "_flushing",
        "_framing",
        "_gone",
        "_handed",
        "_limits",
        "_loop",
        "_pending",
        "_pending_size",
        "_receiver",
        "_waiters",
        "_watch",
        "_why",
        "_wire",
        "caller",
        "writable",
    )

    duplex = True

    def __init__(self, framing: Framing, limits: Limits, caller: Caller, door: Door | None = None) -> None:
        self.caller = caller
        self.writable = True
        self._framing = framing
        self._limits = limits
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None  # None before it is there and after it is gone
        self._receiver: Receiver | None = None
        self._early: list[bytes] | None = None  # what came before `open`
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._handed = 0  # bytes given to the wire so far
        self._flushing = False  # somebody will write what is pending
        self._finished = False  # the far end says no more
        self._why: ChannelError | None = None  # set: closing, or over
        self._gone: asyncio.Future[None] | None = None  # for `close` to wait on
        self._waiters: list[asyncio.Future[None]] | None = None
        self._watch: asyncio.TimerHandle | None = None

    # -- Channel --

    def open(self, receiver: Receiver) -> None:
        """See `Channel.open`."""
        self._receiver = receiver
        if self._wire is None and self._why is not None:
            self._loop.call_soon(receiver.ended, self._why)
            return
        if self._early is not None or self._finished:
            self._loop.call_soon(self._catch_up)
        if self._wire is not None and not self._wire.is_reading():
            self._wire.resume_reading()

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        """See `Channel.send`."""
        if self._why is not None:
            raise self._why.with_traceback(None)
        data = self._framing.wrap(message)
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > _AT_ONCE:
            self._write()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    async def flush(self) -> None:
        """See `Channel.flush`."""
        if self._why is not None:
            raise self._why.with_traceback(None)
        self._write()
        await self._drained()
        if self._why is not None:
            raise self._why.with_traceback(None)

    async def close(self) -> None:
        """See `Channel.close`."""
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
        self._why = self._ended() if self._finished else Closed(f"The channel to {self.caller.remote} was closed here")
        try:
            wire.set_write_buffer_limits(high=1, low=0)  # "drained" means empty from here on
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.write_timeout):
                    await self._drained()
                if wire.can_write_eof() and not self._finished and self._receiver is not None:
                    wire.write_eof()
                    await asyncio.wait([gone], timeout=_LINGER)
                wire.close()
                await asyncio.wait([gone], timeout=_RELEASE)
        finally:
            if not gone.done():
                wire.abort()
        await asyncio.wait([gone])

    async def gone(self) -> None:
        """Until the channel is over."""
        if self._gone is None:
            self._gone = self._loop.create_future()
        await asyncio.wait([self._gone])

    def abort(self, why: ChannelError) -> None:
        """See `Channel.abort`."""
        if self._why is None:
            self._why = why
        self._pending.clear()
        if self._wire is not None:
            self._wire.abort()

    # -- asyncio.Protocol: what the wire tells us --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self._wire = cast(Wire, transport)
        wire.set_write_buffer_limits(high=self._limits.send_queue)
        if self._door is not None:
            self._door.admit(self)
        if self._receiver is None and not wire.is_closing():
            wire.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._why is not None or self._finished:
            return
        if self._receiver is None or self._early is not None:
            self._early = [*(self._early or ()), data]
            if self._receiver is None and self._wire is not None and self._wire.is_reading():
                self._wire.pause_reading()  # uvloop forgets what it was told in connection_made
            return
        self._deliver(self._framing.feed(data))
        if self._framing.lost and self._why is None:
            self._finish()

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
                self._why = Broken(f"The channel to {self.caller.remote} broke: {in_words(exc)}")
        self._wire = None
        self._pending.clear()
        self._stop_watch()
        self._wake()
        if self._gone is None:
            self._gone = self._loop.create_future()
        if not self._gone.done():
            self._gone.set_result(None)
        if self._door is not None:
            self._door.left(self)
        if self._receiver is not None:
            self._receiver.ended(self._why)

    def pause_writing(self) -> None:
        self.writable = False
        if self._limits.write_timeout is not None:
            self._look(0, -1)

    def resume_writing(self) -> None:
        self.writable = True
        self._stop_watch()
        self._wake()
        if self._receiver is not None and self._why is None:
            self._receiver.resumed()

    # -- within --

    def _ended(self) -> Ended:
        return Ended(f"{self.caller.remote} closed the channel")

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
                if self._why is not None:
                    break
        finally:
            self._flushing = False
            self._write()

    def _catch_up(self) -> None:
        """Deliver what came before `open`."""
        early, self._early = self._early, None
        finished, self._finished = self._finished, False
        for data in early or ():
            self.data_received(data)
        if finished:
            self.eof_received()

    def _finish(self) -> None:
        self._finished = True
        if self._why is None and self._receiver is not None:
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
            self._handed += len(data)
            self._wire.write(data)

    async def _drained(self) -> None:
        """Until the wire takes more, or is gone."""
        while not self.writable and self._wire is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def _look(self, idle: int, before: int) -> None:
        """Four looks in `limits.write_timeout`; four in a row that see no byte leave are a stalled write."""
        timeout = self._limits.write_timeout
        if self._wire is None or timeout is None:
            return
        written = self._handed - self._wire.get_write_buffer_size()
        idle = idle + 1 if written == before else 0
        if idle < 4:
            self._watch = self._loop.call_later(timeout / 4, self._look, idle, written)
        else:
            self.abort(Broken(f"{self.caller.remote} took nothing of what was sent to it for {timeout:g} s"))

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


# -- dialling -------------------------------------------------------------------------------------


async def dial(url: str, options: Options) -> Channel:
    """See `channel.Dial`: `tcp://`, `tls://` and `unix:`. `limits.call_timeout` is the time for it."""
    where = parse(url)
    tls = where.scheme == "tls"
    limits = options.limits
    remote = where.path if where.scheme == "unix" else where.address
    caller = Caller(scheme=where.scheme, remote=printable(remote), tls=tls)
    channel = StreamChannel(framing(framing_name(where, options), limits), limits, caller)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limits.call_timeout):
            if where.scheme == "unix":
                await loop.create_unix_connection(lambda: channel, where.path)
            else:
                more: dict[str, Any] = {}
                if tls:
                    more["ssl"] = options.tls or ssl.create_default_context()
                    more["server_hostname"] = where.host or "localhost"
                    more["ssl_shutdown_timeout"] = _TLS_GOODBYE
                made, _ = await loop.create_connection(lambda: channel, where.host or "localhost", where.port, **more)
                keep_alive(made.get_extra_info("socket"))
    except (OSError, UnicodeError) as fault:
        raise cannot_dial(where, fault) from fault
    return channel


def framing_name(url: Url, options: Options) -> FramingName:
    """The framing that was chosen. LocalError for an unknown one, and for anything else that a query says."""
    for name in url.query:
        if name != "framing":
            raise LocalError(f"{url.shown}: ?{printable(name)}= means nothing here; there is ?framing=")
    name = options.framing or url.query.get("framing", "newline")
    if name not in ("newline", "content-length"):
        raise LocalError(f"{url.shown}: no framing is called {printable(name)!r}; take newline or content-length")
    return cast(FramingName, name)


# -- listening ------------------------------------------------------------------------------------


class Door:
    """A `Listener` on TCP, TLS or Unix sockets, and the channels that came in by it."""

    def __init__(self, url: Url, served: Served, options: Options) -> None:
        self.url = url.shown
        self._scheme = url.scheme
        self._served = served
        self._limits = options.limits
        self._framing = framing_name(url, options)
        self._tls: ssl.SSLContext | None = options.tls if url.scheme == "tls" else None
        self._servers: list[asyncio.Server] = []
        self._doors: list[socket.socket] = []  # those of TLS, see `_knocked`
        self._remove: Callable[[], None] | None = None  # the socket file
        self._channels: set[StreamChannel] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._open = True
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()

    async def start(self, url: Url, mode: int) -> None:
        """Open it."""
        loop = asyncio.get_running_loop()
        if url.scheme == "unix":
            door, self._remove = bind_unix(url, mode)
            self._servers.append(await loop.create_unix_server(self._arrive, sock=door))
            return
        doors = await bind(url, socket.SOCK_STREAM)
        self.url = place(url, doors)
        for door in doors:
            if self._tls is not None:
                self._doors.append(door)
                loop.add_reader(door, self._knocked, door)
            else:
                self._servers.append(await loop.create_server(self._arrive, sock=door))

    async def close(self) -> None:
        """See `Listener.close`."""
        self._open = False
        if self._remove is not None:
            self._remove()
            self._remove = None
        for server in self._servers:
            server.close()
        for door in self._doors:
            asyncio.get_running_loop().remove_reader(door)
            door.close()
        self._doors.clear()
        for task in tuple(self._handshakes):
            task.cancel()

    async def closed(self) -> None:
        """See `Listener.closed`."""
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        await self._empty.wait()

    def _arrive(self) -> StreamChannel:
        return StreamChannel(framing(self._framing, self._limits), self._limits, _NOBODY, self)

    def admit(self, channel: StreamChannel) -> None:
        """Serve a channel whose wire has come, unless there are too many."""
        wire = cast(asyncio.Transport, channel._wire)
        name = wire.get_extra_info("peername")
        remote = remote_name(name) if self._scheme != "unix" else "a program on this machine"
        channel.caller = Caller(scheme=self._scheme, remote=remote, tls=self._tls is not None)
        if not self._open or (self._tls is None and self._full()):
            channel.abort(Closed("There is no room for one more channel"))
            log.debug("%s: %s turned away: %s", self.url, remote, "closing" if not self._open else "limits.channels")
            return
        self._channels.add(channel)
        self._empty.clear()
        self._served.attach(channel)

    def left(self, channel: StreamChannel) -> None:
        """A channel is over."""
        self._channels.discard(channel)
        if not self._channels:
            self._empty.set()

    def _full(self) -> bool:
        """As many channels and handshakes as the limit allows are there."""
        return len(self._channels) + len(self._handshakes) >= self._limits.channels

    def _knocked(self, door: socket.socket) -> None:
        """Somebody wants to come in by TLS. asyncio's own server would neither count nor report handshakes."""
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                sock, name = door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:  # no more descriptors: let others go first
                log.warning("%s: cannot accept: %s; trying again in a second", self.url, in_words(fault))
                loop.remove_reader(door)
                loop.call_later(1.0, self._knock_again, door)
                return
            remote = remote_name(name)
            if self._full():
                log.debug("%s: %s turned away: limits.channels", self.url, remote)
                sock.close()
                continue
            sock.setblocking(False)
            task = loop.create_task(self._shake(sock, remote))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _knock_again(self, door: socket.socket) -> None:
        if self._open:
            asyncio.get_running_loop().add_reader(door, self._knocked, door)

    async def _shake(self, sock: socket.socket, remote: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._arrive,
                sock,
                ssl=self._tls,
                ssl_handshake_timeout=self._limits.header_timeout,
                ssl_shutdown_timeout=_TLS_GOODBYE,
            )
        except OSError as fault:
            log.debug("%s: no handshake with %s: %s", self.url, remote, in_words(fault))
            sock.close()


async def listen(url: str, served: Mapping[str, Served], options: Options) -> Listener:
    """See `channel.Listen`: `tcp://`, `tls://` and `unix:`."""
    where = parse(url)
    if where.scheme == "tls" and not isinstance(options.tls, ssl.SSLContext):
        raise LocalError(f"{where.shown}: a TLS server needs its certificate: give an ssl.SSLContext as tls=")
    door = Door(where, sole(where, served), options)
    try:
        await door.start(where, options.mode)
    except OSError as fault:
        await door.close()
        raise fault if isinstance(fault, LocalError) else cannot_listen(where, fault) from fault
    return door


def remote_name(name: object) -> str:
    """A peer's address in words, from what the socket says."""
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0])
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    return str(name) if name else "an unknown peer"
