"""Tasks for a client: `call_tool` waits for the end of a task as for any result, or a handle is used.

Both generations look alike. In 2026-07-28 the server alone decides whether a call becomes a task; in 2025-11-25 the
client requests it for the tools that allow or require it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

from msgspec import UNSET, Raw, Struct

from ....jsonrpc.errors import BadAnswer, CallTimeout, LocalError
from ....jsonrpc.options import SECONDS, Rule, check
from ...client.extending import ClientExtension, ExtensionFunction, OutgoingCall, PendingResult
from ...client.extension_client import ExtensionClient
from ...protocol.encoding import encode
from ...protocol.params import CallToolResult, ProgressNotificationParams
from ...protocol.revisions import NEWEST, R2025_11
from .following import Pushes, RemoteTask, TaskStatus, status_of
from .model import TASKS, CreatedTask, CreatedTaskBefore, TaskList, TaskState

if TYPE_CHECKING:
    from ...client.options import OnProgress, VersionedOptions
else:
    OnProgress = VersionedOptions = Any  # start-up: annotations resolve at run time, to no more than this

T = TypeVar("T")

CALL: Final = "tools/call"
LONGEST: Final = 24 * 3600.0
"""Seconds for which `call_tool` waits for a task without a `total`: a server could let it work for ever."""
LISTED: Final = 1_000
"""Tasks that `list` returns at most."""
_OPTIONS: Final = {"ttl": Rule(lambda value: SECONDS.fits(value) and 1 <= value <= 10**9, "1 to 1e9 seconds")}
_starting: ContextVar[str | None] = ContextVar("dragoman.task_start", default=None)
"""The tool whose call is to return a handle; None: there is none. Functions that answer questions of that call may call
other tools, which are waited for."""


class _Started(Exception):
    """Ends a call that has become a task, for which a handle is wanted."""

    def __init__(self, task: RemoteTask) -> None:
        self.task = task


class TasksClient(ClientExtension):
    """Tasks for a client: `Client(url, extensions=[TasksClient()])`.

    `await client.call_tool(...)` waits for the end of a task: it answers the task's questions, reports its progress,
    raises the error with which it ended, and cancels it when the waiting is cancelled or its `total` is over. `start`
    returns a handle at once, `task` one for the id of a task that was begun before.

    `ttl`: seconds from its creation for which a task is to be kept, which a client requests in 2025-11-25; the server
    decides.
    """

    declares = TASKS

    def __init__(self, *, ttl: float = LONGEST) -> None:
        check("TasksClient", _OPTIONS, {"ttl": ttl})
        self._ttl = int(ttl * 1000)
        self._pushes = Pushes()

    # -- for the user

    async def start(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[VersionedOptions]
    ) -> TaskHandle:
        """Call a tool, and return a handle as soon as the call has become a task. A tool that answers at once, or is no
        task at this server, has ended then: its handle has no `id`. `options`: those of `Client.call_tool`, but for
        `result`; its functions also answer the questions of the task. Raises what `Client.call_tool` raises.
        """
        if "result" in options:
            raise LocalError("start: the result comes later, `await handle.result(result=...)`")
        token = _starting.set(name)
        try:
            found = await self.client.call_tool(name, arguments, **options)
        except _Started as started:
            return TaskHandle(started.task, name)
        finally:
            _starting.reset(token)
        return TaskHandle(None, name, Raw(encode(found, NEWEST)), self.client)

    def task(self, id: str) -> TaskHandle:
        """Return a handle for the id of a task that was begun before, by this client or another one of the same user.
        Nothing is sent. Raises LocalError for what is no id."""
        return TaskHandle(RemoteTask(self.client, self._pushes, id))

    async def list(self) -> list[TaskStatus]:
        """Return the tasks of this user, in 2025-11-25; of an anonymous one, those of this session. At most `LISTED`.

        Raises LocalError where the server has no `tasks/list`, BadAnswer for an answer that does not fit, and what
        `Client.request` raises."""
        client = self.client
        if client.revision is not R2025_11:
            raise LocalError(
                f"{client.revision.date} has no tasks/list: keep the ids of the tasks that you begin (handle.id), and "
                "find them by TasksClient.task(id)"
            )
        if not _can(client, "list"):
            raise LocalError("the server has no tasks/list: it does not declare tasks.list")
        found: list[TaskStatus] = []
        cursor: Any = UNSET
        seen: set[str] = set()
        while True:
            params = {} if cursor is UNSET else {"cursor": cursor}
            page: TaskList = await client.request("tasks/list", params)
            found += [status_of(one, _id_of(one), "tasks/list") for one in page.tasks]
            cursor = page.next_cursor
            if cursor is UNSET or cursor is None or len(found) >= LISTED:
                return found[:LISTED]
            if cursor in seen or not page.tasks:
                raise BadAnswer("tasks/list: the pages have no end")
            seen.add(cursor)

    # -- for the client

    @property
    def heard(self) -> Mapping[str, ExtensionFunction]:
        """The notifications with the states of tasks, of both generations."""
        return {"notifications/tasks": self._pushes.take, "notifications/tasks/status": self._pushes.take}

    def needs_tool(self, call: OutgoingCall) -> bool:
        """Return whether the server's list decides if a call becomes a task."""
        return call.revision is R2025_11 and call.method == CALL and _calls(call.capabilities.tasks)

    def prepare(self, call: OutgoingCall) -> Mapping[str, Any]:
        """Request a task in 2025-11-25 for a tool that allows or requires it."""
        if call.tool is None or not self.needs_tool(call) or call.tool.execution is UNSET:
            return {}  # "clients MUST NOT attempt to invoke the tool as a task" (basic/utilities/tasks)
        wanted = call.tool.execution.task_support in ("optional", "required")
        return {"task": {"ttl": self._ttl}} if wanted else {}

    async def settle(self, pending: PendingResult) -> Raw:
        """Return the result of a task once it has ended; cancel the task if the waiting ends before."""
        if pending.method != CALL:
            raise BadAnswer(f"{pending.method}: the server answers with a task, which only {CALL} may become")
        state = _created(pending.result)
        id = _id_of(state)
        task = RemoteTask(pending.client, self._pushes, id, state)
        status_of(state, id, CALL)
        if pending.name is not None and _starting.get() == pending.name:
            raise _Started(task)
        # in 2025-11-25 progress comes under the token of the call
        told = None if task.stateful else pending.on_progress
        report = None if told is None else _reporter(id, told)
        try:
            async with asyncio.timeout(LONGEST if pending.total is None else None) as clock:
                return await task.result(report)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise CallTimeout(f"{CALL}: the task {id} had not ended after {LONGEST:g} s") from error
        finally:
            if not task.over and _may_cancel(pending.client):
                await task.give_up()


