"""Channels over standard input and output: `stdio:`, this process's own, and child processes.

Rules for our own:

- They are kept for the wire alone: while the channel lives, and while `keep` holds, what prints (this program, a
  library in C, a child) prints to standard error, and what reads standard input finds it empty. Both are restored at
  the end.
- The channel ends at end of file, and when the parent has died, because end of file may then never come.

Rules for a child:

- It runs in a session and process group of its own, so that a Ctrl-C here does not reach it, and so that its own
  children can be ended with it.
- It is over when it has exited, even if another process still holds its pipes; what it had written by then is
  delivered before.
- It is ended by closing its input, after two seconds by SIGTERM to the group, after two more by SIGKILL. What
  is left of the group of a child that ended by itself is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from ...channel import Broken, Caller, Channel, Ended, Listener, Options, Servable
from ...jsonrpc.errors import LocalError
from ...jsonrpc.framing import framing
from ...net.sockets import in_words, sole_service
from ...net.urls import Url, parse
from ...system.pipes import get_blocking, own_standard, set_blocking
from ...system.processes import ParentWatch
from .channel import StreamChannel
from .child import start
from .listener import framing_name
from .pipe import Pipe

__all__ = ["dial", "keep", "listen", "start"]

_PARENT = 2.0
"""Seconds between two looks whether the parent still lives."""


class _Kept:
    """Our standard input and output, kept for the wire."""

    def __init__(self) -> None:
        if sys.__stdin__ is None or sys.__stdout__ is None:  # closed at our start; the numbers may be others' by now
            raise LocalError("stdio: this process has no standard input or no standard output")
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        self._blocking = [get_blocking(0), get_blocking(1)]
        self.fds = [os.dup(0), os.dup(1)]
        self._stdout: TextIO | Any = sys.stdout
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        os.close(nothing)
        if sys.stderr is not None:
            sys.stdout = sys.stderr

    def give_back(self) -> None:
        """Restore standard input and output."""
        for stream in (sys.stdout, self._stdout):  # code that took the old one has written into its buffer
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if sys.stdout is sys.stderr:
            sys.stdout = self._stdout
        for number, (fd, blocking) in enumerate(zip(self.fds, self._blocking, strict=True)):
            set_blocking(fd, blocking)
            os.dup2(fd, number)
            os.close(fd)


_kept: list[_Kept] = []
_holders: list[object] = []


def keep() -> Callable[[], None]:
    """Keep standard input and output for the wire, also before the channel exists and after its end, so that nothing
    prints there meanwhile. Return the function that releases them; when all who keep them have done so, they are
    restored. Raises LocalError where there are none."""
    if not _kept:
        _kept.append(_Kept())
    holder = object()
    _holders.append(holder)

    def let_go() -> None:
        if holder in _holders:
            _holders.remove(holder)
            if not _holders:
                _kept.pop().give_back()

    return let_go


class _Own:
    """Our standard input and output while they are a wire. Makes the pipe of its channel, and is its `PipeOwner`."""

    taken = False

    def __init__(self, channel: StreamChannel) -> None:
        if _Own.taken:
            raise LocalError("stdio: is taken already: a process has one standard input and one standard output")
        self._let_go = keep()
        reads, writes = _kept[0].fds
        self.pipe = Pipe(channel, self, own_standard(reads, writes=False), own_standard(writes, writes=True))
        _Own.taken = True
        self._parent = ParentWatch()
        self._loop = asyncio.get_running_loop()
        self._look = self._loop.call_later(_PARENT, self._look_at_parent)
        self.pipe.start()

    def _look_at_parent(self) -> None:
        if self._parent.lives:
            self._look = self._loop.call_later(_PARENT, self._look_at_parent)
        else:
            self.pipe.end_input()

    def input_ended(self) -> None:
        self.pipe.end_input()

    def output_failed(self, fault: OSError) -> None:
        if isinstance(fault, BrokenPipeError):
            self._over(Ended("stdio: our standard output is not read any more"))
        else:
            self._over(Broken(f"stdio: cannot write to standard output: {in_words(fault)}"))

    def closing(self) -> None:
        self._over()

    aborting = closing

    def _over(self, why: Exception | None = None) -> None:
        self._look.cancel()
        self._parent.close()
        self.pipe.over(why, self._give_back)

    def _give_back(self) -> None:
        self._let_go()
        _Own.taken = False


def _take(url: str, options: Options) -> StreamChannel:
    where = parse(url)
    wire = framing(framing_name(where, options), options.limits)
    channel = StreamChannel(wire, options.limits, Caller(scheme="stdio", remote="standard input and output"))
    _Own(channel)
    return channel


async def dial(url: str, options: Options) -> Channel:
    """A channel to the process that started this one (`stdio:`). Raises LocalError where another channel has it."""
    return _take(url, options)


class OwnListener:
    """A `Listener` whose one caller is there from the beginning: the process that started this one."""

    def __init__(self, url: Url, channel: StreamChannel) -> None:
        self.url: str = url.shown
        self._channel = channel

    async def close(self) -> None:
        """Do nothing: no other caller can come."""

    async def closed(self) -> None:
        await self._channel.gone()


async def listen(url: str, served: Mapping[str, Servable], options: Options) -> Listener:
    """Serve one channel, to the process that started this one (`stdio:`); the listener is over when that is."""
    where = parse(url)
    what = sole_service(where, served)
    channel = _take(url, options)
    what.attach(channel)
    return OwnListener(where, channel)
