"""How a task changes. Pure: each function returns the new record, or None where nothing changes.

The functions are edits of `TaskStore.change`, which calls none of them for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, structs

from .record import TaskRecord

MESSAGE: int = 1_000
"""Characters of a task's message at most."""


def progressed(record: TaskRecord, now: float, value: float, total: float | None, message: str | None) -> TaskRecord:
    """Note how far its function is. `message`: None leaves that of before."""
    said = record.message if message is None else message[:MESSAGE]
    return structs.replace(record, updated=now, progress=value, total=total, message=said)


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
    return structs.replace(
        record,
        updated=now,
        status="input_required" if left else "working",
        message=record.message if left else "",
        questions=left,
        answers={**record.answers, **known},
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


def cancelled(record: TaskRecord, now: float, message: str) -> TaskRecord:
    """End it without a result."""
    return _ended(record, now, "cancelled", message)


def _ended(
    record: TaskRecord, now: float, status: str, message: str, result: Raw | None = None, error: Raw | None = None
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
        caller=Raw(b"null"),
        result=result,
        error=error,
        runner="",
        cancelling=False,
    )


def cancel_requested(record: TaskRecord) -> TaskRecord | None:
    """Note that it is to be cancelled."""
    return None if record.cancelling else structs.replace(record, cancelling=True)


def begun_again(record: TaskRecord, now: float) -> TaskRecord:
    """Let its function begin again: questions of the lost run are not asked any more."""
    return structs.replace(
        record,
        updated=now,
        status="working",
        message="its process was lost, and it was begun again",
        questions={},
        answers={},
        progress=None,
        total=None,
        runs=record.runs + 1,
    )
