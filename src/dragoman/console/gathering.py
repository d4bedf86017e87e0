"""Gathers what goes on in a server, and its metrics, from where they are: this process, the workers of a supervisor,
replicas that share a bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, time
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..channel import Caller
from ..events.board import EventSubscription, SubscriptionState
from ..jsonrpc.errors import RpcError
from ..jsonrpc.messages import ErrorObject
from ..repeats import Repeats
from ..tasks.record import Status
from ..telemetry.figures import MetricFamily, MetricSample, exposition, sum_families
from ..telemetry.instruments import PREFIX, instrument_of
from ..telemetry.metrics import Metrics
from ..telemetry.process import process_families
from ..workers.reports import Report, Reports
from ..workers.supervisor import Supervisor
from .asking import Processes
from .board import BY, CALLS, NOT_KILLED, CallsInFlight, no_call
from .calls import CallState, not_served
from .errors import ERRORS
from .overview import Overview, WorkerState, build_overview
from .process import CONNECTIONS, ProcessConsole, no_connection, read_machine
from .rows import (
    Connections,
    EndedCall,
    KeptError,
    KeptMessages,
    Machine,
    Machines,
    MessageRow,
    MethodRow,
    MethodSeconds,
    ProcessReport,
    ServedRow,
    SubscriptionRows,
    TaskDetail,
    TaskRow,
    TaskRows,
    Tick,
)
from .subscriptions import check_place, no_subscription, read_words
from .tasks import no_task
from .views import merge_subscriptions, merge_tasks, method_rows, parse_filter, sum_methods

repeats: Repeats = Repeats(logging.getLogger("dragoman"))

T = TypeVar("T")

SOONEST: Final = 0.01
"""Seconds until a process is asked again for the answer to a call from the page; each time twice as many."""
LATEST: Final = 0.5
"""Seconds between two such questions at most."""
FAR: Final = 1.0
"""Seconds between two questions of the feed to processes over a bus: it carries other things, too."""
_OWN: Final = 60
"""Characters of the number of a call or connection in its process, or of the name of a task or subscription there."""

snapshot: Callable[[bytes], list[MetricFamily]] = msgspec.json.Decoder(list[MetricFamily]).decode
"""What a worker's report says."""


def report(metrics: Metrics) -> bytes:
    """What a worker sends its supervisor: the snapshot as JSON, which is one line."""
    return msgspec.json.encode([*metrics.snapshot(), *process_families()])


class Sums:
    """The metrics of all workers together: what has ended stays in the counters, so that they never fall."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._ended: list[MetricFamily] = []

    async def text(self) -> bytes:
        """Prometheus' text format."""
        return exposition((await self.read())[0])

    async def read(self) -> tuple[list[MetricFamily], Reports]:
        """The sums, and what each worker reported."""
        reports = await self._supervisor.reports()
        living = [snapshot(one.text) for one in reports.living if one.text]
        self._ended = sum_families([self._ended, *(snapshot(one) for one in reports.ended)], gauges=False)
        numbers = {
            "workers": len(living),
            "worker_starts_total": reports.starts,
            "worker_failures_total": reports.failures,
        }
        workers = [
            MetricFamily(f"{PREFIX}{name}", (one := instrument_of(name)).kind, one.help, [MetricSample((), value)])
            for name, value in numbers.items()
        ]
        return [*sum_families([*living, self._ended]), *workers], reports


