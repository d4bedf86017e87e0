"""How a tool's calls become tasks, as for a method of a service; and the names of the helper tools. Pure."""

from __future__ import annotations

from typing import Any, Final

from ....jsonrpc.errors import LocalError
from ....tasks.policy import TaskPolicy

__all__ = ["LONGEST_ID", "TaskPolicy", "check_prefix"]

LONGEST_ID: Final = 1_000
"""Characters of the id of a task at most: it is sent in a header, and kept by the command."""


def check_prefix(prefix: Any) -> str:
    """Return the beginning of the names of the helper tools. Raises LocalError for one that hosts refuse."""
    if not isinstance(prefix, str) or not prefix.replace("_", "").replace("-", "").isalnum() or len(prefix) > 40:
        raise LocalError(f"Tasks: prefix is up to 40 letters, digits, _ and -, as in 'task_', and not {prefix!r:.50}")
    return prefix


def check_id(id: Any) -> str:
    """Return the id of a task. Raises LocalError for one that no server can have given."""
    if not isinstance(id, str) or not id or len(id) > LONGEST_ID:
        raise LocalError(f"the id of a task is a text of 1 to {LONGEST_ID} characters, and not {id!r:.100}")
    return id
