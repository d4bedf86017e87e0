"""The native HTTP listener: a door, the wires behind it, and the clock of them all.

It serves an `App` on `asyncio.Protocol` and httptools; the rules of a wire stand in `http_front`.
`http://` and `https://` take calls and WebSocket upgrades, `ws://` and `wss://` upgrades alone.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..channel import Options, Served
from ..jsonrpc.errors import LocalError
from . import urls
from .http import App
from .http_front import (
    AT_WORK,
    FLUSHING,
    IDLE,
    IN_BODY,
    IN_HEAD,
    KNOWN_HEADS,
    LINGER,
    LINGERING,
    NEVER,
    NOTHING,
    PROBING,
    UNREAD,
    Front,
)
from .http_head import Head, is_loopback
from .shared import SharedDoor
from .sockets import ACCEPTS, BACKLOG, bind, inherited

if TYPE_CHECKING:
    from .websocket import WebSocket


ON_ITS_WAY = 0.5
"""Seconds in which a request that was sent before its sender could know of our closing has come."""


class HttpListener:
    """An open door for HTTP and WebSocket."""

    def __init__(self, app: App, url: str, *, tls: bool, loopback: bool, shared: bool = False) -> None:
        self.app = app
        self.url = url
        self.tls, self.loopback = tls, loopback
        self.heads: dict[bytes, Head] = {}
        """What is known about heads, by their bytes without the blank line."""
        self.shapes: dict[bytes, Head] = {}
        """The same by their shapes: bodies differ in length more often than heads in anything else."""
        self._seen: set[int] = set()
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time()
        """The time of the last sweep."""
        limits = app.limits
        times = [one for one in (limits.header_timeout, limits.body_timeout, limits.idle_timeout) if one is not None]
        self._tick = min([1.0, *(one / 4 for one in times)])
        seconds = {
            NOTHING: None,
            AT_WORK: None,
            IDLE: limits.idle_timeout,
            IN_HEAD: limits.header_timeout,
            IN_BODY: limits.body_timeout,
            UNREAD: limits.write_timeout,
            FLUSHING: limits.write_timeout,
            LINGERING: LINGER,
            PROBING: 0.0,
        }
        self.waits = [NEVER if (time := seconds[stage]) is None else time + self._tick for stage in sorted(seconds)]
        """Time for each stage of a wire. A tick more, because `now` may be a tick old."""
        self._fronts: set[Front] = set()
        self._sockets: set[WebSocket] = set()
        self.doors: list[asyncio.Server | SharedDoor] = []
        self._closing = False
        self._shared = shared
        self._empty: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(self._tick, self._sweep)

    @property
    def wires(self) -> frozenset[Front | WebSocket]:
        """What it carries now."""
        return frozenset((*self._fronts, *self._sockets))

    def carried(self) -> int:
        """How many that are."""
        return len(self._fronts) + len(self._sockets)

    # -- for its wires

    def admit(self, front: Front) -> bool:
        """A wire has come; False when there are too many."""
        front.retiring = self._closing  # it was in the queue of the door
        front.grace = self._closing and self._shared
        self._fronts.add(front)
        return len(self._fronts) + len(self._sockets) <= self.app.limits.channels

    def became(self, front: Front, socket: WebSocket) -> None:
        """A wire was upgraded."""
        self._fronts.discard(front)
        self._sockets.add(socket)

    def gone(self, wire: Front | WebSocket) -> None:
        """A wire is over."""
        if isinstance(wire, Front):
            self._fronts.discard(wire)
        else:
            self._sockets.discard(wire)
        if self._empty is not None and not (self._fronts or self._sockets or self._empty.done()):
            self._empty.set_result(None)

    def seen(self, head: bytes) -> bool:
        """Has this head come before? Many never come again, and are not worth keeping."""
        mark = hash(head)
        if mark in self._seen:
            return True
        if len(self._seen) >= KNOWN_HEADS:
            self._seen.clear()
        self._seen.add(mark)
        return False

    def learn(self, head: bytes, shape: tuple[bytes, int] | None, known: Head) -> None:
        """Keep what was found out about a head."""
        if len(self.heads) >= KNOWN_HEADS:
            self.heads.clear()
        self.heads[head] = known
        if shape is not None:
            if len(self.shapes) >= KNOWN_HEADS:
                self.shapes.clear()
            self.shapes[shape[0]] = known

    def _sweep(self) -> None:
        """Look at every deadline."""
        now = self.now = self._loop.time()
        for front in [front for front in self._fronts if front.deadline <= now]:
            front.expired()
        self._timer = self._loop.call_later(self._tick, self._sweep)

    # -- the listener

    async def close(self) -> None:
        """Accept nothing more; idle wires are closed, busy ones after their answers. WebSockets live on.

        Where others serve at the same door, this is a change of shift that callers shall not notice: whoever has come
        in may still say one thing, within `ON_ITS_WAY` seconds."""
        self._closing = True
        for door in self.doors:
            door.close()
        for front in tuple(self._fronts):
            front.retire(self._shared)
        if not self._shared:
            return
        until = self._loop.time() + ON_ITS_WAY
        while self._expecting() and self._loop.time() < until:  # noqa: ASYNC110  (a look costs nothing; this is the end)
            await asyncio.sleep(ON_ITS_WAY / 25)
        self._shared = False
        for front in tuple(self._fronts):
            front.retire()

    def _expecting(self) -> bool:
        return any(front.grace for front in self._fronts) or any(
            isinstance(door, SharedDoor) and door.arriving for door in self.doors
        )

    async def closed(self) -> None:
        """Wait for the end of every wire. Requests that came in part are refused now; whoever is still being served
        or told after `limits.drain_timeout` is cut off, WebSockets excepted."""
        for front in tuple(self._fronts):
            front.dismiss()
        if self._fronts:
            self._empty = self._loop.create_future()
            await asyncio.wait((self._empty,), timeout=self.app.limits.drain_timeout)
            for front in tuple(self._fronts):
                front.abort()
        while self._fronts or self._sockets:
            self._empty = self._loop.create_future()
            await asyncio.wait((self._empty,))
        self._timer.cancel()
        self.heads.clear()
        self.shapes.clear()
        for door in self.doors:
            await door.wait_closed()


async def listen(url: str, served: Mapping[str, Served], options: Options) -> HttpListener:
    """Serve on an `http://`, `https://`, `ws://` or `wss://` URL. The keys of `served` are paths below the URL's own.

    LocalError for a URL of another wire, https or wss without `options.tls`, or a door that cannot be opened.
    """
    place = urls.parse(url)
    if place.scheme not in ("http", "https", "ws", "wss"):
        raise LocalError(f"{place}: an HTTP server's URL begins with http://, https://, ws:// or wss://")
    secure = place.scheme in ("https", "wss")
    if secure and not isinstance(options.tls, ssl.SSLContext):
        raise LocalError(f"{place}: a server needs a certificate: give tls=an ssl.SSLContext with one")
    if place.scheme in ("ws", "wss"):
        from . import websocket  # noqa: F401, PLC0415 - an optional extra: now, not when the first one calls
    prefix = place.path.rstrip("/")
    app = App(served, options, prefix=prefix, methods=place.scheme in ("http", "https"))
    shared = inherited(url, options)
    doors = shared or await bind(place, socket.SOCK_STREAM)
    names = [door.getsockname() for door in doors]
    host = f"[{place.host}]" if ":" in place.host else place.host or "0.0.0.0"
    real = f"{place.scheme}://{host}:{names[0][1]}{prefix}"
    listener = HttpListener(
        app, real, tls=secure, loopback=all(is_loopback(name[0]) for name in names), shared=bool(shared)
    )
    loop = asyncio.get_running_loop()
    tls, handshake = (options.tls, options.limits.header_timeout) if secure else (None, None)
    for door in doors:
        if shared:
            make, crowd = lambda: Front(listener), options.crowd
            shared_door = SharedDoor(door, make, listener.carried, crowd, tls=tls, handshake=handshake)
            listener.doors.append(shared_door)
            continue
        server = await loop.create_server(
            lambda: Front(listener),
            sock=door,
            backlog=ACCEPTS,
            ssl=tls,
            ssl_handshake_timeout=handshake,
        )
        door.listen(BACKLOG)
        listener.doors.append(server)
    return listener
