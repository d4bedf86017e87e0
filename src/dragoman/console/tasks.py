"""The tasks of what is served: calls that go on beyond their requests, whoever began them.

Rules:

- A task of a caller without a name belongs to whoever knows its id. So the console names tasks otherwise, by a digest:
  who may only look here can do nothing with them elsewhere. An order is taken for a task that was listed before.
- Texts are masked as those of messages are (`messages`), and cut. Arguments are shown only where messages are.
- A question is not masked, since somebody is to answer it, and members of its form may be named like secrets. So it is
  for those who may answer.
- Each cancellation and each answer is a line of the log "dragoman.audit".
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from ..jsonrpc.errors import RpcError
from ..jsonrpc.limits import KIB
from ..rpc.tracing import SECRETS, masking
from ..store.contract import StoreLost
from ..tasks.contract import TaskBoard, TasksFull
from ..tasks.record import Status, TaskRecord
from .board import LONGEST, NOT_KILLED, log_act
from .boards import boards_of, reaching, warn_away
from .messages import CALLED, WHOLE
from .recorder import is_tool_error
from .rows import TaskDetail, TaskRow, TaskRows
from .views import mask, merge_tasks

T = TypeVar("T")

ROWS: Final = 200
"""Tasks in one answer at most."""
NAMED: Final = 10_000
"""Tasks that may be named in an order: those that were listed last. More are forgotten; whoever looks again names
them."""
MESSAGE: Final = 300
"""Characters of a task's message in a list."""
QUESTION: Final = 64 * KIB
"""Bytes of a question; a larger one is not shown, and answered at the client alone."""
QUESTIONS: Final = 20
"""Questions of one task that are shown."""
NO_ARGUMENTS: Final = frozenset({b"{}", b"null", b""})
_DIGEST: Final = 24
_SHORT: Final = 6
"""Characters of a task's id by which logs name it."""


class _Caller(msgspec.Struct):
    subject: str = ""


_caller = msgspec.json.Decoder(_Caller | None).decode


