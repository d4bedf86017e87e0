"""TCP, TLS and Unix sockets: dialling and listening. The channel itself is in `channel`.

Rules:

- An accepted channel is served at once, unless there are `limits.channels` already; TLS handshakes count among them.
  With a guard (`admission`) it is served once the guard has admitted it.
- What a peer can cause at will (a handshake that fails, one channel too many) is one escaped line at debug level.
- A closed listener removes its socket file, if that is still its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from ...channel import Budget, Caller, Channel, Closed, Guard, Listener, Options, Servable
from ...jsonrpc.errors import LocalError
from ...jsonrpc.framing import FRAMINGS, FramingName, framing
from ...net.accept import LoadBoard, SocketAcceptor, wait_for_arrivals
from ...net.sending import Waiters
from ...net.sockets import (
    bind,
    bind_unix,
    bound_url,
    cannot_dial,
    cannot_listen,
    inherited_sockets,
    open_connection,
    remote_name,
    sole_service,
)
from ...net.urls import Url, parse, printable
from ...observer import Rejection
from ...system.unix_sockets import connect_unix
from ..partial import PartialMessages
from .admission import Admissions
from .channel import StreamChannel, StreamWire

log: logging.Logger = logging.getLogger("dragoman.wire")

_NOT_KNOWN_YET = Caller()


# -- dialling -------------------------------------------------------------------------------------


async def dial(url: str, options: Options) -> Channel:
    """Connect to a `tcp://`, `tls://` or `unix:` URL, within `limits.call_timeout`. Raises Broken, LocalError."""
    where = parse(url)
    limits = options.limits
    remote = where.path if where.scheme == "unix" else where.address
    caller = Caller(scheme=where.scheme, remote=printable(remote), tls=where.tls)
    channel = StreamChannel(framing(framing_name(where, options), limits), limits, caller)
    try:
        async with asyncio.timeout(limits.call_timeout):
            if where.scheme == "unix":
                await connect_unix(lambda: channel, where.path)
            else:
                await open_connection(lambda: channel, where, options.client_tls)
    except (OSError, UnicodeError) as fault:
        raise cannot_dial(where, fault) from fault
    return channel


def framing_name(url: Url, options: Options) -> FramingName:
    """Return the framing that was chosen. Raises LocalError for an unknown one, and for anything else in the query."""
    for name in url.query:
        if name != "framing":
            raise LocalError(f"{url.shown}: ?{printable(name)}= means nothing here; there is ?framing=")
    name = options.framing or url.query.get("framing", "newline")
    if name not in FRAMINGS:
        raise LocalError(f"{url.shown}: no framing is called {printable(name)!r}; take one of {', '.join(FRAMINGS)}")
    return cast(FramingName, name)


# -- listening ------------------------------------------------------------------------------------


class StreamListener:
    """A `Listener` on TCP, TLS or Unix sockets, and the channels that came in by it."""

    def __init__(self, url: Url, served: Servable, options: Options) -> None:
        self.url: str = url.shown
        self._scheme = url.scheme
        self._served = served
        self._limits = options.limits
        self.budget: Budget = served.call_limit.budget
        self._rejected = options.rejected
        self._framing = framing_name(url, options)
        self._tls: ssl.SSLContext | None = options.server_tls if url.tls else None
        self._acceptors: list[SocketAcceptor] = []
        self._remove: Callable[[], None] | None = None  # the socket file
        self._channels: set[StreamChannel] = set()
        self._partial = PartialMessages(options.limits)
        self._open = True
        self._counting = False  # limits.channels is checked when a connection is accepted
        self._guard: Admissions | None = None
        self._load_board: LoadBoard | None = options.load_board
        self._left = Waiters()

    async def start(self, url: Url, mode: int, given: list[socket.socket], guard: Guard | None) -> None:
        """Open it, on the sockets that are `given`, which other processes share, or on new ones. Raises
        CannotListen."""
        unix = url.scheme == "unix"
        bound = given
        if unix and not given:
            listening, self._remove = bind_unix(url, mode)
            bound = [listening]
        elif not given:
            bound = await bind(url, socket.SOCK_STREAM)
        if not unix:
            self.url = bound_url(url, bound)
        if guard is not None:
            self._guard = Admissions(guard, self._limits.guard_timeout, self.url, self._served.attach, self._rejected)
        self._counting = bool(given) or self._tls is not None
        self._acceptors = [self._accepting(listening, bool(given)) for listening in bound]

    def _accepting(self, listening: socket.socket, shared: bool) -> SocketAcceptor:
        return SocketAcceptor(
            listening,
            self._arrive,
            self._channels.__len__,
            self._load_board,
            full=self._full if self._counting else lambda: False,  # without TLS the caller gets the reason
            url=self.url,
            tls=self._tls,
            handshake=self._limits.header_timeout,
            shared=shared,
        )

    async def close(self) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None
        for acceptor in self._acceptors:
            acceptor.close()
        await wait_for_arrivals(self._acceptors, self._limits.drain_timeout)
        self._open = False
        if self._guard is not None:
            self._guard.close()

    async def closed(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.wait_closed()
        while self._channels:
            await self._left.wait()
        if self._guard is not None:
            await self._guard.closed()
        self._partial.close()

    def _arrive(self) -> StreamChannel:
        return StreamChannel(framing(self._framing, self._limits), self._limits, _NOT_KNOWN_YET, self)

    def admit(self, channel: StreamChannel, wire: StreamWire) -> None:
        """Serve a channel whose wire has come, unless there are too many."""
        transport = cast(asyncio.Transport, wire)
        name = transport.get_extra_info("peername")
        remote = remote_name(name) if self._scheme != "unix" else "a program on this machine"
        channel.caller = Caller(scheme=self._scheme, remote=remote, tls=self._tls is not None)
        if not self._open or (not self._counting and self._full()):
            channel.abort(Closed("There is no room for one more channel"))
            why = "closing" if not self._open else "limits.channels"
            if self._rejected is not None:
                self._rejected(Rejection(kind="busy", reason=why, place=self.url, caller=channel.caller))
            log.debug("%s: %s turned away: %s", self.url, remote, why)
            return
        self._channels.add(channel)
        if self._guard is None:
            self._served.attach(channel)
        else:
            self._guard.ask(channel, transport)

    def kept(self, channel: StreamChannel, size: int, message: int) -> None:
        self._partial.kept(channel, size, message)

    def left(self, channel: StreamChannel) -> None:
        """Forget a channel that is over."""
        self._partial.kept(channel, 0, 0)
        if self._guard is not None:
            self._guard.left(channel)
        self._channels.discard(channel)
        self._left.wake()

    def _full(self) -> bool:
        """Return whether there are as many channels and handshakes as the limit allows."""
        arriving = sum(len(acceptor.arriving) for acceptor in self._acceptors) if self._counting else 0
        return len(self._channels) + arriving >= self._limits.channels


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
    """Serve one object at a `tcp://`, `tls://` or `unix:` URL. Raises LocalError."""
    where = parse(url)
    if where.tls and not isinstance(options.server_tls, ssl.SSLContext):
        raise LocalError(f"{where.shown}: a TLS server needs its certificate: give an ssl.SSLContext as tls=")
    listener = StreamListener(where, sole_service(where, served), options)
    try:
        await listener.start(where, options.mode, inherited_sockets(url, options), options.guard)
    except OSError as fault:
        await listener.close()
        raise fault if isinstance(fault, LocalError) else cannot_listen(where, fault) from fault
    return listener