class ConsoleSource(Protocol):
    """What the console and the admin socket show: this process, or all workers. Ids of calls and of connections are as
    in `look`."""

    async def look(self, where: bool = False) -> Overview:
        """What goes on. `where`: and where each call is."""

    async def kill(self, id: str, by: str = BY) -> None:
        """End a call. `by`: who does it. RpcError if there is none, or it has not begun."""

    async def timeline(self, filter: str, limit: int, before: float | None) -> list[EndedCall]:
        """What has ended and fits, the newest first. `before`: only what ended before this time. Raises LocalError for
        what is no filter."""

    async def messages(self, filter: str, limit: int, before: float | None) -> KeptMessages | None:
        """The messages that have passed and fit, the newest first; None where none are kept. `before` and the error as
        for `timeline`."""

    async def methods(self, seconds: int, step: int) -> list[MethodRow]:
        """What each method did in the last seconds."""

    async def errors(self) -> list[KeptError]:
        """The last errors, the newest first."""

    async def connections(self) -> Connections:
        """What is open."""

    async def end(self, id: str, by: str) -> None:
        """Begin to end a connection. RpcError if there is none, or it cannot be ended by itself."""

    async def services(self) -> list[ServedRow]:
        """What is served."""

    async def catalog(self) -> list[Any]:
        """What is offered, as values for JSON."""

    async def call(self, at: str, message: bytes, caller: Caller, by: str) -> bytes | None:
        """Make a call of what is served at the path `at`, as this caller; return the answer, None where none is owed.
        `by`: who does it, for the log. RpcError if nothing is served there, or this caller may not call it."""

    async def tasks(self, status: Status | None, before: float | None, limit: int) -> TaskRows | None:
        """The tasks that have this status (None: any), the newest first; None where nothing that is served has any.
        `before`: only those that were created before this time."""

    async def task(self, id: str) -> TaskDetail | None:
        """All of a task that was listed; None where there is none. RpcError if it cannot be read now."""

    async def cancel_task(self, id: str, by: str) -> None:
        """Request the cancellation of a task. `by`: who does it. RpcError if there is none, or it has ended."""

    async def answer_task(self, id: str, answers: Mapping[str, Any], by: str) -> None:
        """Answer questions of a task, by their keys. `by`: who does it. RpcError if they do not wait any more."""

    async def subscriptions(
        self, state: SubscriptionState | None, words: str, after: str, limit: int
    ) -> SubscriptionRows | None:
        """The subscriptions to events that are in this state (None: any), and whose id, type, receiver and caller hold
        all words, in the order of their types; None where nothing that is served has any. `after`: only those behind
        the place that a page has as its `after`; "": from the first. Raises LocalError for too many words, and for what
        is no place."""

    async def end_subscription(self, id: str, by: str) -> None:
        """End a subscription. `by`: who does it. RpcError if there is none."""

    async def retry_subscription(self, id: str, by: str) -> None:
        """Try the event that a receiver did not accept again at once. `by`: who does it. RpcError if there is none."""

    async def machine(self) -> Machines:
        """The processes, that of the console first."""

    async def tick(self, after: Mapping[str, int]) -> dict[str, Tick]:
        """What has happened in each process since these ticks; in one that is not among them, from now on."""


class OwnConsole:
    """This process."""

    def __init__(self, process: ProcessConsole, metrics: Metrics) -> None:
        self._process = process
        self._board = process.recorder.board
        self._metrics = metrics

    async def look(self, where: bool = False) -> Overview:
        """What goes on here."""
        return build_overview(self._board.calls(where), self._metrics.snapshot())

    async def kill(self, id: str, by: str = BY) -> None:
        """End a call of this process."""
        self._board.kill(id, by)

    async def timeline(self, filter: str, limit: int, before: float | None) -> list[EndedCall]:
        """What has ended here and fits."""
        return self._process.timeline(filter, limit, before)

    async def messages(self, filter: str, limit: int, before: float | None) -> KeptMessages | None:
        """The messages that have passed here and fit."""
        return self._process.messages(filter, limit, before)

    async def methods(self, seconds: int, step: int) -> list[MethodRow]:
        """What each method did in the last seconds."""
        return method_rows(self._process.methods(int(time()), seconds, step))

    async def errors(self) -> list[KeptError]:
        """The last errors."""
        return self._process.errors()

    async def connections(self) -> Connections:
        """What is open here."""
        return self._process.connections()

    async def end(self, id: str, by: str) -> None:
        """Begin to end a connection."""
        self._process.end(id, by)

    async def services(self) -> list[ServedRow]:
        """What is served here."""
        return self._process.services()

    async def call(self, at: str, message: bytes, caller: Caller, by: str) -> bytes | None:
        """Make a call of what is served here."""
        return await self._process.calls.call(at, message, caller, by)

    async def catalog(self) -> list[Any]:
        """What is offered here."""
        return self._process.catalog()

    async def tasks(self, status: Status | None, before: float | None, limit: int) -> TaskRows | None:
        """The tasks of what is served here."""
        return await self._process.tasks.list_recent(status, before, limit)

    async def task(self, id: str) -> TaskDetail | None:
        """All of a task."""
        return await self._process.tasks.find(id)

    async def cancel_task(self, id: str, by: str) -> None:
        """Request the cancellation of a task."""
        await self._process.tasks.cancel(id, by)

    async def answer_task(self, id: str, answers: Mapping[str, Any], by: str) -> None:
        """Answer questions of a task."""
        await self._process.tasks.answer(id, answers, by)

    async def subscriptions(
        self, state: SubscriptionState | None, words: str, after: str, limit: int
    ) -> SubscriptionRows | None:
        """The subscriptions to the events of what is served here."""
        return await self._process.subscriptions.list_subscriptions(state, words, after, limit)

    async def end_subscription(self, id: str, by: str) -> None:
        """End a subscription."""
        await self._process.subscriptions.end(id, by)

    async def retry_subscription(self, id: str, by: str) -> None:
        """Try the event that a receiver did not accept again at once."""
        await self._process.subscriptions.retry(id, by)

    async def machine(self) -> Machines:
        """This process."""
        return Machines(processes=[self._process.machine()], missing=[])

    async def tick(self, after: Mapping[str, int]) -> dict[str, Tick]:
        """What has happened here; the key of this process is ""."""
        return {"": self._process.tick(after.get(""))}


