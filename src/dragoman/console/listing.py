"""The consoles of this user's processes: a file for each in a folder that is the user's alone, so that
`dragoman console` finds their URLs with their secrets."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from ..private_files import open_private

log: logging.Logger = logging.getLogger("dragoman")

MOST: Final = 1_000
"""Files that are read."""
SIZE: Final = 4096
"""Bytes of one."""


class ListedConsole(Struct, frozen=True):
    """A console that is open. `url`: with its secret; `began`: Unix seconds."""

    name: str
    url: str
    pid: int
    began: float


def folder() -> Path:
    """Return the folder: `dragoman/consoles` in the user's folder for state (XDG_STATE_HOME, else ~/.local/state).
    Raises RuntimeError where the user has no home."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "dragoman" / "consoles"


@contextmanager
def listed(name: str, url: str) -> Iterator[None]:
    """List a console while the block runs. Where that cannot be, it is only not found."""
    path: Path | None = None
    try:
        where = _ensure(folder())
        content = msgspec.json.encode(ListedConsole(name, url, os.getpid(), time()))
        file, made = tempfile.mkstemp(".tmp", dir=where)  # with mode 0600
        with open(file, "wb") as writing:
            writing.write(content)
        path = where / f"{os.getpid()}-{Path(made).stem}.json"
        os.replace(made, path)
    except (OSError, RuntimeError) as fault:
        log.info("the console cannot be listed for `dragoman console`: %s", fault)
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def read_listed() -> list[ListedConsole]:
    """Return the consoles that are open, the newest first. Files of processes that have ended are removed."""
    found = []
    try:
        paths = sorted(folder().glob("*.json"))[:MOST]
    except (OSError, RuntimeError):
        return []
    for path in paths:
        try:
            with open(open_private(f"{path}", os.O_RDONLY), "rb") as file:
                one = msgspec.json.decode(file.read(SIZE), type=ListedConsole)
        except (OSError, msgspec.DecodeError):
            continue
        if _runs(one.pid):
            found.append(one)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: -one.began)


def _ensure(where: Path) -> Path:
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = where.stat()
    if hasattr(os, "geteuid") and (state.st_uid != os.geteuid() or state.st_mode & 0o077):
        raise OSError(f"{where} must be the user's own, with mode 0700")
    return where


def _runs(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is none
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or not known
        return True
    return True
