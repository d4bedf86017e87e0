"""Keeps a signal that is sent to a forked child process from ending the server.

A forked child inherits what an event loop has set for signals: handlers that do nothing by themselves, and the
descriptor on which Python writes the signal's number, whose other end the parent's loop reads. So SIGTERM to the child
would end the server and not the child. In the child these handlers are the system's default again and the descriptor is
forgotten; handlers of the program's own stay. Signals that arrive between the fork and this reset are held
back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_OURS = ("asyncio", "uvloop", "dragoman")
"""The packages whose handlers belong to a loop of the parent."""
_before = threading.local()
_once: list[bool] = []


if sys.platform == "win32":

    def protect_forks() -> None:
        """Do nothing: there is no fork."""

    def after_fork(renew: Callable[[], object]) -> None:
        """Do nothing: there is no fork."""

else:

    def protect_forks() -> None:
        """Remove the signal handlers of an event loop in every child that is forked from now on. Once per process."""
        if not _once:
            _once.append(True)
            os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_reset)

    def after_fork(renew: Callable[[], object]) -> None:
        """Call `renew` in every child that is forked from now on."""
        os.register_at_fork(after_in_child=renew)

    def _hold() -> None:
        _before.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))

    def _let_go() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _before.mask)

    def _reset() -> None:
        try:
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals():
                if _of_a_loop(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)
        finally:
            _let_go()


def _of_a_loop(handler: Any) -> bool:
    """Whether an event loop, or what runs one, has set this handler."""
    function = getattr(handler, "func", handler)
    return (getattr(function, "__module__", None) or "").partition(".")[0] in _OURS
