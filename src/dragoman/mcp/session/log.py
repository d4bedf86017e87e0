"""The bounded, addressable log of one stream: the contract, and the log that is in this process.

A stream's messages have numbers, from 1 on, by which a reader that comes back says what it had. Rules:

- `append` takes a message at once; it is in the log when `stored` has returned its number, and is sent with that
  number, or acknowledged, no earlier.
- A log has bounds. Over them notifications go first, the oldest before the others; the newest message always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

SPARE: Final = b'{"jsonrpc":"2.0","method":"notifications/'
"""How a message begins that the far end can do without."""

Position: TypeAlias = int
"""The place of a message among those that were appended here, from 1 on."""


class Entry(Struct, frozen=True, gc=False):
    """One message of a log."""

    number: int
    message: bytes
    """Empty for what is no message: the beginning of a stream, or the end of one without an answer."""
    last: bool = False
    """Nothing comes after it."""


class StreamLog(Protocol):
    """The log of one stream."""

    immediate: bool
    """What is appended is stored, and its position is its number: there is nothing to wait for."""

    def append(self, message: bytes, *, last: bool = False, mark: str = "") -> Position:
        """Take a message. `mark`: what several append under one mark is in the log once."""

    async def stored(self, position: Position) -> int:
        """Wait until the message of this position, the oldest that is not stored, is in the log: its number there;
        0 where another has appended the same mark.

        BusLost: it is not there, since the engine is away; `stored` can be called again. LocalError: it never will be,
        since it is larger than the engine takes.
        """

    def withdraw(self, position: Position) -> None:
        """The message of this position was sent without being stored, or is given up."""

    async def reachable(self) -> bool:
        """Wait until storing is worth another try; False when that took too long. At once where nothing is away."""

    def read_here(self) -> None:
        """It is read in this process from now on, and in no other."""

    async def read(self, after: int = 0) -> Sequence[Entry]:
        """What is kept behind this number. Raises BusLost."""

    async def furthest(self) -> int:
        """The number up to which readers have had it (see `had`). Raises BusLost."""

    async def had(self, number: int) -> None:
        """Remember that readers have had it up to this number. Raises BusLost."""


class MemoryLog:
    """A log in this process: what is appended is stored. Nothing here waits."""

    __slots__ = ("_entries", "_furthest", "_messages", "_room", "_size", "dropped", "last")

    immediate = True

    def __init__(self, messages: int, size: int) -> None:
        """At most so many messages, and so many bytes of them."""
        self._entries: list[Entry] = []
        self._messages = messages
        self._room = size
        self._size = 0
        self._furthest = 0
        self.last = 0
        """The number of the newest message."""
        self.dropped = 0
        """Messages that went because there were too many."""

    def append(self, message: bytes, *, last: bool = False, mark: str = "") -> Position:
        self.last += 1
        entries = self._entries
        entries.append(Entry(self.last, message, last))
        self._size += len(message)
        while len(entries) > 1 and (len(entries) > self._messages or self._size > self._room):
            spare = (at for at, one in enumerate(entries[:-1]) if one.message.startswith(SPARE))
            gone = entries.pop(next(spare, 0))
            self._size -= len(gone.message)
            self.dropped += 1
        return self.last

    async def stored(self, position: Position) -> int:
        return position

    def withdraw(self, position: Position) -> None:
        """Nothing to do: it is there."""

    async def reachable(self) -> bool:
        return True

    def read_here(self) -> None:
        """Nothing to do: there is no other."""

    async def read(self, after: int = 0) -> Sequence[Entry]:
        if after >= self.last:
            return ()
        return [one for one in self._entries if one.number > after]

    async def furthest(self) -> int:
        return self._furthest

    async def had(self, number: int) -> None:
        self._furthest = max(self._furthest, number)
