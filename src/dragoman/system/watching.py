"""Watches sockets for readiness, on every event loop.

Loops that wait for readiness (all on POSIX, and Windows' selector loop) do it themselves. Windows' proactor loop waits
for completions alone, so there one thread of the loop calls select() and reports to it; it lives as long as a
socket is watched. A report costs a change of threads, which accepting a connection can afford. Streams of bytes go
by the loop's own transports, which need none of this. select() takes at most 512 sockets there.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

Ready = Callable[[], object]


def add_reader(loop: asyncio.AbstractEventLoop, sock: socket.socket, ready: Ready) -> None:
    """Call `ready` whenever the socket has something to read or to accept."""
    try:
        loop.add_reader(sock, ready)
    except NotImplementedError:
        _watch(loop).add(_READ, sock, ready)


def add_writer(loop: asyncio.AbstractEventLoop, sock: socket.socket, ready: Ready) -> None:
    """Call `ready` whenever the socket takes something to write."""
    try:
        loop.add_writer(sock, ready)
    except NotImplementedError:
        _watch(loop).add(_WRITE, sock, ready)


def remove_reader(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Watch it no more for reading."""
    try:
        loop.remove_reader(sock)
    except NotImplementedError:
        _watch(loop).remove(_READ, sock)


def remove_writer(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    """Watch it no more for writing."""
    try:
        loop.remove_writer(sock)
    except NotImplementedError:
        _watch(loop).remove(_WRITE, sock)


_READ: Final = 0
_WRITE: Final = 1
_watches: dict[asyncio.AbstractEventLoop, _Watch] = {}


def _watch(loop: asyncio.AbstractEventLoop) -> _Watch:
    for other in [one for one in _watches if one.is_closed()]:
        _watches.pop(other).end()
    return _watches.setdefault(loop, _Watch(loop))


class _Watch:
    """The sockets that are watched for one loop. All but `_run` is called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: tuple[dict[int, Ready], dict[int, Ready]] = {}, {}
        self._thread: _Selecting | None = None

    def add(self, side: int, sock: socket.socket, ready: Ready) -> None:
        self._ready[side][sock.fileno()] = ready
        if self._thread is None:
            self._thread = _Selecting(self._loop, self._found)
        self._thread.watch(*self._ready)

    def remove(self, side: int, sock: socket.socket) -> None:
        if self._ready[side].pop(sock.fileno(), None) is None or self._thread is None:
            return
        if any(self._ready):
            self._thread.watch(*self._ready)
        else:
            self.end()

    def end(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def _found(self, thread: _Selecting, found: tuple[list[int], list[int]]) -> None:
        """Call what waits for these sockets, as far as it still does, then look again."""
        if thread is not self._thread:
            return
        try:
            for side, numbers in enumerate(found):
                for number in numbers:
                    if (ready := self._ready[side].get(number)) is not None:
                        self._loop.call_soon(ready)
        finally:
            self._loop.call_soon(self._again, thread)

    def _again(self, thread: _Selecting) -> None:
        if thread is self._thread:
            thread.go_on()


class _Selecting:
    """A thread in select(). It looks again only when the loop has acted on what it reported last."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        found: Callable[[_Selecting, tuple[list[int], list[int]]], None],
    ) -> None:
        self._loop = loop
        self._found = found
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._sets: tuple[list[int], list[int]] = [], []
        self._over = False
        self._may_look = threading.Event()
        self._may_look.set()
        threading.Thread(target=self._run, name="dragoman watches sockets", daemon=True).start()

    def watch(self, reads: dict[int, Any], writes: dict[int, Any]) -> None:
        """Watch these from now on."""
        self._sets = list(reads), list(writes)
        self._wake()

    def go_on(self) -> None:
        """Look again."""
        self._may_look.set()

    def end(self) -> None:
        """Look no more."""
        self._over = True
        self._may_look.set()
        self._wake()

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:  # it is full, so the thread wakes anyway; or the thread has ended
            pass

    def _run(self) -> None:
        with self._woken, self._waker:
            woken = self._woken.fileno()
            while self._may_look.wait() and not self._over:
                reads, writes = self._sets
                try:
                    # a connection that is refused is an exceptional condition there, not a writable socket
                    readable, writable, failed = select.select([woken, *reads], writes, writes)
                except (OSError, ValueError):  # one was closed meanwhile; the next sets are without it
                    readable, writable, failed = [woken], [], []
                    self._woken.settimeout(_MOMENT)
                if woken in readable:
                    try:
                        self._woken.recv(1024)
                    except TimeoutError:
                        pass
                    self._woken.settimeout(None)
                    readable.remove(woken)
                if not (readable or writable or failed):
                    continue
                self._may_look.clear()
                if self._over:  # which had set it
                    return
                found = readable, [*{*writable, *failed}]
                try:
                    self._loop.call_soon_threadsafe(self._found, self, found)
                except RuntimeError:  # the loop is closed
                    return


_MOMENT: Final = 0.05
"""Seconds to wait for the loop to forget a socket that it has closed."""
