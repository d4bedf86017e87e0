"""A task at a server, as a client follows it: pushed states, polls, questions, the end. The server is not trusted.

- 2026-07-28: states come by notifications where the server sends these, and by `tasks/get`. A state has the questions
  of the task, which are answered once each by `tasks/update`, and at its end the result or the error.
- 2025-11-25: `tasks/result` waits for the end, and brings the questions as requests of the server. `tasks/get` tells
  whether the task still goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from math import inf
from random import uniform
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from ....channel import ChannelError
from ....jsonrpc.errors import INTERNAL_ERROR, BadAnswer, CallTimeout, InvalidParams, LocalError, RpcError
from ....net.reconnect import backoff
from ....rpc.binding.results import to_json
from ....tasks.record import ENDED
from ...client.extension_client import ExtensionClient
from ...protocol.encoding import decode
from .model import PROGRESS, TaskState
from .policy import check_id

logger: logging.Logger = logging.getLogger("dragoman.mcp")

Report: TypeAlias = Callable[["TaskStatus"], object]

STATES: Final = ENDED | {"working", "input_required"}
LEAST_POLL: Final = 0.05
"""Seconds between two looks at least: a server may name 0."""
USUAL_POLL: Final = 1.0
"""Seconds between two looks where the server names none."""
MOST_POLL: Final = 300.0
"""Seconds between two looks at most: a server may name a year."""
JITTER: Final = 0.2
"""The part by which a pause may be longer, so that clients that began together do not look together."""
PUSHED_POLL: Final = 60.0
"""Seconds between two looks at least while states are pushed: a notification may be lost."""
BLOCKED_POLL: Final = 15.0
"""Seconds between two looks at least while `tasks/result` waits: its stream may be dead."""
LOST: Final = 60.0
"""Seconds for which a server may be away, as during a restart, before the waiting ends."""
PAUSES: Final = (0.2, 5.0)
"""The first and the longest pause before a request is made again, in seconds."""
LATE: Final = 10.0
"""Seconds for which `tasks/result` may go on waiting for a task that has ended."""
QUESTIONS: Final = 100
"""Questions that one task may ask: a server could ask for ever."""
PUSHED: Final = 16
"""Tasks of one client whose states are pushed at once; others are looked at. Each takes a subscription."""
TRIES: Final = 20
"""Requests of `tasks/result` that end without a result at most, with pauses between them."""
CANCEL_WITHIN: Final = 5.0
"""Seconds for a request that cancels a task whose result nobody waits for any more."""


class TaskStatus(Struct, frozen=True, kw_only=True):
    """A task as its server shows it."""

    id: str
    """By which it is found again; nobody can guess it."""
    status: str
    """"working", "input_required", "completed", "failed" or "cancelled"; in 2025-11-25 a tool that failed is
    "failed", in 2026-07-28 "completed", with a result that says so."""
    message: str = ""
    """What the server says of its state, for people."""
    created: str = ""
    """When it was created, as the server writes it (ISO 8601)."""
    updated: str = ""
    """When its state changed last, as the server writes it."""
    ttl: float | None = None
    """Seconds from its creation after which the server may delete it; None: it says none."""
    poll: float | None = None
    """Seconds to wait between two looks; None: the server says none."""
    progress: float | None = None
    """How far it is, where the server is dragoman and its function says so."""
    total: float | None = None
    """The value of `progress` at its end."""
    questions: Mapping[str, Any] = {}
    """The questions that wait for an answer, by their keys, each with `method` and `params`; in 2025-11-25 they are
    requests of the server instead."""

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in ENDED


def status_of(state: TaskState, id: str, where: str) -> TaskStatus:
    """Return a state that came, checked. `where`: what it answered. Raises BadAnswer for a state that is not one of
    this task."""
    if state.task_id != id:
        raise BadAnswer(
            f"{where}: the server answers with the task {state.task_id or None!r:.80} in place of {id!r:.80}"
        )
    if state.status not in STATES:
        raise BadAnswer(f"{where}: the task has the unknown status {state.status or None!r:.80}")
    ttl = state.ttl if state.ttl_ms is UNSET else state.ttl_ms
    poll = state.poll_interval if state.poll_interval_ms is UNSET else state.poll_interval_ms
    far = state.meta.get(PROGRESS) if isinstance(state.meta, dict) else None
    return TaskStatus(
        id=id,
        status=state.status,
        message=state.status_message or "",
        created=state.created_at or "",
        updated=state.last_updated_at or "",
        ttl=ttl / 1000 if isinstance(ttl, int) else None,
        poll=poll / 1000 if isinstance(poll, int) else None,
        progress=_number(far, "progress"),
        total=_number(far, "total"),
        questions=_questions_of(state, where),
    )


def _questions_of(state: TaskState, where: str) -> dict[str, Any]:
    """Return the questions in a state as JSON values. Raises BadAnswer for too many, and for some that cannot be
    read."""
    asked = state.input_requests
    if state.status != "input_required" or not isinstance(asked, dict):
        return {}
    if len(asked) > QUESTIONS:
        raise BadAnswer(f"{where}: the task asks {len(asked)} questions at once; {QUESTIONS} are answered")
    try:
        return {key: decode(one, Any) for key, one in asked.items()}
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"{where}: a question of the task cannot be read: {error}") from error


def _number(far: Any, member: str) -> float | None:
    value = far.get(member) if isinstance(far, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def pause_of(poll: float | None, least: float = LEAST_POLL) -> float:
    """Return the seconds until the next look, for what the server names, within our bounds."""
    named = USUAL_POLL if poll is None else poll
    return min(max(named, least), max(MOST_POLL, least)) * uniform(1, 1 + JITTER)


class Pushes:
    """The states that a server pushes to one client, for the tasks that it follows."""

    def __init__(self) -> None:
        self._watches: dict[str, set[TaskWatch]] = {}
        self.open: int = 0
        """Subscriptions that are open."""
        self.refused: bool = False
        """Whether the server has refused one: it pushes nothing."""

    def take(self, params: Any, client: Any) -> None:
        """Take a notification. One that cannot be read, or of another task, is ignored: a look finds the state."""
        id = params.get("taskId") if isinstance(params, dict) else None
        for one in tuple(self._watches.get(id, ())) if isinstance(id, str) else ():
            one.push(params)

    def add(self, id: str, watch: TaskWatch) -> None:
        self._watches.setdefault(id, set()).add(watch)

    def remove(self, id: str, watch: TaskWatch) -> None:
        watches = self._watches.get(id, set())
        watches.discard(watch)
        if not watches:
            self._watches.pop(id, None)


class TaskWatch:
    """The states of one task, one after the other: `async with` it, and take the `next`. `least`: seconds between two
    looks at least."""

    def __init__(self, task: RemoteTask, pushes: Pushes, *, known: TaskState | None, least: float = LEAST_POLL) -> None:
        self._task, self._pushes, self._least = task, pushes, least
        # the first state of any other task lacks its questions or its result
        self._news: TaskState | None = known if known is not None and known.status == "working" else None
        self._woken = asyncio.Event()
        self._look = self._news is None
        """Whether to look at once."""
        self._pushed = False
        self._looked = -inf
        """When it was looked at last, by the loop's clock."""
        self._reading: asyncio.Task[None] | None = None
        self._last: TaskStatus | None = None

    async def __aenter__(self) -> TaskWatch:
        self._pushes.add(self._task.id, self)
        if not (self._task.stateful or self._pushes.refused or self._pushes.open >= PUSHED):
            self._reading = asyncio.get_running_loop().create_task(self._subscribe())
        return self

    async def __aexit__(self, *ending: object) -> None:
        self._pushes.remove(self._task.id, self)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def push(self, params: Mapping[str, Any]) -> None:
        """Take a state that was pushed."""
        try:
            state = decode(to_json(params), TaskState)
            found = status_of(state, self._task.id, "notifications/tasks")
        except (msgspec.DecodeError, RecursionError, BadAnswer) as error:
            logger.debug("a task's state that was pushed cannot be read: %s", error)
            self.look()
            return
        if self._task.stateful or (found.status == "completed" and state.result is UNSET):
            self.look()  # there is more to see than it says
        else:
            self._news = state
            self._woken.set()

    def look(self) -> None:
        """Look at the task now."""
        self._look = True
        self._woken.set()

    async def _subscribe(self) -> None:
        """Let states be pushed, as long as the server does it; while it does not, looks find them."""
        pushes, pauses, clock = self._pushes, backoff(*PAUSES), asyncio.get_running_loop().time
        pushes.open += 1
        try:
            while not pushes.refused and self._task.client.comes_back:
                began = clock()
                try:
                    await self._listen()
                    if clock() - began > PAUSES[1]:  # it ran well meanwhile
                        pauses = backoff(*PAUSES)
                except RpcError as error:
                    pushes.refused = _retry_after(error) is None
                    logger.debug("the states of a task are not pushed: %s", error)
                except (ChannelError, CallTimeout, BadAnswer, LocalError) as error:
                    logger.debug("the states of a task are not pushed: %s", error)
                await asyncio.sleep(next(pauses))
        finally:
            pushes.open -= 1

    async def _listen(self) -> None:
        """Subscribe once, and wait for the end of that."""
        id = self._task.id
        try:
            async with self._task.client.subscribe({"taskIds": [id]}) as changes:
                granted = changes.granted_topics.get("taskIds")
                if not isinstance(granted, list) or id not in granted:
                    self._pushes.refused = not isinstance(granted, list)
                    return
                self._pushed = True
                self.look()  # it may have changed before
                async for _ in changes:
                    pass
        finally:
            if self._pushed:
                self._pushed = False
                self.look()

    async def next(self) -> tuple[TaskStatus, TaskState]:
        """Return the next state: one that was pushed, or that a look has found. Raises BadAnswer, and what a look
        raises."""
        task = self._task
        if self._news is None and not self._look:
            poll = None if self._last is None else self._last.poll
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_of(poll, self._pause())):
                    await self._woken.wait()
        self._woken.clear()
        state, self._news = self._news, None
        if state is None:
            self._look = False
            state = await self._look_now()
        found = self._last = task.seen(state)
        return found, state

    async def _look_now(self) -> TaskState:
        """Look at the task; a server that pushes what needs looks cannot make them come without a pause."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(max(self._looked + LEAST_POLL - clock(), 0))
        self._looked = clock()
        return await self._task.get()

    def _pause(self) -> float:
        return max(self._least, PUSHED_POLL) if self._pushed else self._least


class RemoteTask:
    """A task at the server of a client. `known`: its state, where it came already."""

    def __init__(self, client: ExtensionClient, pushes: Pushes, id: str, known: TaskState | None = None) -> None:
        self.client: ExtensionClient = client
        self.id: str = check_id(id)
        self.over: bool = False
        """Whether it has ended, or the server does not know it any more, as far as was seen."""
        self._ended_as = ""
        self._pushes = pushes
        self._known = known

    @property
    def stateful(self) -> bool:
        """Whether the revision in use is 2025-11-25."""
        return self.client.revision.stateful

    # -- requests

    async def get(self) -> TaskState:
        """Return its state as it is now. Raises InvalidParams if the server does not know it."""
        try:
            found: TaskState = await self._again(lambda: self.client.request("tasks/get", {"taskId": self.id}))
        except InvalidParams:
            self.over = True
            raise
        return found

    def seen(self, state: TaskState) -> TaskStatus:
        """Note a state that came, and return it checked. Raises BadAnswer for one that is not of this task, or that
        follows on its end."""
        found = status_of(state, self.id, "tasks/get")
        if self._ended_as not in ("", found.status):
            raise BadAnswer(f"tasks/get: the task was {self._ended_as}, and is {found.status} now")
        if found.ended:
            self.over, self._ended_as = True, found.status
        return found

    async def update(self, answers: Mapping[str, Any]) -> None:
        """Answer questions of it, in 2026-07-28."""
        params = {"taskId": self.id, "inputResponses": dict(answers)}
        await self._again(lambda: self.client.request("tasks/update", params))

    async def cancel(self) -> None:
        """Cancel it. One that has ended stays as it is."""
        try:
            await self.client.request("tasks/cancel", {"taskId": self.id})
        except InvalidParams:
            # "Receivers MUST reject cancellation requests for tasks already in a terminal status" (2025-11-25)
            if not self.stateful or not self.seen(await self.get()).ended:
                raise

    async def give_up(self) -> None:
        """Cancel it because nobody waits for its result any more; raises nothing."""
        try:
            async with asyncio.timeout(CANCEL_WITHIN):
                await self.client.request("tasks/cancel", {"taskId": self.id})
        except (RpcError, ChannelError, BadAnswer, LocalError, TimeoutError) as error:
            logger.debug("a task could not be cancelled: %s", error)

    async def _again(self, make: Callable[[], Any]) -> Any:
        """Make a request that may be made twice; while the server is away or busy, again and again for `LOST`
        seconds."""
        loop = asyncio.get_running_loop()
        end, pauses = loop.time() + LOST, backoff(*PAUSES)
        while True:
            try:
                return await make()
            except (ChannelError, CallTimeout) as error:
                if not self.client.comes_back or loop.time() >= end:
                    raise
                later = 0.0
                logger.debug("a request about a task is made again: %s", error)
            except RpcError as error:
                asked = 0.0 if error.code == INTERNAL_ERROR else _retry_after(error)
                if asked is None or loop.time() >= end:
                    raise
                later = min(asked, PAUSES[1])
            await asyncio.sleep(max(next(pauses), later))

    # -- following it

    def watch(self, *, least: float = LEAST_POLL) -> TaskWatch:
        """Return its states from now on."""
        known, self._known = self._known, None
        return TaskWatch(self, self._pushes, known=known, least=least)

    async def states(self) -> AsyncIterator[TaskStatus]:
        """Yield each state that differs from that before, up to the one in which it has ended."""
        before: TaskStatus | None = None
        async with self.watch() as watch:
            while True:
                status, _ = await watch.next()
                if status != before:
                    before = status
                    yield status
                if status.ended:
                    return

    async def result(self, report: Report | None) -> Raw:
        """Wait for its result, answer its questions meanwhile, and return the result as JSON text. `report`: is called
        with each new state. Raises the error with which it ended, and BadAnswer for a server that breaks the rules."""
        if self.stateful:
            return await self._blocked_result(report)
        asked: dict[str, Any] = {}
        answering: set[asyncio.Task[None]] = set()
        async with self.watch() as watch:
            try:
                async with aclosing(_states(watch, answering)) as following:
                    async for status, state in following:
                        if report is not None:
                            report(status)
                        if status.ended:
                            return outcome_of(status, state)
                        if new := _new_questions(status.questions, asked):
                            answering.add(asyncio.get_running_loop().create_task(self._answer(new)))
            finally:
                await _end(answering)
        raise AssertionError("a task is followed to its end")

    async def _answer(self, questions: Mapping[str, Any]) -> None:
        """Answer questions by the functions of the call or the client. Raises what these raise."""
        answers = await self.client.answer(questions)
        with suppress(InvalidParams):  # it has ended meanwhile, and the next look finds that
            await self.update(answers)

    async def _blocked_result(self, report: Report | None) -> Raw:
        """Wait for the result by `tasks/result`, and look now and then whether the task goes on."""
        pauses = backoff(*PAUSES)
        for _ in range(TRIES):
            ended = self.over
            waiting = asyncio.ensure_future(self._ask_result())
            try:
                found = await self._until_result(waiting, report)
            except (RpcError, ChannelError, CallTimeout) as error:
                # it is the error of the task only if that had ended before: a server that stops answers with an error
                if isinstance(error, RpcError) and ended:
                    raise
                logger.debug("tasks/result is requested again: %s", error)
                self.seen(await self.get())
                found = None
            finally:
                await _end({waiting})
            if found is not None:
                self.over = True
                return found
            if not self.over:
                await asyncio.sleep(next(pauses))
        raise BadAnswer(f"tasks/result: no result after {TRIES} requests, of a task that goes on")

    async def _ask_result(self) -> Raw:
        return await self.client.request_raw("tasks/result", {"taskId": self.id}, timeout=None)

    async def _until_result(self, waiting: asyncio.Future[Raw], report: Report | None) -> Raw | None:
        """Return the result that is waited for, or None where it does not come although the task has ended. Raises what
        either request raises."""
        async with self.watch(least=BLOCKED_POLL if report is None else LEAST_POLL) as watch:
            while True:
                looking = asyncio.ensure_future(watch.next())
                both: set[asyncio.Future[Any]] = {waiting, looking}
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                    if waiting.done():
                        break
                    status, _ = looking.result()
                    if report is not None:
                        report(status)
                finally:
                    await _end({looking})
                if status.ended:
                    await asyncio.wait({waiting}, timeout=LATE)
                    break
        return waiting.result() if waiting.done() else None


async def _states(
    watch: TaskWatch, beside: set[asyncio.Task[None]]
) -> AsyncGenerator[tuple[TaskStatus, TaskState], None]:
    """Yield the states of a task; raise what one of the tasks `beside` raises meanwhile."""
    looking = asyncio.ensure_future(watch.next())
    try:
        while True:
            await asyncio.wait({looking, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for one in [one for one in beside if one.done()]:
                beside.discard(one)
                one.result()
            if looking.done():
                yield looking.result()
                looking = asyncio.ensure_future(watch.next())
    finally:
        await _end({looking})


def outcome_of(status: TaskStatus, state: TaskState) -> Raw:
    """Return the result of a task of 2026-07-28 that has ended. Raises the error with which it ended."""
    if status.status == "completed":
        if not isinstance(state.result, Raw):
            raise BadAnswer("tasks/get: the task is completed, and has no result")
        return state.result
    if status.status == "cancelled":
        why = status.message if status.message not in ("", "cancelled") else "the task was cancelled"
        raise RpcError.of(INTERNAL_ERROR, f"Request cancelled: {why}")
    if not isinstance(state.error, Raw):
        raise BadAnswer("tasks/get: the task failed, and has no error")
    try:
        error = decode(state.error, _Error)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise BadAnswer(f"tasks/get: the error of the task cannot be read: {fault}") from fault
    raise RpcError.of(error.code, error.message, error.data)


def _new_questions(questions: Mapping[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Return the questions that were not asked before, and note them. Raises BadAnswer for another question under a
    key that was used, and for too many."""
    for key, question in questions.items():
        if key in asked and asked[key] != question:
            # "MUST NOT use the same key to refer to two distinct requests over a task's lifetime"
            raise BadAnswer(f"tasks/get: the task asks another question under the key {key!r:.80}, which it has used")
    new = {key: question for key, question in questions.items() if key not in asked}
    asked.update(new)
    if len(asked) > QUESTIONS:
        raise BadAnswer(f"tasks/get: the task has asked more than {QUESTIONS} questions")
    return new


async def _end(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for one in tasks:
        one.cancel()
    if tasks:
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(found, Exception):
                logger.debug("what was begun for a task ended: %s", found)


class _Error(Struct):
    code: int
    message: str
    data: Any = None


def _retry_after(error: RpcError) -> float | None:
    """Return the seconds after which a server that is busy may accept the request; None if the error says none."""
    seconds = error.data.get("retry_after") if isinstance(error.data, dict) else None
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None
