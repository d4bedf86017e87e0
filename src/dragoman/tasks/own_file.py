"""The file of a program's tasks in the user's folder for state, for programs that were told no other."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final

from ..private_files import state_folder

FOLDER: Final = "task-stores"
"""Its name in the user's folder for state."""


def own_url(program: str) -> str | None:
    """Return the URL of the file of a program, the same whenever it is started in the same working directory; None
    where the user has no home. `program`: what is served, such as "lab:app"."""
    try:
        where = state_folder(FOLDER)
        place = os.path.realpath(os.getcwd())
    except (OSError, RuntimeError):
        return None
    digest = hashlib.sha256(f"{place}\0{program}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    words = re.sub(r"[^A-Za-z0-9]+", "-", program).strip("-")[-40:]
    return f"sqlite:{where / f'{words}-{digest}.db'}"


def make_folder(path: str) -> bool:
    """Make the folder of a file, if it is that of programs' own files; return whether it is."""
    try:
        where = state_folder(FOLDER)
    except RuntimeError:
        return False
    if Path(path).parent != where:
        return False
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    return True
