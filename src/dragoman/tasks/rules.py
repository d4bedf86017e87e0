"""How a task changes. Pure: each function returns the new record, or None where nothing changes.

The functions are edits of `TaskStore.change`, which calls none of them for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, structs

from ..jsonrpc.errors import INTERNAL_ERROR, LocalError
from .record import NOBODY, Status, TaskRecord

MESSAGE: Final = 1_000
"""Characters of a task's message at most."""


def progressed(record: TaskRecord, now: float, value: float, total: float | None, message: str | None) -> TaskRecord:
    """Note how far its function is. `message`: None leaves that of before."""
    said = record.message if message is None else message[:MESSAGE]
    return structs.replace(record, updated=now, progress=value, total=total, message=said)


def reported(record: TaskRecord, now: float, value: Raw) -> TaskRecord:
    """Note how far its function is, by any JSON value."""
    return structs.replace(record, updated=now, reported=value)


def asked(record: TaskRecord, now: float, questions: Mapping[str, Raw], message: str) -> TaskRecord:
    """Add questions that its function waits for."""
    return structs.replace(
        record,
        updated=now,
        status="input_required",
        message=message[:MESSAGE],
        questions={**record.questions, **questions},
    )


def answered(record: TaskRecord, now: float, answers: Mapping[str, Raw]) -> TaskRecord | None:
    """Take answers to open questions; others are ignored (ext-tasks, "Task Update Requests")."""
    known = {key: answer for key, answer in answers.items() if key in record.questions}
    if not known:
        return None
    left = {key: question for key, question in record.questions.items() if key not in known}
    return structs.replace(_asking(record, now, left), answers={**record.answers, **known})


def dropped(record: TaskRecord, now: float, keys: frozenset[str]) -> TaskRecord | None:
    """Drop questions that its function does not wait for any more."""
    left = {key: question for key, question in record.questions.items() if key not in keys}
    if len(left) == len(record.questions):
        return None
    return _asking(record, now, left)


def _asking(record: TaskRecord, now: float, left: dict[str, Raw]) -> TaskRecord:
    """Leave it these questions, with its message; it works where there are none."""
    return structs.replace(
        record,
        updated=now,
        status="input_required" if left else "working",
        message=record.message if left else "",
        questions=left,
    )


def taken(record: TaskRecord, keys: frozenset[str]) -> TaskRecord | None:
    """Drop answers that its runner has taken."""
    left = {key: answer for key, answer in record.answers.items() if key not in keys}
    return None if len(left) == len(record.answers) else structs.replace(record, answers=left)


def completed(record: TaskRecord, now: float, result: Raw) -> TaskRecord:
    """End it with the result of its request."""
    return _ended(record, now, "completed", "", result=result)


def failed(record: TaskRecord, now: float, error: Raw, message: str) -> TaskRecord:
    """End it with the error of its request."""
    return _ended(record, now, "failed", message, error=error)


def overdue(record: TaskRecord, now: float) -> TaskRecord:
    """End it because it still runs when it may be deleted."""
    message = f"it had not ended {record.keep:g} s after it was created, for which it was to be kept"
    return failed(record, now, Raw(msgspec.json.encode({"code": INTERNAL_ERROR, "message": message})), message)


def cancelled(record: TaskRecord, now: float, message: str) -> TaskRecord:
    """End it without a result."""
    return _ended(record, now, "cancelled", message)


def _ended(
    record: TaskRecord, now: float, status: Status, message: str, result: Raw | None = None, error: Raw | None = None
) -> TaskRecord:
    """End it. Its arguments are not needed any more."""
    return structs.replace(
        record,
        updated=now,
        status=status,
        message=message[:MESSAGE],
        questions={},
        answers={},
        params=Raw(b"{}"),
        caller=NOBODY,
        result=result,
        error=error,
        runner="",
        cancelling=False,
    )


def kept_until(record: TaskRecord, until: float) -> TaskRecord:
    """Keep it until then, a Unix time, unless it is kept for ever."""
    return record if record.keep is None else structs.replace(record, keep=max(until - record.created, 0.0))


def cancel_requested(record: TaskRecord) -> TaskRecord | None:
    """Note that it is to be cancelled."""
    return None if record.cancelling else structs.replace(record, cancelling=True)


def check_same(record: TaskRecord, made: TaskRecord) -> None:
    """Raise LocalError for an edit that makes another task of it."""
    if (made.id, made.owner, made.server) != (record.id, record.owner, record.server):
        raise LocalError("a task keeps its id, owner and server")


def claimed(record: TaskRecord, runner: str) -> TaskRecord:
    """Give it to another runner."""
    return structs.replace(record, runner=runner)


def handed_over(record: TaskRecord) -> TaskRecord:
    """Let it wait for another runner."""
    return structs.replace(record, runner="")


def not_begun(record: TaskRecord) -> TaskRecord:
    """Let it wait for a runner once more: `begun_again` has counted a run that did not begin."""
    return structs.replace(record, runner="", runs=max(record.runs - 1, 1))


def begun_again(record: TaskRecord, now: float, *, lost: bool) -> TaskRecord:
    """Let its function begin again: questions of the last run are not asked any more. `lost`: its process was lost; it
    was handed over otherwise, which does not count."""
    return structs.replace(
        record,
        updated=now,
        status="working",
        message="its process was lost, and it was begun again" if lost else "it was handed over, and begun again",
        questions={},
        answers={},
        progress=None,
        total=None,
        reported=None,
        runs=record.runs + lost,
    )
