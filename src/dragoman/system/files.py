"""Files that are their user's alone, locks on files, and what their faults mean.

On Windows the bits of a mode say nothing about who may read a file: rights are inherited from the folder. Below a
user's profile those are the user's own, administrators' and the system's, so nothing is checked or changed there.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

OTHERS: Final = 0o077
"""The bits of a mode that are other users' rights."""


def reason_of(fault: OSError) -> str:
    """Return in words why a file could not be opened, read or written. Windows denies access to a folder without saying
    that it is one."""
    if fault.errno == errno.EACCES and isinstance(fault.filename, str) and os.path.isdir(fault.filename):
        return os.strerror(errno.EISDIR)
    return fault.strerror or str(fault)


def nobody_reads(fault: OSError) -> bool:
    """Return whether what was written is read no more. The C runtime of Windows reports that as an invalid argument,
    which it also has for a file's name, and sockets for theirs."""
    if sys.platform == "win32" and fault.errno == errno.EINVAL:
        return fault.filename is None and fault.winerror is None
    return isinstance(fault, BrokenPipeError)


if sys.platform == "win32":
    import msvcrt

    from .kernel import kernel32, last_error

    PRIVATE_RIGHTS: Final = "with the rights of that folder (below your profile: you, administrators and the system)"
    """Who may read a private file, in words."""
    NO_FOLLOW: Final = os.O_BINARY | os.O_NOINHERIT
    """Flags of `os.open`, for a file that is not followed through a link and not inherited."""
    _LOCKED: Final = 33  # ERROR_LOCK_VIOLATION
    _BUSY: Final = 1.0
    """Seconds for another program to be done with a file."""

    def is_mine(state: os.stat_result) -> bool:
        """Return whether a file is this user's, as far as the system says so here."""
        return True

    def others_may(state: os.stat_result) -> bool:
        """Return whether others have rights to a file, as far as the system says so here."""
        return False

    def deny_others(file: int) -> None:
        """Take away the rights of others to an open file, where files have such rights of their own."""

    def lock(file: int) -> bool:
        """Lock an open file until it is closed; False where another has it. Raises OSError."""
        if kernel32.LockFile(msvcrt.get_osfhandle(file), 0, 0, 1, 0):
            return True
        fault = last_error()
        if fault.winerror == _LOCKED:
            return False
        raise fault

    def undisturbed(work: Callable[[], T]) -> T:
        """Return `work()`, which opens, renames or removes a file. Waits a moment for another program that has it open
        or renames it just then, for the system refuses it meanwhile. Raises OSError."""
        until = time.monotonic() + _BUSY
        while True:
            try:
                return work()
            except PermissionError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.005)

    def sync_folder(folder: Path) -> None:
        """Do nothing: the system keeps a renaming in its journal."""

    STATE_HOME: Final = "LOCALAPPDATA"
    """The variable that names the user's folder for state."""

    def state_home() -> Path:
        """Return the user's folder for state. Raises RuntimeError where the user has no home."""
        return Path(os.environ.get(STATE_HOME) or Path.home() / "AppData" / "Local")

else:
    import fcntl

    PRIVATE_RIGHTS: Final = "in files that only you can read"
    """Who may read a private file, in words."""
    NO_FOLLOW: Final = os.O_NOFOLLOW | os.O_CLOEXEC
    """Flags of `os.open`, for a file that is not followed through a link and not inherited."""

    def is_mine(state: os.stat_result) -> bool:
        """Return whether a file is this user's."""
        return state.st_uid == os.geteuid()

    def others_may(state: os.stat_result) -> bool:
        """Return whether others have rights to a file."""
        return bool(state.st_mode & OTHERS)

    def deny_others(file: int) -> None:
        """Take away the rights of others to an open file. Raises OSError."""
        os.fchmod(file, 0o600)

    def lock(file: int) -> bool:
        """Lock an open file until it is closed; False where another has it. Raises OSError."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def undisturbed(work: Callable[[], T]) -> T:
        """Return `work()`, which opens, renames or removes a file. Raises OSError."""
        return work()

    def sync_folder(folder: Path) -> None:
        """Have the names of files in a folder on the disk. Raises OSError."""
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    STATE_HOME: Final = "XDG_STATE_HOME"
    """The variable that names the user's folder for state."""

    def state_home() -> Path:
        """Return the user's folder for state: XDG_STATE_HOME, else ~/.local/state. Raises RuntimeError where the user
        has no home."""
        return Path(os.environ.get(STATE_HOME) or Path.home() / ".local" / "state")


def replace(new: Path, old: Path) -> None:
    """Give a file another's name. Raises OSError."""
    undisturbed(lambda: os.replace(new, old))


def is_private(state: os.stat_result) -> bool:
    """Return whether it is a regular file of this user's to which others have no rights."""
    return stat.S_ISREG(state.st_mode) and is_mine(state) and not others_may(state)
