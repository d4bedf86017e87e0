"""The server of `unix:` buses, in the supervisor of workers: one socket, one table of topics, one store.

Rules:

- The requests of one client are run in the order in which they come, one after another, so the store needs no locks.
- A client that reads slowly still gets its answers, but its next requests are not run; its messages wait in a queue of
  `WAITING` bytes, from which the oldest are dropped. They are counted, and the client gets their number.
- When a client dies only its subscriptions are removed.

Frames are `framing.LengthPrefix`, their contents MessagePack: `[number, verb, *arguments]` comes in, `[number, value]`
or `[number, null, fault]` goes out; `[0, topic, message]` is a message, `[0, null, count]` says how many were dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec

from ..jsonrpc.errors import LocalError
from ..jsonrpc.framing import LengthPrefix
from ..jsonrpc.limits import MIB, SERVER
from ..net.accept import SocketAcceptor
from ..net.sockets import clear_socket
from ..system.sockets import AF_UNIX, NO_UNIX, UNIX
from .contract import log
from .store import MemoryBusStore

FRAME = 64 * MIB
"""Bytes of the longest frame."""
HIGH_WATER = 256 * 1024
"""Bytes that may be unsent to one client before its messages wait."""
WAITING = 4 * MIB
"""Bytes of messages that wait for one client; beyond it the oldest are dropped."""

NUMBERED = 16
"""The most bytes that a message of a log takes in a frame beside its own."""

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode: Callable[[Any], list[Any]] = msgspec.msgpack.Decoder(list[Any]).decode


def new_framing() -> LengthPrefix:
    """Return a new framing; both directions use the same."""
    return LengthPrefix(SERVER.but(message_size=FRAME))


def write_frame(*words: object) -> bytes:
    """Write one frame."""
    body = encode(words)
    return len(body).to_bytes(4, "big") + body


def content(frame: Any) -> tuple[int, Any, list[Any]]:
    """Return the number of a request, its first word, and the rest. Raises any exception for a frame that neither end
    sends; TypeError for one that was too long."""
    number, first, *rest = decode(frame)
    if type(number) is not int:
        raise TypeError("a frame without a number")
    return number, first, rest


_TTL = int | float


def _checked(run: Callable[..., object], *kinds: Any) -> Callable[..., object]:
    """Return a verb that raises TypeError for words of other kinds, since others get what one client puts or
    publishes."""

    def verb(client: _HubClient | None, *words: Any) -> object:
        for word, kind in zip(words, kinds, strict=False):  # `run` knows how many it takes
            if not isinstance(word, kind) or word != word:  # NaN cannot be ordered among deadlines
                raise TypeError(f"{type(word).__name__} where {kind} belongs")
        return run(client, *words)

    return verb


class _HubClient(asyncio.Protocol):
    """The connection of one process."""

    def __init__(self, hub: BusHub) -> None:
        self._hub = hub
        self._frames = new_framing()
        self._transport: asyncio.Transport  # from `connection_made` on
        self._full = False
        self._requests: deque[Any] = deque()
        """The frames of requests that were not run yet."""
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._missed = 0
        self.topics: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        self._hub.clients.add(self)

    def data_received(self, data: bytes) -> None:
        self._requests.extend(self._frames.feed(data))
        self._run()
        if self._frames.skipping and not self._transport.is_closing():
            self._cut_off(ValueError("a frame that is too long"))

    def _run(self) -> None:
        """Run what has come, as far as there is room for the answers: one small request may have a long one."""
        while self._requests and not self._full:
            frame = self._requests.popleft()
            try:
                number, verb, words = content(frame)
                verb = self._hub.verbs[verb]
            except Exception as fault:  # any that the decoder raises: RecursionError, MemoryError
                self._cut_off(fault)
                return
            try:
                answer = write_frame(number, verb(self, *words))
            except Exception as fault:
                log.exception("%s: a request could not be done", self._hub.url)
                answer = write_frame(number, None, f"{type(fault).__name__}: {fault}")
            self._transport.write(answer)

    def _cut_off(self, why: Exception) -> None:
        log.warning("%s: a client that broke the protocol was disconnected: %.200r", self._hub.url, why)
        self._requests.clear()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hub.remove(self)

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._missed:
            self._transport.write(write_frame(0, None, self._missed))
            self._missed = 0
        while self._waiting and not self._full:
            frame = self._waiting.popleft()
            self._size -= len(frame)
            self._transport.write(frame)
        self._run()
        if not self._full:
            self._transport.resume_reading()

    def send_message(self, frame: bytes) -> None:
        """Send a message now, or queue it while the client reads slowly."""
        if not self._full:
            self._transport.write(frame)
            return
        self._waiting.append(frame)
        self._size += len(frame)
        while self._size > WAITING:
            self._size -= len(self._waiting.popleft())
            self._missed += 1
            self._hub.dropped += 1

    def abort(self) -> None:
        """Disconnect the client."""
        self._transport.abort()


class BusHub:
    """A bus and a store for the processes of this machine. `dropped`: the messages that slow clients missed, in all."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.path = path
        self.url: str = f"unix:{path}"
        self.store: MemoryBusStore = MemoryBusStore(clock)
        store = self.store
        self.clients: set[_HubClient] = set()
        self.dropped = 0
        self._topics: dict[str, dict[_HubClient, None]] = {}
        self._acceptor: SocketAcceptor | None = None
        self._empty = asyncio.Event()
        self.verbs: dict[Any, Callable[..., object]] = {
            "publish": _checked(self._publish, str, bytes),
            "subscribe": _checked(self._subscribe, str),
            "unsubscribe": _checked(self._unsubscribe, str),
            "get": _checked(lambda client, *words: store.get(*words), str),
            "put": _checked(lambda client, *words: store.put(*words), str, bytes, _TTL | None),
            "put_new": _checked(lambda client, *words: store.put_new(*words), str, bytes, _TTL | None),
            "delete": _checked(lambda client, *words: store.delete(*words), str),
            "touch": _checked(lambda client, *words: store.touch(*words), str, _TTL),
            "append": _checked(self._append, str, bytes, _TTL, int, int, int | None),
            "read": _checked(lambda client, *words: store.read(*words), str, int),
        }

    def start(self, listener: socket.socket) -> None:
        """Accept clients from now on."""
        self._acceptor = SocketAcceptor(
            listener, lambda: _HubClient(self), lambda: len(self.clients), None, full=lambda: False, url=self.url
        )

    async def close(self) -> None:
        """Disconnect every client; the stored data is lost."""
        if self._acceptor is not None:
            self._acceptor.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        for client in tuple(self.clients):
            client.abort()
        if self.clients:
            self._empty.clear()
            await self._empty.wait()

    def remove(self, client: _HubClient) -> None:
        """Forget a client that has disconnected."""
        self.clients.discard(client)
        if not self.clients:
            self._empty.set()
        for topic in tuple(client.topics):
            self._unsubscribe(client, topic)

    def _append(
        self,
        client: _HubClient,
        log: str,
        message: bytes,
        ttl: float,
        messages: int,
        size: int,
        number: int | None = None,
    ) -> int:
        """Append to a log, which is read as one frame: it is kept to half of one, and its numbers to the other half."""
        most = min(messages, FRAME // 2 // NUMBERED)
        return self.store.append(log, message, ttl, most, min(size, FRAME // 2), number)

    def _publish(self, client: _HubClient, topic: str, message: bytes) -> None:
        subscribers = self._topics.get(topic)
        if subscribers:
            frame = write_frame(0, topic, message)
            for one in subscribers:
                one.send_message(frame)

    def _subscribe(self, client: _HubClient, topic: str) -> None:
        client.topics.add(topic)
        self._topics.setdefault(topic, {})[client] = None

    def _unsubscribe(self, client: _HubClient, topic: str) -> None:
        client.topics.discard(topic)
        subscribers = self._topics.get(topic)
        if subscribers is not None:
            subscribers.pop(client, None)
            if not subscribers:
                del self._topics[topic]


async def open_hub(path: str, *, clock: Callable[[], float] = time.monotonic) -> BusHub:
    """Open a hub at a socket's path, with access for this user alone. Replaces a socket that a dead process left.
    Raises LocalError if a process listens there, or if the socket cannot be opened."""
    if not UNIX:
        raise LocalError(f"Cannot hold a bus at unix:{path}: {NO_UNIX}; redis://, nats:// and mqtt:// hold one")
    listener = socket.socket(AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        clear_socket(path)  # bind refuses if any other file is there
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError as fault:
        listener.close()
        raise LocalError(f"Cannot hold a bus at unix:{path}: {fault.strerror or fault}") from fault
    hub = BusHub(path, clock)
    hub.start(listener)
    return hub
