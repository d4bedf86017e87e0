"""The messages that have passed: a ring of their texts, bounded in rows and in bytes.

Rules:

- There is none unless it is asked for: messages hold what users send.
- `Messages.hook` is called with what `serve(trace=...)` gets, in the order of the wire, on the loop that serves. There
  is a row for each message: one for a call and one for its answer, also for what is no message; a batch is one message.
- What is kept is a copy of what may be shown, with secrets masked as in the lines of a trace: never the message itself,
  nor params. Names and ids that far ends choose are cut.
- Texts take `TEXTS` bytes in all, as they lie in memory; above that the oldest rows go.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Final

from ..jsonrpc.limits import KIB, MIB
from ..observer import Direction
from ..rpc.tracing import SECRETS, Event, Trace, masking
from .recorder import LONGEST, NAME, bounded_code, says_error
from .rows import TOOL_ERROR, MessageRow
from .views import mask

ROWS: Final = 2_000
"""Messages that are kept: the last minute of a server with some fifteen calls a second."""
TEXTS: Final = 4 * MIB
"""Bytes of their texts, in all: one of 4,096 characters (`tracing.SHOWN`) takes that, or four times as much."""
WHOLE: Final = 16 * KIB
"""Bytes of a message that is read as JSON, so that members are masked one by one: that takes the time of its length, on
the loop that serves. Of a longer one the text ends where a secret may begin."""
CALLED: Final = "tools/call"
STEP: Final = 1e-6
"""Seconds between two rows at least."""
BACK: Final = 1.0
"""Seconds by which the clock may be behind the last row; where it is more, it was set back."""


class Messages(Trace):
    """The ring, an observer. `rows`, `texts`: its bounds."""

    def __init__(self, rows: int = ROWS, texts: int = TEXTS) -> None:
        super().__init__(self.hook)
        self._rows: deque[tuple[MessageRow, int]] = deque()
        self._size = rows
        self._most = texts
        self._text = masking(SECRETS, whole=WHOLE)
        self._last = 0.0
        self.count: int = 0
        """How many have passed in all: the `seq` of the next one."""
        self.bytes: int = 0
        """Bytes of the texts that are kept."""

    def __repr__(self) -> str:
        return f"<Messages: {len(self)} of {self.count}>"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def newest(self) -> Iterator[MessageRow]:
        """Return the rows, the newest first."""
        return (row for row, _ in reversed(self._rows))

    def hook(self, event: Event) -> None:
        """Keep what passed."""
        answered = event.seconds is not None  # the call passed before, and this is its answer
        if not answered:
            self._add(event, event.direction, event.message)
        if event.answer is not None or answered:
            self._add(event, "out" if event.direction == "in" else "in", event.answer)

    def _add(self, event: Event, direction: Direction, message: bytes | None) -> None:
        """Keep a message; None: it did not come."""
        wire, _, far = event.channel.partition(":")
        remote, _, channel = far.rpartition("#")
        outcome: str = event.status or ""
        if outcome == "result" and message and event.method == CALLED and says_error(message):
            outcome = TOOL_ERROR
        row = MessageRow(
            seq=self.count,
            time=self._time_of(event),
            direction=direction,
            service=event.service,
            wire=wire,
            remote=remote,
            channel=int(channel),
            session=event.session,
            principal=event.principal,
            method=_cut(event.method or ""),
            target=event.target,
            id=_cut(event.id or ""),
            outcome=outcome,
            code=None if event.code is None else bounded_code(event.code),
            ms=None if event.seconds is None else round(event.seconds * 1000, 3),
            size=len(message or b""),
            text=self._text(message) if message else mask((event.outcome or "")[:LONGEST]),
        )
        taken = _bytes_of(row)
        self._rows.append((row, taken))
        self.count += 1
        self.bytes += taken
        while len(self._rows) > self._size or self.bytes > self._most:
            self.bytes -= self._rows.popleft()[1]

    def _time_of(self, event: Event) -> float:
        """Return a time of its own for a row, after that of the row before: pages are asked for by it, and an event has
        one time for a call and its answer."""
        ties = event.time <= self._last < event.time + BACK
        self._last = self._last + STEP if ties else event.time
        return self._last


def _cut(name: str) -> str:
    return name if len(name) <= NAME else f"{name[:NAME]}..."


def _bytes_of(row: MessageRow) -> int:
    """Return what its texts take in memory; those that it shares with others are counted, too."""
    texts = row.text, row.method, row.id, row.target, row.remote, row.session, row.principal
    return sum(map(sys.getsizeof, texts))
