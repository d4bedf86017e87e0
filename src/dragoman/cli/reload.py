"""`dragoman serve --reload`: the same command line in a child, started again whenever a Python file changes.

Rules: the child ends by SIGTERM, so that it drains; a signal to us goes to the child, and its exit
status is ours; a child that cannot start (a typing error in the file) waits for the next change.
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

from .ends import Usage
from .terminal import say


def watch(folder: Path) -> int:
    """Serve with the arguments of this process but for --reload, until a signal. Returns the exit status."""
    files = _watchfiles()
    child = _start()
    over = threading.Event()

    def on(number: int, frame: FrameType | None) -> None:
        over.set()
        if child.poll() is None:
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on)
    say(f"watching {folder}", "dim")
    for found in files.watch(folder, watch_filter=files.PythonFilter(), stop_event=over, raise_interrupt=False):
        say(_reason(path for _, path in found), "yellow")
        _end(child)
        child = _start()
    return child.wait()


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


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
    child.wait()
