"""The observer of the console: it keeps what goes on in this process, and what went on.

Rules:

- What is kept is bounded: `board.CALLS`, `timeline.ROWS` and `TEXTS`, `series.METHODS`, `errors.ERRORS`, and `LINES`
  here.
- No message, no params, no results and no answers are kept: sizes, and short texts of errors with secrets masked.
- All of it is called on one loop and takes no lock, as `telemetry.Metrics`.
"""

from __future__ import annotations

from collections import deque
from time import time as _now
from typing import Final

import msgspec
from msgspec import Struct

from ..jsonrpc.errors import RpcError
from ..observer import Observation, Rejection
from .board import CALLS, LISTED, Board
from .errors import Errors
from .rows import FAILED, TOOL_ERROR, KeptError
from .series import MethodSeries, Series
from .timeline import NO_CODE, Line, Row, Timeline
from .views import mask

LINES: Final = 1_000
"""Methods, with their targets, whose names the rows of the timeline share."""
LONGEST: Final = 200
"""Characters of an error's text."""
NAME: Final = 100
"""Characters of the name of a method that does not exist, and of a description that the far end has chosen."""
TOGETHER: Final = 256
"""Rows that are added at once."""
KEPT: Final = frozenset({"request", "notification", "detached", "stream", "malformed"})
"""The kinds of observations that have a row."""
MOST_CODE: Final = 2**53
"""The greatest code that is kept, and JSON's readers know exactly: far ends may send any number."""
PLAIN: Final = frozenset({"result", "notified", "cancelled"})
"""Outcomes without a text of their own."""
_MARK: Final = b'"isError":'


class _Result(Struct):
    isError: bool = False


class _Answer(Struct):
    result: _Result


_answer = msgspec.json.Decoder(_Answer).decode
_result = msgspec.json.Decoder(_Result).decode


