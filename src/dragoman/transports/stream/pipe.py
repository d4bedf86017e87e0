"""Two file descriptors as one wire for a `StreamChannel`: one to read, one to write.

Rules:

- It works on what standard input and output may be: pipes, sockets, terminals, and regular files, which no
  event loop can watch; those are read a piece a turn.
- A descriptor is not blocking where it can be watched; the caller sees to that.
- The owner decides what an end means: a child's end of output is not yet its exit, a dead reader not yet a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .channel import StreamChannel

_CHUNK = 64 * 1024


class PipeOwner(Protocol):
    """The owner of the far ends of the descriptors: a child process, or our own standard input and output."""

    def input_ended(self) -> None:
        """There is nothing more to read."""

    def output_failed(self, fault: OSError) -> None:
        """What we write is not read, or cannot be written."""

    def closing(self) -> None:
        """All is written and the output is closed: see to the rest and then call `Pipe.over`."""

    def aborting(self) -> None:
        """As `closing`, but at once, although not all is written."""


def watchable(fd: int) -> bool:
    """Whether an event loop can wait for it. OSError when it is not open."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


class Pipe:
    """A wire, see `channel.StreamWire`, over descriptors it owns and closes."""

    __slots__ = (
        "_buffer",
        "_closing",
        "_high",
        "_input",
        "_input_watchable",
        "_loop",
        "_low",
        "_output",
        "_output_watchable",
        "_owner",
        "_paused",
        "_protocol",
        "_reading",
        "_reported",
        "_written",
    )

    def __init__(self, protocol: StreamChannel, owner: PipeOwner, input: int, output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._owner = owner
        self._input: int | None = input
        self._output: int | None = output
        self._input_watchable = watchable(input)
        self._output_watchable = watchable(output)
        self._buffer = bytearray()
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._paused = False  # the writer
        self._reading = False
        self._closing = False
        self._reported = False  # the protocol knows that it is over
        self._written = 0

    def start(self) -> None:
        """Connect to the protocol, and read if that does not pause it."""
        self._reading = True
        self._protocol.connection_made(self)  # type: ignore[arg-type]  # it has what the channel needs of a transport
        if self._reading:
            self._read_on()

    # -- reading --

    def pause_reading(self) -> None:
        self._reading = False
        if self._input is not None and self._input_watchable:
            self._loop.remove_reader(self._input)

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._read_on()

    def is_reading(self) -> bool:
        return self._reading

    def read_now(self, *, whole: bool) -> None:
        """Read without waiting what a child that has ended has written last. `whole`: it was not cut off in the middle
        of a message."""
        left = 8 * 1024 * 1024  # a grandchild may write without end
        with contextlib.suppress(OSError):
            while self._input is not None and left > 0 and (data := os.read(self._input, _CHUNK)):
                left -= len(data)
                self._protocol.data_received(data)
        if whole:
            self._protocol.rest_received()

    def end_input(self) -> None:
        """Report to the protocol that the far end sends no more, and close if the protocol wants that."""
        self.stop_reading()
        if not self._reported and not self._protocol.eof_received():
            self.close()

    def stop_reading(self) -> None:
        """Read no more, for good."""
        if self._input is not None:
            self.pause_reading()
            os.close(self._input)
            self._input = None

    def _read_on(self) -> None:
        if self._input is None:
            return
        if self._input_watchable:
            self._loop.add_reader(self._input, self._readable)
        else:
            self._loop.call_soon(self._piece)

    def _piece(self) -> None:
        if self._reading and self._input is not None:
            self._readable()
            self._read_on()

    def _readable(self) -> None:
        if self._input is None:
            return
        try:
            data = os.read(self._input, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # a terminal that was hung up gives EIO
            data = b""
        if data:
            self._protocol.data_received(data)
        else:
            self.stop_reading()
            self._owner.input_ended()

    # -- writing --

    def write(self, data: bytes) -> None:
        if self._output is None:
            return
        if not self._buffer:
            try:
                data = data[self._put(data) :]
                while data and not self._output_watchable:  # writing to a regular file blocks, and ends
                    data = data[self._put(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as fault:
                self._lose_output(fault)
                return
            if not data:
                return
            self._loop.add_writer(self._output, self._write_on)
        self._buffer += data
        self._pause_if_full()

    def _put(self, data: bytes | bytearray) -> int:
        assert self._output is not None
        written = os.write(self._output, data)
        self._written += written
        return written

    def unread(self) -> bool:
        """Return whether the far end has read nothing of what was written, as far as the system knows."""
        if self._output is None:
            return not self._written
        try:
            left = fcntl.ioctl(self._output, termios.FIONREAD, bytes(4))
        except OSError:
            return False
        return int.from_bytes(left, sys.byteorder) == self._written

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pause_if_full()

    def can_write_eof(self) -> bool:
        """Return False: closing does it, and the owner decides what follows."""
        return False

    def write_eof(self) -> None:
        raise NotImplementedError

    def _write_on(self) -> None:
        if self._output is None:
            return
        try:
            written = self._put(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as fault:
            self._lose_output(fault)
            return
        del self._buffer[:written]
        if not self._buffer:
            self._loop.remove_writer(self._output)
            if self._closing:
                self._close_output()
                self._owner.closing()
        if self._paused and len(self._buffer) <= self._low:
            self._paused = False
            self._protocol.resume_writing()

    def _pause_if_full(self) -> None:
        if not self._paused and len(self._buffer) > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def _lose_output(self, fault: OSError) -> None:
        self._close_output()
        self._loop.call_soon(self._owner.output_failed, fault)

    def _close_output(self) -> None:
        self._buffer.clear()
        if self._output is not None:
            self._loop.remove_writer(self._output)
            os.close(self._output)
            self._output = None

    # -- the end --

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Write what is left and close the output; the owner does the rest."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._close_output()
            self._loop.call_soon(self._owner.closing)

    def abort(self) -> None:
        self._closing = True
        self._close_output()
        self._loop.call_soon(self._owner.aborting)

    def over(self, why: Exception | None, then: Callable[[], None] | None = None) -> None:
        """Release everything and report the reason to the protocol, at the next turn of the loop; once."""
        if self._reported:
            return
        self._reported = self._closing = True
        self._close_output()
        self.stop_reading()
        self._loop.call_soon(self._report_end, why, then)

    def _report_end(self, why: Exception | None, then: Callable[[], None] | None) -> None:
        try:
            self._protocol.connection_lost(why)
        finally:
            if then is not None:
                then()
