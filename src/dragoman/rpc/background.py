"""One loop in a daemon thread, for code that has none: `Service.answer` with async methods, and the blocking face."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def _renew() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)  # the lock may have been held by a thread that the child has not


def loop() -> asyncio.AbstractEventLoop:
    """The background loop, started on first use, and anew in a forked child."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop = asyncio.new_event_loop()
            _pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="dragoman-loop", daemon=True).start()
        return _loop


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine there and wait for its result. Ctrl-C cancels it."""
    future = asyncio.run_coroutine_threadsafe(work(), loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
