"""What the tests leave out on Windows, each by name and reason: the one table of it (`make test-windows`).

A row is a file, or a file and the beginning of a test's name. What does not exist there has a reason that begins with
"not there"; what the stand-in for Windows of this project's machine lacks begins with "Wine" and names the call.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TERMINAL = "not there: pseudo-terminals of POSIX"
UNIX = "not there: Unix sockets"
SIGNALS = "not there: signals of POSIX between processes"
DESCRIPTORS = "not there: descriptors that children inherit by number"
SHELL = "not there: a POSIX shell"
RIGHTS = "not there: the bits of a mode"
ACTIVATION = "not there: sockets of a service manager"
WORKERS = "not there: workers"
LIMITS = "not there: limits of a process (setrlimit)"
PROC = "not there: /proc"

SKIPPED: dict[str, str] = {
    "tests/cli/test_activation.py": ACTIVATION,
    "tests/net/test_service_manager.py": ACTIVATION,
    "tests/cli/test_completion.py": SHELL,
    "tests/cli/test_terminal.py": TERMINAL,
    "tests/cli/test_top.py": TERMINAL,
    "tests/cli/test_large_blocks.py": LIMITS,
}


def left_out(node: str) -> str:
    """The reason for which a test or file is left out; "" if it is not."""
    for row, why in SKIPPED.items():
        if node == row or node.startswith(f"{row}::") or fnmatch(node, f"{row}*" if "::" in row else row):
            return why
    return ""


def ignores(path: Path) -> bool:
    """Whether a file is left out, which may not even be imported there."""
    return path.is_file() and path.resolve().is_relative_to(ROOT) and bool(left_out(_node(path)))


def _node(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


def mark(items: list[pytest.Item]) -> None:
    """Skip what the table leaves out, and what is for Unix sockets in a table of wires."""
    for item in items:
        if why := left_out(item.nodeid.replace("\\", "/")):
            item.add_marker(pytest.mark.skip(reason=why))
        elif "[" in item.nodeid and "unix" in item.nodeid.partition("[")[2]:
            item.add_marker(pytest.mark.skip(reason=UNIX))
