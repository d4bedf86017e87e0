"""Two file descriptors as one wire for a `StreamChannel`: one to read, one to write.

Rules:

- It works on what standard input and output may be: pipes, sockets, terminals, and regular files
  (`system.pipes`).
- The owner decides what an end means: a child's end of output is not yet its exit, a dead reader not yet a reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ...system.pipes import PipeInput, PipeOutput

if TYPE_CHECKING:
    from .channel import StreamChannel


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


class Pipe:
    """A wire, see `channel.StreamWire`, over descriptors it owns and closes."""

    __slots__ = (
        "_closing",
        "_high",
        "_input",
        "_loop",
        "_low",
        "_output",
        "_owner",
        "_paused",
        "_protocol",
        "_reading",
        "_reported",
    )

    def __init__(self, protocol: StreamChannel, owner: PipeOwner, input: int, output: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._owner = owner
        self._input: PipeInput | None = PipeInput(input, protocol.data_received, self._input_ended)
        self._output = PipeOutput(output, self._progress, self._lose_output)
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._paused = False  # the writer
        self._reading = False
        self._closing = False
        self._reported = False  # the protocol knows that it is over

    def start(self) -> None:
        """Connect to the protocol, and read if that does not pause it."""
        self._reading = True
        self._protocol.connection_made(self)  # type: ignore[arg-type]  # it has what the channel needs of a transport
        if self._reading and self._input is not None:
            self._input.resume()

    # -- reading --

    def pause_reading(self) -> None:
        self._reading = False
        if self._input is not None:
            self._input.pause()

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._input is not None:
                self._input.resume()

    def is_reading(self) -> bool:
        return self._reading

    def read_now(self, *, whole: bool) -> None:
        """Read without waiting what a child that has ended has written last. `whole`: it was not cut off in the middle
        of a message."""
        if self._input is not None:
            self._input.read_now()
        if whole:
            self._protocol.rest_received()

    def end_input(self) -> None:
        """Report to the protocol that the far end sends no more, and close if the protocol wants that."""
        self.stop_reading()
        if not self._reported and not self._protocol.eof_received():
            self.close()

    def stop_reading(self) -> None:
        """Read no more, for good."""
        self._reading = False
        if self._input is not None:
            self._input.close()
            self._input = None

    def _input_ended(self) -> None:
        self.stop_reading()
        self._owner.input_ended()

    # -- writing --

    def write(self, data: bytes) -> None:
        self._output.write(data)
        if self._output.size:
            self._pause_if_full()

    def unread(self) -> bool:
        """Return whether the far end has read nothing of what was written, as far as the system knows."""
        return self._output.unread()

    def get_write_buffer_size(self) -> int:
        return self._output.size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pause_if_full()

    def can_write_eof(self) -> bool:
        """Return False: closing does it, and the owner decides what follows."""
        return False

    def write_eof(self) -> None:
        raise NotImplementedError

    def _progress(self) -> None:
        left = self._output.size
        if self._closing and not left:
            self._output.close()
            self._owner.closing()
        if self._paused and left <= self._low:
            self._paused = False
            self._protocol.resume_writing()

    def _pause_if_full(self) -> None:
        if not self._paused and self.get_write_buffer_size() > self._high:
            self._paused = True
            self._protocol.pause_writing()

    def _lose_output(self, fault: OSError) -> None:
        self._output.close()
        self._owner.output_failed(fault)

    # -- the end --

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Write what is left and close the output; the owner does the rest."""
        if self._closing:
            return
        self._closing = True
        if not self.get_write_buffer_size():
            self._output.close()
            self._loop.call_soon(self._owner.closing)

    def abort(self) -> None:
        self._closing = True
        self._output.close()
        self._loop.call_soon(self._owner.aborting)

    def over(self, why: Exception | None, then: Callable[[], None] | None = None) -> None:
        """Release everything and report the reason to the protocol, at the next turn of the loop; once."""
        if self._reported:
            return
        self._reported = self._closing = True
        self._output.close()
        self.stop_reading()
        self._loop.call_soon(self._report_end, why, then)

    def _report_end(self, why: Exception | None, then: Callable[[], None] | None) -> None:
        try:
            self._protocol.connection_lost(why)
        finally:
            if then is not None:
                then()
