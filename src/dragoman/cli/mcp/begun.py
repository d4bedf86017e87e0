"""The tasks that this user has begun by the command: their ids, a file for each in a folder that is the user's alone.

Servers of 2026-07-28 list no tasks, so a task whose id is lost is lost. Arguments and results are not kept.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

import msgspec
from msgspec import Struct

from ...net.urls import printable, shown_target
from ...private_files import ensure_private, open_private, state_folder, write_private
from ...system.words import join_command
from ..terminal import say

MOST: Final = 1_000
"""Tasks that are kept; the oldest are forgotten first."""
SIZE: Final = 16_384
"""Bytes of one file."""
KEPT: Final = 30 * 24 * 3600.0
"""Seconds after which a task is forgotten: no server keeps its result that long."""


class BegunTask(Struct, frozen=True):
    """A task that was begun. `server`: the server as it may be shown; `target`: a digest of what was named on the
    command line, by which it is found again; `began`: Unix seconds."""

    id: str
    tool: str
    server: str
    target: str
    began: float


def remember(target: str | list[str], id: str, tool: str) -> None:
    """Keep the id of a task. Where that cannot be, a line says so."""
    one = BegunTask(id, printable(tool, 200), printable(shown_target(target), 500), _digest(target), time())
    try:
        folder = ensure_private(state_folder("tasks"))
        write_private(folder / f"{_name(one.target, id)}.json", msgspec.json.encode(one))
        for path, _ in _read(folder)[MOST:]:
            _remove(path)
    except (OSError, RuntimeError) as fault:
        say(f"the id of the task is not kept, note it: {fault}", "yellow")


def begun(target: str | list[str] | None = None) -> list[BegunTask]:
    """Return the tasks that were begun, the newest first. `target`: those at this server; None: all."""
    try:
        found = _read(state_folder("tasks"))
    except (OSError, RuntimeError):
        return []
    for path, one in found:
        if one.began < time() - KEPT:
            _remove(path)
    wanted = None if target is None else _digest(target)
    return [one for _, one in found if one.began >= time() - KEPT and wanted in (None, one.target)]


def forget(target: str | list[str], id: str) -> None:
    """Forget a task that its server does not know any more."""
    with suppress(OSError, RuntimeError):
        _remove(state_folder("tasks") / f"{_name(_digest(target), id)}.json")


def _read(folder: Path) -> list[tuple[Path, BegunTask]]:
    """Return the files with what is in them, the newest first. One that is none of ours is left out."""
    found = []
    for path in sorted(folder.glob("*.json"))[: 2 * MOST]:
        try:
            with open(open_private(f"{path}", os.O_RDONLY), "rb") as file:
                found.append((path, msgspec.json.decode(file.read(SIZE), type=BegunTask)))
        except (OSError, msgspec.DecodeError):
            continue
    return sorted(found, key=lambda one: -one[1].began)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _digest(target: str | list[str]) -> str:
    words = target if isinstance(target, str) else join_command(target)
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def _name(target: str, id: str) -> str:
    return hashlib.sha256(f"{target} {id}".encode()).hexdigest()[:32]
