"""The home stream of a session: one log of messages outside calls, read by the clients' GETs in turn.

Each message is in it once, even if several processes send it. It is sent to the newest reader ("MUST NOT broadcast the
same message across multiple streams", basic/transports), after what earlier readers have had; when that one leaves, an
older reader continues. The time of one reader is a *leg* with a number, which is in the ids of its events: a reader
that comes back gets the rest of its leg, nothing of the other legs, and new messages.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from ...bus.contract import BusLost
from .log import StreamLog, number_in
from .stream import Cursor, Kind, Run, StreamReader, StreamWriter

HOME: Final = "h"
"""The name of this stream, in event ids."""


class Owner(Protocol):
    """The session of a home."""

    run: Run

    @property
    def primed(self) -> bool: ...
    @property
    def resumable(self) -> bool: ...
    @property
    def ended(self) -> bool: ...

    def rest(self) -> None:
        """It is not in use any more."""


class Home:
    """The home stream. `took` tells other processes that a reader began here, `freed` that it has gone."""

    def __init__(
        self, owner: Owner, log: StreamLog, turns: StreamLog, took: Callable[[int], None], freed: Callable[[], None]
    ) -> None:
        self.cursors: list[Cursor] = []
        """The readers here, the newest last."""
        self.left: float | None = monotonic()
        """When its last reader left; None while it has one here."""
        self.leg: int = 0
        """The number of the last leg, here or elsewhere."""
        self._owner = owner
        self._turns = turns
        self._took = took
        self._freed = freed
        self._writer = StreamWriter(owner.run, log, self._said)
        self._had = 0
        self._saving = False

    @property
    def busy(self) -> bool:
        """Whether a reader is here, or a message is being stored."""
        return bool(self.cursors or self._writer)

    @property
    def unsaid(self) -> int:
        """The number of messages that are not in the log yet."""
        return len(self._writer)

    def say(self, message: bytes, mark: str = "") -> bool:
        """Send a message; False when it was dropped. `mark`: of several processes that send it, one does."""
        return bool(self._writer.put("message", message, mark))

    async def open(self, reader: StreamReader, back: tuple[int, int] | None = None) -> bool:
        """Add a reader; False when the session is over. `back`: the last event that it had, by number and leg. Raises
        BusLost."""
        log = self._writer.log
        start = max(await log.furthest(), self._had)
        leg = await self._take_turn(start)
        passed: range | None = None
        sent = max(start, log.lost)
        if back is not None:
            sent, mine = max(back[0], log.lost), back[1]
            # "MUST NOT replay messages that would have been delivered on a different stream" (basic/transports)
            passed = range(max(await self._end_of(mine, start), sent) + 1, start + 1)
        if self._owner.ended:
            return False
        name = HOME if self._owner.resumable else ""
        cursor = Cursor(self._owner.run, log, reader, name=name, sent=sent, left=self._left)
        cursor.leg, cursor.passed, cursor.on_sent = leg, passed, self._sent
        for other in self.cursors:
            other.active = False
        self.cursors.append(cursor)
        self.left = None
        if leg > self.leg:
            self.leg = leg
        else:
            cursor.active = False  # another was opened meanwhile
        self._took(leg)
        cursor.begin(primed=back is None and self._owner.primed)
        cursor.wake()
        return True

    async def _take_turn(self, start: int) -> int:
        """The number of a new leg that begins after this message."""
        position = self._turns.append(str(start).encode())
        try:
            return await self._turns.stored(position)
        except BusLost:
            self._turns.withdraw(position)
            raise

    async def _end_of(self, leg: int, start: int) -> int:
        """The number of a leg's last message; 0 if the leg is too old to be known."""
        after = await self._turns.read(leg)
        if not after:
            return start
        return number_in(after[0].message) if after[0].number == leg + 1 else 0

    def _said(self, number: int, kind: Kind, message: bytes) -> bool:
        cursor = self.cursors[-1] if self.cursors else None
        if cursor is None or not cursor.active:
            return False
        cursor.push(number, message, False)
        return cursor.reader is not None

    def _sent(self, number: int) -> None:
        """Remember what was sent, for later readers."""
        self._had = max(number, self._had)
        if not self._saving:
            self._saving = True
            self._owner.run(self._save())

    async def _save(self) -> None:
        try:
            number = 0
            while number != self._had:
                number = self._had
                await self._writer.log.had(number)
        except BusLost:
            return  # messages may be sent again
        finally:
            self._saving = False

    def _left(self, cursor: Cursor) -> None:
        """A reader has gone: an older one continues."""
        self.cursors.remove(cursor)
        if not self.cursors:
            self.left = monotonic()
        self._owner.rest()
        if not cursor.active or self._owner.ended:
            return
        if self.cursors:
            self._owner.run(self._again(self.cursors[-1], cursor.sent, here=True))
        else:
            self._freed()

    async def _again(self, cursor: Cursor, had: int, *, here: bool) -> None:
        """Let an older reader continue after what another had. `here`: the other was a reader of this process."""
        leg = 0
        try:
            had = max(had, await self._writer.log.furthest(), self._had)
            leg = await self._take_turn(had)
        except BusLost:
            if not here:
                return
        if cursor.reader is None or self.cursors[-1] is not cursor or (leg and leg <= self.leg):
            return
        cursor.sent = max(cursor.sent, had)
        cursor.active = True
        if leg:
            self.leg = cursor.leg = leg
            self._took(leg)
        cursor.wake()

    def look(self) -> None:
        """The log may have grown."""
        if self.cursors:
            self.cursors[-1].wake()

    def taken(self, leg: int) -> None:
        """A reader began elsewhere."""
        if leg > self.leg:
            self.leg = leg
            for cursor in self.cursors:
                cursor.active = False

    def free(self) -> None:
        """The current reader, at another process, has gone."""
        if self.cursors:
            self._owner.run(self._again(self.cursors[-1], 0, here=False))

    def close(self) -> None:
        """The session is over."""
        self._writer.log.close()

    def release(self) -> None:
        """Release all readers."""
        for cursor in tuple(self.cursors):
            cursor.release()
