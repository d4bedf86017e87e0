"""How a tool's calls become tasks, as for a method of a service; and the names of the helper tools. Pure."""

from __future__ import annotations

from typing import Any

from ....jsonrpc.errors import LocalError
from ....tasks.policy import TaskPolicy

__all__ = ["TaskPolicy", "check_prefix"]


def check_prefix(prefix: Any) -> str:
    """Return the beginning of the names of the helper tools. Raises LocalError for one that hosts refuse."""
    if not isinstance(prefix, str) or not prefix.replace("_", "").replace("-", "").isalnum() or len(prefix) > 40:
        raise LocalError(f"Tasks: prefix is up to 40 letters, digits, _ and -, as in 'task_', and not {prefix!r:.50}")
    return prefix
