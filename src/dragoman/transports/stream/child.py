"""Child processes as channels; `stdio` has the rules."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections import deque
from collections.abc import Callable, Sequence

from ...channel import Broken, Caller, Channel, ChannelError, Ended, EndedUnread, Options
from ...jsonrpc.errors import LocalError
from ...jsonrpc.framing import framing
from ...net.commands import cause_of, command_name
from ...net.environment import child_environment
from ...net.sockets import in_words
from ...net.urls import printable
from ...repeats import Repeats
from ...system.pipes import PipeInput, own_copy
from ...system.processes import ProcessGroup, describe_status, group_options, watch_exit
from ...system.programs import UnsafeArgument, runnable
from .channel import StreamChannel
from .pipe import Pipe

log: logging.Logger = logging.getLogger("dragoman.child")
repeats: Repeats = Repeats(log)

_PATIENCE = 2.0
"""Seconds between closing the input, SIGTERM and SIGKILL (on Windows Ctrl-Break and the end of the job)."""
_GRACE = 0.5
"""Seconds for a child that closed a pipe to exit, so that its status is known."""
_GROUP = 0.02
"""Seconds between two looks whether the rest of a child's group has ended."""
_LINE = 8 * 1024
"""Longest line of standard error, in bytes; a longer one is cut."""
_LAST_WORDS = 5
"""Lines of standard error that an ending quotes."""
_KEPT = 200
"""Lines of standard error in which the cause of an end is looked for: as many as a long trace."""
_KEPT_LINE = 500
"""Characters of each."""


_NO_PROGRAM = 193
"""Windows' ERROR_BAD_EXE_FORMAT: a file that is no program, such as a script."""


async def start(command: Sequence[str], options: Options) -> Channel:
    """Start a command and talk to its standard input and output. LocalError when it cannot be started."""
    words = command_name(command)
    wire = framing(options.framing or "newline", options.limits)
    env = child_environment(options.env, options.env_inherit)
    try:
        arguments, how = runnable(command, env, options.cwd)
        process = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond, and lets us watch the process ourselves
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=options.cwd,
            env=env,
            **group_options(),
            **how,
        )
        group = ProcessGroup(process.pid)
    except (OSError, ValueError) as fault:
        raise LocalError(f"Cannot start {words}: {_why_not(command[0], options.cwd, fault)}") from fault
    caller = Caller(scheme="stdio", remote=f"{words} (process {process.pid})")
    channel = StreamChannel(wire, options.limits, caller)
    Child(process, group, channel, words, options.stderr)
    return channel


def _why_not(program: str, folder: str | None, fault: Exception) -> str:
    if isinstance(fault, FileNotFoundError | NotADirectoryError):
        if folder is not None and not os.path.isdir(folder):
            return f"there is no folder {printable(folder)!r}"
        return f"there is no program {printable(program)!r} (a URL begins with a scheme such as tcp://)"
    if isinstance(fault, PermissionError) or getattr(fault, "winerror", None) == _NO_PROGRAM:
        python = f"; start a Python file by its interpreter: python {printable(program)}"
        return f"{printable(program)!r} may not be run{python if program.endswith('.py') else ''}"
    if isinstance(fault, UnsafeArgument):
        return str(fault)
    return in_words(fault)


class Child:
    """A running command: watches its exit, reads its standard error, ends it. The `PipeOwner` of its channel's pipe."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        group: ProcessGroup,
        channel: StreamChannel,
        words: str,
        stderr: Callable[[str], None] | None,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._group = group
        self._words = words
        self._errors = _Lines(own_copy(process.stderr.fileno()), words, stderr)
        self._why: ChannelError | None = None  # reported instead of the exit status
        self._exited = False
        self._ending = False  # by us
        self._done = False  # nothing of it is left, and its number may be another's
        self._timer: asyncio.TimerHandle | None = None
        self._pipe = Pipe(channel, self, own_copy(process.stdout.fileno()), own_copy(process.stdin.fileno()))
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
        watch_exit(self._loop, process, self._exit)
        self._pipe.start()

    # -- PipeOwner --

    def input_ended(self) -> None:
        if self._ending:
            return
        self._after(_GRACE, self._pipe.end_input)  # it will exit now, as a rule, and then the status says more

    def output_failed(self, fault: OSError) -> None:
        if not self._ending:
            self._why = Broken(f"{self._words} reads its standard input no more")
            self._after(_GRACE, self._terminate)

    def closing(self) -> None:
        self._ending = True
        if not self._exited:
            self._after(_PATIENCE, self._terminate)

    def aborting(self) -> None:
        self._kill()

    # -- ending it --

    def _terminate(self) -> None:
        if self._done:
            return
        self._ending = True
        if self._group.terminate():
            self._after(_PATIENCE, self._kill)
        else:
            self._kill()

    def _kill(self) -> None:
        if self._done:
            return
        self._ending = True
        self._group.kill()
        if self._exited:  # what is left cannot refuse, and is reaped by init
            self._over()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, what)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- its exit --

    def _exit(self) -> None:
        """The child has ended, and is not reaped yet, so that its process group cannot be another's."""
        unread = self._pipe.unread()
        if not self._ending:
            self._group.kill()
        status = self._process.wait()
        self._pipe.read_now(whole=status == 0)
        self._errors.read_now()
        self._exited = True
        if self._why is None or not self._ending:
            self._why = (EndedUnread if unread else Ended)(self._farewell(status))
        if self._ending and self._timer is not None:
            self._await_group()  # the timer goes on to SIGTERM and SIGKILL for them
        else:
            self._over()

    def _await_group(self) -> None:
        """Wait for the rest of the group, until the timer kills it."""
        if self._group.remains:
            self._loop.call_later(_GROUP, self._await_group_again)
        else:
            self._over()

    def _await_group_again(self) -> None:
        if self._timer is not None:
            self._await_group()

    def _over(self) -> None:
        self._done = True
        self._stop_timer()
        self._errors.close()
        self._group.close()
        self._pipe.over(self._why)

    def _farewell(self, status: int) -> str:
        lines = list(self._errors.last)
        cause = cause_of(lines) if status != 0 else ""
        last = " / ".join(line for line in lines[-_LAST_WORDS:] if line not in cause)
        why = f": {cause}" if cause else ""
        return f"{self._words} {describe_status(status)}{why}" + (
            f"; its last words: {printable(last, 600)}" if last else ""
        )


class _Lines:
    """Reads a child's standard error, a line at a time."""

    __slots__ = ("_held", "_input", "_name", "_take", "last")

    def __init__(self, fd: int, name: str, take: Callable[[str], None] | None) -> None:
        self._input = PipeInput(fd, self._read, lambda: None)
        self._name = name
        self._take = take
        self._held = bytearray()
        self.last: deque[str] = deque(maxlen=_KEPT)
        self._input.resume()

    def read_now(self) -> None:
        """Read what has been written, without waiting."""
        self._input.read_now()
        if self._held:
            self._line(bytes(self._held))
            self._held.clear()

    def close(self) -> None:
        """Read no more."""
        self._input.close()

    def _read(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line(bytes(self._held) + line)
            self._held.clear()
        self._held += rest[: max(0, _LINE - len(self._held))]

    def _line(self, raw: bytes) -> None:
        text = raw[:_LINE].decode("utf-8", "backslashreplace").rstrip("\r")
        if text.strip():
            self.last.append(printable(text.rstrip(), _KEPT_LINE))
        if self._take is None:
            log.info("%s: %s", self._name, printable(text, _LINE))
            return
        try:
            self._take(text)
        except Exception:
            repeats.error("The function given as stderr= failed on a line of %s", self._name, exc_info=True)
