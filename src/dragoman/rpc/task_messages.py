"""What is sent of the tasks of a service (docs/tasks.md).

A task is a call that goes on beyond its request. `tasks.start` begins one and answers with its status; `tasks.get`,
`tasks.result` and `tasks.cancel` take its id, on any connection and at any replica. The notification `tasks.changed`
has the status of a task; it goes to the channel that has requested it of `tasks.start`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct

from ..tasks.record import Status, TaskRecord

START: Final = "tasks.start"
GET: Final = "tasks.get"
RESULT: Final = "tasks.result"
CANCEL: Final = "tasks.cancel"
CHANGED: Final = "tasks.changed"
METHODS: Final = (START, GET, RESULT, CANCEL)
"""The methods of a service that has tasks."""

LONGEST_WAIT: Final = 20.0
"""Seconds that an answer of `tasks.get` or `tasks.result` waits at most: callers and proxies give up after 30 and
more."""

TaskId: TypeAlias = Annotated[str, Meta(description="The id that tasks.start has returned.")]
Params: TypeAlias = Annotated[Raw, Meta(extra_json_schema={"type": ["array", "object"]})]
Wait: TypeAlias = Annotated[
    float, Meta(ge=0, description=f"The answer waits for so many seconds, {LONGEST_WAIT:g} at most.")
]


class TaskStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is. Times are Unix seconds by the clock of its store."""

    id: str
    """Its name, which nobody can guess."""
    method: str
    """The method that it calls."""
    status: Status
    """"working", until it ends as "completed", "failed" or "cancelled"."""
    message: str = ""
    """What is to be said about its state."""
    progress: Any = UNSET
    """The value that its function has reported last; UNSET: none."""
    created: float
    """When it was started."""
    updated: float
    """When its status or progress changed last."""
    until: float | None = None
    """When it may be deleted; while it works, that is put off. None: it is kept."""
    poll: float = 1.0
    """Seconds that a caller should let pass between two looks that do not wait."""

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in ("completed", "failed", "cancelled")


class TaskOutcome(TaskStatus, frozen=True, kw_only=True, omit_defaults=True):
    """How a task is, and what came of it once it has ended; one that was cancelled has neither result nor error."""

    result: Any = UNSET
    """The result of its call, if it is completed."""
    error: Any = UNSET
    """The error object of its call, if it failed."""


def status_of(record: TaskRecord) -> TaskStatus:
    """Return what callers are told of a task."""
    return TaskStatus(**_members(record))


def outcome_of(record: TaskRecord) -> TaskOutcome:
    """Return what callers are told of a task, with its result or error."""
    return TaskOutcome(
        **_members(record),
        result=UNSET if record.result is None else record.result,
        error=UNSET if record.error is None else record.error,
    )


def _members(record: TaskRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "method": record.method,
        "status": record.status,
        "message": record.message,
        "progress": UNSET if record.reported is None else record.reported,
        "created": record.created,
        "updated": record.updated,
        "until": record.until,
        "poll": record.poll,
    }
