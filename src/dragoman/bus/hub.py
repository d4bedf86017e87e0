"""The far end of `unix:` buses: what the supervisor of workers holds, one socket, one table of topics, one store.

Rules:

- Requests of one end are done in the order they come, each whole before the next: the store needs no locks.
- An end that reads slowly is asked nothing more and gets its answers; hints for it wait in a queue of `WAITING` bytes,
  from which the oldest are dropped. They are counted, and the end is told how many it missed.
- An end that dies takes its subscriptions with it and nothing else.

Frames are `framing.LengthPrefix`, their contents MessagePack: `[number, verb, *words]` comes in, `[number, value]` or
`[number, null, fault]` goes out; `[0, topic, message]` is a hint, `[0, null, count]` says that so many were dropped.
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
from ..net.sockets import clear_socket
from .contract import log
from .store import MemoryStore

FRAME = 64 * MIB
"""Bytes of the longest frame."""
HIGH_WATER = 256 * 1024
"""Bytes that may be unsent to one end before its hints wait."""
WAITING = 4 * MIB
"""Bytes of hints that wait for one end; above it the oldest go."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[Any]).decode


def frames() -> LengthPrefix:
    """The framing of both directions."""
    return LengthPrefix(SERVER.but(message_size=FRAME))


def framed(*content: object) -> bytes:
    """One frame."""
    body = encode(content)
    return len(body).to_bytes(4, "big") + body


class _End(asyncio.Protocol):
    """One process on the bus."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._frames = frames()
        self._wire: asyncio.Transport | None = None
        self._full = False
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._missed = 0
        self.topics: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)
        self._wire.set_write_buffer_limits(HIGH_WATER)
        self._hub.ends.add(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            try:
                if not isinstance(frame, bytes):
                    raise ValueError("a frame that is too long")
                number, verb, *words = decode(frame)
                verb = self._hub.verbs[verb]
            except (ValueError, TypeError, KeyError, msgspec.MsgspecError) as fault:
                self._cut_off(fault)
                return
            try:
                answer = framed(number, verb(self, *words))
            except Exception as fault:
                log.exception("%s: a request could not be done", self._hub.url)
                answer = framed(number, None, f"{type(fault).__name__}: {fault}")
            self._write(answer)
        if self._frames.skipping:
            self._cut_off(ValueError("a frame that is too long"))

    def _cut_off(self, why: Exception) -> None:
        log.warning("%s: an end that does not speak as it should was cut off: %.200r", self._hub.url, why)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire = None
        self._waiting.clear()
        self._hub.left(self)

    def pause_writing(self) -> None:
        self._full = True
        if self._wire is not None:
            self._wire.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        if self._missed:
            self._write(framed(0, None, self._missed))
            self._missed = 0
        while self._waiting and not self._full:
            hint = self._waiting.popleft()
            self._size -= len(hint)
            self._write(hint)
        if not self._full and self._wire is not None:
            self._wire.resume_reading()

    def tell(self, hint: bytes) -> None:
        """A hint, at once or when there is room."""
        if not self._full:
            self._write(hint)
            return
        self._waiting.append(hint)
        self._size += len(hint)
        while self._size > WAITING:
            self._size -= len(self._waiting.popleft())
            self._missed += 1
            self._hub.dropped += 1

    def abort(self) -> None:
        """Cut it off."""
        if self._wire is not None:
            self._wire.abort()

    def _write(self, data: bytes) -> None:
        if self._wire is not None:
            self._wire.write(data)


class Hub:
    """A bus and a store for the processes of this machine. `dropped`: hints that slow ends missed, in all."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.path = path
        self.url = f"unix:{path}"
        self.shelves = shelves = MemoryStore(clock)
        self.ends: set[_End] = set()
        self.dropped = 0
        self._topics: dict[str, dict[_End, None]] = {}
        self._server: asyncio.Server | None = None
        self._empty: asyncio.Future[None] | None = None
        self.verbs: dict[Any, Callable[..., object]] = {
            "publish": self._publish,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "get": lambda end, *words: shelves.get(*words),
            "put": lambda end, *words: shelves.put(*words),
            "put_new": lambda end, *words: shelves.put_new(*words),
            "delete": lambda end, *words: shelves.delete(*words),
            "touch": lambda end, *words: shelves.touch(*words),
            "append": lambda end, *words: shelves.append(*words),
            "read": lambda end, *words: shelves.read(*words),
        }

    async def start(self, door: socket.socket) -> None:
        """Take ends from now on."""
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _End(self), sock=door)

    async def close(self) -> None:
        """Cut every end off; what was kept is gone."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        for end in tuple(self.ends):
            end.abort()
        if self.ends:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty

    def left(self, end: _End) -> None:
        """An end is gone."""
        self.ends.discard(end)
        if self._empty is not None and not self.ends and not self._empty.done():
            self._empty.set_result(None)
        for topic in tuple(end.topics):
            self._unsubscribe(end, topic)

    def _publish(self, end: _End, topic: str, message: bytes) -> None:
        listening = self._topics.get(topic)
        if listening:
            hint = framed(0, topic, message)
            for one in listening:
                one.tell(hint)

    def _subscribe(self, end: _End, topic: str) -> None:
        end.topics.add(topic)
        self._topics.setdefault(topic, {})[end] = None

    def _unsubscribe(self, end: _End, topic: str) -> None:
        end.topics.discard(topic)
        listening = self._topics.get(topic)
        if listening is not None:
            listening.pop(end, None)
            if not listening:
                del self._topics[topic]


async def hold(path: str, *, clock: Callable[[], float] = time.monotonic) -> Hub:
    """Hold a bus at a socket's path, for this user alone. A socket that a dead process left is replaced; LocalError
    when somebody listens there, or when it cannot be opened."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.setblocking(False)
        clear_socket(path)  # what else is there, bind refuses
        before = os.umask(0o177)
        try:
            door.bind(path)
        finally:
            os.umask(before)
        door.listen(128)
    except OSError as fault:
        door.close()
        raise LocalError(f"Cannot hold a bus at unix:{path}: {fault.strerror or fault}") from fault
    hub = Hub(path, clock)
    await hub.start(door)
    return hub
