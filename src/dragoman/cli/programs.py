"""Programs that the command starts for itself: `file.py`, `file.py:app` and `module:app`, served on stdin and stdout.

Rules: the file is served by `dragoman serve` in a process of its own; when that fails, its sentence is the error of
this command, and it is shown once. It finds modules where this process would.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from ..channel import ChannelError
from ..jsonrpc.options import alike
from ..net.commands import cause_of
from ..net.scheme import SCHEMES
from ..system.programs import search_path
from ..system.words import join_command, quote_word
from .exit_status import Usage, suggest_name
from .terminal import clean

FILE = re.compile(r"(.+\.py)(?::([A-Za-z_][\w.]*))?")
MODULE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
SERVING = (sys.executable, "-m", "dragoman", "serve")
_KEPT = 50
"""Lines of a child's stderr in which the cause of a failure is looked for."""
_LONGEST = 500
"""Characters of each."""
OURS = "dragoman: "
"""How the sentence of a failed command begins."""


def serve_command(word: str) -> list[str] | None:
    """The command that serves what `word` names; None if it names no Python file or module here.

    Raises Usage for a file or a module that is not there.
    """
    if (match := FILE.fullmatch(word)) is not None:
        if Path(match[1]).is_file():
            return [*SERVING, word, "stdio:", "--quiet"]
        if any(c.isspace() for c in match[1]) or search_path(word, os.environ.get("PATH")) is not None:
            return None  # a command line
        raise Usage(f"there is no file {match[1]}{suggest_file(Path(match[1]))}")
    match = MODULE.fullmatch(word)
    if match is None or match[1].lower() in SCHEMES or alike(match[1].lower(), SCHEMES):
        return None
    if not _is_module(match[1].split(".")):
        here = sorted(path.stem for path in Path().glob("*.py"))
        there = f"this folder has {', '.join(here[:10])}" if here else "this folder has no Python file"
        raise Usage(f"there is no module {match[1]!r}, here or installed; {suggest_name(match[1], here, there)}")
    return [*SERVING, word, "stdio:", "--quiet"]


def environment(target: str | Sequence[str]) -> dict[str, str]:
    """The variables for the child at `target`: a program of ours finds modules where this process would."""
    found = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": found} if found and _is_ours(target) else {}


def target_word(target: str | Sequence[str]) -> str:
    """The word of a command line that names a target, quoted for a shell: a program of ours by its file or module."""
    if _is_ours(target):
        return quote_word(target[len(SERVING)])
    return quote_word(target if isinstance(target, str) else join_command(target))


def _is_ours(target: str | Sequence[str]) -> bool:
    return not isinstance(target, str) and tuple(target[: len(SERVING)]) == SERVING


def _is_module(names: Sequence[str]) -> bool:
    """Whether there is such a module, here or installed; nothing is imported to find out."""
    spec = PathFinder.find_spec(names[0], [str(Path.cwd()), *sys.path]) or _installed(names[0])
    for at in range(1, len(names)):
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(".".join(names[: at + 1]), list(spec.submodule_search_locations))
    return spec is not None and spec.origin is not None


def _installed(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # __main__
        return None


def suggest_file(wanted: Path) -> str:
    """What the error of a file that is not there adds: the one that was probably meant, or those of its folder."""
    if not wanted.parent.is_dir():
        return f"; there is no folder {wanted.parent}"
    found = sorted(path.name for path in wanted.parent.glob("*.py"))
    listed = f"the folder has {', '.join(found[:10])}" if found else "the folder has no Python file"
    return f"; {suggest_name(wanted.name, found, listed)}"


class ChildLines:
    """Passes on the lines that a child process writes to its stderr."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours
        self.failure: str = ""
        """The sentence with which a command of ours ended."""
        self._last: deque[str] = deque(maxlen=_KEPT)

    @property
    def cause(self) -> str:
        """Why the child may fail, out of what it has written."""
        return cause_of(list(self._last))

    def __call__(self, line: str) -> None:
        """Pass on one line, or keep it as the failure."""
        self._last.append(line[:_LONGEST])
        if self._ours and line.startswith(OURS):
            self.failure = line.removeprefix(OURS)
        else:
            print(clean(line), file=sys.stderr)


@contextmanager
def child_lines(target: str | Sequence[str]) -> Iterator[ChildLines]:
    """The receiver of the stderr of the child at `target`. Raises Usage with its sentence when our own command
    failed."""
    lines = ChildLines(_is_ours(target))
    try:
        yield lines
    except ChannelError:
        if lines.failure:
            raise Usage(lines.failure) from None
        raise