class OperatedTasks:
    """The tasks of what is served in this process. `served`: what that is now, by path; `arguments`: whether they are
    shown."""

    def __init__(self, served: Callable[[], Mapping[str, object]], *, arguments: bool) -> None:
        self._served = served
        self._arguments = arguments
        self._text = masking(SECRETS, whole=WHOLE)
        self._ids: OrderedDict[str, str] = OrderedDict()
        """The ids of tasks that were listed, by the names that the console gives them."""

    def _boards(self) -> Iterable[TaskBoard]:
        boards = (one for one in boards_of(self._served()) if isinstance(one, TaskBoard))
        return {(one.server, one.runner): one for one in boards}.values()

    async def list_recent(self, status: Status | None, before: float | None, limit: int) -> TaskRows | None:
        """Return tasks, the newest first; None where nothing that is served has any. `before`: only those that were
        created before this time."""
        pages: list[TaskRows] = []
        for board in self._boards():
            try:
                found = await board.list_recent(status, before, min(limit, ROWS))
            except StoreLost as error:
                pages.append(TaskRows(tasks=[], away=[warn_away("tasks", board.server, error)]))
                continue
            rows = [self._row(one, board, MESSAGE) for one in found.records]
            pages.append(TaskRows(tasks=rows, before=found.before))
        return merge_tasks(pages, min(limit, ROWS)) if pages else None

    async def find(self, id: str) -> TaskDetail | None:
        """Return a task that was listed; None where there is none. RpcError if it cannot be read now."""
        found = await self._find(id)
        if found is None:
            return None
        board, record = found
        questions: dict[str, Raw] = {}
        for key, question in record.questions.items():
            if len(bytes(question)) <= QUESTION and len(questions) < QUESTIONS:
                questions[key] = _one_line(question)
        arguments = _arguments(record)
        shown = self._arguments and arguments not in NO_ARGUMENTS
        return TaskDetail(
            **asdict(self._row(record, board, None)),
            questions=questions,
            arguments=self._text(arguments) if shown else "",
            result="" if record.result is None else self._text(bytes(record.result)),
            error="" if record.error is None else self._text(bytes(record.error)),
        )

    async def cancel(self, id: str, by: str) -> None:
        """Request the cancellation of a task that was listed. `by`: who does it, for the log. RpcError if there is
        none, it has ended, or its store is away."""
        board, record = await self._demand(id)
        if record.ended:
            raise RpcError.of(NOT_KILLED, f"task {record.id[:_SHORT]} is {record.status} already")
        await _do(board.cancel(record.id), board)
        log_act("cancelled", by, _about(record))

    async def answer(self, id: str, answers: Mapping[str, Any], by: str) -> None:
        """Answer questions of a task that was listed. `by` and the error as for `cancel`; RpcError also if no such
        question waits."""
        board, record = await self._demand(id)
        if not answers or not answers.keys() <= record.questions.keys():
            raise RpcError.of(
                NOT_KILLED, f"task {record.id[:_SHORT]} has no such question that waits; somebody may have answered it"
            )
        given = {key: Raw(msgspec.json.encode(one)) for key, one in answers.items()}
        await _do(board.answer(record.id, given), board)
        log_act("answered", by, _about(record))

    async def _demand(self, id: str) -> tuple[TaskBoard, TaskRecord]:
        found = await self._find(id)
        if found is None:
            raise no_task(id)
        return found

    async def _find(self, id: str) -> tuple[TaskBoard, TaskRecord] | None:
        known = self._ids.get(id)
        if known is None:
            return None
        lost: RpcError | None = None
        for board in self._boards():
            try:
                record = await _do(board.find(known), board)
            except RpcError as error:
                lost = error
            else:
                if record is not None:
                    return board, record
        if lost is not None:
            raise lost
        return None

    def _row(self, one: TaskRecord, board: TaskBoard, most: int | None) -> TaskRow:
        name = hashlib.sha256(one.id.encode()).hexdigest()[:_DIGEST]
        self._ids[name] = one.id
        self._ids.move_to_end(name)
        if len(self._ids) > NAMED:
            self._ids.popitem(last=False)
        message = mask(one.message)
        return TaskRow(
            id=name,
            task=one.id[:_SHORT],
            service=one.server[:LONGEST],
            method=one.method[:LONGEST],
            target=one.name[:LONGEST],
            principal=_principal(one.caller),
            status=one.status,
            tool_error=one.method == CALLED and one.result is not None and is_tool_error(bytes(one.result)),
            message=message if most is None or len(message) <= most else f"{message[:most]}...",
            created=one.created,
            updated=one.updated,
            until=one.until,
            progress=one.progress,
            total=one.total,
            questions_open=len(one.questions),
            runs=one.runs,
            runner=one.runner[:LONGEST],
            here=one.runner == board.runner,
            cancelling=one.cancelling,
        )


def _principal(caller: Raw) -> str:
    """Return the subject of a caller's identity; "" without one."""
    try:
        found = _caller(caller)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    return "" if found is None else found.subject[:LONGEST]


def _arguments(record: TaskRecord) -> bytes:
    """Return the params of a task as JSON text; those of an MCP tool without what the server keeps of its client."""
    if record.method != CALLED:
        return bytes(record.params)
    members = msgspec.json.decode(bytes(record.params), type=dict[str, Raw])
    members.pop("_meta", None)
    return msgspec.json.encode(members)


def _one_line(question: Raw) -> Raw:
    """Return a question as JSON text of one line: it passes the control pipe of a worker."""
    return Raw(msgspec.json.format(bytes(question), indent=-1))


async def _do(work: Awaitable[T], board: TaskBoard) -> T:
    """Return what a board does. RpcError where its store is away or full."""
    try:
        with reaching("tasks", board.server):
            return await work
    except TasksFull as error:
        raise RpcError.of(NOT_KILLED, f"{error}") from error


def _about(record: TaskRecord) -> dict[str, str]:
    return {
        "task": record.id[:_SHORT],
        "service": record.server[:LONGEST],
        "method": record.method[:LONGEST],
        "target": record.name[:LONGEST],
    }


def no_task(id: str) -> RpcError:
    """The error for a task that is not known."""
    return RpcError.of(NOT_KILLED, f"no task {id[:LONGEST]} was listed, or it is kept no more")
