"""`unix:///path`: the bus and the store that the workers of one machine share; `hub` is the server.

Requests are sent at once, many at a time, and answered in their order. When the socket is lost all requests in
flight raise BusLost. This client then dials again with growing pauses, subscribes again, and becomes `alive`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, cast

from ..jsonrpc.errors import LocalError
from ..net.reconnect import Keeper
from ..system.unix_sockets import connect_unix
from .contract import BusLost, EngineBus, Store, log
from .hub import FRAME, content, new_framing, write_frame
from .store import RemoteStore
from .topics import Subscriber, Take, Topics

PAUSES = (0.05, 2.0)
"""The first and the longest pause in seconds between two tries to reach the hub."""
_ROOM = 1024
"""Bytes of a frame reserved for what is beside the value or message."""
_UNREQUESTED = frozenset({(str, bytes), (type(None), int)})
"""The types of frames that come without a request: a topic and a message, or how many were dropped."""


class _HubConnection(asyncio.Protocol):
    """The connection to the hub."""

    def __init__(self, bus: LocalBus) -> None:
        self._bus = bus
        self._frames = new_framing()
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._pending: dict[int, asyncio.Future[Any]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            try:
                number, value, rest = _read(frame)
            except Exception as fault:
                self._disconnect(fault)
                return
            if number == 0:
                self._bus.receive(value, rest[0])
                continue
            future = self._pending.pop(number, None)
            if future is None or future.done():
                continue
            if rest:
                future.set_exception(LocalError(f"{self._bus.url}: {rest[0]}"))
            else:
                future.set_result(value)
        if self._frames.skipping:
            self._disconnect(ValueError("a frame that is too long"))

    def _disconnect(self, why: Exception) -> None:
        self._bus.report_stranger(why)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        lost = BusLost(f"{self._bus.url}: the socket was lost")
        for future in self._pending.values():
            if not future.done():
                future.set_exception(lost)
                future.exception()  # the waiting task may have been cancelled
        self._pending.clear()
        self._bus.on_lost(self)

    def transport(self) -> asyncio.Transport:
        """Return the open transport. Raises BusLost when it has ended."""
        if self._transport is None:
            raise BusLost(f"{self._bus.url}: the socket was lost")
        return self._transport

    async def ask(self, verb: str, *words: object) -> Any:
        """Send a request and wait for its answer. Raises BusLost."""
        transport = self.transport()
        self._number += 1
        number = self._number
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        transport.write(write_frame(number, verb, *words))
        return await future

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class LocalBus(EngineBus):
    """The `Bus` of the hub. `missed`: messages that the hub dropped because this process read too slowly."""

    def __init__(self, path: str) -> None:
        super().__init__(f"unix:{path}", "the hub")
        self.path = path
        self.store: Store | None = RemoteStore(self.ask)
        self._topics = Topics(self._unsubscribe)
        self._connection: _HubConnection | None = None
        self._gone: asyncio.Future[str]  # why the hub was lost; from `open` on
        self._keeper = Keeper(self._dial, self._watch, PAUSES, in_words=str)
        self._keeper.states.append(self.change_state)

    async def open(self) -> None:
        """Connect to the hub. Raises BusLost when there is none."""
        await self._keeper.open()
        self.alive = True

    async def _dial(self) -> str:
        try:
            connection = await connect_unix(lambda: _HubConnection(self), self.path)
        except OSError as fault:
            raise BusLost(f"{self.url}: no process holds it: {(fault.strerror or str(fault)).lower()}") from fault
        try:
            for topic in self._topics:
                await connection.ask("subscribe", topic)
            connection.transport()
        except BaseException:
            connection.abort()
            raise
        self._connection, self._gone = connection, asyncio.get_running_loop().create_future()
        return ""

    async def _watch(self) -> str:
        return await self._gone

    async def ask(self, verb: str, *words: object) -> Any:
        """Send a request to the hub and wait for its answer. Raises BusLost."""
        for word in words:
            if isinstance(word, bytes) and len(word) > FRAME - _ROOM:
                raise LocalError(f"{len(word)} bytes are too many for this bus; {FRAME - _ROOM} may go at once")
        if self._connection is None:
            raise BusLost(f"{self.url}: {'this end is closed' if self._keeper.closed else 'the socket was lost'}")
        return await self._connection.ask(verb, *words)

    async def publish(self, topic: str, message: bytes) -> None:
        await self.ask("publish", topic, message)
        self.published += 1

    async def subscribe(self, topic: str, take: Take) -> Subscriber:
        one = self._topics.add(topic, self.counted(take))
        try:
            await self.ask("subscribe", topic)
        except BaseException:
            await one.close()
            raise
        return one

    async def _unsubscribe(self, topic: str) -> None:
        if self._connection is not None:
            with contextlib.suppress(BusLost):  # the hub has already forgotten the subscription
                await self.ask("unsubscribe", topic)

    def receive(self, topic: str | None, content: Any) -> None:
        """Pass on a message, or count those that were dropped."""
        if topic is None:
            self.missed += content
            log.warning("%s: this process read too slowly; %d messages were dropped", self.url, content)
            return
        self._topics.deliver(topic, content)

    def report_stranger(self, why: Exception) -> None:
        """Log that something came that no hub sends."""
        self._trouble.report(f"what answers there is no hub: {why!r:.200}")

    def on_lost(self, connection: _HubConnection) -> None:
        """Take note that a connection has ended."""
        if connection is self._connection:
            self._connection = None
            self._gone.set_result("the socket was lost")

    async def close(self) -> None:
        self.alive = False
        connection, self._connection = self._connection, None
        await self._keeper.close()
        if connection is not None:
            connection.abort()


def _read(frame: Any) -> tuple[int, Any, list[Any]]:
    """Return a frame's content. Raises any exception for one that no hub sends."""
    number, value, rest = content(frame)
    if number == 0 and (len(rest) != 1 or (type(value), type(rest[0])) not in _UNREQUESTED):
        raise TypeError("a message that is none")
    return number, value, rest


async def open(url: str, tls: ssl.SSLContext | None = None) -> LocalBus:
    """Open the bus at a socket's path: `unix:///run/bus.sock`, `unix:bus.sock`. Raises BusLost when no hub is there."""
    path = url.partition(":")[2].partition("?")[0]
    bus = LocalBus(path[2:] if path.startswith("//") else path)
    await bus.open()
    return bus
