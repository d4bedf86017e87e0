"""The bounded, addressable log of one stream: the contract, and a log in this process.

A stream's messages have numbers, from 1 on, by which a returning reader says what it already got. Rules:

- `append` returns at once; the message is in the log when `stored` has returned its number. Only then it is sent with
  that number, or acknowledged.
- A log is bounded. Beyond its limits the oldest notification is removed, or else the oldest message; the newest message
  always stays.
- All logs of a server together are bounded by its budget. Beyond that whole logs are emptied, the oldest first; a
  reader that has not got all of an emptied log cannot return to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from ...jsonrpc.budget import Account
from ...rpc.deadlines import GRAIN, DeadlineClock

SPARE: Final = b'{"jsonrpc":"2.0","method":"notifications/'
"""The beginning of messages that may be dropped: notifications."""

ENTRY: Final = 160
"""Bytes that an entry takes beside its message."""
LOG: Final = 512
"""Bytes that a log takes beside its entries."""

Position: TypeAlias = int
"""The position of a message among those appended here, from 1 on."""


class LogEntry(Struct, frozen=True, gc=False):
    """One message of a log."""

    number: int
    message: bytes
    """Empty for entries without a message: the beginning of a stream, or the end of one without an answer."""
    last: bool = False
    """Whether it is the stream's last entry."""


class StreamLog(Protocol):
    """The log of one stream."""

    immediate: bool
    """True: an appended message is stored at once, and its position is its number."""
    last: int
    """The number of the newest message that this process knows of."""
    lost: int
    """The number of the newest message that was dropped for the server's budget, 0 for none."""

    def append(self, message: bytes, *, last: bool = False) -> Position:
        """Append a message."""

    async def stored(self, position: Position) -> int:
        """Wait until the oldest message that is not stored, at this position, is in the log; returns its number
        there.

        Raises BusLost while the engine is away; `stored` can be called again. Raises LocalError if it can never be
        stored, because it is larger than the engine takes.
        """

    def withdraw(self, position: Position) -> None:
        """Do not store the message at this position: it was sent without that, or is given up."""

    async def reachable(self) -> bool:
        """Wait until storing is worth another try; False after a time-out. Returns at once if the engine is not
        away."""

    def read_here(self) -> None:
        """Note that its reader is in this process from now on, and in no other."""

    async def read(self, after: int = 0) -> Sequence[LogEntry]:
        """Return the kept entries after this number. Raises BusLost."""

    async def furthest(self) -> tuple[int, int]:
        """Return how far readers have got: the highest number of an entry, and of a change. Raises BusLost."""

    async def had(self, number: int, change: int) -> None:
        """Remember that readers have got the entries up to `number`, and the changes up to `change`. Raises BusLost."""

    def rest(self, drop: Callable[[], object]) -> None:
        """Note that nothing is appended any more, and that `drop` may be called to make room: the log is only kept for
        a returning reader."""

    def close(self) -> None:
        """Release it: it is not needed any more."""


class MemoryLog:
    """A log in this process: appended messages are stored at once, and no method waits."""

    __slots__ = ("_account", "_bytes", "_entries", "_furthest", "_messages", "_size", "dropped", "last", "lost")

    immediate = True

    def __init__(self, messages: int, size: int, account: Account | None = None) -> None:
        """`messages`: how many the log keeps; `size`: how many bytes of them; `account`: its part of the server's
        budget."""
        self._account = account
        if account is not None:
            account.keep(self._empty)
        self._entries: list[LogEntry] = []
        self._messages = messages
        self._bytes = size
        self._size = 0
        self._furthest = 0
        self.last: int = 0
        """The number of the newest message."""
        self.lost: int = 0
        self.dropped: int = 0
        """Messages removed because of the bounds."""

    def append(self, message: bytes, *, last: bool = False) -> Position:
        self.last += 1
        entries = self._entries
        entries.append(LogEntry(self.last, message, last))
        self._size += len(message)
        while len(entries) > 1 and (len(entries) > self._messages or self._size > self._bytes):
            spare = (at for at, one in enumerate(entries[:-1]) if one.message.startswith(SPARE))
            gone = entries.pop(next(spare, 0))
            self._size -= len(gone.message)
            self.dropped += 1
        if self._account is not None:
            self._account.set(self._size + ENTRY * len(entries) + LOG)
        return self.last

    def _empty(self) -> None:
        """Remove all entries, to make room for other logs."""
        self.lost = self.last
        self.dropped += len(self._entries)
        self._entries.clear()
        self._size = 0
        if self._account is not None:
            self._account.set(0)

    def rest(self, drop: Callable[[], object]) -> None:
        if self._account is not None:
            self._account.keep(drop)

    def close(self) -> None:
        account, self._account = self._account, None
        if account is not None:
            account.set(0)
            account.keep(None)

    async def stored(self, position: Position) -> int:
        return position

    def withdraw(self, position: Position) -> None:
        """Do nothing: the message is stored."""

    async def reachable(self) -> bool:
        return True

    def read_here(self) -> None:
        """Do nothing: there is no other process."""

    async def read(self, after: int = 0) -> Sequence[LogEntry]:
        if after >= self.last:
            return ()
        return [one for one in self._entries if one.number > after]

    async def furthest(self) -> tuple[int, int]:
        return self._furthest, 0

    async def had(self, number: int, change: int) -> None:
        self._furthest = max(self._furthest, number)


class KeptLogs:
    """The logs of a session's finished streams, the oldest first, kept for a returning client."""

    __slots__ = ("_clock", "_seconds", "logs")

    def __init__(self, clock: DeadlineClock, seconds: float) -> None:
        """`seconds`: how long each is kept."""
        self._clock, self._seconds = clock, seconds
        self.logs: dict[str, tuple[float, StreamLog]] = {}
        """When each stream ended, and its log, by the stream's name."""

    def keep(self, name: str, log: StreamLog) -> None:
        """Keep one more. One timer is enough, since all are kept for the same time: the first one expires first."""
        if not self.logs:
            self._clock.set(self, self._seconds)
        self.logs[name] = self._clock.now(), log
        log.rest(partial(self.drop, name))

    def drop(self, name: str) -> None:
        """Drop the log of a stream, if it is kept."""
        if (found := self.logs.pop(name, None)) is not None:
            found[1].close()

    def close(self) -> None:
        """Drop all logs."""
        self._clock.drop(self)
        for name in tuple(self.logs):
            self.drop(name)

    def expired(self) -> None:
        """Drop the logs to which the client did not return in time; the clock calls it."""
        now = self._clock.now() + GRAIN
        while self.logs:
            name = next(iter(self.logs))
            left = self.logs[name][0] + self._seconds - now
            if left > 0:
                self._clock.set(self, left)
                return
            self.drop(name)


def parse_number(text: bytes) -> int:
    """Return the number in a text; 0 for any other text."""
    return int(text) if text.isdigit() else 0
