"""Files that may hold secrets or arguments: readable by their owner alone, and never opened through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat

_OTHERS = 0o077
_LINKS = ("/dev/", "/proc/")
"""Folders of the system whose links are its own, such as /dev/stderr."""


def open_private(path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file, or create it with the permissions 0600, and return its descriptor. Others lose their rights to an
    existing file. Raises OSError, with a reason in words, for a symbolic link, and for a file of another user that
    others may read or write. Pipes and devices are opened as they are."""
    nofollow = 0 if path.startswith(_LINKS) else getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags | nofollow | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as fault:
        if fault.errno == errno.ELOOP and os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link; name the file itself", path) from None
        raise
    try:
        _deny_others(file, path)
    except BaseException:
        os.close(file)
        raise
    return file


def tighten(path: str) -> None:
    """Take away the rights of others to an existing file, as `open_private` does. No effect where there is none."""
    try:
        file = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    os.close(file)


def _deny_others(file: int, path: str) -> None:
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or not state.st_mode & _OTHERS or os.name == "nt":
        return
    try:
        os.fchmod(file, 0o600)
    except PermissionError:
        mode = f"{stat.S_IMODE(state.st_mode):04o}"
        raise OSError(errno.EPERM, f"others may read or write it ({mode}) and it is another user's", path) from None
