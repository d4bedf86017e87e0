"""The home stream of a session: one log of messages outside calls, read by the client's GETs in turn.

Its messages are sent to the newest reader ("MUST NOT broadcast the same message across multiple streams",
basic/transports), from where the earlier readers ended; when that one leaves, an older reader continues. The time of
one reader is a *leg* with a number, which is in the ids of its events: a reader that comes back gets the rest of its
leg, nothing of the other legs, and new messages.

A change of a list or resource, or a topic's notification, of which every process learns, is written into the log by
the process that has the reader; without a reader by none. The number of the last change that readers got is stored with
the log, so that the process of the next reader first writes the missed ones. If two readers are opened at two processes
at once, both may write a change: it may come twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from ...bus.contract import BusLost
from .log import StreamLog, parse_number
from .stream import Cursor, Kind, Run, StreamReader, StreamWriter

if TYPE_CHECKING:
    from .missed import MissedChanges

HOME: Final = "h"
"""The name of this stream, in event ids."""


class HomeStream:
    """The home stream. `turns`: the log of its legs; `on_left`: called when a reader has gone; `on_turn`, `on_free`:
    notify other processes that a leg with this number began here, and that the current reader has gone; `changes`:
    finds changes that no reader got."""

    def __init__(
        self,
        run: Run,
        log: StreamLog,
        turns: StreamLog,
        on_left: Callable[[], None],
        on_turn: Callable[[int], None] | None = None,
        on_free: Callable[[], None] | None = None,
        changes: MissedChanges | None = None,
    ) -> None:
        self.cursors: list[Cursor] = []
        """The readers here, the newest last."""
        self.left: float | None = monotonic()
        """When its last reader left, on the monotonic clock; None while it has one here."""
        self.leg: int = 0
        """The number of the last leg, here or elsewhere."""
        self._run = run
        self._turns = turns
        self._on_left = on_left
        self._on_turn = on_turn
        self._on_free = on_free
        self._changes = changes
        self._restarts = 0 if changes is None else changes.restarts
        self._writer = StreamWriter(run, log, self._pass_on)
        self._had = 0
        self._change = 0
        """The number of the last change that was written here, or that readers got."""
        self._saved = (0, 0)
        self._saving = False
        self._reading = False
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether a reader is here, or a message is being stored."""
        return bool(self.cursors or self._writer)

    @property
    def unstored(self) -> int:
        """The number of messages that are not in the log yet."""
        return len(self._writer)

    def say(self, message: bytes) -> bool:
        """Send a message; False when it was dropped."""
        return bool(self._writer.put("message", message))

    def say_change(self, message: bytes, number: int) -> None:
        """Send the notification of a change that every process gets, if the current reader is here."""
        changes = self._changes
        # if the log of changes is a new one, its numbers begin again, below those that readers got before
        anew = changes is not None and (changes.restarts != self._restarts or changes.latest < self._change)
        if self.has_turn and (anew or number > self._change):
            self._change = number
            self._restarts = 0 if changes is None else changes.restarts
            self.say(message)

    @property
    def has_turn(self) -> bool:
        """Whether the current reader is here."""
        return bool(self.cursors) and self.cursors[-1].active

    async def open(
        self, reader: StreamReader, back: tuple[int, int] | None = None, *, resumable: bool, primed: bool
    ) -> bool:
        """Add a reader; return False when the session is over. `back`: number and leg of the last event that a
        returning reader got; None: it is new. Raises BusLost."""
        log = self._writer.log
        if self._changes is not None:
            await self._changes.ready()  # what comes before that is missed, and read from the log then
        start = await self._read_progress()
        await self._say_missed(start)
        leg = await self._take_turn(start)
        passed: range | None = None
        sent = max(start, log.lost)
        if back is not None:
            sent, mine = max(back[0], log.lost), back[1]
            # "MUST NOT replay messages that would have been delivered on a different stream" (basic/transports)
            passed = range(max(await self._end_of(mine, start), sent) + 1, start + 1)
        if self._closed:
            return False
        name = HOME if resumable else ""
        cursor = Cursor(self._run, log, reader, name=name, sent=sent, left=self._left)
        cursor.leg, cursor.passed, cursor.on_sent = leg, passed, self._sent
        for other in self.cursors:
            other.active = False
        self.cursors.append(cursor)
        self.left = None
        if leg > self.leg:
            self.leg = leg
        else:
            cursor.active = False  # another reader was added meanwhile
        if self._on_turn is not None:
            self._on_turn(leg)
        cursor.begin(primed=back is None and primed)
        cursor.wake()
        if self._changes is not None and self._changes.latest > self._change:  # there was one meanwhile
            self._run(self._say_later_changes())
        return True

    async def _read_progress(self) -> int:
        """Return the number of the last message that readers got, and remember that of the last change. Raises
        BusLost."""
        had, change = await self._writer.log.furthest()
        self._change = max(change, self._change)
        return max(had, self._had)

    async def _say_missed(self, had: int) -> None:
        """Send the changes that no reader got. `had`: the number of the last message that readers got. Raises
        BusLost."""
        if self._changes is None or self._changes.latest <= self._change:
            return
        before, self._change = self._change, self._changes.latest
        self._reading = True
        try:
            missed = await self._changes.since(before)
        except BusLost:
            self._change = before
            raise
        finally:
            self._reading = False
        for message in missed:
            self.say(message)
        if missed:  # stored at once, since another process may add a reader
            await self._writer.log.had(had, self._change)

    async def _say_later_changes(self) -> None:
        with suppress(BusLost):
            await self._say_missed(self._had)

    async def _take_turn(self, start: int) -> int:
        """Begin a new leg after the message with this number; return the leg's number. Raises BusLost."""
        position = self._turns.append(str(start).encode())
        try:
            return await self._turns.stored(position)
        except BusLost:
            self._turns.withdraw(position)
            raise

    async def _end_of(self, leg: int, start: int) -> int:
        """Return the number of a leg's last message; 0 if the leg is too old to be known."""
        after = await self._turns.read(leg)
        if not after:
            return start
        return parse_number(after[0].message) if after[0].number == leg + 1 else 0

    def _pass_on(self, number: int, kind: Kind, message: bytes) -> bool:
        cursor = self.cursors[-1] if self.cursors else None
        if cursor is None or not cursor.active:
            return False
        cursor.push(number, message, False)
        return cursor.reader is not None

    def _sent(self, number: int) -> None:
        """Remember the number of the last message that was sent, for later readers."""
        self._had = max(number, self._had)
        self._save_soon()

    def _save_soon(self) -> None:
        if not self._saving:
            self._saving = True
            self._run(self._save())

    async def _save(self) -> None:
        try:
            # a change that is still on its way into the log has not been sent
            while (
                now := (self._had, self._saved[1] if self._writer or self._reading else self._change)
            ) != self._saved:
                await self._writer.log.had(*now)
                self._saved = now
        except BusLost:
            return  # messages may be sent again
        finally:
            self._saving = False

    def _left(self, cursor: Cursor) -> None:
        """Remove a reader that has gone, and let an older one continue."""
        self.cursors.remove(cursor)
        if not self.cursors:
            self.left = monotonic()
        self._on_left()
        if not cursor.active or self._closed:
            return
        if self.cursors:
            self._run(self._continue(self.cursors[-1], cursor.sent, here=True))
            return
        if self._changes is not None and self._changes.latest > self._change and not self._writer:
            self._change = self._changes.latest  # the later changes did not concern the session
            self._save_soon()
        if self._on_free is not None:
            self._on_free()

    async def _continue(self, cursor: Cursor, had: int, *, here: bool) -> None:
        """Let an older reader continue where another one ended. `had`: the number of the last message that this got;
        `here`: it was a reader of this process."""
        leg = 0
        try:
            had = max(had, await self._read_progress())
            if not here:
                await self._say_missed(had)
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
            if self._on_turn is not None:
                self._on_turn(leg)
        cursor.wake()

    def wake(self) -> None:
        """Read the log again, because it may have grown."""
        if self.cursors:
            self.cursors[-1].wake()

    def lose_turn(self, leg: int) -> bool:
        """Make this process's readers wait, because a leg with this number began elsewhere. Return whether the current
        reader was here: then the log may have messages of which the new reader's process does not know."""
        if leg <= self.leg:
            return False
        self.leg, had = leg, self.has_turn
        for cursor in self.cursors:
            cursor.active = False
        return had

    def free(self) -> None:
        """Let a reader of this process continue, because the current one, at another process, has gone."""
        if self.cursors:
            self._run(self._continue(self.cursors[-1], 0, here=False))

    def close(self) -> None:
        """Close the log, because the session is over."""
        self._closed = True
        self._writer.log.close()

    def release(self) -> None:
        """Release all readers."""
        for cursor in tuple(self.cursors):
            cursor.release()
