"""Opens a store of tasks: `memory:`, `sqlite:PATH`, or `bus`, the store of the bus that the processes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..jsonrpc.errors import LocalError
from .contract import TaskLimits, TaskStore
from .own_file import make_folder
from .sqlite import SqliteTasks


def open_tasks(
    url: str, limits: TaskLimits, bus: Any = None, keys: Sequence[str | bytes] | str | None = None
) -> TaskStore:
    scheme, _, path = url.partition(":")
    if scheme == "memory":
        return SqliteTasks(":memory:", limits)
    if scheme == "sqlite" and path:
        make_folder(path)
        return SqliteTasks(path, limits)
    raise LocalError(f"there is no store of tasks {url!r}")
