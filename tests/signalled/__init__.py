"""Processes in Python to which a test sends SIGINT and SIGTERM on every system.

On Windows these are Ctrl-C and Ctrl-Break, which only processes with one console send each other, and a test has none.
There the process raises the signal itself when the test says so. That is all that the system does, too: it calls the C
runtime's handler on a thread of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.platform == "win32":

    class SignalledProcess(subprocess.Popen[str]):
        """A process in Python that gets the signals."""

        def __init__(self, arguments: list[str], *, env: dict[str, str], **options: Any) -> None:
            self._door = socket.create_server(("127.0.0.1", 0))
            self._door.settimeout(60)
            self._line: socket.socket | None = None
            path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [env.get("PYTHONPATH")])])
            port = str(self._door.getsockname()[1])
            super().__init__(arguments, env=env | {"DRAGOMAN_SIGNALLED": port, "PYTHONPATH": path}, **options)

        def send_signal(self, sig: int) -> None:
            """Raise SIGINT there, or SIGBREAK for SIGTERM."""
            if self.poll() is not None:
                return
            if self._line is None:
                self._line, _ = self._door.accept()
            self._line.send(bytes([signal.SIGBREAK if sig == signal.SIGTERM else sig]))

        def terminate(self) -> None:
            """Raise SIGBREAK there."""
            self.send_signal(signal.SIGTERM)

        def kill(self) -> None:
            """End it at once."""
            super().terminate()
            for one in (self._door, self._line):
                if one is not None:
                    one.close()

else:
    SignalledProcess = subprocess.Popen
