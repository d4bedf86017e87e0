"""What workers write of their runs: one line before the work and one after it, each by one `write` to a file that is
open for appending, so that a worker which is killed has written a line whole or not at all.

    begin charge 17 0 4711        method, key, how often it was delivered before, process
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from msgspec import Struct, field


class Ledger:
    """The writing end."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, method: str, key: str, redelivered: int) -> None:
        """One line."""
        os.write(self._file, f"{what} {method} {key} {redelivered} {os.getpid()}\n".encode())


class Runs(Struct):
    """What became of every key, by method."""

    begun: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Method, key -> one `redelivered` per run, in the order in which they began."""
    done: dict[str, dict[str, int]] = field(default_factory=dict)
    """Method, key -> how many runs came to their end."""

    def total(self) -> int:
        """All runs."""
        return sum(len(runs) for keys in self.begun.values() for runs in keys.values())

    def twice(self, method: str = "") -> int:
        """Keys that were run more than once."""
        return sum(len(runs) > 1 for name, keys in self.begun.items() if method in ("", name) for runs in keys.values())

    def marked(self) -> int:
        """Runs that were told that they may not be the first."""
        return sum(count > 0 for keys in self.begun.values() for runs in keys.values() for count in runs)

    def unmarked(self, method: str) -> list[str]:
        """Keys with two runs neither of which knew of the other."""
        return [key for key, runs in self.begun.get(method, {}).items() if runs.count(0) > 1]

    def overtaken(self, method: str) -> list[str]:
        """Keys whose later runs were not all told. When a broker has a request twice, because its caller never heard
        that it has it, the second copy is marked; and two workers can begin the two copies in either order."""
        return [key for key, runs in self.begun.get(method, {}).items() if 0 in runs[1:]]


def read(path: Path) -> Runs:
    """The runs that a ledger tells of."""
    begun: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    done: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    if path.exists():
        for line in path.read_text().splitlines():
            what, method, key, redelivered, _ = line.split(" ")
            if what == "begin":
                begun[method][key].append(int(redelivered))
            else:
                done[method][key] += 1
    return Runs(begun, done)