class GatheredConsole:
    """Several processes: the workers of a supervisor, replicas that share a bus, or both. The id of a call is the key
    of its process and its own: "4711:7".

    `near`: what is asked directly: this process, or the workers of a supervisor; `sums`: the supervisor's; `far`: what
    is asked over a bus, once in `FAR` seconds at most for the feed; `me`: the name of this console, for the logs of
    those.
    """

    def __init__(
        self, near: Processes, *, sums: Sums | None = None, far: Processes | None = None, me: str = ""
    ) -> None:
        self._near = near
        self._far = far
        self._all = [near] if far is None else [near, far]
        self._sums = sums
        self._me = me
        self._ticks: dict[str, Tick] = {}
        """What those that are far answered last."""
        self._told = -FAR
        """When that was, in seconds of the monotonic clock."""

    def __repr__(self) -> str:
        return f"<GatheredConsole of {self._near!r}{'' if self._far is None else f' and {self._far!r}'}>"

    async def look(self, where: bool = False) -> Overview:
        """What goes on in all of them; what ended with a worker stays counted."""
        found, (families, reports), (more, replicas) = await asyncio.gather(
            self._ask("calls", [where], CallsInFlight), self._read_sums(), self._read_replicas()
        )
        workers = [_worker_state(one, f"{one.pid}" in found) for one in reports]
        return build_overview(_merge(found), sum_families([families, more]), [*workers, *replicas])

    async def _read_sums(self) -> tuple[list[MetricFamily], list[Report]]:
        """Return the metrics of the workers, and what each reported."""
        if self._sums is None:
            return [], []
        families, reports = await self._sums.read()
        return families, reports.living

    async def _read_replicas(self) -> tuple[list[MetricFamily], list[WorkerState]]:
        """Return the metrics of those that are no workers here, and the state of each."""
        processes = self._all if self._sums is None else self._all[1:]
        found, missing = await self._gather("report", [], ProcessReport, processes)
        states = [_replica_state(key, one) for key, one in found.items()] + [_missing_state(key) for key in missing]
        return sum_families([one.families for one in found.values()]), states

    async def kill(self, id: str, by: str = BY) -> None:
        """End a call of the process that holds it."""
        await self._order("kill", id, by, no_call(id))

    async def timeline(self, filter: str, limit: int, before: float | None) -> list[EndedCall]:
        """What has ended in all of them and fits, the newest first."""
        parse_filter(filter)  # its error is ours
        found = await self._ask("timeline", [filter, limit, before], list[EndedCall])
        rows = [_row_of(key, one) for key, those in found.items() for one in those]
        return sorted(rows, key=lambda one: -one.ended)[:limit]

    async def messages(self, filter: str, limit: int, before: float | None) -> KeptMessages | None:
        """The messages that have passed in all of them and fit, the newest first."""
        parse_filter(filter, MessageRow)  # its error is ours
        found = await self._ask("messages", [filter, limit, before], list[KeptMessages])
        those = [one for kept in found.values() for one in kept]
        if not those:
            return None
        rows = sorted((row for one in those for row in one.messages), key=lambda row: -row.time)[:limit]
        return KeptMessages(messages=rows, kept=sum(one.kept for one in those), count=sum(one.count for one in those))

    async def methods(self, seconds: int, step: int) -> list[MethodRow]:
        """What each method did in all of them: percentiles are of all their calls."""
        found = await self._ask("methods", [int(time()), seconds, step], list[MethodSeconds])
        return method_rows(sum_methods(found.values()))

    async def errors(self) -> list[KeptError]:
        """The last errors of all of them."""
        found = await self._ask("errors", [], list[KeptError])
        rows = [replace(one, id=_id_of(key, one.id)) for key, those in found.items() for one in those]
        return sorted(rows, key=lambda one: -one.time)[:ERRORS]

    async def connections(self) -> Connections:
        """What is open in all of them."""
        found = await self._ask("connections", [], Connections)
        rows = [replace(one, id=_id_of(key, one.id)) for key, those in found.items() for one in those.connections]
        more = sum(those.more for those in found.values()) + max(0, len(rows) - CONNECTIONS)
        return Connections(connections=rows[:CONNECTIONS], more=more)

    async def end(self, id: str, by: str) -> None:
        """Begin to end a connection of the process that has it."""
        await self._order("end", id, by, no_connection(id))

    async def catalog(self) -> list[Any]:
        """What they offer; of what several serve, what the first of them offers."""
        found: dict[str, Raw] = {}
        for those in (await self._ask("catalog", [], list[Raw])).values():
            for one in those:
                found.setdefault(_named(one).name, one)
        return list(found.values())

    async def services(self) -> list[ServedRow]:
        """What they serve; what several serve is listed once."""
        found = await self._ask("services", [], list[ServedRow])
        return list(dict.fromkeys(one for those in found.values() for one in those))

    async def call(self, at: str, message: bytes, caller: Caller, by: str) -> bytes | None:
        """Make a call in a process that serves this and answers, one that is near if there is one. It is asked for the
        answer again and again, since a process answers a console at once; when the caller is gone, the call is
        dropped."""
        identity = None if caller.identity is None else replace(caller.identity, credential=None)
        params = [at, message.decode(errors="replace"), caller.remote, identity, self._sign(by)]
        free = await self._ask("services", [], list[ServedRow])
        if not free:
            raise RpcError.of(NOT_KILLED, "no process answers now; try it again")
        key = next((key for key, those in free.items() if any(one.path == at for one in those)), None)
        if key is None:
            raise not_served(at)
        ticket = await self._ask_one(key, "begin_call", params, int)
        pause = SOONEST
        try:
            while not (state := await self._ask_one(key, "call_state", [ticket], CallState)).done:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LATEST)
            return None if state.answer is UNSET else bytes(state.answer)
        finally:
            await asyncio.shield(self._query(_request("end_call", [ticket]), key))

    async def tasks(self, status: Status | None, before: float | None, limit: int) -> TaskRows | None:
        """The tasks of all of them. One that several see, since they share a store, is listed once, as the process that
        runs it does."""
        found = await self._ask("tasks", [status, before, limit], list[TaskRows])
        pages = [
            replace(page, tasks=[_kept_of(key, one) for one in page.tasks])
            for key, those in found.items()
            for page in those
        ]
        return merge_tasks(pages, limit) if pages else None

    async def task(self, id: str) -> TaskDetail | None:
        """All of a task, from the process that has listed it."""
        key, _, own = id.partition(":")
        found = await self._ask_one(key, "task", [own[:_OWN]], list[TaskDetail]) if own else []
        return _kept_of(key, found[0]) if found else None

    async def cancel_task(self, id: str, by: str) -> None:
        """Request the cancellation of a task, in the process that has listed it."""
        await self._order("cancel_task", id, by, no_task(id))

    async def answer_task(self, id: str, answers: Mapping[str, Any], by: str) -> None:
        """Answer questions of a task, in the process that has listed it."""
        await self._order("answer_task", id, by, no_task(id), answers)

    async def subscriptions(
        self, state: SubscriptionState | None, words: str, after: str, limit: int
    ) -> SubscriptionRows | None:
        """The subscriptions to the events of all of them."""
        check_place(after)
        read_words(words)  # its error is ours
        found = await self._ask("subscriptions", [state, words, after, limit], list[SubscriptionRows])
        pages = [
            replace(page, subscriptions=[_kept_of(key, one) for one in page.subscriptions])
            for key, those in found.items()
            for page in those
        ]
        return merge_subscriptions(pages, limit) if pages else None

    async def end_subscription(self, id: str, by: str) -> None:
        """End a subscription, by the process that has listed it."""
        await self._order("end_subscription", id, by, no_subscription(id))

    async def retry_subscription(self, id: str, by: str) -> None:
        """Try the event that a receiver did not accept again, by the process that has listed its subscription."""
        await self._order("retry_subscription", id, by, no_subscription(id))

    async def machine(self) -> Machines:
        """The processes; with workers their supervisor first."""
        found, missing = await self._gather("machine", [], Machine, self._all)
        rows = [replace(one, key=key) for key, one in found.items()]
        return Machines(processes=rows if self._sums is None else [read_machine(), *rows], missing=missing)

    async def tick(self, after: Mapping[str, int]) -> dict[str, Tick]:
        """What has happened in each of them. Those that are far are asked once in `FAR` seconds; meanwhile nothing has
        happened there."""
        if self._far is None:
            return await self._tick(after, self._near)
        if monotonic() - self._told < FAR:
            self._ticks = {key: replace(one, rows=[], missed=0) for key, one in self._ticks.items()}
            return {**await self._tick(after, self._near), **self._ticks}
        near, self._ticks = await asyncio.gather(self._tick(after, self._near), self._tick(after, self._far))
        self._told = monotonic()
        return {**near, **self._ticks}

    async def _tick(self, after: Mapping[str, int], processes: Processes) -> dict[str, Tick]:
        found, _ = await self._gather("tick", [after], Tick, [processes])
        return {
            key: replace(
                tick,
                calls=[replace(one, id=f"{key}:{one.id}", worker=key) for one in tick.calls],
                rows=[_row_of(key, one) for one in tick.rows],
            )
            for key, tick in found.items()
        }

    async def _query(self, message: bytes, key: str) -> dict[str, bytes]:
        """Ask the process with that key."""
        found = await self._near.query(message, key)
        return found or ({} if self._far is None else await self._far.query(message, key))

    async def _ask(self, method: str, params: list[Any], kind: type[T]) -> dict[str, T]:
        """Return what the processes answer, those that are near first, by key."""
        return (await self._gather(method, params, kind, self._all))[0]

    async def _gather(
        self, method: str, params: list[Any], kind: type[T], processes: Sequence[Processes]
    ) -> tuple[dict[str, T], list[str]]:
        """Return what processes answer, and the keys of those that do not."""
        message = _request(method, params)
        answers = [
            pair for one in await asyncio.gather(*(one.query(message) for one in processes)) for pair in one.items()
        ]
        read = {key: _read(key, text, kind) for key, text in answers if text}
        given = {key: one for key, one in read.items() if one is not None}
        return given, [key for key, _ in answers if key not in given]

    async def _ask_one(self, key: str, method: str, params: list[Any], kind: type[T]) -> T:
        """Return what a process answers. Raises its error, or one for a process that does not answer."""
        answer = (await self._query(_request(method, params), key)).get(key)
        if not answer:
            raise _silent(key)
        if isinstance(error := _parse(key, answer).error, ErrorObject):
            raise RpcError.of(error.code, error.message)
        if (found := _read(key, answer, kind)) is None:
            raise _silent(key)
        return found

    async def _order(self, method: str, id: str, by: str, none: RpcError, *more: Any) -> None:
        """Have the process whose id it is do something. `more`: params beside. Raises its error, or `none` where there
        is no such process."""
        key, colon, own = id.partition(":")
        if not colon or not key:
            raise none
        own = own[:_OWN]
        answers = await self._query(_request(method, [own, self._sign(by), *more]), key)
        if key not in answers:
            raise none
        if not answers[key]:
            raise _silent(key)
        if isinstance(error := _parse(key, answers[key]).error, ErrorObject):
            raise RpcError.of(error.code, error.message.replace(f" {own} ", f" {id} "))

    def _sign(self, by: str) -> str:
        """Return who does something, with the console at which it was done where logs elsewhere tell it."""
        return f"{by}, in the console of {self._me}" if self._me else by


