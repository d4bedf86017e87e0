"""`dragoman serve --reload`: the same command line in a child, started again whenever a Python file changes.

Rules: the child ends by SIGTERM, so that it drains; a signal to us goes to the child, and its exit
status is ours (128 and the signal's number where a signal ended it); after a signal no new child is started, and a
first one does not hurry a child that drains already; a child that cannot start (a typing error in the file) waits
for the next change.
With `--workers` the supervisor of the workers does all that, and `changes` tells it when.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import FrameType, ModuleType

from ..ends import Usage
from ..terminal import say


def watch(folder: Path) -> int:
    """Serve with the arguments of this process but for --reload, until a signal. Returns the exit status."""
    files = _watchfiles()
    child = _Child()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, child.told)
    child.start()
    say(f"watching {folder}", "dim")
    for found in files.watch(folder, watch_filter=files.PythonFilter(), stop_event=child.over, raise_interrupt=False):
        say(_reason(path for _, path in found), "yellow")
        child.drain()
        child.start()
    return child.wait()


class _Child:
    """The child, one after the other, and what a signal to us means for it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = False
        self._draining = False
        self._unsent: int | None = None

    def start(self) -> None:
        """Start a new one, unless we were told to end."""
        self._starting = True  # from here on a signal is kept until the new one is there
        if not self.over.is_set():
            self._process, self._draining = _start(), False
        self._starting = False
        if self._unsent is not None:
            self._send(self._unsent)

    def told(self, number: int, frame: FrameType | None) -> None:
        """A signal to us."""
        again = self.over.is_set()
        self.over.set()
        if self._starting:
            self._unsent = number
        elif again or not self._draining:  # to one that drains a second signal would be the end
            self._send(number)

    def drain(self) -> None:
        """Let it end, and wait for that."""
        self._draining = True
        self._send(signal.SIGTERM)
        self.wait()

    def wait(self) -> int:
        """Its exit status."""
        if self._process is None:
            return 0
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def changes(folder: Path) -> AsyncIterator[str]:
    """What has changed in a folder, in words, whenever something has. Usage when the extra is missing."""
    files = _watchfiles()

    async def found() -> AsyncIterator[str]:
        async for several in files.awatch(folder, watch_filter=files.PythonFilter()):
            yield _reason(path for _, path in several)

    return found()


def _watchfiles() -> ModuleType:
    try:
        import watchfiles  # noqa: PLC0415 - the extra "reload"
    except ImportError:
        raise Usage("--reload needs watchfiles: pip install 'dragoman[reload]'") from None
    return watchfiles


def _reason(paths: Iterable[str]) -> str:
    names = sorted({Path(path).name for path in paths})
    return f"changed: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}; starting again"


def _start() -> subprocess.Popen[bytes]:
    """The child, in a process group of its own: Ctrl-C reaches it through us, once.

    It keeps no bytecode: that is told stale by the second and the size, and people type quickly.
    """
    arguments = [word for word in sys.argv[1:] if word != "--reload"]
    return subprocess.Popen([sys.executable, "-B", "-m", "dragoman", *arguments], process_group=0)
