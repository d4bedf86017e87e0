"""What is sent of tasks, in both generations. Pure.

- 2026-07-28: the extension `io.modelcontextprotocol/tasks` (ext-tasks, SEP-2663): the server alone decides that a call
  becomes a task, for clients that have declared the extension. `tasks/get`, `tasks/update`, `tasks/cancel`, and
  notifications on `subscriptions/listen`.
- 2025-11-25: tasks as that revision has them (basic/utilities/tasks, experimental): a call has the member `task`.
  `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`; of the two directions of that revision, calls of tools.

A failed tool (`isError`) is a completed task in the former, a failed one in the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ....tasks.policy import OPTION
from ....tasks.record import TaskRecord
from ....tasks.rules import MESSAGE
from ...protocol.admission import Admitted
from ...protocol.encoding import decode
from ...protocol.extension import Extension, ResultType, StatefulForm, Topic
from ...protocol.methods import Row
from ...protocol.revisions import NEWEST, R2025_11, Revision
from ...protocol.times import to_iso

NAME: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
"""The member of `_meta` that names the task of a message, in 2025-11-25."""
IMMEDIATE: Final = "io.modelcontextprotocol/model-immediate-response"
"""The member of `_meta` with what the model may be told at once, in 2025-11-25."""
PROGRESS: Final = "dragoman/progress"
"""The member of `_meta` of a task's state with its progress as numbers, `{"progress": 1, "total": 4}`: neither revision
has a member for it, and a person wants to see how far a task is."""
TOPIC: Final = "task"
STATUS: Final = "task-status"
"""The topics: notifications of 2026-07-28, and of sessions of 2025-11-25."""


class TaskParams(Struct, frozen=True, rename="camel"):
    """The params of `tasks/get`, `tasks/cancel` and `tasks/result`."""

    task_id: str


class TaskUpdateParams(Struct, frozen=True, rename="camel"):
    """The params of `tasks/update`."""

    task_id: str
    input_responses: dict[str, Raw]


class TaskListParams(Struct, frozen=True):
    """The params of `tasks/list`."""

    cursor: str | UnsetType = UNSET


class TaskState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task as a revision shows it. `ttl` and `poll_interval` are the names of 2025-11-25, in milliseconds as
    `ttl_ms` and `poll_interval_ms` are. Without members it is the empty answer to a request of 2026-07-28."""

    task_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    status_message: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    last_updated_at: str | UnsetType = UNSET
    ttl: int | UnsetType | None = UNSET
    poll_interval: int | UnsetType = UNSET
    ttl_ms: int | UnsetType | None = UNSET
    poll_interval_ms: int | UnsetType = UNSET
    input_requests: dict[str, Raw] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class CreatedTask(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a call that became a task ("CreateTaskResult")."""

    task_id: str
    status: str
    status_message: str | UnsetType = UNSET
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | UnsetType = UNSET


class CreatedTaskBefore(Struct, frozen=True):
    """`CreatedTask` in 2025-11-25."""

    task: TaskState
    meta: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TaskList(Struct, frozen=True, rename="camel"):
    """The result of `tasks/list`."""

    tasks: list[TaskState]
    next_cursor: str | UnsetType = UNSET


class TaskRequest(Struct, frozen=True):
    """The member `task` of a call in 2025-11-25. `ttl`: milliseconds."""

    ttl: float | UnsetType | None = UNSET


class _Augmented(Struct):
    task: TaskRequest | UnsetType | None = UNSET


class _Block(Struct):
    text: str = ""


class _ToolResult(Struct, rename="camel"):
    is_error: bool | UnsetType | None = UNSET
    content: list[_Block] = []


def requested_task(admitted: Admitted) -> TaskRequest | None:
    """Return the member `task` of a call of 2025-11-25; None without one, and in any other revision, which ignores
    it."""
    if admitted.revision is not R2025_11 or isinstance(admitted.raw, UnsetType):
        return None
    try:
        found = decode(admitted.raw, _Augmented).task
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TaskRequest()
    return found if isinstance(found, TaskRequest) else None


def takes_tasks(admitted: Admitted) -> bool:
    """Return whether the client of a call takes a task in place of its result."""
    if admitted.revision is R2025_11:
        return requested_task(admitted) is not None
    return not admitted.revision.stateful and admitted.has_declared(NAME)


def _before(one: CreatedTask) -> CreatedTaskBefore:
    """Return the result of a call that became a task, as 2025-11-25 has it."""
    state = TaskState(
        task_id=one.task_id,
        status=one.status,
        status_message=one.status_message,
        created_at=one.created_at,
        last_updated_at=one.last_updated_at,
        ttl=one.ttl_ms,
        poll_interval=one.poll_interval_ms,
    )
    told = f"The tool goes on as the task {one.task_id}. Its result is not there yet."
    # "All [...] responses related to a task MUST include" it (2025-11-25, Associating Task-Related Messages)
    return CreatedTaskBefore(state, {IMMEDIATE: told, RELATED: {"taskId": one.task_id}})


def _capabilities(revision: Revision) -> Mapping[str, Any]:
    if revision is not R2025_11:
        return {}
    return {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


TASKS: Final = Extension(
    name=NAME,
    capabilities=_capabilities,
    methods=(
        Row("tasks/get", TaskParams, TaskState, since=R2025_11, named="taskId"),
        Row("tasks/update", TaskUpdateParams, TaskState, since=NEWEST, named="taskId"),
        Row("tasks/cancel", TaskParams, TaskState, since=R2025_11, named="taskId"),
        Row("tasks/result", TaskParams, TaskState, since=R2025_11, until=R2025_11),
        Row("tasks/list", TaskListParams, TaskList, since=R2025_11, until=R2025_11),
    ),
    results={
        "task": ResultType(
            type=CreatedTask,
            stateful=StatefulForm(
                type=CreatedTaskBefore,
                member="task",
                convert=_before,
                for_call=takes_tasks,
                since=R2025_11,
                until=R2025_11,
            ),
        )
    },
    topics=(
        Topic(name=TOPIC, method="notifications/tasks", member="taskIds"),
        Topic(name=STATUS, method="notifications/tasks/status", member="taskStatus", sessions=True),
    ),
    options={"tool": {"task": OPTION}},
)
"""The declaration for both ends."""


def created(record: TaskRecord) -> CreatedTask:
    """Return the result of a call that became this task."""
    return CreatedTask(
        task_id=record.id,
        status=record.status,
        status_message=record.message or UNSET,
        created_at=to_iso(record.created),
        last_updated_at=to_iso(record.updated),
        ttl_ms=_milliseconds(record.keep),
        poll_interval_ms=int(record.poll * 1000),
    )


def state_of(record: TaskRecord, revision: Revision) -> TaskState:
    """Return a task as this revision shows it."""
    shown: dict[str, Any] = {
        "task_id": record.id,
        "status": record.status,
        "status_message": record.message or UNSET,
        "created_at": to_iso(record.created),
        "last_updated_at": to_iso(record.updated),
    }
    if record.progress is not None:
        far = {"progress": record.progress} | ({} if record.total is None else {"total": record.total})
        shown["meta"] = {PROGRESS: far}
    if revision.stateful:
        if (why := failure_of(record)) is not None:
            shown |= {"status": "failed", "status_message": why}
        return TaskState(**shown, ttl=_milliseconds(record.keep), poll_interval=int(record.poll * 1000))
    return TaskState(
        **shown,
        ttl_ms=_milliseconds(record.keep),
        poll_interval_ms=int(record.poll * 1000),
        input_requests=record.questions if record.status == "input_required" else UNSET,
        result=UNSET if record.result is None else record.result,
        error=UNSET if record.error is None else record.error,
    )


def failure_of(record: TaskRecord) -> str | None:
    """Return what is said of a completed task whose tool failed (`isError`); None for any other task."""
    if record.result is None or b'"isError"' not in bytes(record.result):
        return None
    result = decode(record.result, _ToolResult)
    if result.is_error is not True:
        return None
    return next((one.text[:MESSAGE] for one in result.content if one.text), "the tool failed")


def with_related(text: Raw, id: str) -> Raw:
    """Return the JSON text of a result or of params with the task that it belongs to in its `_meta`."""
    members = decode(text, dict[str, Raw])
    meta = decode(members.get("_meta", Raw(b"{}")), dict[str, Raw])
    meta[RELATED] = Raw(msgspec.json.encode({"taskId": id}))
    return Raw(msgspec.json.encode(members | {"_meta": Raw(msgspec.json.encode(meta))}))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
