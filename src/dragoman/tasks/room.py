"""What a store of tasks has room for. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError
from .contract import TaskLimits, TasksFull
from .record import is_id

LEAST: Final = 4096
"""Bytes that a task counts at least: so, however full the store is, there is room for the text with which it ends."""


class Usage(Struct, frozen=True):
    """What some tasks take up."""

    tasks: int = 0
    size: int = 0


class TaskCounts(Struct):
    """What a store has done since it was opened here."""

    created: int = 0
    refused: int = 0
    """Tasks, and changes of tasks, for which there was no room."""
    claimed: int = 0
    deleted: int = 0

    def measures(self) -> dict[str, float]:
        """Return the counts by the names of metrics."""
        return {
            "task_store_created_total": self.created,
            "task_store_refused_total": self.refused,
            "task_store_claimed_total": self.claimed,
            "task_store_deleted_total": self.deleted,
        }


def counted(record: bytes) -> int:
    """Return the bytes that a stored record counts."""
    return max(LEAST, len(record))


def check_record(limits: TaskLimits, id: str, record: bytes) -> None:
    """Raise TasksFull for a stored record that is too large by itself, LocalError for an id that no task can have."""
    if not is_id(id):
        raise LocalError(f"the id of a task is ASCII without spaces, at most 200 characters, not {id!r:.80}")
    if len(record) > limits.record_size:
        raise TasksFull(
            f"the record of this task has {len(record)} bytes; limit record_size allows {limits.record_size}"
        )


def check_room(limits: TaskLimits, owner: str, mine: Usage, all: Usage, *, new: bool, more: int) -> None:
    """Raise TasksFull where there is no room for `more` bytes, in a `new` task or in one that is there. `mine`: what
    this owner has now; `all`: what all have."""
    if new and all.tasks >= limits.tasks:
        raise TasksFull(f"there are {all.tasks} tasks in all; limit tasks allows {limits.tasks}", busy=True)
    if more > 0 and all.size + more > limits.total:
        raise TasksFull(
            f"all tasks together would have above {limits.total} bytes, which limit total allows", busy=True
        )
    if not owner:
        _check_unowned(limits, mine, new=new, more=more)
    elif new and mine.tasks >= limits.tasks_each:
        raise TasksFull(f"this caller has {mine.tasks} tasks; limit tasks_each allows {limits.tasks_each}")
    elif more > 0 and mine.size + more > limits.total_each:
        size = limits.total_each
        raise TasksFull(f"the tasks of this caller would have above {size} bytes, which limit total_each allows")


def _check_unowned(limits: TaskLimits, unowned: Usage, *, new: bool, more: int) -> None:
    """Raise TasksFull where those without an owner have their half. It is "busy": other callers have filled it too."""
    tasks, size = limits.tasks // 2, limits.total // 2
    if new and unowned.tasks >= tasks:
        text = f"callers without a name have {unowned.tasks} tasks; limit tasks allows them {tasks}, half of all"
        raise TasksFull(text, busy=True)
    if more > 0 and unowned.size + more > size:
        text = f"the tasks of callers without a name would have above {size} bytes, half of what limit total allows"
        raise TasksFull(text, busy=True)