class _Named(Struct):
    name: str = ""


_named = msgspec.json.Decoder(_Named).decode


class _Answer(Struct):
    """What a process answers."""

    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


_answer = msgspec.json.Decoder(_Answer).decode


def _parse(key: str, answer: bytes) -> _Answer:
    """Return what a process answers; an error for what another version may say."""
    try:
        return _answer(answer)
    except msgspec.MsgspecError as error:
        repeats.warning(_UNREADABLE, key, error)
        return _Answer(error=ErrorObject(NOT_KILLED, f"what process {key} says cannot be read"))


def _read(key: str, answer: bytes, kind: type[T]) -> T | None:
    """Return the result that a process answers; None for an error, and for what another version may say."""
    try:
        result = _parse(key, answer).result
        return None if isinstance(result, UnsetType) else msgspec.json.decode(result, type=kind)
    except msgspec.MsgspecError as error:
        repeats.warning(_UNREADABLE, key, error)
        return None


_UNREADABLE: Final = "the console cannot read what the process %s says: %s"


def _request(method: str, params: list[Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})


def _silent(key: str) -> RpcError:
    return RpcError.of(NOT_KILLED, f"process {key} does not answer")


def _id_of(key: str, id: str) -> str:
    return f"{key}:{id}" if id else ""


def _row_of(key: str, row: EndedCall) -> EndedCall:
    return replace(row, id=_id_of(key, row.id), parent=_id_of(key, row.parent))


