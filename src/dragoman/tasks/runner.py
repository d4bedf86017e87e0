"""Runs the tasks of one server or service in this process, on one event loop.

Rules:

- A task belongs to the runner that is named in its record. What the runner writes of a task counts only as long as that
  is so: a runner that was taken for lost changes nothing any more.
- A runner lives by its beats (`BEAT`). With each it learns which of its tasks were answered or are to be cancelled, and
  takes over orphans of its server.
- An orphan is run again if its function is idempotent, at most `RUNS` times in all; otherwise it fails, and says why.
- What a runner has, it ends: a step that fails because the store is away or full is done again, so no task of a runner
  that lives is left without an end.
- A change wakes those who wait for it in this process at once, on the bus as soon as it is told, and otherwise within
  `LOOK`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from ..jsonrpc.errors import INTERNAL_ERROR, CallRefused, RpcError
from ..repeats import Repeats
from ..store.contract import StoreLost
from . import rules
from .contract import ClaimedTask, Edit, TasksFull, TaskStore
from .record import TaskRecord

logger: logging.Logger = logging.getLogger("dragoman.tasks")
repeats: Repeats = Repeats(logger)

BEAT: Final = 1.0
"""Seconds between two beats of a runner: with the life of a runner in its store, a lost one is noticed within 5."""
LOOK: Final = 0.5
"""Seconds between two looks at a task that another process may change without telling."""
SELDOM: Final = 5.0
"""Seconds between two looks at a task whose changes are told."""
PROGRESS: Final = 1.0
"""Seconds between two writes of a task's progress: of several only the last is kept."""
RUNS: Final = 3
"""How often the function of a task is begun at most: one that ends its process each time must not go on for ever."""
CLAIMED: Final = 16
"""Orphans that a runner takes over with one beat at most: others take some, too."""
SWEPT: Final = 200
"""Tasks that are deleted at once at most."""
SWEEP: Final = 30.0
"""Seconds between two deletions of tasks whose time is over."""
AGAIN: Final = 0.5
"""Seconds until a write is tried again whose store was away."""


def error_object(message: str) -> Raw:
    """Return the error object of an internal error."""
    return Raw(msgspec.json.encode({"code": INTERNAL_ERROR, "message": f"Internal error: {message}"}))


LOST: Final = error_object("the process that ran the task was lost")
STOPPED: Final = error_object("the server was stopped before it was done")
_RUN_ONCE: Final = "its process was lost; its function may not be run again (idempotent), so it was not"
_RUN_OFTEN: Final = f"its process was lost {RUNS} times, and it is not run again"


class OngoingCall(Protocol):
    """The call of a task, as `rpc.detached` runs it."""

    @property
    def result(self) -> Awaitable[Any]:
        """What the call returns; raises what it raises, and CallRefused if it was ended."""

    def cancel(self) -> None:
        """End it."""


class Bus(Protocol):
    """The part of a `bus.Bus` by which changes are told to other replicas."""

    async def publish(self, topic: str, message: bytes) -> None: ...
    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Any: ...


class _Progress(msgspec.Struct, frozen=True):
    """What a function has reported."""

    note: Callable[[TaskRecord, float], TaskRecord]
    """Puts it into the record of its task."""
    numbers: tuple[float, float | None, str | None] | None
    """The value, the total and the message; None: it is another JSON value."""


