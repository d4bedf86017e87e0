"""The consoles of this user's processes: a file for each in a folder that is the user's alone, so that
`dragoman console` finds their URLs with their secrets."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from ..net.urls import printable
from ..private_files import ensure_private, open_private, state_folder, write_private
from ..system.files import STATE_HOME
from ..system.processes import process_lives

log: logging.Logger = logging.getLogger("dragoman")

MOST: Final = 1_000
"""Files that are read."""
SIZE: Final = 4096
"""Bytes of one."""
LONGEST_NAME: Final = 200
"""Characters of a name: of many services it would not fit into a file."""


class ListedConsole(Struct, frozen=True):
    """A console that is open. `url`: with its secret; `began`: Unix seconds."""

    name: str
    url: str
    pid: int
    began: float


def folder() -> Path:
    """Return the folder of the files. Raises RuntimeError where the user has no home."""
    return state_folder("consoles")


@contextmanager
def listed(name: str, url: str) -> Iterator[None]:
    """List a console while the block runs. Where that cannot be, it is only not found, and a warning says so."""
    path: Path | None = None
    try:
        where = ensure_private(folder())
        content = msgspec.json.encode(
            ListedConsole(printable(name[:LONGEST_NAME], LONGEST_NAME), url, os.getpid(), time())
        )
        new = where / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        write_private(new, content)
        path = new
    except (OSError, RuntimeError) as fault:
        log.warning(
            "`dragoman console` does not find this console, which cannot be listed: %s; let %s name a "
            "folder in which this user may write",
            fault,
            STATE_HOME,
        )
    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):  # the folder may have changed meanwhile, and the server ends all the same
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
        if process_lives(one.pid):
            found.append(one)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: -one.began)