Row = TypeVar("Row", TaskRow, TaskDetail, EventSubscription)


def _kept_of(key: str, row: Row) -> Row:
    """Return the row of what is kept in a store, as a process that reads this lists it."""
    return replace(row, id=_id_of(key, row.id), worker=key if row.here else "")


def _merge(found: Mapping[str, CallsInFlight]) -> CallsInFlight:
    """The calls of all processes, oldest first, as many as of one process."""
    calls = [replace(one, id=f"{key}:{one.id}", worker=key) for key, held in found.items() for one in held.calls]
    calls.sort(key=lambda one: -one.age)
    more = sum(held.more for held in found.values()) + max(0, len(calls) - CALLS)
    return CallsInFlight(calls[:CALLS], more)


_TOTALS: Final = {
    "channels": "channels",
    "sessions": "sessions",
    "in_flight": "calls_in_flight",
    "waiting": "calls_waiting",
    "ended": "calls_total",
}
"""What of a `WorkerState` is the sum of which metric."""


def _totals(families: Iterable[MetricFamily]) -> dict[str, float]:
    totals = {family.name.removeprefix(PREFIX): sum(one.total for one in family.samples) for family in families}
    return {member: totals.get(name, 0.0) for member, name in _TOTALS.items()}


def _worker_state(one: Report, answers: bool) -> WorkerState:
    totals = _totals(snapshot(one.text) if one.text else ())
    return WorkerState(one.number, one.pid, round(one.age, 1), one.state, answers, key=f"{one.pid}", **totals)


def _replica_state(key: str, one: ProcessReport) -> WorkerState:
    return WorkerState(0, one.pid, one.age, "serving", True, key=key, **_totals(one.families))


def _missing_state(key: str) -> WorkerState:
    return WorkerState(0, 0, 0.0, "missing", False, key=key, **_totals(()))
