"""Programs that the command starts for itself: `file.py`, `file.py:app` and `module:app`, served on stdin and stdout.

Rules: the file is served by `dragoman serve` in a process of its own; when that fails, its sentence is the error of
this command, and it is shown once.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..channel import ChannelError
from ..net.scheme import SCHEMES
from .ends import Usage, meant
from .terminal import clean

FILE = re.compile(r"(.+\.py)(?::([A-Za-z_][\w.]*))?")
MODULE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
SERVING = (sys.executable, "-m", "dragoman", "serve")
OURS = "dragoman: "
"""How the sentence of a failed command begins."""


def served(word: str) -> list[str] | None:
    """The command that serves what `word` names; None if it names no Python file or module here.

    Raises Usage for a file that is not there.
    """
    if (match := FILE.fullmatch(word)) is not None:
        if Path(match[1]).is_file():
            return [*SERVING, word, "stdio:", "--quiet"]
        if any(c.isspace() for c in match[1]) or shutil.which(word) is not None:
            return None  # a command line
        raise Usage(f"there is no file {match[1]}{_instead(Path(match[1]))}")
    match = MODULE.fullmatch(word)
    if match is None or match[1].lower() in SCHEMES or not Path(*match[1].split(".")).with_suffix(".py").is_file():
        return None
    return [*SERVING, word, "stdio:", "--quiet"]


def _instead(wanted: Path) -> str:
    if not wanted.parent.is_dir():
        return f"; there is no folder {wanted.parent}"
    found = sorted(path.name for path in wanted.parent.glob("*.py"))
    listed = f"the folder has {', '.join(found[:10])}" if found else "the folder has no Python file"
    return f"; {meant(wanted.name, found, listed)}"


class ChildLines:
    """Passes on the lines that a child process writes to its stderr."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours
        self.failure: str = ""
        """The sentence with which a command of ours ended."""

    def __call__(self, line: str) -> None:
        """Pass on one line, or keep it as the failure."""
        if self._ours and line.startswith(OURS):
            self.failure = line.removeprefix(OURS)
        else:
            print(clean(line), file=sys.stderr)


@contextmanager
def child_lines(place: str | Sequence[str]) -> Iterator[ChildLines]:
    """What takes the stderr of the child at `place`. Raises Usage with its sentence when a command of ours failed."""
    ours = not isinstance(place, str) and tuple(place[: len(SERVING)]) == SERVING
    lines = ChildLines(ours)
    try:
        yield lines
    except ChannelError:
        if lines.failure:
            raise Usage(lines.failure) from None
        raise
