"""The tasks of one server, as its clients may reach them: whose a task is, and what may be done with it.

A task of a caller with an identity belongs to that identity: any other caller's id is unknown. One of an anonymous
caller belongs to whoever knows its id, which nobody can guess. What a tool demands of its callers, it demands of those
who look at its tasks, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, structs

from ....allowance import Allowance, owner_of
from ....channel import Caller
from ....jsonrpc.call_limit import CallLimit
from ....jsonrpc.errors import INTERNAL_ERROR, CallRefused, InvalidParams, LocalError, Refusal, RpcError
from ....repeats import Repeats
from ....store.contract import StoreLost
from ....tasks import owners
from ....tasks.record import TaskRecord, is_id
from ....tasks.runner import SELDOM, TaskRunner
from ...asking.ask import PATIENCE
from ...asking.questions import demand
from ...protocol.encoding import decode, encode
from ...protocol.foreign_decoding import decode_content
from ...protocol.params import CallToolResult, InputRequest
from ...protocol.revisions import Revision
from ...server.context import Context
from ...server.extending.home import ServerHome
from .model import with_related

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

Relays: TypeAlias = dict[tuple[str, str], asyncio.Task[None]]
"""Calls to one client that ask questions of tasks, by the task and the key."""

RESULT: Final = "result"
"""The member under which older revisions have structured content that is no object, as for the tool itself."""
WAITERS: Final = 4
"""The part of `limits.calls` that may wait for tasks at once, in fair shares: such a call lasts as long as its client
likes, and others must find room."""
REMEMBERED: Final = 1_000
"""Tasks of one anonymous session that `tasks/list` shows at most; the oldest are left out."""


class TaskAccess:
    """The tasks of one server on each event loop where it is served."""

    def __init__(self) -> None:
        self.runners: dict[asyncio.AbstractEventLoop, TaskRunner] = {}
        self.homes: dict[asyncio.AbstractEventLoop, ServerHome] = {}
        self._waited: Counter[str] = Counter()
        """The tasks whose questions a `tasks/result` asks, with the number of these."""
        self._shown: WeakKeyDictionary[Any, OrderedDict[str, None]] = WeakKeyDictionary()
        """The tasks that sessions have seen wait for answers, and of which they request no result."""
        self._asking: dict[tuple[str, str], asyncio.Future[None]] = {}
        """The questions that sessions are asked by themselves, by task and key."""
        self._known: WeakKeyDictionary[Any, OrderedDict[str, None]] = WeakKeyDictionary()
        """The tasks that anonymous sessions know, by their peers."""
        self._waiters: WeakKeyDictionary[TaskRunner, Allowance] = WeakKeyDictionary()
        """The calls that wait for tasks, by their owners."""
        self._relays: WeakKeyDictionary[Any, Relays] = WeakKeyDictionary()
        """The questions of tasks that clients are asked now, by their peers."""

    @property
    def runner(self) -> TaskRunner:
        """The runner of the running loop. Raises LocalError where the server is not served."""
        found = self.runners.get(asyncio.get_running_loop())
        if found is None:
            raise LocalError("Tasks: the server is not served on this event loop")
        return found

    @property
    def home(self) -> ServerHome:
        """The part of the server that an extension may use, on the running loop."""
        return self.homes[asyncio.get_running_loop()]

    def owner(self, principal: str | None) -> str:
        """Return the owner of the tasks of a principal; "" without one: those belong to whoever knows their ids."""
        return owners.owner_of(self.home.name, principal)

    async def find(self, id: str, caller: Caller) -> TaskRecord:
        """Return a task of this caller. Raises InvalidParams (-32602) for any other id, CallRefused for a caller who
        may not call its tool any more, and while the store is away."""
        try:
            record = await self.runner.store.read(id) if is_id(id) else None
        except StoreLost as error:
            raise away(error) from error
        return self.own(record, id, caller)

    def own(self, record: TaskRecord | None, id: str, caller: Caller) -> TaskRecord:
        """Return a record that was read, if it is of this caller, who may still call its tool. Raises InvalidParams
        (-32602) and CallRefused."""
        # "Invalid or nonexistent `taskId`: `-32602`" (ext-tasks, Error Handling)
        unknown = InvalidParams(f"Task not found: {id[:64]!r} is unknown, or its time is over")
        if not owners.is_of(record, self.home.name, caller.principal):
            raise unknown
        try:
            self.home.demand_tool(record.name, caller)
        except InvalidParams:  # the tool is hidden from this caller, and so is its task
            raise unknown from None
        return record

    def shown(self, records: Iterable[TaskRecord | None], caller: Caller) -> list[TaskRecord]:
        """Return those of some records whose tools this caller may still call."""
        found = []
        for record in records:
            with suppress(InvalidParams, CallRefused):
                if record is not None:
                    self.home.demand_tool(record.name, caller)
                    found.append(record)
        return found

    async def wait(self, id: str, ctx: Context, seconds: float, done: Callable[[TaskRecord], bool]) -> TaskRecord:
        """Return a task of this caller once `done(record)`, or once it is not worth waiting for (`is_left`), or after
        so many seconds. Raises as `find` does."""
        await self.find(id, ctx.caller)
        try:
            found = await self.runner.wait(id, seconds, lambda one: done(one) or self.is_left(one, ctx))
        except StoreLost as error:
            raise away(error) from error
        return self.own(found, id, ctx.caller)

    def is_left(self, record: TaskRecord, ctx: Context) -> bool:
        """Return whether this server drains, and the task goes on without it: it runs at another replica, or waits for
        an answer. Such a wait would only hold up the drain."""
        if record.ended or not _calls(ctx).draining:
            return False
        return record.status == "input_required" or record.id not in self.runner.running

    def remember(self, peer: Any, principal: str | None, id: str) -> None:
        """Remember that an anonymous session knows a task."""
        if principal is None and peer is not None:
            known = self._known.setdefault(peer, OrderedDict())
            known[id] = None
            known.move_to_end(id)
            if len(known) > REMEMBERED:
                known.popitem(last=False)

    def known(self, peer: Any) -> list[str]:
        """Return the tasks that an anonymous session knows, the newest first."""
        return list(reversed(self._known.get(peer, ())))

    async def answer(self, id: str, answers: Mapping[str, Raw]) -> None:
        """Give answers to a task. Raises CallRefused while the store is away, and where they have no room."""
        try:
            await self.runner.answer(id, answers)
        except StoreLost as error:
            raise away(error) from error

    async def request_cancel(self, id: str) -> None:
        """Request the cancellation of a task. Raises CallRefused while the store is away."""
        try:
            await self.runner.cancel(id)
        except StoreLost as error:
            raise away(error) from error

    async def cancel(self, id: str) -> TaskRecord | None:
        """Cancel a task, and return it once it has ended. Raises CallRefused while the store is away."""
        try:
            return await self.runner.cancel_and_wait(id)
        except StoreLost as error:
            raise away(error) from error

    # -- calls that wait

    @contextmanager
    def waiting(self, id: str, ctx: Context) -> Iterator[None]:
        """Count a call that waits for a task, and let it look when its server begins to drain. Raises TooManyWait."""
        runner, most = self.runner, max(1, self.home.surroundings.limits.calls // WAITERS)
        waiters = self._waiters.setdefault(runner, Allowance(most, inf))
        owner = owner_of(ctx.rpc.caller)
        if not waiters.take(owner, 0.0):
            raise TooManyWait(most)
        try:
            with _calls(ctx).on_drain(partial(runner.wake, id)):
                yield
        finally:
            waiters.give_back(owner)

    @contextmanager
    def relaying(self, id: str, ctx: Context, *, related: bool) -> Iterator[Relay]:
        """Ask the questions of a task by calls to the client of this call. `related`: a question names its task."""
        relay = Relay(self, ctx, related)
        try:
            yield relay
        except BaseException:
            relay.end(id)
            raise

    def relays_to(self, peer: Any) -> Relays:
        """Return the questions that a peer is asked."""
        return {} if peer is None else self._relays.setdefault(peer, {})

    # -- questions in a session

    @contextmanager
    def waited(self, id: str) -> Iterator[None]:
        """Within the block a `tasks/result` asks the questions of a task: no session is asked by itself."""
        self._waited[id] += 1
        for key in [key for key in self._asking if key[0] == id]:
            self._asking.pop(key).cancel()
        try:
            yield
        finally:
            self._waited -= Counter((id,))

    def ask_session(self, ctx: Context, record: TaskRecord) -> None:
        """Ask the questions of a task of 2025-11-25 in the session of a client that looks at it again and again, and
        does not request its result: "clients SHOULD expect messages to be delivered on any SSE stream, including the
        HTTP GET stream" (basic/utilities/tasks, Input Required Status)."""
        peer, id = ctx.rpc.peer, record.id
        if peer is None or id in self._waited:
            return
        shown = self._shown.setdefault(peer, OrderedDict())
        if id not in shown:  # "it SHOULD preemptively call `tasks/result`"
            shown[id] = None
            if len(shown) > REMEMBERED:
                shown.popitem(last=False)
            return
        for key in record.questions:
            if (id, key) not in self._asking:
                asking = asyncio.ensure_future(self._ask_in_session(peer, record, key))
                self._asking[id, key] = asking
                asking.add_done_callback(partial(self._asked, (id, key)))

    def _asked(self, key: tuple[str, str], asking: asyncio.Future[None]) -> None:
        if self._asking.get(key) is asking:
            del self._asking[key]
        if not asking.cancelled() and (error := asking.exception()) is not None:
            repeats.warning("a question of a task was not answered: %s", error)

    async def _ask_in_session(self, peer: Any, record: TaskRecord, key: str) -> None:
        """Ask a question by a call to a session, as long as the task waits for it, and give the answer to the task."""
        question = decode(record.questions[key], _Question)
        params = with_related(question.params, record.id)
        asking = asyncio.ensure_future(peer.call(question.method, params, result=Raw, timeout=None))
        gone = asyncio.ensure_future(self._answered(record.id, key))
        try:
            await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await self.answer(record.id, {key: asking.result()})
        finally:
            asking.cancel()
            gone.cancel()

    async def _answered(self, id: str, key: str) -> None:
        """Wait until a task does not wait for the answer to a question any more."""
        record: TaskRecord | None
        while (record := await self.runner.wait(id, SELDOM, lambda one: key not in one.questions)) is not None:
            if key not in record.questions:
                return


