"""Reading and writing the file descriptors of pipes, terminals and files without holding up the event loop.

On POSIX the loop watches them; regular files, which no loop can watch, are read a piece a turn. Windows has no
readiness of pipes, and handles that were inherited cannot be used for overlapped input and output, so there a thread of
each descriptor blocks in its place. Either way the descriptor belongs to the `PipeInput` or `PipeOutput`, which
closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from .files import nobody_reads

CHUNK: Final = 64 * 1024
"""Bytes of one read or write."""
MOST_LEFT: Final = 8 * 1024 * 1024
"""Bytes that are read at most of what a process wrote before it ended: another may write to its pipe without end."""

Received = Callable[[bytes], object]
Failed = Callable[[OSError], object]

if sys.platform == "win32":
    from .kernel import close_handle, kernel32

    _LAST_READ: Final = 1.0
    """Seconds for the thread to read what a process wrote before it ended; then its pipe is another's."""
    _AT_ONCE: Final = 1024 * 1024
    """Bytes that a thread takes out of the buffer at a time."""

    def own_copy(fd: int) -> int:
        """Return a copy of a descriptor, for a `PipeInput` or `PipeOutput`."""
        return os.dup(fd)

    def own_standard(fd: int, *, writes: bool) -> int:
        """Return a descriptor of standard input or output for ourselves alone."""
        return os.dup(fd)

    def get_blocking(fd: int) -> bool:
        """Return whether reading it blocks, which is so of all descriptors on Windows."""
        return True

    def set_blocking(fd: int, blocking: bool) -> None:
        """Do nothing: descriptors block on Windows."""

    class _Blocked:
        """A thread that blocks in a read or a write, and can be called off."""

        def __init__(self, name: str) -> None:
            self._thread = threading.Thread(target=self._main, name=name, daemon=True)
            self._lock = threading.Lock()
            self._blocks = False
            self._off = False

        def _main(self) -> None:
            raise NotImplementedError

        def _begin_blocking(self) -> bool:
            with self._lock:
                self._blocks = not self._off
                return self._blocks

        def _end_blocking(self) -> None:
            with self._lock:
                self._blocks = False

        def _call_off(self) -> None:
            """Have a read or write that blocks now fail, and begin no other."""
            with self._lock:
                self._off = True
                if not self._blocks or (number := self._thread.native_id) is None:
                    return
                if handle := kernel32.OpenThread(_THREAD_TERMINATE, False, number):
                    kernel32.CancelSynchronousIo(handle)
                    close_handle(handle)

    _THREAD_TERMINATE: Final = 1

    class PipeInput(_Blocked):
        """Reads a descriptor: `received` gets what comes, `ended` is called at its end. It begins paused."""

        def __init__(self, fd: int, received: Received, ended: Callable[[], object]) -> None:
            super().__init__(f"dragoman reads {fd}")
            self._loop = asyncio.get_running_loop()
            self._fd = fd
            self._received = received
            self._ended = ended
            self._found: deque[bytes] = deque()  # b"" is the end
            self._go = threading.Semaphore(0)
            self._reading = False
            self._awaited = False  # the thread reads, or has read what is not delivered yet
            self._draining = False
            self._over = False

        def resume(self) -> None:
            """Read on."""
            self._reading = True
            if self._found:
                self._loop.call_soon(self._deliver)
            else:
                self._ask()

        def pause(self) -> None:
            """Deliver nothing until `resume`."""
            self._reading = False

        def close(self) -> None:
            """Read no more, and close the descriptor."""
            if self._over:
                return
            self._over, self._reading = True, False
            self._found.clear()
            if self._thread.ident is None:
                os.close(self._fd)
                return
            self._call_off()
            self._go.release()

        def read_now(self) -> None:
            """Deliver what a process that has ended has written, with the end if it is there."""
            if self._over:
                return
            self._draining = True
            if self._thread.ident is None:
                self._thread.start()
            self._go.release()
            self._thread.join(_LAST_READ)
            while self._found and not self._over:
                if data := self._found.popleft():
                    self._received(data)

        def _ask(self) -> None:
            if self._awaited or self._over:
                return
            self._awaited = True
            if self._thread.ident is None:
                self._thread.start()
            self._go.release()

        def _deliver(self) -> None:
            while self._found and self._reading and not self._over:
                data = self._found.popleft()
                self._awaited = False
                if data:
                    self._received(data)
                else:
                    self.close()
                    self._ended()
            if self._reading and not self._found:
                self._ask()

        def _main(self) -> None:
            left = MOST_LEFT
            while True:
                if not self._draining:
                    self._go.acquire()
                if not self._begin_blocking():
                    break
                try:
                    data = os.read(self._fd, CHUNK)
                except OSError:
                    data = b""
                self._end_blocking()
                if self._over:
                    break
                self._found.append(data)
                left -= len(data) if self._draining else 0
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._deliver)
                if not data or left <= 0:
                    break
            with contextlib.suppress(OSError):
                os.close(self._fd)

    class PipeOutput(_Blocked):
        """Writes to a descriptor. `progress` is called when some of what was kept has left, `failed` when writing
        fails, after which nothing is written."""

        def __init__(self, fd: int, progress: Callable[[], object], failed: Failed) -> None:
            super().__init__(f"dragoman writes {fd}")
            self._loop = asyncio.get_running_loop()
            self._fd = fd
            self._progress = progress
            self._failed = failed
            self._more = threading.Condition(self._lock)
            self._parts: deque[bytes] = deque()
            self._over = False
            self.size: int = 0
            """Bytes that have not left."""
            self.written: int = 0
            """Bytes that have left."""

        def write(self, data: bytes) -> None:
            """Write, or keep what cannot leave yet."""
            if self._over:
                return
            self.size += len(data)
            with self._more:
                self._parts.append(data)
                self._more.notify()
            if self._thread.ident is None:
                self._thread.start()

        def unread(self) -> bool:
            """Return whether the far end has read nothing of what was written, as far as the system knows."""
            return not self.written

        def close(self) -> None:
            """Close the descriptor; what has not left is dropped."""
            if self._over:
                return
            self._over = True
            self.size = 0
            if self._thread.ident is None:
                os.close(self._fd)
                return
            self._call_off()
            with self._more:
                self._parts.clear()
                self._more.notify()

        def _main(self) -> None:
            fault: OSError | None = None
            while fault is None and (data := self._take()):
                left = memoryview(data)
                try:
                    while left and self._begin_blocking():
                        written = os.write(self._fd, left[:CHUNK])
                        left = left[written:]
                except OSError as error:
                    fault = error
                self._end_blocking()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._left, len(data), fault)
            with contextlib.suppress(OSError):
                os.close(self._fd)

        def _take(self) -> bytes:
            """Wait for something to write; empty once it is closed."""
            with self._more:
                while not self._parts and not self._off:
                    self._more.wait()
                if self._off:
                    return b""
                found, size = [], 0
                while self._parts and size < _AT_ONCE:
                    found.append(self._parts.popleft())
                    size += len(found[-1])
                return found[0] if len(found) == 1 else b"".join(found)

        def _left(self, count: int, fault: OSError | None) -> None:
            if self._over:
                return
            if fault is not None:
                self.close()
                self._failed(_broken(fault))
                return
            self.size -= count
            self.written += count
            self._progress()

    def _broken(fault: OSError) -> OSError:
        """Return the fault as POSIX has it."""
        return BrokenPipeError(fault.errno, fault.strerror) if nobody_reads(fault) else fault

