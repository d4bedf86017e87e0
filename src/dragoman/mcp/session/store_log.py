"""The log of a stream in the store that replicas share, which each of them can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ..protocol.http_options import HttpOptions
from .log import LogEntry, Position, parse_number
from .shared import Replica

AGAIN: Final = 0.1
"""Seconds between two tries to store a message."""
HAD: Final = "had"
"""The key, below that of a log, for how far its readers have got: the numbers of a message and of a change."""


def encode_entry(message: bytes, last: bool, id: bytes) -> bytes:
    """Encode an entry of a log. `id`: JSON text of the id of the request that the stream answers."""
    return (b"." if last else b"+") + id + b"\n" + message


def decode_entry(raw: bytes) -> tuple[bytes, bool, bytes]:
    """Return an entry's message, whether it is the last, and the id."""
    head, _, message = raw.partition(b"\n")
    return message, head[:1] == b".", head[1:]


class StoreLog:
    """A `StreamLog`. `grew` is called after each message that was stored here."""

    __slots__ = (
        "_grew",
        "_id",
        "_options",
        "_pending",
        "_position",
        "_shared",
        "key",
        "last",
        "reader_at",
        "release_at",
    )

    immediate = False
    lost = 0
    """The server's budget does not count what the engine keeps."""

    def __init__(
        self,
        shared: Replica,
        key: str,
        options: HttpOptions,
        *,
        id: bytes = b"",
        grew: Callable[[StoreLog], None] | None = None,
        release: Callable[[StoreLog, int], None] | None = None,
    ) -> None:
        """`id`: as in `encode_entry`. `release`: called when the reader at another replica must be released."""
        self.key: str = key
        self.last: int = 0
        self.reader_at: int | None = None
        """The number of the replica at which it is read; None: this one."""
        self._shared = shared
        self._options = options
        self._id = id
        self._grew = grew
        self.release_at: Callable[[StoreLog, int], None] | None = release
        self._position = 0
        self._pending: dict[Position, tuple[bytes, bool]] = {}

    def append(self, message: bytes, *, last: bool = False) -> Position:
        self._position += 1
        self._pending[self._position] = message, last
        return self._position

    async def stored(self, position: Position) -> int:
        message, last = self._pending[position]
        options, shared = self._options, self._shared
        ttl = options.resume if last else options.session_idle
        entry = encode_entry(message, last, self._id)
        number = await shared.append(self.key, entry, ttl, options.log_messages, options.log_bytes)
        del self._pending[position]
        self.last = max(self.last, number)
        if self._grew is not None:
            self._grew(self)
        return number

    def withdraw(self, position: Position) -> None:
        self._pending.pop(position, None)

    async def reachable(self) -> bool:
        if not await self._shared.back(self._options.resume):
            return False
        await asyncio.sleep(AGAIN)
        return True

    def read_here(self) -> None:
        self.read_at(None)

    def read_at(self, number: int | None) -> None:
        """Note that its reader is at the replica with this number from now on; None: at this one."""
        before, self.reader_at = self.reader_at, number
        if before is not None and before != number and self.release_at is not None:
            self.release_at(self, before)

    def rest(self, drop: Callable[[], object]) -> None:
        """Do nothing: the store keeps the log until it expires."""

    def close(self) -> None:
        """Do nothing: the store keeps the log until it expires."""

    async def read(self, after: int = 0) -> Sequence[LogEntry]:
        found = []
        for number, raw in await self._shared.read(self.key, after):
            message, last, _ = decode_entry(raw)
            found.append(LogEntry(number, message, last))
            self.last = max(self.last, number)
        return found

    async def furthest(self) -> tuple[int, int]:
        number, _, change = (await self._shared.get(f"{self.key}/{HAD}") or b"").partition(b" ")
        return parse_number(number), parse_number(change)

    async def had(self, number: int, change: int) -> None:
        await self._shared.put(f"{self.key}/{HAD}", b"%d %d" % (number, change), self._options.session_idle)
