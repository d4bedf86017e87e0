"""Calls of `events/stream`: each keeps its messages for its reader, who may be slow, and notices that it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct

from ....jsonrpc.errors import CallTimeout, RpcError
from ....repeats import Repeats
from ...client.extension_client import ExtensionClient
from ...protocol.types import SUBSCRIPTION_ID
from .model import (
    ACTIVE,
    ERROR,
    EVENT,
    HEARTBEAT,
    TERMINATED,
    ActiveParams,
    ErrorObject,
    EventOccurrence,
    FailureParams,
    HeartbeatParams,
)

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

SILENCE: Final = 75.0
"""Seconds without a message after which a stream is lost: servers "SHOULD send a heartbeat at least every 30 seconds",
and it is dead after "more than twice the heartbeat interval"."""
WAITING: Final = 1_000
"""Messages of a stream that wait for a slow reader. Beyond that the stream is given up until they are taken."""
WAITING_SIZE: Final = 8 * 1024 * 1024
"""Bytes of their payloads at most."""

Message: TypeAlias = ActiveParams | EventOccurrence | HeartbeatParams


class StreamCalls:
    """The streams of one client, which get their notifications by the ids of their calls. `silence`: seconds without a
    message after which a stream is lost."""

    def __init__(self, silence: float) -> None:
        self.silence: float = silence
        self.by_id: dict[int, StreamCall] = {}
        self.running: set[StreamCall] = set()

    @property
    def heard(self) -> dict[str, Callable[[Any, ExtensionClient], None]]:
        """The functions that get the notifications of streams, by method."""
        return {
            ACTIVE: self._message,
            EVENT: self._message,
            HEARTBEAT: self._message,
            ERROR: self._failure,
            TERMINATED: self._end,
        }

    async def close(self) -> None:
        """End all of them."""
        for call in tuple(self.running):
            await call.end()

    def _message(self, message: Message, client: ExtensionClient) -> None:
        if (stream := self._find(message.meta)) is not None:
            stream.put(message)

    def _failure(self, params: FailureParams, client: ExtensionClient) -> None:
        if (stream := self._find(params.meta)) is not None:
            stream.failed(params)

    def _end(self, params: FailureParams, client: ExtensionClient) -> None:
        if (stream := self._find(params.meta)) is not None:
            stream.terminate(params.error)

    def _find(self, meta: Any) -> StreamCall | None:
        """Return the stream of a notification, which has the id of its call."""
        id = None if meta is UNSET else meta.get(SUBSCRIPTION_ID)
        if isinstance(id, int) and (stream := self.by_id.get(id)) is not None:
            return stream
        logger.debug("A notification of events belongs to no stream: %.80r", id)
        return None


class StreamCall:
    """One call of `events/stream`: takes its messages from the client, and keeps them for a reader."""

    def __init__(self, all: StreamCalls, client: ExtensionClient, params: Struct) -> None:
        self.behind = False
        """Whether it was given up because its reader is far behind."""
        self.terminated: RpcError | None = None
        """Why the server has ended the subscription; None: it has not."""
        self._all = all
        self._waiting: deque[Message] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._heard = self._clock()
        self._ids: list[int] = []
        self._task = asyncio.ensure_future(client.stream("events/stream", params, begun=self._begin))
        self._task.add_done_callback(lambda _: self._wake.set())
        all.running.add(self)

    def _begin(self, id: int) -> None:
        self._ids.append(id)
        self._all.by_id[id] = self

    def put(self, message: Message) -> None:
        """Keep a message for the reader."""
        self._heard = self._clock()
        if self.behind:
            return
        if isinstance(message, HeartbeatParams) and self._waiting and isinstance(self._waiting[-1], HeartbeatParams):
            self._waiting.pop()
        self._waiting.append(message)
        if isinstance(message, EventOccurrence):
            self._size += len(bytes(message.data))
        if len(self._waiting) > WAITING or self._size > WAITING_SIZE:
            self.behind = True
            self._task.cancel()
        self._wake.set()

    def failed(self, params: FailureParams) -> None:
        """Log a failure that the stream survives."""
        self._heard = self._clock()
        repeats.warning("A stream of events reports: %.200r (%d)", params.error.message, params.error.code)

    def terminate(self, error: ErrorObject) -> None:
        """End the stream, once the reader has taken what came before."""
        self.terminated = RpcError.of(error.code, error.message, None if error.data is UNSET else error.data)
        self._task.cancel()

    async def next(self) -> Message | None:
        """Return the next message; None: the call is over. Raises what it raised, and CallTimeout if nothing has come
        for `SILENCE` seconds."""
        while not self._waiting:
            if self._task.done():
                if not self._task.cancelled():
                    self._task.result()
                return None
            self._wake.clear()
            silence = self._all.silence
            try:
                async with asyncio.timeout_at(self._heard + silence):
                    await self._wake.wait()
            except TimeoutError:
                if self._clock() >= self._heard + silence:
                    raise CallTimeout(f"events/stream: nothing came for {silence:g} s") from None
        message = self._waiting.popleft()
        if isinstance(message, EventOccurrence):
            self._size -= len(bytes(message.data))
        return message

    async def end(self) -> None:
        """Cancel the call, and wait for its end."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # it was raised to the reader, or is of no interest any more
        self._all.running.discard(self)
        for id in self._ids:
            self._all.by_id.pop(id, None)
