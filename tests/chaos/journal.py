"""What a long run has seen, a line of JSON for each thing: a run that was stopped, or killed itself, goes on there.

{"at": 1790000000.123, "what": "kill", "count": 2}
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Journal:
    """The journal of a run in a folder. `entries`: what it has had until now, and has since."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        written = path.read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(whole))  # a line that was being written when its program was killed
        self.entries: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        self.session: int = 1 + len(self.of("session"))
        """Which of the runs in this folder this is."""
        self.write("session")

    def write(self, what: str, **more: Any) -> None:
        """Note something."""
        entry = {"at": time.time(), "what": what, **more}
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        self.entries.append(entry)

    def of(self, what: str) -> list[dict[str, Any]]:
        """Return the entries of one kind, the oldest first."""
        return [one for one in self.entries if one["what"] == what]

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(one["count"] for one in self.of("kill"))

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)
