"""What becomes of a broker whose tests are killed: `kill -9` runs no fixture's end.

A shell in a session of its own waits for the end of a pipe that we hold; the system closes it however we end. Then it
kills the broker's process group and removes its folder. (PR_SET_PDEATHSIG ends with the thread that started a child,
and brokers are started in threads.)
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_WATCH = 'cat; kill -s KILL -- "-$1"; [ -z "$2" ] || rm -rf -- "$2"'


class Watcher:
    """Ends a process group, and removes its folder (None: there is none to remove), when this process is gone. `stop`
    it before the group ends here."""

    def __init__(self, group: int, folder: Path | None) -> None:
        self._shell = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", str(group), str(folder or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Watch no more."""
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
