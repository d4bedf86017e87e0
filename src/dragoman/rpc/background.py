"""One loop in a daemon thread, for code that has none: `Service.answer` with async methods, and the blocking faces.

Rules:

- All users share it. The first use starts it, again in a forked child.
- A blocking call on the loop's own thread would wait for itself, so it is a LocalError.
- An interruption of the waiting thread (Ctrl-C) cancels the work.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import inspect
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from msgspec import Struct, field

from ..channel import Closed
from ..jsonrpc.errors import LocalError
from ..repeats import Repeats
from ..system.forking import after_fork

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")

AT_EXIT = 6.0
"""Seconds for open objects to close when the interpreter ends: enough to kill a child process."""

SOON = 1.0
"""Seconds that a blocking call holds up a loop before it warns of that."""

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def _renew() -> None:
    global _lock
    _lock = threading.Lock()


after_fork(_renew)  # the lock may have been held by a thread that the child has not


def loop() -> asyncio.AbstractEventLoop:
    """The background loop; the first use starts it, again in a forked child."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop = asyncio.new_event_loop()
            _pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="dragoman-loop", daemon=True).start()
        return _loop


def needs_asyncio(what: str) -> None:
    """Raise LocalError where no event loop of asyncio runs, as under trio."""
    if not _in_a_loop():
        raise LocalError(
            f"{what} needs a running event loop of asyncio, and there is none here; under trio use dragoman.sync in a thread "
            "(trio.to_thread.run_sync), or trio-asyncio"
        )


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine there and wait for its result. Raises LocalError on the loop's own thread."""
    return _wait(work, loop())


def _wait(work: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop) -> T:
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        raise LocalError(
            "this is the thread of dragoman's own loop, where a blocking call would wait for itself; "
            "use the asynchronous face there, such as `await context.call(...)`"
        )
    return _Work(work(), loop).wait()


_INSTEAD = "await dragoman.connect(...) there, or serve in another thread or process"
_STANDS = (
    "a blocking call of dragoman.sync holds up the event loop of its own thread, and waits still: if the server runs on "
    f"that loop (as in a notebook), it cannot answer; {_INSTEAD}"
)
_STOOD = (
    "this blocking call held up the event loop of its own thread: if the server runs on that loop (as in a notebook), it "
    f"could not answer meanwhile; {_INSTEAD}"
)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Work(Struct, Generic[T], eq=False):
    """A piece of work on the loop for a waiting thread. `asyncio.run_coroutine_threadsafe` does the same with another
    future and condition, at twice the price, and that is most of a blocking call."""

    _work: Coroutine[Any, Any, T]
    _loop: asyncio.AbstractEventLoop
    _over: Any = field(default_factory=threading.Lock)
    _task: asyncio.Task[T] | None = None

    def wait(self) -> T:
        self._over.acquire()
        try:
            self._loop.call_soon_threadsafe(self._start)
            if not self._over.acquire(timeout=SOON):
                if _in_a_loop():
                    repeats.warning("%s", _STANDS)
                self._over.acquire()
        except BaseException:  # KeyboardInterrupt, most likely
            _soon(self._loop, self._cancel)
            raise
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise Closed("the call was cancelled: the loop is ending") from None
        except TimeoutError as error:
            if _in_a_loop():
                error.add_note(_STOOD)
            raise

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # an interrupted thread will not ask for it
        self._over.release()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _soon(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    """Call something on the loop, if it is still open."""
    try:
        loop.call_soon_threadsafe(what)
    except RuntimeError:  # the loop is closed, with everything on it
        pass


class Portal:
    """Lets threads use an object that lives on the background loop, such as a peer.

    It belongs to the process that made it. The object is closed when the portal is garbage-collected, at the latest
    when the interpreter ends.
    """

    def __init__(self, what: str, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """`what`: the name of the object for errors. `close`: closes it at once."""
        self._loop = loop()
        self._pid = os.getpid()
        self._what = what
        self._close = close
        self._left = weakref.finalize(self, _close_later, self._loop, self._pid, close)
        self._left.atexit = False
        _left_open.add(self)

    @property
    def ours(self) -> bool:
        """False in a forked child."""
        return self._pid == os.getpid()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop and wait for its result. LocalError on the loop's own thread and in a forked
        child."""
        if not self.ours:
            raise LocalError(f"this {self._what} was connected before os.fork; connect again in the child")
        return _wait(work, self._loop)

    def take(self, source: AsyncIterator[T]) -> T:
        """Wait for the next of `source`; StopIteration where it ends."""

        async def following() -> tuple[T] | None:
            try:
                return (await anext(source),)
            except StopAsyncIteration:
                return None

        found = self.run(following)
        if found is None:
            raise StopIteration
        return found[0]

    def soon(self, what: Callable[[], object]) -> None:
        """Call something on the loop without waiting. No effect in a forked child, or where the loop is
        closed."""
        if self.ours:
            _soon(self._loop, what)

    def close(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close the object by `work`. No effect in a forked child."""
        if self.ours:
            self.run(work)
            self._left.detach()
            _left_open.discard(self)


_left_open: weakref.WeakSet[Portal] = weakref.WeakSet()
_closings: set[asyncio.Task[object]] = set()


def _close_later(loop: asyncio.AbstractEventLoop, pid: int, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """An object was garbage-collected, in any thread: close it without waiting."""

    def begin() -> None:
        closing = loop.create_task(close())
        _closings.add(closing)
        closing.add_done_callback(_closings.discard)

    if pid == os.getpid():
        _soon(loop, begin)


def _close_all() -> None:
    """The interpreter ends: close open objects, within `AT_EXIT` seconds."""
    mine = [each for each in list(_left_open) if each.ours]
    if not mine:
        return

    async def close() -> None:
        await asyncio.wait([asyncio.ensure_future(each._close()) for each in mine], timeout=AT_EXIT)

    closing = asyncio.run_coroutine_threadsafe(close(), loop())
    try:
        closing.result(AT_EXIT + 1)
    except (concurrent.futures.CancelledError, TimeoutError):
        pass


atexit.register(_close_all)


def blocking(reach: Callable[P, T], kind: Callable[[T], B], words: str) -> Callable[P, B]:
    """A function `connect` with the parameters of `reach`, which gives `kind` of what that gives; `words`: its
    docstring."""

    @functools.wraps(reach, updated=())
    def connect(*args: P.args, **kwargs: P.kwargs) -> B:
        return kind(reach(*args, **kwargs))

    connect.__doc__ = words
    connect.__signature__ = inspect.signature(reach).replace(  # type: ignore[attr-defined]
        return_annotation=kind.__name__
    )
    connect.__module__, connect.__name__, connect.__qualname__ = kind.__module__, "connect", "connect"
    return connect
