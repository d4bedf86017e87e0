"""Lines and keys that a user types at standard input, without holding up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

if sys.platform == "win32":
    import msvcrt

    _LOOK: Final = 0.05
    """Seconds between two looks for a key."""
    _ARROWS: Final = {"H": b"\x1b[A", "P": b"\x1b[B"}
    """The arrows as other terminals send them, by the second code of a key that has two."""

    @contextlib.contextmanager
    def typed_keys(take: Callable[[bytes], object]) -> Iterator[None]:
        """Call `take` with the bytes of keys as they are pressed; b"" once the terminal is gone. Ctrl-C stays a
        signal."""
        loop, over = asyncio.get_running_loop(), threading.Event()

        def read() -> None:
            while not over.wait(_LOOK):
                while msvcrt.kbhit():
                    key = msvcrt.getwch()
                    found = _ARROWS.get(msvcrt.getwch(), b"") if key in "\0\xe0" else key.encode()
                    if found:
                        with contextlib.suppress(RuntimeError):  # the loop is closed
                            loop.call_soon_threadsafe(take, found)

        threading.Thread(target=read, name="dragoman reads keys", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    async def typed_line() -> bytes:
        """Return the next line with its end; b"" at the end of the input. A wait that is called off leaves a thread
        behind, which takes one line more."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bytes] = loop.create_future()

        def arrived(line: str) -> None:
            if not ready.done():
                ready.set_result(line.encode())

        def read() -> None:
            line = sys.stdin.readline()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(arrived, line)

        threading.Thread(target=read, name="dragoman reads a line", daemon=True).start()
        return await ready

    def wait_for_line(ended: socket.socket) -> bool:
        """Return True: one cannot wait for a line without reading it."""
        return True

else:
    import termios
    import tty

    @contextlib.contextmanager
    def typed_keys(take: Callable[[bytes], object]) -> Iterator[None]:
        """Call `take` with the bytes of keys as they are pressed; b"" once the terminal is gone. Ctrl-C stays a signal.
        The terminal is as it was at the end."""
        loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
        before: list[Any] = termios.tcgetattr(number)

        def read() -> None:
            try:
                given = os.read(number, 1024)
            except OSError:
                given = b""
            if not given:
                loop.remove_reader(number)
            take(given)

        tty.setcbreak(number)
        loop.add_reader(number, read)
        try:
            yield
        finally:
            loop.remove_reader(number)
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    async def typed_line() -> bytes:
        """Return the next line with its end; b"" at the end of the input."""
        loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
        ready: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            if not ready.done():
                ready.set_result(os.read(number, 65536))

        loop.add_reader(number, read)
        try:
            return await ready
        finally:
            loop.remove_reader(number)

    def wait_for_line(ended: socket.socket) -> bool:
        """Wait until there is a line to read; False if the far end of `ended` is closed before."""
        ready, _, _ = select.select([sys.stdin, ended], [], [])
        return ended not in ready