class TooManyWait(CallRefused):
    """Too many calls wait for tasks."""

    def __init__(self, most: int) -> None:
        data = {"limit": "calls", "allowed": most, "retry_after": 1}
        text = f"Busy: {most} calls may wait for tasks at once, a quarter of limit calls, in fair shares"
        super().__init__(Refusal("busy", text, data))


class Relay:
    """Asks the client of one call what a task asks, and gives the answers to the task. A question that waits when the
    call returns goes on, since people are slow, and the client's next call does not ask it again."""

    def __init__(self, access: TaskAccess, ctx: Context, related: bool) -> None:
        self._access, self._ctx, self._related = access, ctx, related
        self._asked: set[str] = set()
        self._asking = access.relays_to(ctx.rpc.peer)

    def has_new(self, record: TaskRecord) -> bool:
        """Whether a task has questions that were not asked yet."""
        return bool(record.questions.keys() - self._asked)

    def ask(self, record: TaskRecord) -> None:
        """Ask the questions of a task that were not asked yet, if the client has declared what they need."""
        for key in sorted(record.questions.keys() - self._asked):
            self._asked.add(key)
            name = record.id, key
            if name not in self._asking:
                self._asking[name] = asking = asyncio.get_running_loop().create_task(self._ask(record, key))
                asking.add_done_callback(partial(_forget, self._asking, name))

    async def _ask(self, record: TaskRecord, key: str) -> None:
        text = record.questions[key]
        try:
            demand(self._ctx._admitted, decode(b"[" + bytes(text) + b"]", list[InputRequest]))
            question = decode(text, _Question)
            params = with_related(question.params, record.id) if self._related else question.params
            answer = await self._ctx.rpc.call(question.method, params, result=Raw, timeout=PATIENCE)
            await self._access.answer(record.id, {key: answer})
        except (RpcError, ConnectionError, TimeoutError) as error:  # another client, or call, may answer it
            logger.info("a question of the task %s has no answer yet: %s", record.id[:6], type(error).__name__)
        except Exception:
            repeats.error("a question of a task could not be asked", exc_info=True)

    def end(self, id: str) -> None:
        """Ask no more about this task: the call was cancelled, or the task has ended."""
        for name, asking in tuple(self._asking.items()):
            if name[0] == id:
                asking.cancel()


