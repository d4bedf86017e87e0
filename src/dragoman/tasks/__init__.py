"""Calls that go on beyond their requests: their records, and the stores that keep them.

A `TaskStore` keeps the records, in a file of SQLite or on the bus; `rules` says how they change. What runs them belongs
to those that have calls: `rpc.service_tasks` for services, `mcp.extensions.tasks` for MCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .contract import TaskLimits, TasksFull, TaskStore
    from .opening import open_tasks
    from .policy import TaskPolicy
    from .record import TaskRecord
    from .settings import TaskSettings
    from .shared import BusTasks
    from .sqlite import SqliteTasks
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "contract": "TaskLimits TaskStore TasksFull",
            "opening": "open_tasks",
            "policy": "TaskPolicy",
            "record": "TaskRecord",
            "settings": "TaskSettings",
            "shared": "BusTasks",
            "sqlite": "SqliteTasks",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "BusTasks",
    "SqliteTasks",
    "TaskLimits",
    "TaskPolicy",
    "TaskRecord",
    "TaskSettings",
    "TaskStore",
    "TasksFull",
    "open_tasks",
]
