"""Tasks for a server: which calls become tasks, and what their clients get.

Every client gets the best that it can take. One that knows tasks, of 2026-07-28's extension or of 2025-11-25, gets a
task. Any other one gets the tool's result if it is there in time, else a handle: a result that says what to do next,
for the helper tools. Both are the same call, which goes on in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from ....channel import Caller
from ....jsonrpc.errors import CallRefused, InvalidParams, LocalError, MethodNotFound, Refusal, RpcError
from ....kept_identity import keep_identity, restore_identity
from ....repeats import Repeats
from ....rpc.binding.results import to_json
from ....rpc.middleware import Call, Next
from ....secret import read_secrets
from ....store.contract import StoreLost
from ....tasks import rules
from ....tasks.board import RunnerBoard
from ....tasks.contract import TaskLimits, TaskStore
from ....tasks.opening import open_tasks
from ....tasks.policy import LEAST_KEPT, TaskPolicy, policy_of
from ....tasks.record import TaskRecord
from ....tasks.runner import SELDOM, TaskRunner, error_object
from ...protocol.admission import Admitted
from ...protocol.encoding import decode
from ...protocol.methods import DEFINED_CODES, MISSING_CAPABILITY
from ...protocol.params import ProgressNotificationParams
from ...protocol.revisions import NEWEST, R2025_11, Revision
from ...protocol.types import CLIENT_CAPABILITIES, PROTOCOL_VERSION, ClientCapabilities
from ...server.context import Context
from ...server.extending.extension import Companion, ServerExtension, TopicGrant
from ...server.extending.home import ServerHome
from ...server.listing import Entry
from .access import TaskAccess, away, result_of
from .companions import HelperTools, handle, with_handle
from .model import (
    NAME,
    STATUS,
    TASKS,
    TOPIC,
    CreatedTask,
    TaskList,
    TaskListParams,
    TaskParams,
    TaskState,
    TaskUpdateParams,
    created,
    requested_task,
    state_of,
    takes_tasks,
    with_related,
)
from .policy import check_prefix
from .running import ToolCall, ToolTask

if TYPE_CHECKING:
    from ....rpc.detached import DetachedCall

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

RUN_AGAIN: Final = "dragoman/run-again"
"""The member of `_meta` by which this process knows a call that it makes for an orphan."""
FOLLOWED: Final = 100
"""Tasks that one subscription follows at most: what it is granted is looked up for each."""
LISTED: Final = 50
"""Tasks on one page of `tasks/list`."""
LAST_CALL: Final = 0.9
"""The part of a request's time-out after which it becomes a task at the latest."""
_ID: Final = 16
"""Random bytes of an id, in hexadecimal digits: nobody can guess one, it may be put into a header, and a shell takes it
for no option."""
_LEFT: Final = Refusal(
    "draining", "Draining: this server closes, and the task goes on without it: ask again", {"retry_after": 1}
)


