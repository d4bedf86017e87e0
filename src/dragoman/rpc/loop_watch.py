"""Warns of a function that holds up an event loop: while it runs, no other call goes on, and no time-out ends.

One daemon thread of the process looks at the loops that serve. Every `LOOK` seconds it asks each for a sign of life,
which is a callback that the loop runs as soon as it can. Where none came for `PATIENCE` seconds, it looks at what the
loop's thread runs, and names the first function there that is neither Python's own nor dragoman's; each function once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from types import CodeType, FrameType
from typing import Final

from msgspec import Struct

from ..system.forking import after_fork

LOOK: Final = 0.5
"""Seconds between two looks: a loop is woken as often."""
PATIENCE: Final = 1.0
"""Seconds after which a loop without a sign of life is held up."""
_NOT_USERS: Final = frozenset({"dragoman", "uvloop"}) | sys.stdlib_module_names

logger: logging.Logger = logging.getLogger("dragoman")


class _Watched(Struct, eq=False):
    """A loop, and since when it owes a sign of life, in monotonic seconds."""

    loop: asyncio.AbstractEventLoop
    thread: int
    since: float | None = None
    lag: float = 0.0
    """Seconds that the last sign was late."""

    def sign(self) -> None:
        """Called on the loop."""
        if self.since is not None:
            self.lag = monotonic() - self.since
        self.since = None


_lock = threading.Lock()
_watched: set[_Watched] = set()
_wake = threading.Event()
_runs = False
_told: set[CodeType] = set()


def _after_fork() -> None:
    global _lock, _wake, _runs
    _lock, _wake, _runs = threading.Lock(), threading.Event(), False
    _watched.clear()


after_fork(_after_fork)  # the thread is the parent's, and so are its loops


def watch_loop() -> Callable[[], None]:
    """Watch the running loop; gives the function that ends it. Call both on the loop's thread."""
    global _runs
    one = _Watched(asyncio.get_running_loop(), threading.get_ident())
    with _lock:
        _watched.add(one)
        if not _runs:
            _runs = True
            threading.Thread(target=_look, name="dragoman-loop-watch", daemon=True).start()

    def end() -> None:
        with _lock:
            _watched.discard(one)
        _wake.set()

    return end


def loop_lag(loop: asyncio.AbstractEventLoop) -> float | None:
    """Return how many seconds a loop took to do what it was asked, when it was last looked at; None if it is not
    watched."""
    with _lock:
        return next((one.lag for one in _watched if one.loop is loop), None)


def _look() -> None:
    """What the thread does, as long as a loop is watched."""
    global _runs
    wake = _wake
    while True:
        before = monotonic()
        wake.wait(LOOK)
        wake.clear()
        with _lock:
            if not _watched:
                _runs = False
                return
            watched = tuple(_watched)
        # a machine or process that stood still itself, as this thread did, is no function's fault
        stood = monotonic() - before > LOOK + PATIENCE / 2
        for one in watched:
            _look_at(one, stood)


def _look_at(one: _Watched, stood: bool) -> None:
    if one.loop.is_closed():
        with _lock:
            _watched.discard(one)
        return
    if not one.loop.is_running():  # what its thread does meanwhile holds up nothing
        one.since = None
        return
    now = monotonic()
    if one.since is not None and not stood:
        if now - one.since >= PATIENCE:
            _warn(one)  # once for each function; what is asked of the loop already is its next sign
        return
    one.since = now
    with suppress(RuntimeError):  # it was closed meanwhile
        one.loop.call_soon_threadsafe(one.sign)


def _warn(one: _Watched) -> None:
    found = blocking_function(sys._current_frames().get(one.thread))
    if found is None or found.f_code in _told or one.since is None:  # the last: it has ended meanwhile
        return
    code = found.f_code
    _told.add(code)
    logger.warning(
        "%s (%s:%d) has held up the event loop for more than %g s, and with it every other call: await what waits "
        "(asyncio.sleep, an asynchronous client, asyncio.to_thread), or declare it with `def` and without inline=True: "
        "then it runs in a thread",
        code.co_qualname,
        code.co_filename,
        found.f_lineno,
        PATIENCE,
    )


def blocking_function(frame: FrameType | None) -> FrameType | None:
    """The function of users' that a loop's thread runs, by its innermost frame: what dragoman called, or else what the
    loop called. None if there is none, as while dragoman imports a library, which happens once."""
    called: list[FrameType] = []
    for each in _outwards(frame):
        if _package(each) in ("asyncio", "uvloop"):
            break
        called.append(each)
    called.reverse()
    first = next((number for number, each in enumerate(called) if _package(each) == "dragoman"), 0)
    found = next((each for each in called[first:] if _package(each) not in _NOT_USERS), None)
    return None if found is None or found.f_code.co_name == "<module>" else found


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