def _forget(asking: Relays, name: tuple[str, str], ended: asyncio.Task[None]) -> None:
    if asking.get(name) is ended:
        del asking[name]


class _Question(msgspec.Struct):
    method: str
    params: Raw = Raw(b"{}")


def _calls(ctx: Context) -> CallLimit:
    """Return the calls in flight of the server that a call has reached."""
    site: Any = ctx._site
    found: CallLimit = site.runner.call_limit
    return found


def away(error: StoreLost) -> CallRefused:
    """Return the error for callers while the store is away."""
    repeats.warning("tasks cannot be read: %s", error)
    return CallRefused(Refusal("busy", "Busy: tasks cannot be read now", {"retry_after": 1}))


def result_of(record: TaskRecord, revision: Revision) -> Raw:
    """Return the result of a task that has ended, as a revision has it. Raises the error with which it ended."""
    if record.result is not None:
        return record.result if record.revision == revision.date else _in_revision(record.result, revision)
    if record.error is not None:
        error = decode(record.error, dict[str, Any])
        raise RpcError.of(error["code"], error["message"], error.get("data"))
    raise RpcError.of(INTERNAL_ERROR, "Request cancelled: the task was cancelled")


def _in_revision(text: Raw, revision: Revision) -> Raw:
    """Return the result of a tool that was written for another revision, as this one has it."""
    result = structs.replace(decode_content(text, CallToolResult), meta=UNSET)
    value = result.structured_content
    if not revision.structured_values and value is not UNSET and not isinstance(value, dict):
        result = structs.replace(result, structured_content={RESULT: value})
    return Raw(encode(result, revision))