class Tasks(ServerExtension):
    """Tasks for a server: `Server("lab", extensions=[Tasks()])`, `@app.tool(task=True)`.

    `store`: where they are kept, "sqlite:PATH", "memory:", "bus" (the store of the bus that replicas share), or a
    `TaskStore`; None: what `serve(tasks=...)` says, else memory. `keys`: secrets with which arguments, answers and
    results are encrypted in the store, the first seals and all open (None: the environment's DRAGOMAN_SECRET; (): they
    are not). `limits`: the bounds of the store. `prefix`: begins the names of the helper tools, which clients without
    tasks use: `task_status`, `task_result`, `task_cancel`.
    """

    declares = TASKS
    options_only = True

    def __init__(
        self,
        store: str | TaskStore | None = None,
        *,
        keys: Sequence[str | bytes] | str | None = None,
        limits: TaskLimits | None = None,
        prefix: str = "task_",
    ) -> None:
        self._given = store
        self._keys = keys
        self._limits = TaskLimits() if limits is None else limits
        self._prefix = check_prefix(prefix)
        self.access: TaskAccess = TaskAccess()
        """Its tasks, as clients may reach them."""
        self._again: dict[str, TaskRecord] = {}
        """Orphans that are begun again, by the secret in the `_meta` of their calls."""
        self._helpers = HelperTools(self.access, self._prefix)

    # -- its entries

    def adapt(self, entry: Entry) -> Entry:
        """Return a tool whose output schema also allows a handle, if it has one. Raises LocalError for options that
        conflict."""
        if self._policy(entry) is None:
            return entry
        if entry.method.kind == "inline":
            raise LocalError(f"{entry.key}: an inline function ends with its request: leave out inline or task")
        if entry.method.timeout is not UNSET:
            raise LocalError(f"{entry.key}: the time-out of a task is that of its policy: TaskPolicy(timeout=...)")
        return with_handle(entry)

    def companions(self, entry: Entry) -> Sequence[Companion]:
        """Return the helper tools, if this is a tool whose calls may become tasks."""
        policy = self._policy(entry)
        return () if policy is None or policy.required else self._helpers.all

    def taken(self, name: str) -> str:
        """Return the text of the error for a tool of a user that is called like a helper tool."""
        return (
            f"there is a tool {name!r} for tasks: give another name to your own, or other names to those: "
            f'Tasks(prefix="my_task_")'
        )

    def listed(self, entry: Entry, revision: Revision) -> Mapping[str, Any]:
        """Return how a tool's calls may become tasks, in 2025-11-25."""
        policy = self._policy(entry)
        if policy is None or revision is not R2025_11:
            return {}
        return {"execution": {"taskSupport": "required" if policy.required else "optional"}}

    def check_call(self, entry: Entry, admitted: Admitted) -> None:
        """Refuse a call with `task` of a tool whose calls are no tasks, in 2025-11-25; later revisions ignore it."""
        if admitted.revision is R2025_11 and self._policy(entry) is None and requested_task(admitted) is not None:
            # "If `execution.taskSupport` is not present or "forbidden" [...] Servers SHOULD return a -32601 (Method not
            # found) error if a client attempts to do so" (basic/utilities/tasks, Tool-Level Negotiation)
            raise MethodNotFound(f"Method not found: {entry.key} is not called as a task: leave out the member `task`")

    @staticmethod
    def _policy(entry: Entry) -> TaskPolicy | None:
        return policy_of(entry.surroundings.extended.get("task")) if entry.kind == "tool" else None

    # -- its life

    @asynccontextmanager
    async def open(self, home: ServerHome) -> AsyncIterator[None]:
        """Open the store and run tasks while the server is served on this loop."""
        loop = asyncio.get_running_loop()
        if loop in self.access.runners:
            raise LocalError(f"{home.name}: these Tasks are another server's: give each server Tasks() of its own")
        store, own = await self._open_store(home), not isinstance(self._given, TaskStore)
        runner = TaskRunner(
            store, home.name, resume=self._run_again, changed=lambda record: self._push(home, record), bus=home.bus
        )
        try:
            await runner.open()
            self.access.runners[loop], self.access.homes[loop] = runner, home
            try:
                yield
            finally:
                del self.access.runners[loop], self.access.homes[loop]
                await runner.close()
        finally:
            if own:
                await store.close()

    async def _open_store(self, home: ServerHome) -> TaskStore:
        if isinstance(self._given, TaskStore):
            return self._given
        url = self._given or home.tasks_url or "memory:"
        # what is in memory is not at rest
        keys = [] if url == "memory:" or self._keys in ((), []) else read_secrets(self._keys, lasting=True)
        return open_tasks(url, self._limits, home.bus, keys)

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics: of the runners of this process."""
        found: dict[str, float] = {}
        for runner in tuple(self.access.runners.values()):
            for name, value in runner.measures().items():
                found[name] = found.get(name, 0) + value
        return found

    def boards(self) -> Sequence[RunnerBoard]:
        """Return the tasks on the running event loop, for the operator."""
        runner = self.access.runners.get(asyncio.get_running_loop())
        return () if runner is None else (RunnerBoard(runner, self.access.home.name),)

    # -- calls

    async def around(self, call: Call, next: Next) -> Any:
        """Run a call of a tool with tasks; return its result, or the task or handle that it became."""
        admitted: Admitted = call.params
        policy = policy_of(admitted.surroundings.extended.get("task"))
        if call.method != "tools/call" or policy is None:
            return await next(call)
        orphan = self._orphan(admitted)
        if orphan is not None:
            return await self._begin(call, next, policy, orphan)
        declared = takes_tasks(admitted)
        if policy.required and not declared:
            raise _required(admitted)
        if declared and policy.begin_after == 0:
            return await self._begin(call, next, policy, None)
        return await self._wait_then_hand_over(call, next, policy, declared)

    async def _begin(self, call: Call, next: Next, policy: TaskPolicy, orphan: TaskRecord | None) -> CreatedTask:
        """Begin a call that is a task from the beginning; nothing of it runs before its record is kept. `orphan`: the
        record that it has already."""
        runner, admitted = self.access.runner, call.params
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait_then_go(inner: Call) -> Any:
            await kept
            return await next(inner)

        id = secrets.token_hex(_ID) if orphan is None else orphan.id
        task = ToolTask(runner, id, policy, admitted.revision, _keep(admitted, policy), again=orphan is not None)
        detached = self._detach(call, wait_then_go, task, None)
        try:
            record = await self._create(call, task) if orphan is None else orphan
        except BaseException:
            detached.cancel()
            raise
        self._follow(call, task, detached, record)
        if not kept.done():  # it was ended meanwhile, by a drain or its time-out
            kept.set_result(None)
        return created(record)

    async def _wait_then_hand_over(self, call: Call, next: Next, policy: TaskPolicy, declared: bool) -> Any:
        """Run a call, and return its result if it is there in time, else the task or the handle that it becomes. Where
        too many calls go on beyond their requests, one of a client without tasks ends with its request."""
        admitted: Admitted = call.params
        task = ToolTask(self.access.runner, secrets.token_hex(_ID), policy, admitted.revision, _keep(admitted, policy))
        progress = _Progress(call, admitted)
        try:
            detached = self._detach(call, next, task, progress)
        except CallRefused as refused:
            if declared:
                raise
            repeats.warning("a call cannot go on beyond its request: %s", refused)
            return await next(call)
        ending = asyncio.ensure_future(_result(detached))
        ending.add_done_callback(_look_at)  # nobody may wait for it any more
        within = policy.begin_after if declared else policy.answer_within
        if (left := call.context.time_left) is not None:
            within = min(within, LAST_CALL * left)
        try:
            await asyncio.wait([ending], timeout=within)
            if not ending.done():
                try:
                    record = await self._create(call, task)
                except CallRefused as refused:  # it has begun, and a client that waits loses nothing
                    repeats.warning("a call goes on without a task: %s", refused)
                else:
                    progress.stop()
                    if declared:
                        self._tell_progress(call, task)
                    self._follow(call, task, detached, record)
                    return created(record) if declared else handle(record, self._prefix)
            return await ending
        except asyncio.CancelledError:
            if not task.kept:
                detached.cancel()
            raise
        finally:
            ending.cancel()

    def _detach(self, call: Call, next: Next, task: ToolTask, progress: _Progress | None) -> DetachedCall:
        """Let a call go on beyond its request. Raises CallRefused where too many do."""

        def report(value: float, total: float | None, message: str | None) -> None:
            task.report(value, total, message)
            if progress is not None:
                progress.report(value, total, message)

        if progress is None:
            self._tell_progress(call, task)
        return self.access.home.run_detached(
            call, next, asker=task, on_progress=report, timeout=task.policy.timeout, about=f"task {task.id[:6]}"
        )

    @staticmethod
    def _tell_progress(call: Call, task: ToolTask) -> None:
        """Send the progress of a task to the session that began it, if that has requested progress."""
        if call.params.session is not None and call.params.token is not None:
            task.tell_progress = partial(_report_to_session, call, task.id)

    async def _create(self, call: Call, task: ToolTask) -> TaskRecord:
        """Keep the record of a new task. Raises CallRefused where there is no room, or the store is away."""
        admitted, runner = call.params, self.access.runner
        try:
            now = await runner.store.now()
            record = TaskRecord(
                id=task.id,
                server=self.access.home.name,
                method=call.method,
                name=admitted.params.name,
                owner=self.access.owner(admitted.principal),
                created=now,
                updated=now,
                keep=task.keep,
                poll=task.policy.poll,
                answer_within=task.policy.answer_within,
                params=_again_params(admitted),
                caller=keep_identity(call.context.caller.identity),
                revision=admitted.revision.date,
                idempotent=task.policy.idempotent,
                runner=runner.name,
            )
            record = task.with_progress(record)
            await runner.create(record)
        except StoreLost as error:
            raise _not_kept(error) from error
        self.access.remember(call.context.peer, admitted.principal, record.id)
        return record

    def _follow(self, call: Call, task: ToolTask, detached: DetachedCall, record: TaskRecord) -> None:
        home = self.access.home
        self.access.runner.follow(task, ToolCall(detached), lambda error: home.error_of(call, error))
        self._push(home, record)

    # -- orphans

    def _orphan(self, admitted: Admitted) -> TaskRecord | None:
        """Return the orphan that a call begins again; None: it is an ordinary call."""
        if not self._again or isinstance(admitted.raw, UnsetType):
            return None
        mark = decode(admitted.raw, _Marked).meta.get(RUN_AGAIN)
        return None if mark is None else self._again.pop(bytes(mark).decode().strip('"'), None)

    async def _run_again(self, record: TaskRecord) -> None:
        """Begin an orphan again, by a call of this server. One that cannot be called fails."""
        mark = secrets.token_urlsafe()
        self._again[mark] = record
        home, runner = self.access.home, self.access.runner
        params = decode(record.params, dict[str, Raw])
        meta = decode(params.get("_meta", Raw(b"{}")), _KeptMeta)
        capabilities = structs.replace(meta.capabilities, extensions={NAME: {}})
        meta_again = {PROTOCOL_VERSION: NEWEST.date, CLIENT_CAPABILITIES: capabilities, RUN_AGAIN: mark}
        params["_meta"] = Raw(to_json(meta_again))
        caller = Caller(identity=restore_identity(record.caller))
        try:
            if record.revision != NEWEST.date:  # its result is written as of this call
                await runner.edit(record.id, lambda one: structs.replace(one, revision=NEWEST.date), True)
            await home.call(record.method, params, caller)
        except (RpcError, LocalError) as error:
            if isinstance(error, RpcError) and isinstance(error.data, dict) and "retry_after" in error.data:
                raise CallRefused(Refusal("busy", error.message)) from error
            now = await runner.store.now()
            fault = error_object("it could not be begun again")
            why = f"its process was lost, and it could not be begun again: {error}"
            await runner.edit(record.id, lambda one: rules.failed(one, now, fault, why), True)
        finally:
            self._again.pop(mark, None)

    # -- its methods

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of the methods of both generations."""
        return {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
            "tasks/result": self._result,
            "tasks/list": self._list,
        }

    async def _get(self, params: TaskParams, ctx: Context) -> TaskState:
        record = await self.access.find(params.task_id, ctx.caller)
        self.access.remember(ctx.rpc.peer, ctx.principal, record.id)
        if ctx.revision.stateful and record.status == "input_required":
            self.access.ask_session(ctx, record)
        return state_of(record, ctx.revision)

    async def _update(self, params: TaskUpdateParams, ctx: Context) -> TaskState:
        await self.access.find(params.task_id, ctx.caller)
        await self.access.answer(params.task_id, params.input_responses)
        return TaskState()

    async def _cancel(self, params: TaskParams, ctx: Context) -> TaskState:
        record = await self.access.find(params.task_id, ctx.caller)
        if not ctx.revision.stateful:  # "eventually": it is acknowledged at once
            await self.access.request_cancel(record.id)
            return TaskState()
        found = record if record.ended else await self.access.cancel(record.id)
        found = self.access.own(found, record.id, ctx.caller)
        if record.ended or found.status != "cancelled":  # it may have ended meanwhile
            raise InvalidParams(f"Cannot cancel the task: it is {state_of(found, ctx.revision).status} already")
        return state_of(found, ctx.revision)

    async def _result(self, params: TaskParams, ctx: Context) -> Raw:
        """Wait for the end of a task of 2025-11-25, and ask its questions meanwhile."""
        id = params.task_id
        await self.access.find(id, ctx.caller)
        with (
            self.access.waiting(id, ctx),
            self.access.waited(id),
            self.access.relaying(id, ctx, related=True) as relay,
        ):
            while True:
                record = await self.access.wait(id, ctx, SELDOM, lambda one: one.ended or relay.has_new(one))
                ctx.rpc.renew()
                if record.ended:
                    relay.end(id)
                    return with_related(result_of(record, ctx.revision), id)
                if self.access.is_left(record, ctx):
                    raise CallRefused(_LEFT)
                relay.ask(record)

    async def _list(self, params: TaskListParams, ctx: Context) -> TaskList:
        after = "" if params.cursor is UNSET else params.cursor
        store = self.access.runner.store
        try:
            if ctx.principal is None:
                return await self._list_known(after, ctx)
            owner = self.access.owner(ctx.principal)
            if after and ((last := await store.read(after)) is None or last.owner != owner):
                raise InvalidParams(f"Invalid cursor: {after[:64]!r} names no task")
            found = await store.list_tasks(owner, after, LISTED + 1)
        except StoreLost as error:
            raise away(error) from error
        shown = [state_of(one, ctx.revision) for one in self.access.shown(found[:LISTED], ctx.caller)]
        return TaskList(shown, found[LISTED - 1].id if len(found) > LISTED else UNSET)

    async def _list_known(self, after: str, ctx: Context) -> TaskList:
        """Return the tasks that an anonymous session knows, the newest first."""
        known = self.access.known(ctx.rpc.peer)
        if after and after not in known:
            raise InvalidParams(f"Invalid cursor: {after[:64]!r} names no task")
        left = known[known.index(after) + 1 :] if after else known
        records = [await self.access.runner.store.read(id) for id in left[:LISTED]]
        shown = [state_of(one, ctx.revision) for one in self.access.shown(records, ctx.caller)]
        return TaskList(shown, left[LISTED - 1] if len(left) > LISTED else UNSET)

    # -- notifications

    async def grant(self, topic: str, caller: Caller, value: Any) -> TopicGrant | None:
        """Return which tasks a subscriber may follow: its own, `FOLLOWED` at most; a session all of its account."""
        principal = caller.principal
        if topic == STATUS:
            return None if principal is None else TopicGrant(True, frozenset({self.access.owner(principal)}))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InvalidParams("Invalid params: `notifications.taskIds` is a list of the ids of tasks")
        if len(value) > FOLLOWED:
            raise InvalidParams(
                f"Invalid params: `notifications.taskIds` has {len(value)} ids, and {FOLLOWED} may be followed at once"
            )
        mine = []
        for id in value:
            try:
                mine.append((await self.access.find(id, caller)).id)
            except (InvalidParams, CallRefused):
                continue
        return TopicGrant(mine, frozenset(mine))

    def _push(self, home: ServerHome, record: TaskRecord) -> None:
        """Notify those who follow a task. One whose result is too large for a notification is found by looking."""
        try:
            home.notify(TOPIC, record.id, state_of(record, NEWEST))
            if record.owner:
                home.notify(STATUS, record.owner, state_of(record, R2025_11))
        except LocalError as error:
            logger.debug("a change of the task %s is not pushed: %s", record.id[:6], error)


