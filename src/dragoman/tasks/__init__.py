"""Calls that go on beyond their requests: their records, and the stores that keep them.

A `TaskStore` keeps the records, in a file of SQLite or on the bus; `rules` says how they change. What runs them belongs
to those that have calls: `mcp.extensions.tasks` for MCP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .contract import TaskLimits, TasksFull, TaskStore
    from .record import TaskRecord
else:
    __getattr__, __dir__ = door(__name__, {"contract": "TaskLimits TaskStore TasksFull", "record": "TaskRecord"})
    del TYPE_CHECKING, annotations, door

__all__ = ["TaskLimits", "TaskRecord", "TaskStore", "TasksFull"]
