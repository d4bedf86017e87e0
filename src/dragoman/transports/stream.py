"""TCP, TLS and Unix sockets: dialling and listening. The channel itself is in `stream_channel`.

Rules:

- An accepted channel is served at once, unless `limits.channels` are there; TLS handshakes count among them.
- What a peer can cause at will (a handshake that fails, one channel too many) is one escaped line at debug level.
- A closed door takes its socket file with it, if that is still its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from ..channel import Caller, Channel, Closed, Listener, Options, Served
from ..jsonrpc.errors import LocalError
from ..jsonrpc.framing import framing
from .shared import Crowd, SharedDoor
from .sockets import (
    ACCEPTS,
    BACKLOG,
    bind,
    bind_unix,
    cannot_dial,
    cannot_listen,
    in_words,
    inherited,
    keep_alive,
    place,
    sole,
)
from .stream_channel import StreamChannel, Wire
from .urls import Url, parse, printable

log = logging.getLogger("dragoman.wire")

_TLS_GOODBYE = 2.0
"""Seconds for the far end to answer our TLS close_notify."""
_NOBODY = Caller()

FramingName = Literal["newline", "content-length"]


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
        self._servers: list[asyncio.Server | SharedDoor] = []
        self._doors: list[socket.socket] = []  # those of TLS, see `_knocked`
        self._remove: Callable[[], None] | None = None  # the socket file
        self._channels: set[StreamChannel] = set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._open = True
        self._crowd: Crowd | None = options.crowd
        self._accepts = BACKLOG  # TLS handshakes begun at one wake-up
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()

    async def start(self, url: Url, mode: int, given: list[socket.socket]) -> None:
        """Open it, on sockets that are shared with others where some are given."""
        loop = asyncio.get_running_loop()
        if given:
            self._share(url, given)
            return
        if url.scheme == "unix":
            door, self._remove = bind_unix(url, mode)
            self._servers.append(await loop.create_unix_server(self._arrive, sock=door, backlog=ACCEPTS))
            door.listen(BACKLOG)
            return
        doors = await bind(url, socket.SOCK_STREAM)
        self.url = place(url, doors)
        for door in doors:
            if self._tls is not None:
                self._doors.append(door)
                loop.add_reader(door, self._knocked, door)
            else:
                self._servers.append(await loop.create_server(self._arrive, sock=door, backlog=ACCEPTS))
                door.listen(BACKLOG)

    def _share(self, url: Url, doors: list[socket.socket]) -> None:
        if url.scheme != "unix":
            self.url = place(url, doors)
        if self._tls is None:
            count = self._channels.__len__
            self._servers += [SharedDoor(door, self._arrive, count, self._crowd) for door in doors]
            return
        self._accepts = 1
        self._doors += doors
        for door in doors:
            asyncio.get_running_loop().add_reader(door, self._knocked, door)

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

    def admit(self, channel: StreamChannel, wire: Wire) -> None:
        """Serve a channel whose wire has come, unless there are too many."""
        name = cast(asyncio.Transport, wire).get_extra_info("peername")
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
        for _ in range(self._accepts):
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
        await door.start(where, options.mode, inherited(url, options))
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
