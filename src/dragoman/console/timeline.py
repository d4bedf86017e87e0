"""The calls, questions and streams that have ended: a ring, bounded in rows and in bytes.

A row's numbers are packed in columns, 56 bytes a row, in memory that is there from the beginning; its texts are those
that its method, its caller and its session have anyway, and a tuple of them. So a row takes some 170 bytes and holds no
message. Texts of its own (of an error, of a method that does not exist) are counted: above `TEXTS` the oldest rows go.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..observer import Direction, Kind
from .rows import EndedCall
from .series import MethodSeries

ROWS: Final = 10_000
"""Ended calls that are kept: minutes of a busy server, a day of a quiet one, in 1.5 MB."""
TEXTS: Final = 2 * 1024 * 1024
"""Bytes of texts that rows have for themselves, in all: a flood of invented names must not fill the memory."""
COLUMNS: Final = "dffQQQQq"
"""Begin, seconds, wait (below 0 of one that never started), bytes in, bytes out, number, parent (0: none), code."""
NO_CODE: Final = -(2**63)


class Line(Struct, eq=False):
    """What the rows of one method have in common. `own`: bytes of its texts, if it is that of one row alone."""

    service: str
    method: str
    target: str
    kind: Kind
    direction: Direction
    series: MethodSeries
    own: int = 0


Texts: TypeAlias = tuple[Line, str, str, str, str, str, str, str]
"""Line, outcome, wire, remote, session, principal, text, about."""
Row: TypeAlias = tuple[Texts, float, float, float, int, int, int, int, int]
"""The texts, then the numbers in the order of `COLUMNS`."""


class Timeline:
    """The ring."""

    def __init__(self, rows: int = ROWS, texts: int = TEXTS) -> None:
        self._size = rows
        self._most = texts
        self._columns: list[array[Any]] = [array(kind, bytes(array(kind).itemsize * rows)) for kind in COLUMNS]
        self._texts: list[Texts | None] = [None] * rows
        self.count: int = 0
        """How many have ended in all: the `seq` of the next one."""
        self.first: int = 0
        """The `seq` of the oldest row."""
        self.bytes: int = 0
        """Bytes of texts that rows have for themselves."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count - self.first

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows, the oldest first; the oldest that are kept go if there is no room."""
        for begin in range(0, len(rows), self._size):
            self._add(rows[begin : begin + self._size])

    def _add(self, rows: Sequence[Row]) -> None:
        if (over := len(self) + len(rows) - self._size) > 0:
            self._drop(over)
        texts, *columns = zip(*rows, strict=True)
        at = self.count % self._size
        whole = min(len(rows), self._size - at)
        self._texts[at : at + whole] = texts[:whole]
        self._texts[: len(rows) - whole] = texts[whole:]
        for kind, column, values in zip(COLUMNS, self._columns, columns, strict=True):
            if whole == len(rows):
                column[at : at + whole] = array(kind, values)
            else:
                column[at:] = array(kind, values[:whole])
                column[: len(rows) - whole] = array(kind, values[whole:])
        self.count += len(rows)
        self.bytes += _own(texts)
        while self.bytes > self._most and self.first < self.count:
            self._drop(1)

    def _drop(self, number: int) -> None:
        """Drop so many of the oldest rows."""
        at = self.first % self._size
        whole = min(number, self._size - at)
        gone = self._texts[at : at + whole] + self._texts[: number - whole]
        self._texts[at : at + whole] = [None] * whole
        self._texts[: number - whole] = [None] * (number - whole)
        self.first += number
        self.bytes -= _own(gone)

    def newest(self) -> Iterator[EndedCall]:
        """Return the rows, the newest first."""
        return (self._row(seq) for seq in range(self.count - 1, self.first - 1, -1))

    def since(self, seq: int) -> Iterator[EndedCall]:
        """Return the rows from a `seq` on, the oldest first."""
        return (self._row(one) for one in range(max(seq, self.first), self.count))

    def _row(self, seq: int) -> EndedCall:
        at = seq % self._size
        texts = self._texts[at]
        assert texts is not None
        line, outcome, wire, remote, session, principal, text, about = texts
        time, seconds, wait, received, sent, number, parent, code = [column[at] for column in self._columns]
        return EndedCall(
            seq=seq,
            id=f"{number}",
            parent=f"{parent}" if parent else "",
            time=time,
            ended=round(time + seconds, 6),
            ms=round(seconds * 1000, 3),
            wait=None if wait < 0 else round(wait * 1000, 3),
            service=line.service,
            method=line.method,
            target=line.target,
            kind=line.kind,
            direction=line.direction,
            wire=wire,
            remote=remote,
            session=session,
            principal=principal,
            outcome=outcome,
            code=None if code == NO_CODE else code,
            text=text,
            about=about,
            received=received,
            sent=sent,
        )


def _own(rows: Iterable[Texts | None]) -> int:
    """Return the bytes of rows' own texts; a remote address may be a row's own too, and is short."""
    return sum([one[0].own + len(one[6]) + len(one[7]) for one in rows if one is not None])
