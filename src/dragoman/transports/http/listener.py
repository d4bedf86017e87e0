"""The native HTTP listener: a listening socket, its connections, and their deadlines.

It serves an `App` on `asyncio.Protocol` and httptools; the rules of a connection are in `connection`.
`http://` and `https://` take calls and WebSocket upgrades, `ws://` and `wss://` only upgrades.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...channel import Options, Servable
from ...jsonrpc.errors import LocalError
from ...net import urls
from ...net.accept import ON_ITS_WAY, SocketAcceptor
from ...net.sending import Waiters
from ...net.sockets import bind, inherited_sockets, names_of_this_machine
from ..partial import PartialMessages
from .app import App
from .connection import ServerConnection
from .known_heads import BEHIND, KnownHeads
from .policy import is_loopback
from .stages import NEVER, stage_times

if TYPE_CHECKING:
    from .websocket import WebSocket


class HttpListener:
    """A listener for HTTP and WebSocket."""

    def __init__(self, app: App, url: str, *, tls: bool, loopback: bool, shared: bool = False) -> None:
        self.app = app
        self.url = url
        self.tls: bool = tls
        self.loopback: bool = loopback
        self.heads: KnownHeads = KnownHeads(app.limits.header_size, app.limits.message_size, app.protected)
        self.heads_behind: KnownHeads = self.heads
        """The heads of requests through trusted proxies, of which more lines matter."""
        if app.proxies is not None:
            sizes = app.limits.header_size, app.limits.message_size
            self.heads_behind = KnownHeads(*sizes, app.protected, matters=BEHIND)
        self._loop = asyncio.get_running_loop()
        self.now: float = self._loop.time()
        """The time of the last sweep."""
        limits = app.limits
        times = [one for one in (limits.header_timeout, limits.body_timeout, limits.idle_timeout) if one is not None]
        self._tick = min([1.0, *(one / 4 for one in times)])
        self.waits: Sequence[float] = [NEVER if one is None else one + self._tick for one in stage_times(limits)]
        """Time for each stage of a connection, plus one tick because `now` may be a tick old."""
        self.partial: PartialMessages = PartialMessages(limits)
        self._connections: set[ServerConnection] = set()
        self._sockets: set[WebSocket] = set()
        self.acceptors: list[SocketAcceptor] = []
        self._closing = False
        self._expects = True
        """Requests may be on their way: false at the end of `close`."""
        self._shared = shared
        self._left = Waiters()
        self._timer = self._loop.call_later(self._tick, self._sweep)

    @property
    def wires(self) -> frozenset[ServerConnection | WebSocket]:
        """Its open connections."""
        return frozenset((*self._connections, *self._sockets))

    def carried(self) -> int:
        """The number of open connections."""
        return len(self._connections) + len(self._sockets)

    def full(self) -> bool:
        """Whether the limit of connections, TLS handshakes included, is reached."""
        arriving = sum(len(acceptor.arriving) for acceptor in self.acceptors)
        return self.carried() + arriving >= self.app.limits.channels

    def accept(self, listening: socket.socket, options: Options) -> None:
        """Accept connections from this socket."""
        acceptor = SocketAcceptor(
            listening,
            lambda: ServerConnection(self),
            self.carried,
            options.load_board,
            full=self.full if self.tls else lambda: False,  # without TLS the caller gets 503
            url=self.url,
            tls=options.server_tls if self.tls else None,
            handshake=options.limits.header_timeout,
            shared=self._shared,
        )
        self.acceptors.append(acceptor)

    # -- for its wires

    def admit(self, connection: ServerConnection) -> bool:
        """Register a connection that has come; False when there are too many."""
        connection.retiring = self._closing  # it was in the queue of the socket
        connection.grace = self._expects
        self._connections.add(connection)
        return self.carried() <= self.app.limits.channels

    def became(self, connection: ServerConnection, socket: WebSocket) -> None:
        """Replace a connection by the WebSocket to which it was upgraded."""
        self.partial.kept(connection, 0, None)
        self._connections.discard(connection)
        self._sockets.add(socket)

    def gone(self, wire: ServerConnection | WebSocket) -> None:
        """Forget a connection that has ended."""
        self.partial.kept(wire, 0, None)
        if isinstance(wire, ServerConnection):
            self._connections.discard(wire)
        else:
            self._sockets.discard(wire)
        self._left.wake()

    def _sweep(self) -> None:
        """Check every deadline."""
        now = self.now = self._loop.time()
        for connection in [connection for connection in self._connections if connection.deadline <= now]:
            connection.expired()
        self._timer = self._loop.call_later(self._tick, self._sweep)

    # -- the listener

    async def close(self) -> None:
        """Accept nothing more; idle connections are closed, busy ones after their answers. WebSockets go on.

        A request that was sent before its sender could know is answered: connections that have not sent any may still
        send one within `ON_ITS_WAY` seconds (at most `limits.drain_timeout`), and all connections may where other
        processes serve on the same socket, whose callers shall not notice the change."""
        self._closing = True
        for acceptor in self.acceptors:
            acceptor.close()
        for connection in tuple(self._connections):
            connection.retire(self._shared or connection.grace)
        until = self._loop.time() + min(ON_ITS_WAY, self.app.limits.drain_timeout)
        while self._expecting() and self._loop.time() < until:  # noqa: ASYNC110  (a look costs nothing; this is the end)
            await asyncio.sleep(ON_ITS_WAY / 25)
        self._expects = False
        for connection in tuple(self._connections):
            connection.retire()

    def _expecting(self) -> bool:
        return any(connection.grace for connection in self._connections) or any(
            acceptor.arriving for acceptor in self.acceptors
        )

    async def closed(self) -> None:
        """Wait for the end of every connection. Incomplete requests are refused now; responses that are not finished
        after `limits.drain_timeout` are aborted, except WebSockets."""
        for connection in tuple(self._connections):
            connection.dismiss()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.app.limits.drain_timeout):
                while self._connections:
                    await self._left.wait()
        for connection in tuple(self._connections):
            connection.abort()
        while self.carried():
            await self._left.wait()
        self._timer.cancel()
        self.partial.close()
        self.heads.forget()
        self.heads_behind.forget()
        for acceptor in self.acceptors:
            await acceptor.wait_closed()


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> HttpListener:
    """Serve on an `http://`, `https://`, `ws://` or `wss://` URL. The keys of `served` are paths below the URL's own.

    Raises LocalError for a URL of another wire, https or wss without `options.server_tls`, or a socket that cannot be
    opened.
    """
    where = urls.parse(url)
    if where.plain not in ("http", "ws"):
        raise LocalError(f"{where}: an HTTP server's URL begins with http://, https://, ws:// or wss://")
    if where.tls and not isinstance(options.server_tls, ssl.SSLContext):
        raise LocalError(
            f"{where}: a server needs a certificate: give tls=an ssl.SSLContext with one (on the command: --tls-cert FILE)"
        )
    if where.plain == "ws":
        from . import websocket  # noqa: F401, PLC0415 - an optional extra: now, not when the first one calls
    prefix = "" if where.path == "/" else where.path  # exactly: a caller that was given /api/ uses /api/
    here = is_loopback(where.host) or options.hosts is not None
    ours = () if here else (where.host, *await names_of_this_machine())
    app = App(served, options, prefix=prefix, methods=where.plain == "http", names=ours)
    shared = inherited_sockets(url, options)
    bound = shared or await bind(where, socket.SOCK_STREAM)
    names = [one.getsockname() for one in bound]
    loopback = all(is_loopback(name[0]) for name in names)
    host = f"[{where.host}]" if ":" in where.host else where.host or "0.0.0.0"
    real = f"{where.scheme}://{host}:{names[0][1]}{prefix}"
    listener = HttpListener(app, real, tls=where.tls, loopback=loopback, shared=bool(shared))
    for listening in bound:
        listener.accept(listening, options)
    return listener