class TaskHandle:
    """A task at a server, as the client that began it, or knows its id, uses it. Made by `TasksClient.start` and
    `TasksClient.task`. What waits here and is cancelled does not cancel the task: `cancel` does."""

    def __init__(
        self,
        task: RemoteTask | None,
        name: str | None = None,
        ended: Raw | None = None,
        client: ExtensionClient | None = None,
    ) -> None:
        self._task, self._name, self._ended, self._client = task, name, ended, client

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id or 'that ended at once'}>"

    @property
    def id(self) -> str:
        """Its id, by which `TasksClient.task` finds it again; "" if the tool answered at once, so that there is no
        task."""
        return "" if self._task is None else self._task.id

    async def status(self) -> TaskStatus:
        """Return its state as it is now. Raises InvalidParams (-32602) if the server does not know it (any more),
        BadAnswer for an answer that does not fit, and what `Client.request` raises, as the other methods do."""
        if self._task is None:
            return self._at_once()
        return self._task.seen(await self._task.get())

    async def follow(self) -> AsyncIterator[TaskStatus]:
        """Yield its state, and each new one, up to that in which it has ended: pushed by the server where it does so,
        otherwise as often as the server allows looks. Questions are shown and not answered; in 2025-11-25 a server may
        send them to the client, whose functions answer then."""
        if self._task is None:
            yield self._at_once()
            return
        async for status in self._task.states():
            yield status

    @overload
    async def result(
        self, *, result: None = ..., total: float | None = ..., on_progress: OnProgress | None = ...
    ) -> CallToolResult: ...
    @overload
    async def result(
        self, *, result: type[T], total: float | None = ..., on_progress: OnProgress | None = ...
    ) -> T: ...
    async def result(
        self, *, result: Any = None, total: float | None = None, on_progress: OnProgress | None = None
    ) -> Any:
        """Wait for its result, and return it as `Client.call_tool` does; any number of times. Its questions are
        answered meanwhile, by the functions given to `start` or to the client. `total`: seconds to wait; the task goes
        on after that. `on_progress`: as for `Client.call_tool`.

        Raises the error with which it ended, CallTimeout when `total` is over, Declined if a question was declined
        here.
        """
        if self._task is None:
            assert self._ended is not None
            assert self._client is not None
            return self._client.tool_result(None, self._ended, result)
        report = None if on_progress is None else _reporter(self.id, on_progress)
        try:
            async with asyncio.timeout(total) as clock:
                found = await self._task.result(report)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise CallTimeout(f"the task {self.id} had not ended after {total:g} s") from error
        return self._task.client.tool_result(self._name, found, result)

    async def cancel(self) -> None:
        """Request its cancellation. The server decides whether it still can be cancelled; `follow` tells what becomes
        of it. Raises LocalError where the server cancels no tasks."""
        if self._task is None:
            return
        if not _may_cancel(self._task.client):
            raise LocalError("the server cancels no tasks: it does not declare tasks.cancel")
        await self._task.cancel()

    async def answer(self, answers: Mapping[str, Struct | Mapping[str, Any]]) -> None:
        """Answer questions of it (`status().questions`), by their keys, each as an `ElicitResult` or another answer of
        the protocol; some of them, or all. Answers to questions that nobody asks any more are ignored. Raises
        LocalError in 2025-11-25, in which the server asks the client that waits for `result`."""
        if self._task is None:
            return
        if self._task.stateful:
            raise LocalError(
                f"in {self._task.client.revision.date} a task asks the client that waits for its result: give "
                "on_elicit to Client(...) or to start(...), and await handle.result()"
            )
        await self._task.update(answers)

    def _at_once(self) -> TaskStatus:
        return TaskStatus(id="", status="completed")


