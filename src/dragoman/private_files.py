"""Files that may hold secrets or arguments: readable by their owner alone, and never at the end of another's link."""

from __future__ import annotations

import errno
import os
import stat

_OTHERS = 0o077
_LINKS = ("/dev/", "/proc/")
"""Folders of the system whose links are its own, such as /dev/stderr."""


def open_private(path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file and return its descriptor; it is made with the permissions 0600. An existing file that others may
    read or write is closed to them. Raises OSError, with words, for a symbolic link and for such a file of another
    user's; pipes and devices are opened as they are."""
    nofollow = 0 if path.startswith(_LINKS) else getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags | nofollow | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as fault:
        if fault.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself", path) from None
        raise
    try:
        _close_to_others(file, path)
    except BaseException:
        os.close(file)
        raise
    return file


def tighten(path: str) -> None:
    """Close an existing file to others, as `open_private` does; no effect where there is none."""
    try:
        file = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    os.close(file)


def _close_to_others(file: int, path: str) -> None:
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or not state.st_mode & _OTHERS or os.name == "nt":
        return
    try:
        os.fchmod(file, 0o600)
    except PermissionError:
        mode = f"{stat.S_IMODE(state.st_mode):04o}"
        raise OSError(errno.EPERM, f"others may read or write it ({mode}) and it is another user's", path) from None
