"""Finds the program of a command, and starts batch files safely.

On Windows `npx` is `npx.cmd`: CreateProcess finds only .exe files, so PATH and PATHEXT are searched here. A batch file
is run by cmd.exe, which interprets its command line anew, quotes or not: an argument could be a command of its own
(CVE-2024-24576). So each argument is quoted here, and one that no quoting makes safe is refused.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from typing import Any, Final


class UnsafeArgument(ValueError):
    """A batch file cannot be given this argument; the text says why and what would be right."""


REFUSED: Final = '"%!\r\n\0'
"""Characters that cmd.exe may interpret within quotes."""
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#$*+-./:?@\\_")
"""Characters that need no quotes; those of the standard library of Rust."""


def batch_line(script: str, arguments: Sequence[str]) -> str:
    """Return the command that cmd.exe runs for a batch file with arguments. Raises UnsafeArgument. PURE."""
    return " ".join([_quoted(script, script, always=True), *(_quoted(one, script) for one in arguments)])


def _quoted(text: str, script: str, *, always: bool = False) -> str:
    if wrong := next((mark for mark in text if mark in REFUSED), ""):
        name = script.replace("\\", "/").rpartition("/")[2]
        raise UnsafeArgument(
            f"{name} is a batch file, and cmd.exe would interpret {wrong!r} in {text[:80]!r}: start the program behind it "
            "directly (node, python), or give this in env="
        )
    if not always and text and not text.endswith("\\") and _PLAIN.issuperset(text):
        return text
    ending = len(text) - len(text.rstrip("\\"))  # backslashes before the closing quote
    return f'"{text}{chr(92) * ending}"'


def search_path(name: str, path: str | None) -> str | None:
    """Return where a program stands in the folders of a PATH (None: the system's default), with the extension that it
    has on Windows; None where it does not. A folder that is not named from the root on, such as the current one, may be
    anyone's: it is not looked in."""
    if os.path.dirname(name):
        return None
    for place in (path or os.defpath).split(os.pathsep):
        place = place.strip('"')
        if os.path.isabs(place) and (found := shutil.which(os.path.join(place, name))):
            return found
    return None


if sys.platform == "win32":
    INTERPRETER: Final = (
        "name the interpreter: 'python FILE'; Windows reads no first line such as #!/usr/bin/env python3"
    )
    """How a file that is no program becomes a command, in words."""
    PERMIT: Final = "check that it is a program and no folder, and who may run it: icacls"
    """How a file may be run that may not, in words before its path."""
    NOT_FOUND: Final = frozenset((9009,))
    """Exit statuses by which cmd.exe says that a program is not there."""

    def runnable(command: Sequence[str], env: Mapping[str, str], folder: str | None) -> tuple[Any, dict[str, Any]]:
        """Return the arguments and further options of `subprocess.Popen` that run a command. Raises UnsafeArgument."""
        found = find_program(command[0], env, folder)
        if not is_batch(found):
            return [found, *command[1:]], {}
        shell = os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "cmd.exe")
        # no AutoRun; no !VARIABLES!; the outer quotes alone are stripped
        return f'"{shell}" /d /e:on /v:off /s /c "{batch_line(found, command[1:])}"', {"executable": shell}

    async def start_program(command: Sequence[str], env: Mapping[str, str], **options: Any) -> Process:
        """Start a command with the options of `asyncio.create_subprocess_exec`. Raises OSError, UnsafeArgument."""
        found = find_program(command[0], env, None)
        if is_batch(found):
            return await asyncio.create_subprocess_shell(batch_line(found, command[1:]), env=env, **options)
        return await asyncio.create_subprocess_exec(found, *command[1:], env=env, **options)

    def find_program(name: str, env: Mapping[str, str], folder: str | None) -> str:
        """Return the path of a program, with the extension of PATHEXT that it has; the name itself where none is found.
        A name alone is looked for in PATH, never in the current folder."""
        if not name or "\0" in name:
            return name
        if os.path.dirname(name):
            base = name if folder is None else os.path.join(folder, name)
            return shutil.which(base) or base
        return search_path(name, env.get("PATH")) or name

    def is_batch(path: str) -> bool:
        """Return whether cmd.exe would run a file. Windows ignores dots and spaces at the end of a name."""
        return path.rstrip(". ").lower().endswith((".bat", ".cmd"))

else:
    INTERPRETER: Final = "begin it with a line such as #!/usr/bin/env python3, or name the interpreter: 'python FILE'"
    """How a file that is no program becomes a command, in words."""
    PERMIT: Final = "make it executable: chmod +x"
    """How a file may be run that may not, in words before its path."""
    NOT_FOUND: Final = frozenset((126, 127))
    """Exit statuses by which shells say that a program is not there."""

    def runnable(command: Sequence[str], env: Mapping[str, str], folder: str | None) -> tuple[Any, dict[str, Any]]:
        """Return the arguments and further options of `subprocess.Popen` that run a command."""
        return list(command), {}

    async def start_program(command: Sequence[str], env: Mapping[str, str], **options: Any) -> Process:
        """Start a command with the options of `asyncio.create_subprocess_exec`. Raises OSError."""
        return await asyncio.create_subprocess_exec(*command, env=env, **options)