class Recorder:
    """Keeps what goes on in this process: the calls in flight, the timeline, the series, the errors.

    Of a call that has ended only its row is made at once. Rows are added to the timeline and to the series `TOGETHER`,
    or when these are read, which costs half.
    """

    def __init__(self) -> None:
        self.board: Board = Board()
        self._errors = Errors()
        self._timeline = Timeline()
        self._series = Series()
        self._listed = self.board.listed
        self._lines: dict[tuple[str, str, str, str, str], Line] = {}
        self._new: list[Row] = []
        """Rows that are not added yet."""
        self._removed: deque[tuple[str, str, str]] = deque()
        """What was removed in any thread, and is forgotten in that of the calls."""

    def __repr__(self) -> str:
        return f"<Recorder of {self.timeline.count} calls>"

    @property
    def timeline(self) -> Timeline:
        """What has ended."""
        self._settle()
        return self._timeline

    @property
    def errors(self) -> Errors:
        """The last errors."""
        self._settle()
        return self._errors

    @property
    def series(self) -> Series:
        """What methods did in the last quarter of an hour."""
        self._settle()
        return self._series

    # -- the observer

    def came_in(self, seen: Observation) -> None:
        """List a call."""
        if seen.kind in LISTED:
            if len(self._listed) < CALLS:
                self._listed[seen.number] = seen
            else:
                self.board.more += 1

    def outbound(self, seen: Observation) -> None:
        """Do nothing: it has a row when it is over."""

    def started(self, seen: Observation) -> None:
        """Do nothing: the observation knows it."""

    def ended(self, seen: Observation) -> None:
        """Keep a row of it."""
        kind = seen.kind
        if seen.direction == "in" and kind in LISTED:
            if self._listed.pop(seen.number, None) is None:
                self.board.more -= 1
        elif kind not in KEPT:
            return
        line = self._lines.get((seen.service, seen.method, seen.target, kind, seen.direction)) or self._line(seen)
        caller, answer, began, started, code = seen.caller, seen.answer, seen.began, seen.started, seen.code
        identity, parent = caller.identity, seen.parent
        outcome: str = seen.outcome or ""
        text = ""
        if outcome not in PLAIN or seen.reason:
            text = error_text(seen)
        elif answer is not None and seen.protocol == "mcp" and says_error(answer):
            outcome = TOOL_ERROR
        self._new.append(
            (
                (
                    line,
                    outcome,
                    caller.scheme,
                    caller.remote,
                    seen.session,
                    "" if identity is None else identity.subject,
                    text,
                    seen.about and mask(seen.about[:NAME]),
                ),
                seen.time,
                (seen.ended or began) - began,
                -1.0 if started is None else started - began,
                len(seen.message) or _size(seen),
                0 if answer is None or seen.batch is not None else len(answer),
                seen.number,
                0 if parent is None else parent.number,
                NO_CODE if code is None else bounded_code(code),
            )
        )
        if len(self._new) >= TOGETHER:
            self._settle()

    def rejected(self, seen: Rejection) -> None:
        """Keep what was turned away as an error."""
        self._errors.add(
            KeptError(
                time=_now(),
                wire=seen.caller.scheme,
                remote=seen.caller.remote,
                outcome=f"rejected: {seen.kind}",
                code=seen.status,
                text=mask(seen.reason[:LONGEST]),
            )
        )

    def removed(self, service: str, method: str, target: str = "") -> None:
        """Forget the series of what a service removed, with the next call. From any thread."""
        self._removed.append((service, method, target))

    # -- its parts

    def _settle(self) -> None:
        """Add the new rows to the timeline, to the series and to the errors."""
        if not self._new:
            return
        rows, self._new = self._new, []
        self._timeline.add(rows)
        first = int(rows[0][1] + rows[0][2])
        if first == int(rows[-1][1] + rows[-1][2]):
            self._count(first, rows)
        else:  # there is time, so they may be counted one by one
            for row in rows:
                self._count(int(row[1] + row[2]), [row])

    def _count(self, second: int, rows: list[Row]) -> None:
        """Add rows that ended in this second to the series, and those of errors to the errors."""
        taken: dict[MethodSeries, list[float]] = {}
        sizes: dict[MethodSeries, int] = {}
        failed: dict[MethodSeries, int] = {}
        for row in rows:
            texts, _, took, _, received, sent, _, _, _ = row
            series = texts[0].series
            if (those := taken.get(series)) is None:
                those = taken[series] = []
                sizes[series] = 0
            those.append(took)
            sizes[series] += received + sent
            if texts[1] not in PLAIN and texts[1] in FAILED:
                failed[series] = failed.get(series, 0) + 1
                self._keep_error(row)
        for series, seconds in taken.items():
            series.add(second, seconds, failed.get(series, 0), sizes[series])

    def _keep_error(self, row: Row) -> None:
        (line, outcome, wire, remote, _, _, text, _), time, seconds, _, _, _, number, _, code = row
        self._errors.add(
            KeptError(
                time=time + seconds,
                id=f"{number}",
                service=line.service,
                method=line.method,
                target=line.target,
                wire=wire,
                remote=remote,
                outcome=outcome,
                code=None if code == NO_CODE else code,
                text=text,
            )
        )

    def _line(self, seen: Observation) -> Line:
        """Return the line of a method that has none yet. The names of what does not exist are not shared."""
        while self._removed:
            self._series.forget(*self._removed.popleft())
        exists = seen.direction == "out" or seen.started is not None or bool(seen.target)
        method, target = seen.method[:NAME], seen.target[:NAME]
        if seen.kind == "stream":
            series = MethodSeries(seen.service, "", "")  # it lasts as long as its reader likes, and is in no series
            line = self._lines[seen.service, seen.method, seen.target, seen.kind, seen.direction] = Line(
                seen.service, method, target, seen.kind, seen.direction, series
            )
            return line
        if not exists:
            return Line(seen.service, method, target, seen.kind, seen.direction, self._series.other, len(method) + 100)
        removed = self._series.removed
        series = self._series.of(seen.service, method, target, int(seen.time))
        line = Line(seen.service, method, target, seen.kind, seen.direction, series)
        if self._series.removed != removed or len(self._lines) >= LINES:
            self._lines.clear()  # they are made anew when they are needed
        self._lines[seen.service, seen.method, seen.target, seen.kind, seen.direction] = line
        return line


def error_text(seen: Observation) -> str:
    """Return why a call did not end with a result, short and with secrets masked."""
    text = seen.reason
    if not text and seen.error is not None:
        try:  # of our own errors not the data, in which arguments may be
            said = str(seen.error.message if isinstance(seen.error, RpcError) else seen.error)
            text = type(seen.error).__name__ + (f": {said}" if said else "")
        except Exception:  # its `__str__` is its user's
            text = type(seen.error).__name__
    return mask(text[:LONGEST])


def _size(seen: Observation) -> int:
    """Return the bytes of a message whose text is not its own: an element of a batch."""
    return len(memoryview(seen.params)) if type(seen.params) is msgspec.Raw else 0


def bounded_code(code: int) -> int:
    """Return the code, or the nearest one that is kept."""
    return max(-MOST_CODE, min(code, MOST_CODE))


def says_error(answer: bytes) -> bool:
    """Whether the result of a tool says that it failed. The mark cannot be within a string, where quotes are
    escaped, but within another member."""
    if _MARK not in answer:
        return False
    try:
        return _answer(answer).result.isError
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def is_tool_error(result: bytes) -> bool:
    """Whether this result of a tool says that it failed."""
    try:
        return _MARK in result and _result(result).isError
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
