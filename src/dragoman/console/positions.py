"""Where a call is: the file and line at which its coroutine waits, or its thread runs. Read only when it is asked for.

A coroutine's frames are walked through what each awaits (`cr_await`), and through a task that it waits for; a thread's
are those of `sys._current_frames`. What stands in an awaitable that is written in C, or in an `__await__` of one's own,
is not seen: the frame that awaits it is the last.
"""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

from msgspec import Struct

from ..observer import WorkInFlight

DEEPEST: Final = 1_000
"""Frames of one call that are looked at: as many as the interpreter allows by itself."""
SHOWN: Final = 12
"""Frames of a call that are shown, the innermost of those outside of dragoman."""
_OURS: Final = os.path.normcase(Path(__file__).parents[1]) + os.sep
_STANDARD: Final = tuple({os.path.normcase(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


class Position(Struct, frozen=True):
    """A line of a function."""

    file: str
    line: int
    function: str


class Whereabouts(Struct, frozen=True):
    """Where a call is. `at`: the innermost frame that is neither dragoman's nor the standard library's, else the
    innermost one outside of dragoman; `stack`: all outside of dragoman, the outermost first, `SHOWN` at most."""

    kind: Literal["coroutine", "thread"]
    at: Position | None
    stack: list[Position]


def locate(work: WorkInFlight) -> Whereabouts | None:
    """Return where the work of a call is; None where nothing of it can be seen. On the loop that serves it."""
    if thread := work.thread_id:
        frames = _thread_frames(thread)
        if work.thread_id == thread:  # else it has returned meanwhile, and the frames may be another call's
            return _whereabouts("thread", frames)
    return None if work.task is None else _whereabouts("coroutine", _task_frames(work.task))


def _thread_frames(thread: int) -> list[FrameType]:
    found: list[FrameType] = []
    frame = sys._current_frames().get(thread)
    while frame is not None and len(found) < DEEPEST:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _task_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a task and of the task that it waits for, the outermost first."""
    found: list[FrameType] = []
    walked: list[object] = []
    waits_for: object = task
    while isinstance(waits_for, asyncio.Task) and waits_for not in walked and len(found) < DEEPEST:
        walked.append(waits_for)
        one: Any = waits_for.get_coro()
        while one is not None and len(found) < DEEPEST:
            frame = _first(one, "cr_frame", "gi_frame", "ag_frame")
            if frame is not None:
                found.append(frame)
            one = _first(one, "cr_await", "gi_yieldfrom", "ag_await")
        waits_for = _of_several(getattr(waits_for, "_fut_waiter", None))
    return found


def _first(one: object, *names: str) -> Any:
    return next((found for name in names if (found := getattr(one, name, None)) is not None), None)


def _of_several(waits_for: object) -> object:
    """Return the first unfinished future of those that `asyncio.gather` waits for, or the future itself."""
    children: Sequence[Any] = getattr(waits_for, "_children", ())
    return next((one for one in children if not one.done()), waits_for)


def _whereabouts(kind: Literal["coroutine", "thread"], frames: Sequence[FrameType]) -> Whereabouts:
    outside = [one for one in frames if not os.path.normcase(one.f_code.co_filename).startswith(_OURS)]
    users = [one for one in outside if not _is_standard(one.f_code.co_filename)]
    inner = (users or outside)[-1:]
    return Whereabouts(kind, _position(inner[0]) if inner else None, [_position(one) for one in outside[-SHOWN:]])


def _is_standard(file: str) -> bool:
    file = os.path.normcase(file)
    return file.startswith("<") or (file.startswith(_STANDARD) and f"-packages{os.sep}" not in file)


def _position(frame: FrameType) -> Position:
    code = frame.f_code
    return Position(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_qualname)