else:
    import fcntl
    import termios

    def own_copy(fd: int) -> int:
        """Return a copy of a descriptor, for a `PipeInput` or `PipeOutput`; both do not block from now on."""
        copy = os.dup(fd)
        os.set_blocking(copy, False)
        return copy

    def own_standard(fd: int, *, writes: bool) -> int:
        """Return a descriptor of standard input or output for ourselves alone, which does not block where it can be
        watched.

        Whether a descriptor blocks is shared with every process that has inherited it, such as the shell that waits
        behind a terminal. So a pipe or a terminal is opened once more, where the system lets us.
        """
        if not watchable(fd):
            return os.dup(fd)
        mode = os.O_WRONLY if writes else os.O_RDONLY
        try:
            return os.open(f"/proc/self/fd/{fd}", mode | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:  # a socket, another system, or not ours to open
            return own_copy(fd)

    def get_blocking(fd: int) -> bool:
        """Return whether reading it blocks."""
        return os.get_blocking(fd)

    def set_blocking(fd: int, blocking: bool) -> None:
        """Choose whether reading it blocks."""
        os.set_blocking(fd, blocking)

    def watchable(fd: int) -> bool:
        """Return whether an event loop can wait for it. Raises OSError when it is not open."""
        mode = os.fstat(fd).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)

    class PipeInput:
        """Reads a descriptor: `received` gets what comes, `ended` is called at its end. It begins paused. A descriptor
        that can be watched must not block."""

        __slots__ = ("_ended", "_fd", "_loop", "_reading", "_received", "_watchable")

        def __init__(self, fd: int, received: Received, ended: Callable[[], object]) -> None:
            self._loop = asyncio.get_running_loop()
            self._fd: int | None = fd
            self._received = received
            self._ended = ended
            self._watchable = watchable(fd)
            self._reading = False

        def resume(self) -> None:
            """Read on."""
            if self._fd is None:
                return
            self._reading = True
            if self._watchable:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.call_soon(self._piece)

        def pause(self) -> None:
            """Deliver nothing until `resume`."""
            self._reading = False
            if self._fd is not None and self._watchable:
                self._loop.remove_reader(self._fd)

        def close(self) -> None:
            """Read no more, and close the descriptor."""
            if self._fd is not None:
                self.pause()
                os.close(self._fd)
                self._fd = None

        def read_now(self) -> None:
            """Deliver without waiting what a process that has ended has written."""
            left = MOST_LEFT
            with contextlib.suppress(OSError):
                while self._fd is not None and left > 0 and (data := os.read(self._fd, CHUNK)):
                    left -= len(data)
                    self._received(data)

        def _piece(self) -> None:
            if self._reading and self._fd is not None:
                self._readable()
                if self._reading:
                    self.resume()

        def _readable(self) -> None:
            if self._fd is None:
                return
            try:
                data = os.read(self._fd, CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # a terminal that was hung up gives EIO
                data = b""
            if data:
                self._received(data)
            else:
                self.close()
                self._ended()

    class PipeOutput:
        """Writes to a descriptor. `progress` is called when some of what was kept has left, `failed` when writing
        fails, after which nothing is written. A descriptor that can be watched must not block."""

        __slots__ = ("_buffer", "_failed", "_fd", "_loop", "_progress", "_watchable", "written")

        def __init__(self, fd: int, progress: Callable[[], object], failed: Failed) -> None:
            self._loop = asyncio.get_running_loop()
            self._fd: int | None = fd
            self._progress = progress
            self._failed = failed
            self._watchable = watchable(fd)
            self._buffer = bytearray()
            self.written: int = 0
            """Bytes that have left."""

        @property
        def size(self) -> int:
            """Bytes that have not left."""
            return len(self._buffer)

        def write(self, data: bytes) -> None:
            """Write, or keep what cannot leave yet."""
            if self._fd is None:
                return
            if not self._buffer:
                try:
                    data = data[self._put(self._fd, data) :]
                    while data and not self._watchable:  # writing to a regular file blocks, and ends
                        data = data[self._put(self._fd, data) :]
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError as fault:
                    self.close()
                    self._loop.call_soon(self._failed, fault)
                    return
                if not data:
                    return
                self._loop.add_writer(self._fd, self._write_on)
            self._buffer += data

        def unread(self) -> bool:
            """Return whether the far end has read nothing of what was written, as far as the system knows."""
            if self._fd is None:
                return not self.written
            try:
                left = fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4))
            except OSError:
                return False
            return int.from_bytes(left, sys.byteorder) == self.written

        def close(self) -> None:
            """Close the descriptor; what has not left is dropped."""
            self._buffer.clear()
            if self._fd is not None:
                self._loop.remove_writer(self._fd)
                os.close(self._fd)
                self._fd = None

        def _put(self, fd: int, data: bytes | bytearray) -> int:
            written = os.write(fd, data)
            self.written += written
            return written

        def _write_on(self) -> None:
            if self._fd is None:
                return
            try:
                written = self._put(self._fd, self._buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as fault:
                self.close()
                self._loop.call_soon(self._failed, fault)
                return
            del self._buffer[:written]
            if not self._buffer:
                self._loop.remove_writer(self._fd)
            self._progress()
