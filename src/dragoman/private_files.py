"""Files that may hold secrets or arguments: readable by their owner alone, and never opened through a symbolic link."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from .system.files import NO_FOLLOW, deny_others, is_mine, others_may, replace, state_home

_LINKS = ("/dev/", "/proc/")
"""Folders of the system whose links are its own, such as /dev/stderr."""


def open_private(path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file, or create it with the permissions 0600, and return its descriptor. Others lose their rights to an
    existing file. Raises OSError, with a reason in words, for a symbolic link, and for a file of another user that
    others may read or write. Pipes and devices are opened as they are."""
    try:
        file = os.open(path, flags | (0 if path.startswith(_LINKS) else NO_FOLLOW), 0o600)
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
    if not stat.S_ISREG(state.st_mode) or not others_may(state):
        return
    try:
        deny_others(file)
    except PermissionError:
        mode = f"{stat.S_IMODE(state.st_mode):04o}"
        raise OSError(errno.EPERM, f"others may read or write it ({mode}) and it is another user's", path) from None


def state_folder(name: str) -> Path:
    """Return the folder `dragoman/NAME` in the user's folder for state (XDG_STATE_HOME, else ~/.local/state; on Windows
    LOCALAPPDATA). Raises RuntimeError where the user has no home."""
    return state_home() / "dragoman" / name


def ensure_private(folder: Path) -> Path:
    """Make a folder that is its user's alone, and return it. Raises OSError where it cannot be made, and for one that
    others may enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if not is_mine(state) or others_may(state):
        raise OSError(f"{folder} must be the user's own, with mode 0700")
    return folder


def write_private(path: Path, content: bytes) -> None:
    """Write a file with the permissions 0600, under another name first, so that nobody reads half of it. Raises
    OSError."""
    file, made = tempfile.mkstemp(".tmp", dir=path.parent)  # with mode 0600
    try:
        with open(file, "wb") as writing:
            writing.write(content)
        replace(Path(made), path)
    except BaseException:
        os.unlink(made)
        raise
