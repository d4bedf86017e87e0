"""Signals that end a process, on every event loop.

On Windows a process gets Ctrl-C as SIGINT, and Ctrl-Break, or the closing of its console, as SIGBREAK, which is for it
what SIGTERM is on POSIX. No loop watches signals there, so Python's own handler wakes the loop.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Final

if sys.platform == "win32":
    TERMINATE: Final = signal.SIGBREAK
    """The signal that asks a process to end."""
    KILL: Final = signal.SIGTERM
    """The signal with which `Popen.send_signal` ends a process at once."""
    HANGUP: Final[signal.Signals | None] = None
    """The signal that asks a server to read its files again; None where there is none."""

    def on_signal(loop: asyncio.AbstractEventLoop, number: int, call: Callable[[], object]) -> None:
        """Call `call` on the loop at each such signal from now on. Raises RuntimeError off the main thread."""

        def handle(number: int, frame: object) -> None:
            try:
                loop.call_soon_threadsafe(call)
            except RuntimeError:  # the loop is closed
                signal.default_int_handler(number, None)

        try:
            signal.signal(number, handle)
        except ValueError as fault:
            raise RuntimeError(str(fault)) from None

    def off_signal(loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Restore the system's handling of a signal."""
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

else:
    TERMINATE: Final = signal.SIGTERM
    """The signal that asks a process to end."""
    KILL: Final = signal.SIGKILL
    """The signal with which `Popen.send_signal` ends a process at once."""
    HANGUP: Final[signal.Signals | None] = signal.SIGHUP
    """The signal that asks a server to read its files again; None where there is none."""

    def on_signal(loop: asyncio.AbstractEventLoop, number: int, call: Callable[[], object]) -> None:
        """Call `call` on the loop at each such signal from now on. Raises RuntimeError off the main thread."""
        loop.add_signal_handler(number, call)

    def off_signal(loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Restore the system's handling of a signal."""
        loop.remove_signal_handler(number)