class RunningTask:
    """A task that this runner runs, or a call that may become one. `patience`: seconds for which a question may wait;
    `keep`: seconds for which the task is kept after its end."""

    def __init__(self, runner: TaskRunner, id: str, *, keep: float, patience: float, idempotent: bool) -> None:
        self.id, self.keep, self.patience, self.idempotent = id, keep, patience, idempotent
        self.kept: bool = False
        """Whether its record exists: from then on its questions wait there."""
        self.call: OngoingCall | None = None
        self.tell_progress: Callable[[float, float | None, str | None], Awaitable[None]] | None = None
        """Also takes its progress, as often as that is written."""
        self.runner: TaskRunner = runner
        self._answers: dict[str, asyncio.Future[Raw]] = {}
        self._latest: _Progress | None = None
        """The progress that is not written yet."""
        self._last: _Progress | None = None
        """The last progress."""
        self._writing: asyncio.Task[None] | None = None

    async def ask(self, questions: Mapping[str, Raw], message: str) -> Mapping[str, Raw]:
        """Put questions into the record, and return their answers, by the same keys. `message`: what is said of the
        task meanwhile. Raises TimeoutError if nobody answers in time, StoreLost, TasksFull."""
        loop = asyncio.get_running_loop()
        mine: dict[str, asyncio.Future[Raw]] = {key: loop.create_future() for key in questions}
        self._answers |= mine
        try:
            async with asyncio.timeout(self.patience):
                now = await self.runner.store.now()
                await self.runner.edit(self.id, lambda one: rules.asked(one, now, questions, message), True)
                return {key: await answer for key, answer in mine.items()}
        finally:
            for key in questions:
                self._answers.pop(key, None)
            if open := frozenset(key for key, answer in mine.items() if not answer.done() or answer.cancelled()):
                self.runner.spawn(self._drop_questions(open))

    async def _drop_questions(self, keys: frozenset[str]) -> None:
        """Ask no more what its function does not wait for any more."""
        try:
            now = await self.runner.store.now()
            await self.runner.edit(self.id, lambda one: rules.dropped(one, now, keys), True)
        except (StoreLost, TasksFull) as error:
            repeats.warning("a question of a task stays in its record: %s", error)

    def take(self, record: TaskRecord) -> frozenset[str]:
        """Take the answers in its record, and return their keys."""
        for key, answer in record.answers.items():
            waiting = self._answers.get(key)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        return frozenset(record.answers)

    # -- its progress

    def report(self, value: float, total: float | None, message: str | None) -> None:
        """Note its progress, and write it soon."""
        numbers = value, total, message
        self._note(_Progress(lambda record, now: rules.progressed(record, now, *numbers), numbers))

    def report_value(self, value: Raw) -> None:
        """Note its progress by any JSON value, and write it soon."""
        self._note(_Progress(lambda record, now: rules.reported(record, now, value), None))

    def _note(self, progress: _Progress) -> None:
        self._latest = self._last = progress
        if self.kept and self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_progress())

    async def _write_progress(self) -> None:
        try:
            while (latest := self._latest) is not None:
                self._latest = None
                now = await self.runner.store.now()
                await self.runner.edit(self.id, lambda one: latest.note(one, now), True)  # noqa: B023
                if self.tell_progress is not None and latest.numbers is not None:
                    await self.tell_progress(*latest.numbers)
                await asyncio.sleep(PROGRESS)
        except (StoreLost, TasksFull) as error:
            repeats.warning("the progress of a task is not kept: %s", error)
        except Exception:
            repeats.error("the progress of a task is not told", exc_info=True)
        finally:
            self._writing = None

    def with_progress(self, record: TaskRecord) -> TaskRecord:
        """Return the record of a call that becomes this task, with the progress that was reported before."""
        return record if self._latest is None else self._latest.note(record, record.updated)

    def with_last_progress(self, record: TaskRecord, now: float) -> TaskRecord:
        """Return its record with the last progress, which may not be written yet."""
        return record if self._last is None else self._last.note(record, now)

    def stop_writing(self) -> None:
        """Write no more progress."""
        self._latest = None
        if self._writing is not None:
            self._writing.cancel()


