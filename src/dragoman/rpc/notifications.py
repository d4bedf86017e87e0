"""The far end's notifications, to be read with `async for`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol
from weakref import WeakSet

import msgspec
from msgspec import Raw

from ..channel import ChannelError, again
from ..jsonrpc.errors import LocalError
from ..jsonrpc.limits import MIB
from ..jsonrpc.messages import Notification

logger: logging.Logger = logging.getLogger("dragoman")

QUEUE = 10_000
"""Notifications that one iterator keeps for a slow reader; beyond, it raises an error with the number lost."""
ROOM = 64 * MIB
"""The same in bytes of their params."""


class NotificationListener(Protocol):
    """Gets the far end's notifications. The peer holds it weakly."""

    def put(self, message: Notification) -> None:
        """A notification has come; its params are JSON text."""

    def end(self, why: ChannelError | None) -> None:
        """No more will come. `why`: None where the peer was closed here."""


class Notifications:
    """The far end's notifications as an async iterator; see `Peer.notifications`.

    Several tasks may read one iterator: each notification goes to one of them.
    The peer holds it weakly: an iterator that is not used any more keeps nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, listeners: WeakSet[Any], method: str | None) -> None:
        self._loop = loop
        self._listeners = listeners
        self._method = method
        self._queue: deque[tuple[Notification, int]] = deque()
        self._held = 0  # bytes in the queue
        self._lost = 0
        self._over = False
        self._why: ChannelError | None = None
        self._readers: set[asyncio.Future[None]] = set()
        listeners.add(self)

    def put(self, message: Notification) -> None:
        if self._method is not None and message.method != self._method:
            return
        params = message.params
        size = len(params) if isinstance(params, Raw) else 0
        if len(self._queue) >= QUEUE or self._held + size > ROOM:
            self._lost += 1
            return
        if isinstance(params, Raw):
            try:
                params = msgspec.json.decode(params)
            except (msgspec.DecodeError, RecursionError) as error:
                logger.debug("a notification %r that Python cannot hold: %s", message.method, error)
                return
        self._queue.append((Notification(message.method, params, message.version), size))
        self._held += size
        self._ring()

    def end(self, why: ChannelError | None) -> None:
        self._over = True
        self._why = why
        self._ring()

    def close(self) -> None:
        """Unsubscribe."""
        self._listeners.discard(self)
        self.end(None)

    def _ring(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)

    def __aiter__(self) -> AsyncIterator[Notification]:
        return self

    async def __anext__(self) -> Notification:
        while not self._queue:
            if self._lost:
                lost, self._lost = self._lost, 0
                raise LocalError(
                    f"{lost} notifications were lost: this iterator was {QUEUE} of them, or {ROOM} bytes, behind"
                )
            if self._over:
                if self._why is not None:
                    raise again(self._why)
                raise StopAsyncIteration
            reader: asyncio.Future[None] = self._loop.create_future()
            self._readers.add(reader)
            try:
                await reader
            finally:
                self._readers.discard(reader)
        message, size = self._queue.popleft()
        self._held -= size
        return message