class _Progress:
    """Sends the progress of a call to its client while that waits for the result."""

    def __init__(self, call: Call, admitted: Admitted) -> None:
        self._context: Context | None = Context(call.context, admitted)

    def report(self, value: float, total: float | None, message: str | None) -> None:
        """Send it, if the client has requested progress."""
        if self._context is not None:
            self._context.progress(value, total, message)

    def stop(self) -> None:
        """Send no more."""
        self._context = None


class _KeptMeta(msgspec.Struct):
    """What is kept of the `_meta` of a call."""

    capabilities: ClientCapabilities = msgspec.field(default_factory=ClientCapabilities, name=CLIENT_CAPABILITIES)


class _Marked(msgspec.Struct):
    meta: dict[str, Raw] = msgspec.field(default_factory=dict, name="_meta")


def _not_kept(error: StoreLost) -> CallRefused:
    repeats.warning("a task cannot be kept: %s", error)
    return CallRefused(Refusal("busy", "Busy: tasks cannot be kept now", {"retry_after": 1}))


def _look_at(ending: asyncio.Future[Any]) -> None:
    if not ending.cancelled():
        ending.exception()


async def _result(detached: DetachedCall) -> Any:
    return await detached.result


def _keep(admitted: Admitted, policy: TaskPolicy) -> float:
    """Return the seconds for which a task is kept after its end: as its client requests, up to those of its tool."""
    wanted = requested_task(admitted)
    if wanted is None or not isinstance(wanted.ttl, float):
        return policy.keep
    return min(policy.keep, max(wanted.ttl / 1000, LEAST_KEPT))