class TaskRunner:
    """Runs the tasks of one server. `resume`: begins an orphan again; `changed`: is called after each change of a
    task here."""

    def __init__(
        self,
        store: TaskStore,
        server: str,
        *,
        resume: Callable[[TaskRecord], Awaitable[None]],
        changed: Callable[[TaskRecord], object],
        bus: Bus | None,
    ) -> None:
        self.store = store
        self.name: str = secrets.token_hex(8)
        """Its name in the records of its tasks."""
        self.running: dict[str, RunningTask] = {}
        self._server, self._resume, self._changed, self._bus = server, resume, changed, bus
        self._topic = f"dragoman.tasks.{hashlib.blake2b(server.encode(), digest_size=8).hexdigest()}"  # without spaces
        self._told: Any = None
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._work: set[asyncio.Future[Any]] = set()
        self._beating: asyncio.Task[None] | None = None
        self.handed_over: set[str] = set()
        """Tasks that another runner may begin again once this one has closed."""
        self._claimed: list[ClaimedTask] = []
        """Orphans that this runner has, and has not begun or ended yet."""
        self.began_total: int = 0
        self.lost_total: int = 0
        """Orphans that were taken over."""

    # -- its life

    async def open(self) -> None:
        """Begin to run tasks. Raises StoreLost."""
        await self.store.beat(self.name)
        if self._bus is not None:
            self._told = await self._bus.subscribe(self._topic, self._hear)
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def close(self) -> None:
        """Write what has ended, hand over what another runner may begin again, and stop."""
        if self._beating is not None:
            self._beating.cancel()
        if self._told is not None:
            await self._told.close()
        if self._work:
            await asyncio.wait(self._work, timeout=BEAT)
        for one in tuple(self._work):
            one.cancel()
        try:
            await self.store.leave(self.name, tuple(self.handed_over))
        except StoreLost as error:
            logger.warning("%s: its runner of tasks could not leave: %s", self._server, error)

    def spawn(self, work: Any) -> None:
        """Run a coroutine on the loop; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            repeats.error("%s: work for a task failed", self._server, exc_info=error)

    async def _beat(self) -> None:
        """Beat, look at tasks that call, take over orphans, delete what is old; for ever."""
        loop = asyncio.get_running_loop()
        swept = loop.time()
        while True:
            try:
                for record in await self.store.beat(self.name):
                    self._look(record)
                if not self._claimed:
                    self._claimed = await self.store.claim(self.name, self._server, CLAIMED)
                    self.lost_total += len(self._claimed)
                await self._take_over()
                if loop.time() - swept >= SWEEP:
                    swept = loop.time()
                    await self._extend()
                    await self._sweep()
            except StoreLost as error:
                repeats.warning("%s: its tasks cannot be kept: %s", self._server, error)
            except Exception:
                repeats.error("%s: the beat of its tasks failed", self._server, exc_info=True)
            await asyncio.sleep(BEAT)

    async def _sweep(self) -> None:
        """Delete tasks whose time is over, some at once."""
        while await self.store.sweep(SWEPT) == SWEPT:
            pass

    async def _extend(self) -> None:
        """Keep tasks that still run: the time of a task begins anew at its end."""
        now = await self.store.now()

        def longer(record: TaskRecord) -> TaskRecord | None:
            kept = rules.kept_until(record, now + task.keep)
            return kept if record.until is not None and record.until - now < task.keep / 2 else None

        for task in tuple(self.running.values()):
            await self.edit(task.id, longer, True)

    async def _take_over(self) -> None:
        """Begin what was claimed again, or end it. What could not be written is there for the next beat."""
        while self._claimed:
            claimed, now = self._claimed[0], await self.store.now()
            record, lost = claimed.record, bool(claimed.before)
            if record.cancelling:
                await self.edit(record.id, lambda one: rules.cancelled(one, now, "cancelled"), True)  # noqa: B023
            elif not record.idempotent or (lost and record.runs >= RUNS):
                why = _RUN_OFTEN if record.idempotent else _RUN_ONCE
                what = record.name or record.method
                logger.warning("%s: the task %s of %s fails: %s", self._server, record.id[:6], what, why)
                await self._fail(record.id, LOST, why)
            else:
                await self._begin_again(record, now, lost)
            self._claimed.pop(0)

    async def _begin_again(self, record: TaskRecord, now: float, lost: bool) -> None:
        try:
            begun = await self.edit(record.id, lambda one: rules.begun_again(one, now, lost=lost), True)
        except TasksFull as error:
            await self._fail(record.id, LOST, f"its process was lost, and it could not be begun again: {error}")
            return
        # one that was taken for lost since it claimed the task has it no more, and the record is as another one has it
        if begun is not None and not begun.ended and begun.runner == self.name:
            self.spawn(self._resume_or_fail(begun))

    async def _resume_or_fail(self, record: TaskRecord) -> None:
        """Begin an orphan again. One that cannot be begun fails; where that is only so for now, another runner, or this
        one, gets it once more."""
        try:
            await self._resume(record)
        except (StoreLost, CallRefused) as error:
            repeats.warning("%s: a task waits to be begun again: %s", self._server, error)
            if record.id not in self.running:
                await self._try_until_done(lambda: self.edit(record.id, rules.not_begun, True))
        except Exception:
            repeats.error("%s: a task cannot be begun again", self._server, exc_info=True)
            if record.id in self.running:
                return
            why = "its process was lost, and it could not be begun again"
            await self._try_until_done(lambda: self._fail(record.id, LOST, why))

    async def _fail(self, id: str, error: Raw, why: str) -> None:
        """End a task of this runner that does not run. Raises StoreLost, TasksFull."""
        now = await self.store.now()
        await self.edit(id, lambda one: rules.failed(one, now, error, why), True)

    async def _try_until_done(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write; while the store is away or has no room, again and again."""
        while True:
            try:
                await write()
                return
            except (StoreLost, TasksFull) as error:
                repeats.warning("%s: a change of a task waits for its store: %s", self._server, error)
            await asyncio.sleep(AGAIN)

    # -- changes

    async def edit(self, id: str, edit: Edit, own: bool = False) -> TaskRecord | None:
        """Change a task, and tell those who wait for it; return it as it is then, None where there is none. `own`: only
        if this runner has it. Raises StoreLost, TasksFull."""
        changed = False

        def checked(record: TaskRecord) -> TaskRecord | None:
            nonlocal changed
            found = None if own and record.runner != self.name else edit(record)
            changed = found is not None
            return found

        record = await self.store.change(id, checked)
        if changed and record is not None:
            self.tell(record)
        return record

    def tell(self, record: TaskRecord) -> None:
        """Wake those who wait for a change of a task, here and at other replicas."""
        self.wake(record.id)
        if self._bus is not None:
            self.spawn(self._publish(record.id))
        self._changed(record)

    async def _publish(self, id: str) -> None:
        assert self._bus is not None
        try:
            await self._bus.publish(self._topic, id.encode())
        except ConnectionError as error:  # they look from time to time
            repeats.warning("%s: a change of a task is not told to other replicas: %s", self._server, error)

    def _hear(self, message: bytes) -> None:
        """Another replica, or this one, has changed a task."""
        id = message.decode("ascii", "replace")
        self.wake(id)
        if id in self.running:
            self.spawn(self._look_at(id))

    async def _look_at(self, id: str) -> None:
        record = await self.store.read(id)
        if record is not None:
            self._look(record)

    def _look(self, record: TaskRecord) -> None:
        """Take what others have written into the record of a task that runs here."""
        task = self.running.get(record.id)
        if task is None:
            return
        if record.cancelling and task.call is not None:
            task.call.cancel()
        if record.answers:
            keys = task.take(record)
            self.spawn(self.edit(record.id, lambda one: rules.taken(one, keys), True))

    def wake(self, id: str) -> None:
        """Let those that wait here for a task look at it."""
        for waiting in self._waiting.pop(id, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, id: str, seconds: float, done: Callable[[TaskRecord], bool]) -> TaskRecord | None:
        """Return a task once `done(record)`, or as it is after so many seconds; None where there is none."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(id, set()).add(woken)
            try:
                record = await self.store.read(id)
                left = end - loop.time()
                if record is None or done(record) or left <= 0:
                    return record
                told = id in self.running or self._bus is not None
                await asyncio.wait([woken], timeout=min(left, SELDOM if told else LOOK))
            finally:
                if (others := self._waiting.get(id)) is not None:
                    others.discard(woken)
                    if not others:
                        del self._waiting[id]

    async def answer(self, id: str, answers: Mapping[str, Raw]) -> None:
        """Give answers to the questions of a task. Raises StoreLost, TasksFull."""
        now = await self.store.now()
        record = await self.edit(id, lambda one: rules.answered(one, now, answers))
        if record is not None:
            self._look(record)

    async def cancel(self, id: str) -> None:
        """Request the cancellation of a task, wherever it runs. Raises StoreLost."""
        try:
            record = await self.edit(id, rules.cancel_requested)
        except TasksFull:  # there is no room for the request; what has ended takes up less
            if (task := self.running.get(id)) is not None and task.call is not None:
                task.call.cancel()
            now = await self.store.now()
            await self.edit(id, lambda one: rules.cancelled(one, now, "cancelled"))
            return
        if record is None or record.ended:
            return
        self._look(record)
        if not record.runner:  # nobody has it
            now = await self.store.now()
            await self.edit(id, lambda one: rules.cancelled(one, now, "cancelled"))

    async def create(self, record: TaskRecord) -> None:
        """Keep the record of a new task of this runner. Raises StoreLost, TasksFull. One whose caller leaves meanwhile,
        and one of which nobody knows whether it is kept, ends: it is not begun."""
        creating = asyncio.ensure_future(self.store.create(record))
        try:
            await asyncio.shield(creating)
        except (asyncio.CancelledError, StoreLost):
            self.spawn(self._withdraw(record.id, creating))
            raise

    async def _withdraw(self, id: str, creating: Awaitable[None]) -> None:
        """End a task that was not begun, once it is known whether it is kept; while the store is away, it is tried
        again."""

        async def end() -> None:
            now = await self.store.now()
            await self.edit(id, lambda one: rules.cancelled(one, now, "it was not begun"), True)

        with suppress(TasksFull, StoreLost):
            await creating
        await self._try_until_done(end)

    async def cancel_and_wait(self, id: str) -> TaskRecord | None:
        """Cancel a task, and return it once it has ended; one whose runner does not end it is ended here."""
        await self.cancel(id)
        record = await self.wait(id, 2 * BEAT, lambda one: one.ended)
        if record is not None and not record.ended:
            now = await self.store.now()
            record = await self.edit(id, lambda one: rules.cancelled(one, now, "cancelled"))
        return record

    # -- the end of a task

    def follow(self, task: RunningTask, call: OngoingCall, error_of: Callable[[Exception], Raw]) -> None:
        """Write the end of a task, whose record exists, when its call ends. The call returns JSON text; `error_of`:
        returns the error object of what it raised."""
        task.call, task.kept = call, True
        self.running[task.id] = task
        self.began_total += 1
        self.spawn(self._settle(task, call, error_of))

    async def _settle(self, task: RunningTask, call: OngoingCall, error_of: Callable[[Exception], Raw]) -> None:
        try:
            try:
                edit = await self._ending(task, call, error_of)
            except Exception:
                repeats.error("%s: the end of a task cannot be told", self._server, exc_info=True)
                edit = _broken
            task.stop_writing()
            if edit is not None:
                await self._write_end(task, edit)
        finally:
            self.running.pop(task.id, None)

    async def _ending(
        self, task: RunningTask, call: OngoingCall, error_of: Callable[[Exception], Raw]
    ) -> Callable[[TaskRecord, float], TaskRecord] | None:
        """Return the change that ends a task, once its call has ended; None: it is handed over."""
        try:
            value = await call.result
        except CallRefused as refused:
            kind = refused.refusal.kind
            if kind == "cancelled":
                return lambda one, now: rules.cancelled(one, now, "cancelled")
            if kind == "draining":
                return await self._stopped(task)
            error, why = error_of(refused), refused.refusal.reason
            return lambda one, now: rules.failed(one, now, error, why)
        except Exception as raised:
            error, why = error_of(raised), (isinstance(raised, RpcError) and raised.message) or "it failed"
            return lambda one, now: rules.failed(one, now, error, why)
        return lambda one, now: rules.completed(one, now, Raw(value))

    async def _stopped(self, task: RunningTask) -> Callable[[TaskRecord, float], TaskRecord] | None:
        """Hand a task over to another process, or end it, because this server stops."""
        if task.idempotent:
            self.handed_over.add(task.id)
            return None
        why = "the server was stopped before it was done"
        return lambda one, now: rules.failed(one, now, STOPPED, why)

    async def _write_end(self, task: RunningTask, end: Callable[[TaskRecord, float], TaskRecord]) -> None:
        """Write the end of a task, which is kept from then on; while the store is away or full, again and again. One
        for which there is no room fails, which takes up little."""

        async def write(end: Callable[[TaskRecord, float], TaskRecord]) -> None:
            now = await self.store.now()
            await self.edit(
                task.id,
                lambda one: rules.kept_until(end(task.with_last_progress(one, now), now), now + task.keep),
                True,
            )

        async def write_or_fail() -> None:
            nonlocal end
            try:
                await write(end)
            except TasksFull as error:
                why = str(error)
                fault = error_object(f"the result has no room in the store of tasks: {why}")
                end = lambda one, now: rules.failed(one, now, fault, why)  # noqa: E731
                await write(end)

        await self._try_until_done(write_or_fail)

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics, by name."""
        return {
            "tasks_running": len(self.running),
            "tasks_began_total": self.began_total,
            "tasks_taken_over_total": self.lost_total,
            **self.store.measures(),
        }


def _broken(record: TaskRecord, now: float) -> TaskRecord:
    return rules.failed(record, now, error_object("its result cannot be told"), "its result cannot be told")
