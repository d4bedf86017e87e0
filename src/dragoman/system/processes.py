"""Processes that are started, each with all that it starts in turn: a process group on POSIX, a job object on Windows.

Rules:

- Ctrl-C at a terminal is for us alone.
- A process that has ended is not reaped until its owner waits for it, so its number cannot be another's meanwhile.
- On Windows the system ends the whole job when we are gone, however that comes. The process begins suspended, so it
  starts nothing before it belongs to its job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    import subprocess

WORKERS: Final = sys.platform != "win32"
"""Whether processes can share listening sockets and descriptors that they inherit."""


class Waitable(Protocol):
    """A process that was started, such as a `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int: ...


def _exited_later(
    loop: asyncio.AbstractEventLoop, wait: Callable[[], object], pid: int, exited: Callable[[], object]
) -> None:
    """Wait in a thread, then call `exited` on the loop."""

    def run() -> None:
        with contextlib.suppress(OSError):
            wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=run, name=f"dragoman waits for process {pid}", daemon=True).start()


if sys.platform == "win32":
    import ctypes
    import subprocess
    from ctypes import wintypes

    from .kernel import close_handle, kernel32, last_error, ntdll

    _CREATE_SUSPENDED: Final = 0x4
    _ACCESS: Final = 0x0800 | 0x0100 | 0x0001  # PROCESS_SUSPEND_RESUME, PROCESS_SET_QUOTA, PROCESS_TERMINATE
    _SYNCHRONIZE: Final = 0x00100000
    _QUERY: Final = 0x1000
    _WAIT_TIMEOUT: Final = 0x102
    _EXTENDED_LIMIT: Final = 9
    _BASIC_ACCOUNTING: Final = 1
    _KILL_ON_CLOSE: Final = 0x2000
    KILLED: Final = 9
    """The exit status of a process that was killed."""

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("working_set", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("classes", wintypes.DWORD * 2),
            ("counters", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    class _Accounting(ctypes.Structure):
        """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION."""

        _fields_ = (
            ("times", ctypes.c_int64 * 4),
            ("faults", wintypes.DWORD),
            ("total", wintypes.DWORD),
            ("active", wintypes.DWORD),
            ("terminated", wintypes.DWORD),
        )

    def group_options() -> dict[str, Any]:
        """Return the options of `subprocess.Popen` for a process that a `ProcessGroup` is made of at once. Without a
        console of ours it gets a hidden one, not a window."""
        window = 0 if kernel32.GetConsoleCP() else subprocess.CREATE_NO_WINDOW
        return {"creationflags": _CREATE_SUSPENDED | subprocess.CREATE_NEW_PROCESS_GROUP | window}

    class ProcessGroup:
        """A process that was started with `group_options`, and all that it starts."""

        def __init__(self, pid: int) -> None:
            self._pid = pid
            self._job: int | None = kernel32.CreateJobObjectW(None, None)
            limits = _Limits(flags=_KILL_ON_CLOSE)
            process = kernel32.OpenProcess(_ACCESS, False, pid)
            try:
                if not (
                    self._job
                    and process
                    and kernel32.SetInformationJobObject(
                        self._job, _EXTENDED_LIMIT, ctypes.byref(limits), ctypes.sizeof(limits)
                    )
                    and kernel32.AssignProcessToJobObject(self._job, process)
                ):
                    raise last_error()
                ntdll.NtResumeProcess(process)
            except OSError:
                with contextlib.suppress(OSError):
                    os.kill(pid, KILLED)  # it is suspended, and would be so for ever
                self.close()
                raise
            finally:
                if process:
                    close_handle(process)

        def __del__(self) -> None:
            self.close()

        def terminate(self) -> bool:
            """Ask all to end: by Ctrl-Break, where we have a console that they share. False where nobody is asked."""
            return bool(kernel32.GetConsoleCP() and kernel32.GenerateConsoleCtrlEvent(1, self._pid))

        def kill(self) -> None:
            """End all at once."""
            if self._job:
                kernel32.TerminateJobObject(self._job, KILLED)

        @property
        def remains(self) -> bool:
            """Whether a process of it still runs."""
            about = _Accounting()
            size = ctypes.sizeof(about)
            if not self._job or not kernel32.QueryInformationJobObject(
                self._job, _BASIC_ACCOUNTING, ctypes.byref(about), size, None
            ):
                return False
            return bool(about.active)

        def close(self) -> None:
            """Release it, which ends what is left."""
            if self._job:
                close_handle(self._job)
                self._job = None

    def watch_exit(loop: asyncio.AbstractEventLoop, process: Waitable, exited: Callable[[], object]) -> None:
        """Call `exited` when the process has ended."""
        _exited_later(loop, process.wait, process.pid, exited)  # its handle keeps its number from being another's

    def companion_options() -> dict[str, Any]:
        """Return the options of `subprocess.Popen` for a process that has our terminal and gets no Ctrl-C from it."""
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}

    def pass_signal(process: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal that ends to a process that was started with `companion_options`: as Ctrl-Break, where we have
        a console. Without one it is ended at once."""
        if not (kernel32.GetConsoleCP() and kernel32.GenerateConsoleCtrlEvent(1, process.pid)):
            process.terminate()

    class ParentWatch:
        """Whether the process that started this one still lives."""

        def __init__(self) -> None:
            self._parent: int | None = kernel32.OpenProcess(_SYNCHRONIZE | _QUERY, False, _parent_number())
            if self._parent and _began(self._parent) > _began(kernel32.GetCurrentProcess()):
                self.close()  # the number is another's by now

        @property
        def lives(self) -> bool:
            """Whether it does, as far as the system says so."""
            return not self._parent or kernel32.WaitForSingleObject(self._parent, 0) == _WAIT_TIMEOUT

        def close(self) -> None:
            """Watch no more."""
            if self._parent:
                close_handle(self._parent)
                self._parent = None

    def _parent_number() -> int:
        """Return the number of the process that started this one. `os.getppid` makes a snapshot of it all for that."""
        about = (ctypes.c_size_t * 6)()  # PROCESS_BASIC_INFORMATION, whose last member it is
        ntdll.NtQueryInformationProcess(kernel32.GetCurrentProcess(), 0, about, ctypes.sizeof(about), None)
        return about[5]

    def _began(process: int) -> int:
        """Return when a process began."""
        began, *others = (ctypes.c_uint64() for _ in range(4))
        kernel32.GetProcessTimes(process, began, *others)
        return began.value

    def process_lives(pid: int) -> bool:
        """Return whether there is a process of this number."""
        process = kernel32.OpenProcess(_SYNCHRONIZE, False, pid)
        if not process:
            return False
        try:
            return bool(kernel32.WaitForSingleObject(process, 0) == _WAIT_TIMEOUT)
        finally:
            close_handle(process)

    def describe_status(status: int) -> str:
        """Return how a process ended, from its exit status."""
        named = _STATUSES.get(status & 0xFFFFFFFF)
        return (
            f"ended with exit status {status}" if named is None else f"was ended by {named} (0x{status & 0xFFFFFFFF:x})"
        )

    def ended_by_others(status: int) -> bool:
        """Return whether it shows in a process' exit status that others have ended it."""
        return (status & 0xFFFFFFFF) == _INTERRUPTED

    def ended_by_fault(status: int) -> bool:
        """Return whether the system has ended a process for what it did, by its exit status."""
        return (status & 0xFFFFFFFF) >> 28 == _ERROR and not ended_by_others(status)

    _INTERRUPTED: Final = 0xC000013A
    _ERROR: Final = 0xC
    """How the system's codes of errors begin (NTSTATUS); -1, which programs exit with, is none."""
    _STATUSES: Final = {
        _INTERRUPTED: "Ctrl-C or Ctrl-Break",
        0xC0000005: "an access violation",
        0xC00000FD: "a stack overflow",
        0xC0000135: "the lack of a DLL",
        0xC0000142: "a DLL that could not start",
        0xC0000409: "a stack buffer overrun",
    }

    def die() -> None:
        """End this process at once. What it has started ends with the job of which it is part."""
        os._exit(1)

else:
    import select

    def group_options() -> dict[str, Any]:
        """Return the options of `subprocess.Popen` for a process that a `ProcessGroup` is made of at once."""
        return {"start_new_session": True}

    class ProcessGroup:
        """A process that was started with `group_options`, and those that it starts and that stay in its group."""

        __slots__ = ("_pid",)

        def __init__(self, pid: int) -> None:
            self._pid = pid

        def terminate(self) -> bool:
            """Ask all to end: by SIGTERM. False where nobody is asked."""
            return self._signal(signal.SIGTERM)

        def kill(self) -> None:
            """End all at once."""
            self._signal(signal.SIGKILL)

        @property
        def remains(self) -> bool:
            """Whether a process of it still runs."""
            return self._signal(0)

        def close(self) -> None:
            """Release it."""

        def _signal(self, number: int) -> bool:
            try:
                os.killpg(self._pid, number)
            except OSError:
                return False
            return True

    def watch_exit(loop: asyncio.AbstractEventLoop, process: Waitable, exited: Callable[[], object]) -> None:
        """Call `exited` when the process has ended. It is not reaped."""
        pid = process.pid
        try:
            watch = os.pidfd_open(pid)
        except (AttributeError, OSError):  # macOS, or a kernel without it
            _exited_later(loop, lambda: _wait_unreaped(pid), pid, exited)
            return

        def ready() -> None:
            loop.remove_reader(watch)
            os.close(watch)
            exited()

        loop.add_reader(watch, ready)

    def _wait_unreaped(pid: int) -> None:
        """Wait until a child has ended, and leave it to be reaped."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return
        kernel: Any = select  # macOS before Python 3.13 has no waitid; its kqueue(2) is not in the types of others
        event = kernel.kevent(pid, kernel.KQ_FILTER_PROC, kernel.KQ_EV_ADD | kernel.KQ_EV_ONESHOT, kernel.KQ_NOTE_EXIT)
        with contextlib.closing(kernel.kqueue()) as queue:
            queue.control([event], 1)  # ESRCH, an OSError: it has ended already

    def companion_options() -> dict[str, Any]:
        """Return the options of `subprocess.Popen` for a process that has our terminal and gets no Ctrl-C from it."""
        return {"process_group": 0}

    def pass_signal(process: subprocess.Popen[bytes], number: int) -> None:
        """Send a signal that ends to a process that was started with `companion_options`."""
        process.send_signal(number)

    class ParentWatch:
        """Whether the process that started this one still lives."""

        def __init__(self) -> None:
            self._parent = os.getppid()

        @property
        def lives(self) -> bool:
            """Whether it does: an orphan gets another parent."""
            return os.getppid() == self._parent

        def close(self) -> None:
            """Watch no more."""

    def process_lives(pid: int) -> bool:
        """Return whether there is a process of this number."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's
            return True
        return True

    def describe_status(status: int) -> str:
        """Return how a process ended, from its exit status: below zero that of a signal."""
        if status >= 0:
            return f"ended with exit status {status}"
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"

    def ended_by_others(status: int) -> bool:
        """Return whether it shows in a process' exit status that others have ended it."""
        return status < 0 and not ended_by_fault(status)

    def ended_by_fault(status: int) -> bool:
        """Return whether the system has ended a process for what it did, by its exit status."""
        return -status in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)

    def die() -> None:
        """End this process at once, and those that it has started, if it leads their group."""
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
