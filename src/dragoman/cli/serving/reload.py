"""`dragoman serve --reload`: the same command line in a child, started again whenever a Python file changes.

Rules:

- The child reads the same options from the same sources, so `reload` too; the variable DRAGOMAN_RELOADING says that it
  is the child, which takes it out of the environment, so that what it starts is none.
- SIGTERM ends the child, so that it drains. SIGINT and SIGTERM to this process are sent to the child, whose exit status
  becomes ours (128 and the signal's number if a signal ended it). After a signal no new child is started, and a first
  signal does not hurry a child that already drains. SIGHUP starts the child again, as a change does.
- If a child cannot start (a syntax error in the file), this process waits for the next change.

With `--workers` the supervisor of the workers does all this, and `changes` says when.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

from ...jsonrpc.errors import installing
from ...net.activation import activation
from ...system.processes import companion_options, pass_signal
from ...system.signals import HANGUP, TERMINATE
from ..exit_status import Usage
from ..lines import tell

VARIABLE: Final = "DRAGOMAN_RELOADING"


def is_child() -> bool:
    """Whether `watch` started this process; answers once, since the variable is taken out of the environment."""
    return os.environ.pop(VARIABLE, None) is not None


def watch(folder: Path) -> int:
    """Serve with the arguments of this process in a child, until a signal. Returns the exit status."""
    files = _watchfiles()
    if activation().untaken:
        raise Usage("--reload takes no sockets from a service manager; --workers 1 --reload does")
    child = _Child()
    for number in (signal.SIGINT, TERMINATE):
        signal.signal(number, child.forward_signal)
    if HANGUP is not None:
        signal.signal(HANGUP, child.hangup)
    child.start()
    tell(f"watching {folder}", "info")
    while not child.over.is_set():
        for found in files.watch(
            folder, watch_filter=files.PythonFilter(), stop_event=child.woken, raise_interrupt=False
        ):
            tell(_reason(path for _, path in found), "warning")
            child.drain()
            child.start()
        child.woken.clear()
        if not child.over.is_set():
            tell("SIGHUP: starting again", "info")
            child.drain()
            child.start()
    return child.wait()


class _Child:
    """The current child process, and the handling of signals to this process."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.woken = threading.Event()
        """A signal came."""
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._draining = False
        self._unsent: int | None = None

    def start(self) -> None:
        """Start a new child, unless a signal to end has come."""
        self._starting = True  # a signal from here on is kept until the new child runs
        if not self.over.is_set():
            self._process, self._draining = _start(), False
        self._starting = False
        if self._unsent is not None:
            self._send(self._unsent)

    def forward_signal(self, number: int, frame: FrameType | None) -> None:
        """A signal came to this process."""
        again = self.over.is_set()
        self.over.set()
        self.woken.set()
        if self._starting:
            self._unsent = number
        elif again or not self._draining:  # a second signal would kill a draining child
            self._send(number)

    def hangup(self, number: int, frame: FrameType | None) -> None:
        """SIGHUP came to this process."""
        self.woken.set()

    def drain(self) -> None:
        """Have the child drain, and wait for its end."""
        self._draining = True
        self._send(TERMINATE)
        self.wait()

    def wait(self) -> int:
        """Wait for the child; its exit status."""
        if self._process is None:
            return 0
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            pass_signal(self._process, number)


def changes(folder: Path) -> AsyncIterator[str]:
    """A description of each change of Python files in a folder, as they happen. Raises Usage when the extra is
    missing."""
    files = _watchfiles()

    async def found() -> AsyncIterator[str]:
        async for several in files.awatch(folder, watch_filter=files.PythonFilter()):
            yield _reason(path for _, path in several)

    return found()


def _watchfiles() -> ModuleType:
    try:
        import watchfiles  # noqa: PLC0415 - the extra "reload"
    except ImportError:
        raise Usage(f"--reload needs watchfiles: {installing('reload')}") from None
    return watchfiles


def _reason(paths: Iterable[str]) -> str:
    names = sorted({Path(path).name for path in paths})
    return f"changed: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}; starting again"


def _start() -> subprocess.Popen[bytes]:
    """Start the child in a process group of its own, so that Ctrl-C reaches it only through this process.

    It writes no bytecode: Python finds stale bytecode by seconds and size, and an editor can save twice in a second.
    """
    return subprocess.Popen(
        [sys.executable, "-B", "-m", "dragoman", *sys.argv[1:]],
        env={**os.environ, VARIABLE: "1"},
        **companion_options(),
    )