def _again_params(admitted: Admitted) -> Raw:
    """Return the params with which a call is made again: without what belongs to this request alone, but with what its
    client can be asked."""
    members = {} if isinstance(admitted.raw, UnsetType) else decode(admitted.raw, dict[str, Raw])
    left: dict[str, Any] = {name: value for name, value in members.items() if name in ("name", "arguments")}
    left["_meta"] = {CLIENT_CAPABILITIES: admitted.capabilities}
    return Raw(to_json(left))


def _required(admitted: Admitted) -> RpcError:
    """Return the error for a client that takes no tasks, of a tool that is only called as a task."""
    name = admitted.surroundings.name
    if admitted.revision.stateful:
        return MethodNotFound(f"Method not found: {name} is called as a task alone, with the member `task`")
    data = {"requiredCapabilities": ClientCapabilities(extensions={NAME: {}})}
    return RpcError.of(MISSING_CAPABILITY, f"{DEFINED_CODES[MISSING_CAPABILITY]}: extensions ({NAME})", data)


async def _report_to_session(call: Call, id: str, value: float, total: float | None, message: str | None) -> None:
    """Send the progress of a task to the session that began it: "The `progressToken` provided in the initial request
    remains valid throughout the task lifetime" (2025-11-25's basic/utilities/tasks)."""
    peer, admitted = call.context.peer, call.params
    if peer is None:
        return
    params = ProgressNotificationParams(
        progress_token=admitted.token,
        progress=value,
        total=UNSET if total is None else total,
        message=UNSET if message is None else message,
    )
    try:
        await peer.notify("notifications/progress", with_related(Raw(to_json(params)), id))
    except ConnectionError:
        logger.debug("the session of a task is gone")