def _created(result: Struct) -> TaskState:
    """Return the first state of a task that a server has created, in either generation."""
    if isinstance(result, CreatedTaskBefore):
        return result.task
    assert isinstance(result, CreatedTask)
    return TaskState(
        task_id=result.task_id,
        status=result.status,
        status_message=result.status_message,
        created_at=result.created_at,
        last_updated_at=result.last_updated_at,
        ttl_ms=result.ttl_ms,
        poll_interval_ms=result.poll_interval_ms,
    )


def _id_of(state: TaskState) -> str:
    """Return the id in a state that came. Raises BadAnswer if it has none."""
    if not isinstance(state.task_id, str) or not state.task_id:
        raise BadAnswer("the server answers with a task that has no id")
    return state.task_id


def _reporter(id: str, on_progress: Callable[[ProgressNotificationParams], object]) -> Callable[[TaskStatus], object]:
    """Return a function that reports the states of a task of 2026-07-28 as progress, which always grows: by the numbers
    that the server adds, else by the number of states."""
    last: tuple[Any, ...] = ()
    reached = 0.0

    def report(status: TaskStatus) -> None:
        nonlocal last, reached
        said = (status.progress, status.total, status.message)
        if said == last or status.ended or not (status.message or status.progress is not None):
            return
        last = said
        reached = max(reached, reached + 1 if status.progress is None else status.progress)
        on_progress(
            ProgressNotificationParams(
                progress_token=id,
                progress=reached,
                total=UNSET if status.total is None else status.total,
                message=status.message or UNSET,
            )
        )

    return report


def _calls(tasks: Any) -> bool:
    """Return whether a server of 2025-11-25 takes calls of tools as tasks."""
    requests = tasks.get("requests") if isinstance(tasks, dict) else None
    tools = requests.get("tools") if isinstance(requests, dict) else None
    return isinstance(tools, dict) and isinstance(tools.get("call"), dict)


def _can(client: ExtensionClient, what: str) -> bool:
    tasks = client.capabilities.tasks
    return isinstance(tasks, dict) and isinstance(tasks.get(what), dict)


def _may_cancel(client: ExtensionClient) -> bool:
    """Return whether the server cancels tasks: in 2025-11-25 only one that declares it."""
    return client.revision is not R2025_11 or _can(client, "cancel")
