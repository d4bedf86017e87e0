"""The tasks of a service: calls that go on beyond their requests, connections and processes (docs/tasks.md).

Rules:

- `tasks.start` is routed as a call of the method that it names: who may call that may start it, the arguments are
  checked as there, and observers see that method. The method itself, with the middleware around it, runs detached.
- A task is kept before the answer that names it is sent. If that answer is not waited for any more, the task is
  cancelled, because nobody knows its id.
- A task of a caller with an identity belongs to that identity: any other caller's id is unknown. One of an anonymous
  caller belongs to whoever knows its id.
- What a method demands of its callers, it demands of those who look at its tasks, too.
- An answer that waits for a change is a call in flight. At most half of `limits.calls` wait so, in fair shares, and
  none while the server drains.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any, Final, Protocol
from weakref import ReferenceType, ref

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from ..allowance import Allowance, owner_of
from ..channel import Caller
from ..jsonrpc.codec import AnyAnswer, CallMessage, FailedAnswer, first_byte
from ..jsonrpc.errors import CallRefused, InvalidParams, LocalError, Refusal, RpcError
from ..jsonrpc.messages import Notification, Request
from ..kept_identity import keep_identity, restore_identity
from ..repeats import Repeats
from ..secret import read_secrets
from ..store.contract import StoreLost
from ..tasks import owners, rules
from ..tasks.board import RunnerBoard
from ..tasks.contract import TaskStore
from ..tasks.opening import open_tasks
from ..tasks.policy import TaskPolicy
from ..tasks.record import TaskRecord, is_id
from ..tasks.runner import RunningTask, TaskRunner, error_object
from ..tasks.settings import TaskSettings, settings_of
from .binding.binding import bind
from .binding.results import to_json
from .context import Context
from .detached import CANCELLED, DetachedCall, DetachedRun, detach
from .dispatch import MethodHost, arguments_of, read_loosely
from .inbound import InboundCall
from .lifespan import Lifespan
from .method import NO_CONTEXT, Method, living
from .middleware import Call, Next
from .runner import Runner, runner_of_loop
from .task_messages import (
    CANCEL,
    CHANGED,
    GET,
    LONGEST_WAIT,
    METHODS,
    RESULT,
    START,
    Params,
    TaskId,
    TaskOutcome,
    TaskStatus,
    Wait,
    outcome_of,
    status_of,
)

logger: logging.Logger = logging.getLogger("dragoman")
repeats: Repeats = Repeats(logger)

SPARE: Final = 16 * 1024
"""Bytes that the answer of `tasks.result` has beside the result, at most."""
AGAIN: Final = 0.5
"""Seconds until a task is begun again that found no room among the calls in flight."""
PATIENCE: Final = 2.0
"""Seconds for which work that was ended is waited for when the service is served no more."""
NO_PARAMS: Final = Raw(b"{}")
_ID: Final = 18
"""Random bytes of an id: nobody can guess one."""
_CLOSED: Final = Refusal("draining", "Draining: the server closed before the call was done")
_DRAINING: Final = Refusal("draining", "Draining: this server closes, and its tasks are known to others: ask again")
_AWAY: Final = Refusal("busy", "Busy: tasks cannot be kept or read now", {"retry_after": 1})


class TaskHost(MethodHost, Protocol):
    """The service that has the tasks."""

    _copies: Any
    _internal: dict[str, Method]
    _own_lifespan: Lifespan | None
    _registered: dict[str, Method]
    _runners: dict[asyncio.AbstractEventLoop, Runner]
    _says_tasks: bool
    _task_settings: TaskSettings | None
    _tasks: ServiceTasks | None
    _tasks_bus: Any
    _tasks_url: str | None

    def _find(self, name: str) -> Method | None: ...
    def _find_by_name(self, message: Any, caller: Caller, peer: Any) -> tuple[Method | None, Any]: ...
    def _handler(self, method: Method) -> Next: ...
    def _link(self, method: Method) -> None: ...
    def _make_lifespan(self) -> Lifespan: ...


class _Answered(Struct):
    """The members of an answer: as JSON text."""

    result: Raw = Raw(b"null")
    error: Raw = Raw(b"null")


class _Orphan(Struct, frozen=True):
    """The params of a `tasks.start` that this process makes for a task which it begins again. Those of a caller are
    JSON text."""

    record: TaskRecord

    def __len__(self) -> int:
        """Return the bytes of the params of the method, which count among the calls in flight."""
        return len(self.record.params)


class _Start(Struct, frozen=True):
    """A `tasks.start` that was read."""

    method: Method
    policy: TaskPolicy
    notify: bool
    orphan: TaskRecord | None


class _Here(Struct, eq=False):
    """The tasks on one event loop."""

    runner: TaskRunner
    runs: set[DetachedRun] = msgspec.field(default_factory=set)
    """The calls of its tasks."""
    waits: Allowance | None = None
    """The answers that wait."""


class MethodTask(RunningTask):
    """A task of a method. `peer`: gets its changes; None: nobody does."""

    def __init__(self, runner: TaskRunner, id: str, start: _Start, peer: Any) -> None:
        policy = start.policy
        self._until_begun: bool = not policy.idempotent and start.method.concurrency is not None
        """Whether it may be run again only as long as it waits for a slot of its method."""
        idempotent = policy.idempotent or self._until_begun
        super().__init__(runner, id, keep=policy.keep, patience=policy.patience, idempotent=idempotent)
        self._peer: ReferenceType[Any] | None = None if peer is None else ref(peer)

    async def begin(self) -> None:
        """Note that its function begins, before it does. Raises CallRefused if it must not."""
        if not self._until_begun:
            return
        try:
            record = await self.runner.edit(self.id, lambda one: replace(one, idempotent=False), True)
        except StoreLost as error:
            raise _away(error) from error
        if record is None or record.ended or record.runner != self.runner.name:
            raise CallRefused(CANCELLED)
        self.idempotent = False

    def push(self, record: TaskRecord) -> None:
        """Notify the channel on which it was started."""
        peer = None if self._peer is None else self._peer()
        if peer is not None:
            peer.send_droppable(to_json(CallMessage(CHANGED, status_of(record))), CHANGED)


class MethodCall:
    """The call of a task, whose result is taken as JSON text: an `OngoingCall`."""

    def __init__(self, call: DetachedCall, write: Callable[[Any], Raw]) -> None:
        self._call, self._write = call, write

    @property
    def result(self) -> Awaitable[Any]:
        """The result as JSON text; raises what the call raises."""
        return self._text()

    async def _text(self) -> Raw:
        return self._write(await self._call.result)

    def cancel(self) -> None:
        """End it."""
        self._call.cancel()


class _Beginning:
    """The exchange by which this process begins a task again: an `Exchange` without a wire."""

    def __init__(self, record: TaskRecord, loop: asyncio.AbstractEventLoop) -> None:
        self.request: bytes = to_json(CallMessage(START, {"method": record.method, "params": record.params}, 0))
        self.caller: Caller = Caller(identity=restore_identity(record.caller))
        self.gone: Callable[[], None] | None = None
        self.answered: asyncio.Future[AnyAnswer] = loop.create_future()

    def respond(self, answer: AnyAnswer) -> None:
        if not self.answered.done():
            self.answered.set_result(answer)

    def stream(self, message: bytes) -> bool:
        return False


class ServiceTasks:
    """The tasks of one service, on each event loop where it is served."""

    def __init__(self, service: TaskHost) -> None:
        self._service = service
        self._here: dict[asyncio.AbstractEventLoop, _Here] = {}
        self._serving: list[Runner] = []
        """Runners of the servings of the service, which have observers of their own."""
        functions: dict[str, Callable[..., Any]] = {
            START: self._described,
            GET: self._get,
            RESULT: self._result,
            CANCEL: self._cancel,
        }
        self.methods: Mapping[str, Method] = {name: _method(name, one) for name, one in functions.items()}
        """`tasks.start` and the others."""

    # -- its life

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the store and run tasks while the service is served on this loop."""
        settings, (url, bus) = self._service._task_settings or TaskSettings(), _sharing(self._service)
        loop, given = asyncio.get_running_loop(), settings.store
        store: TaskStore
        if isinstance(given, TaskStore):
            store = given
        else:
            where = given or url or "memory:"
            keys = [] if where == "memory:" or settings.keys in ((), []) else read_secrets(settings.keys, lasting=True)
            store = open_tasks(where, settings.limits, bus, keys)
        runner = TaskRunner(store, self._service.name, resume=self._resume, changed=self._changed, bus=bus)
        try:
            await runner.open()
            here = self._here[loop] = _Here(runner)
            try:
                yield
            finally:
                await self._close(here)
                del self._here[loop]
        finally:
            if store is not given:
                await store.close()

    async def _close(self, here: _Here) -> None:
        """End the calls that still run, write what came of them, and hand over what another process may run."""
        ending = [run.stopped for run in here.runs]
        for run in tuple(here.runs):
            run.end(_CLOSED)
        if ending:
            await asyncio.wait(ending, timeout=PATIENCE)  # a thread cannot be stopped
        await here.runner.close()

    def serve_by(self, runner: Runner) -> None:
        """Begin tasks again by the runner of this serving, until `leave`."""
        runner.bind()
        self._serving.append(runner)

    def leave(self, runner: Runner) -> None:
        """Begin no task again by this runner."""
        if runner in self._serving:
            self._serving.remove(runner)

    def boards(self) -> Sequence[RunnerBoard]:
        """Return the tasks on the running event loop, for the operator."""
        here = self._here.get(asyncio.get_running_loop())
        return () if here is None else (RunnerBoard(here.runner, self._service.name),)

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics: of the runners of this process."""
        found: dict[str, float] = {}
        for here in tuple(self._here.values()):
            for name, value in here.runner.measures().items():
                found[name] = found.get(name, 0) + value
        return found

    def _on_loop(self) -> _Here:
        found = self._here.get(asyncio.get_running_loop())
        if found is None:
            raise LocalError(f"{self._service.name}: its tasks are not open on this event loop")
        return found

    # -- starting

    def route(self, message: Any, caller: Caller, peer: Any) -> tuple[Method | None, Any]:
        """Find the method of a message: for `tasks.start` that which it names, which begins a task. Raises
        InvalidParams."""
        method, message = self._service._find_by_name(message, caller, peer)
        if method is None or method.name != START:
            return method, message
        orphan = message.params.record if type(message.params) is _Orphan else None
        if orphan is not None:
            name, params, notify = orphan.method, orphan.params, False
        else:
            name, params, notify = self._read(message, peer)
        named = self._service._find(name)
        message = replace(message, method=name, params=params)
        if named is None:
            return None, message
        if named.task is None:
            raise InvalidParams(f"Invalid params: {name} cannot be started as a task, only called")
        handler = partial(self._begin, _Start(named, named.task, notify, orphan))
        made = replace(
            named,
            handler=handler,
            kind="async",
            timeout=UNSET,
            concurrency=None,
            queue=None,
            quick=False,
            runs_inline=False,
        )
        life = self._service._own_lifespan
        return (made if life is None else living(life, made, lambda _: handler)), message

    def _read(self, message: Request | Notification, peer: Any) -> tuple[str, Raw, bool]:
        """Return the arguments of `tasks.start`. Raises InvalidParams."""
        binding = self.methods[START].binding
        try:
            found = binding.arguments(message.params)
        except Exception as error:
            found = read_loosely(binding, message.params, None, error, self._service, peer)
        name, params, notify = found
        if first_byte(params) not in b"[{":
            raise InvalidParams("Invalid params: params is an array or an object")
        return name, params.copy(), notify

    async def _begin(self, start: _Start, call: Call) -> Raw:
        """Begin a task, and return its status, as JSON text, once it is kept."""
        method, here, site = start.method, self._on_loop(), call.context._site
        if method.handler is None:  # otherwise middleware may change the arguments
            arguments_of(method.binding, call.params, NO_CONTEXT, site)
        id = secrets.token_urlsafe(_ID) if start.orphan is None else start.orphan.id
        beginning = asyncio.get_running_loop().create_task(self._keep(here, start, call, id))
        try:
            return Raw(to_json(status_of(await asyncio.shield(beginning))))
        except asyncio.CancelledError:
            if start.orphan is None:
                here.runner.spawn(self._withdraw(here, beginning, id))
            raise

    async def _keep(self, here: _Here, start: _Start, call: Call, id: str) -> TaskRecord:
        """Keep the record of a task, and let its call begin. Nothing of that runs before."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        next = self._service._handler(start.method)

        site: InboundCall = call.context._site
        task = MethodTask(here.runner, id, start, site.peer if start.notify else None)

        async def wait_then_go(inner: Call) -> Any:
            await kept
            await task.begin()
            return await next(inner)

        run = detach(
            call,
            wait_then_go,
            call.params,
            call.params,
            caller=None,
            timeout=start.policy.timeout,
            about=f"task {id[:6]}",
            method=start.method,
            on_progress=task.report_value,
        )
        here.runs.add(run)
        run.stopped.add_done_callback(lambda _: here.runs.discard(run))
        detached = DetachedCall(run)
        try:
            record = start.orphan or await self._create(here, start, call, task)
        except BaseException:
            detached.cancel()
            raise
        service = site.runner.service
        ongoing = MethodCall(detached, partial(_written, service, start.method))
        here.runner.follow(task, ongoing, partial(_error_of, service, start.method.name))
        kept.set_result(None)
        return record

    async def _create(self, here: _Here, start: _Start, call: Call, task: MethodTask) -> TaskRecord:
        """Keep the record of a new task. Raises CallRefused where there is no room, or the store is away."""
        caller = call.context.caller
        try:
            now = await here.runner.store.now()
            record = TaskRecord(
                id=task.id,
                server=self._service.name,
                method=call.method,
                owner=owners.owner_of(self._service.name, caller.principal),
                created=now,
                updated=now,
                keep=start.policy.keep,
                poll=start.policy.poll,
                params=call.params,
                caller=keep_identity(caller.identity),
                idempotent=task.idempotent,
                runner=here.runner.name,
            )
            await here.runner.create(record)
        except StoreLost as error:
            raise _away(error) from error
        return record

    async def _withdraw(self, here: _Here, beginning: asyncio.Task[TaskRecord], id: str) -> None:
        """Cancel a task whose start is not waited for any more."""
        await asyncio.wait([beginning])
        if not beginning.cancelled() and beginning.exception() is None:
            await here.runner.cancel(id)

    # -- orphans

    async def _resume(self, record: TaskRecord) -> None:
        """Begin an orphan again. One that may not be called any more fails."""
        here, loop = self._on_loop(), asyncio.get_running_loop()
        while True:
            x = _Beginning(record, loop)
            here.runner.handed_over.discard(record.id)
            self._runner(loop).take(x, Request(START, _Orphan(record), 0))  # its params go no further than `route`
            answer = await x.answered
            if type(answer) is not FailedAnswer:
                return
            if answer.refusal is None or answer.refusal.kind not in ("busy", "draining"):
                break
            here.runner.handed_over.add(record.id)
            await asyncio.sleep(AGAIN)
            found = await here.runner.store.read(record.id)
            if found is None or found.ended or found.runner != here.runner.name:
                return
            if found.cancelling:
                await self._end(here, record.id, lambda one, now: rules.cancelled(one, now, "cancelled"))
                return
        why = f"its process was lost, and it could not be begun again: {answer.error.message}"
        fault = error_object("it could not be begun again")
        await self._end(here, record.id, lambda one, now: rules.failed(one, now, fault, why))

    def _runner(self, loop: asyncio.AbstractEventLoop) -> Runner:
        """Return the runner that begins tasks again on this loop."""
        serving = [one for one in self._serving if one.loop is loop]
        if serving:  # where all drain it is refused, and handed over
            return next((one for one in serving if not one.call_limit.draining), serving[0])
        runner = runner_of_loop(self._service._runners, self._service)
        runner.bind()
        return runner

    async def _end(self, here: _Here, id: str, end: Callable[[TaskRecord, float], TaskRecord]) -> None:
        """End a task of this process that has no call."""
        now = await here.runner.store.now()
        await here.runner.edit(id, lambda one: end(one, now), True)

    # -- its methods

    async def _described(self, method: str, params: Params = NO_PARAMS, notify: bool = False) -> TaskStatus:
        """Start a call that goes on beyond this request, and return its status once it is kept.

        Args:
            method: The method to call, one that has `x-task` in this document.
            params: Its arguments, an array or an object.
            notify: Whether this connection gets `tasks.changed`, with its status, whenever that changes.
        """
        raise LocalError("tasks.start is routed to the method that it names")

    async def _get(self, id: TaskId, context: Context, after: float | None = None, wait: Wait = 0.0) -> TaskStatus:
        """Return how a task is.

        Args:
            after: The `updated` of a status that is known already: the answer waits for another one.
        """
        return status_of(await self._wait(id, context, wait, lambda one: one.updated != after))

    async def _result(self, id: TaskId, context: Context, wait: Wait = 0.0) -> TaskOutcome:
        """Return how a task is, with its `result` or `error` once it has ended. The answer waits for that."""
        return outcome_of(await self._wait(id, context, wait, lambda one: False))

    async def _cancel(self, id: TaskId, context: Context) -> TaskStatus:
        """Cancel a task, and return how it is then. One that has ended stays as it is."""
        here = self._on_loop()
        await self._find(here, id, context)
        try:
            found = await here.runner.cancel_and_wait(id)
        except StoreLost as error:
            raise _away(error) from error
        return status_of(self._own(found, id, context))

    async def _wait(self, id: str, context: Context, seconds: float, done: Callable[[TaskRecord], bool]) -> TaskRecord:
        """Return a task of this caller, once `done(record)` or it has ended, at the latest after so many seconds.
        Raises InvalidParams for any other id, CallRefused where it cannot wait."""
        here = self._on_loop()
        record = await self._find(here, id, context)
        site: InboundCall = context._site  # type: ignore[assignment]  # its methods run on the loop
        limit = site.runner.call_limit
        if seconds <= 0 or record.ended or done(record):
            return record
        owner, most = owner_of(context.caller), max(1, site.runner.service.limits.calls // 2)
        here.waits = here.waits or Allowance(most, inf)
        if limit.draining or not here.waits.take(owner, 0.0):
            raise CallRefused(_DRAINING if limit.draining else _crowded(most))
        try:
            with limit.on_drain(partial(here.runner.wake, id)):
                found = await here.runner.wait(
                    id, min(seconds, LONGEST_WAIT), lambda one: one.ended or done(one) or limit.draining
                )
        except StoreLost as error:
            raise _away(error) from error
        finally:
            here.waits.give_back(owner)
        record = self._own(found, id, context)
        if limit.draining and not (record.ended or done(record)):
            raise CallRefused(_DRAINING)
        return record

    async def _find(self, here: _Here, id: str, context: Context) -> TaskRecord:
        """Return a task of this caller. Raises InvalidParams for any other id, CallRefused while the store is away."""
        try:
            return self._own(await here.runner.store.read(id) if is_id(id) else None, id, context)
        except StoreLost as error:
            raise _away(error) from error

    def _own(self, record: TaskRecord | None, id: str, context: Context) -> TaskRecord:
        """Return a record that was read, if it is of this caller, who may still call its method."""
        service, caller = self._service, context.caller
        if not owners.is_of(record, service.name, caller.principal):
            raise InvalidParams(f"Invalid params: the task {id[:64]!r} is unknown, or its time is over")
        method = service._find(record.method)
        if method is not None and method.access is not None:
            refusal = method.access.without_arguments().refusal(caller, None)
            if refusal is not None:
                challenge = context._site.service._challenge
                raise CallRefused(refusal if challenge is None else challenge(refusal, caller, None))
        return record

    def _changed(self, record: TaskRecord) -> None:
        """Notify the channel on which a task was started."""
        task = self._on_loop().runner.running.get(record.id)
        if isinstance(task, MethodTask):
            task.push(record)


# -- services that have tasks


def keep_tasks(service: Any, tasks: Any) -> None:
    """Give a service tasks, which are kept where its option `tasks` says. Raises LocalError for what says nothing."""
    service._task_settings, service._says_tasks = settings_of(service.name, tasks), True
    add_tasks(service)


def planned_tasks(service: Any, found: Sequence[Method]) -> list[Callable[[], object]]:
    """Return the function that gives a service tasks, with these methods. Raises LocalError for a name that is taken by
    another method."""
    taken = {*service._registered, *(one.name for one in found)}
    if both := [name for name in METHODS if name in taken]:
        raise LocalError(f"{service.name}: {both[0]} is a method of tasks: give your own another name")
    return [partial(add_tasks, service)]


def add_tasks(service: Any) -> None:
    """Give a service tasks: its methods for them, its router, and a lifespan that opens them."""
    root: TaskHost = service._origin
    tasks = ServiceTasks(root)
    for one in {service, root, *root._copies}:
        one._tasks, one._router = tasks, tasks.route
    for method in tasks.methods.values():
        root._internal[method.name] = method
        root._link(method)
    root._make_lifespan().add_last("tasks", tasks.open)


def include_tasks(outer: Any, inner: Any) -> None:
    """Keep the tasks of a service where one that it includes keeps its own, unless it says itself where they are.
    Raises LocalError where others that it includes keep them elsewhere."""
    if outer._says_tasks:
        return
    if outer._task_settings not in (None, inner._task_settings):
        raise LocalError(
            f"{outer.name}.include: {inner.name} keeps tasks elsewhere than what is included already: say where all of "
            f"them are kept, Service({outer.name!r}, tasks=...)"
        )
    outer._task_settings = inner._task_settings


def _sharing(service: TaskHost) -> tuple[str | None, Any]:
    """Return where `serve(tasks=)` says that tasks are kept, and the bus that tells their changes; None for neither."""
    served = [service, *service._copies]  # under other limits it is served as a copy
    url = next((one._tasks_url for one in served if one._tasks_url is not None), None)
    return url, next((one._tasks_bus for one in served if one._tasks_bus is not None), None)


# -- methods, results and errors


def _method(name: str, function: Callable[..., Any]) -> Method:
    timeout = LONGEST_WAIT + 10  # of its own: a service may give its methods less
    return Method(name, bind(function, context_type=Context), "async", timeout=timeout)


def _written(service: MethodHost, method: Method, value: Any) -> Raw:
    """Return a result as JSON text. Raises RpcError for one that no answer has room for."""
    call = Request(method.name, UNSET, 0)
    answer = service._dispatcher.written(method.binding, call, value)
    if isinstance(answer, bytes):
        text = msgspec.json.decode(answer, type=_Answered).result.copy()
        whole = b"".join((b"[[", text, b"]]", b" " * SPARE))
        answer = whole if len(whole) <= service._modest else service._answers.fitting(call, whole)
        if isinstance(answer, bytes):
            return text
    assert isinstance(answer, FailedAnswer)
    raise RpcError.of(answer.error.code, answer.error.message, answer.error.data)


def _error_of(service: MethodHost, name: str, error: Exception) -> Raw:
    """Return the error object for what a call raised, as JSON text. What is not for callers is logged, and masked."""
    failed = service._answers.failed(Request(name, UNSET, 0), error)
    return msgspec.json.decode(failed.text or b"{}", type=_Answered).error.copy()


def _crowded(most: int) -> Refusal:
    data = {"limit": "calls", "allowed": most, "retry_after": 1}
    return Refusal("busy", f"Busy: {most} answers wait for tasks, half of all calls, in fair shares", data)


def _away(error: StoreLost) -> CallRefused:
    repeats.warning("tasks cannot be kept or read: %s", error)
    return CallRefused(_AWAY)
