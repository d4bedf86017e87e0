"""Gathers what goes on in a server, and its metrics, from where they are: this process, or the workers of a
supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..channel import Caller
from ..jsonrpc.errors import RpcError
from ..jsonrpc.messages import ErrorObject
from ..telemetry.figures import MetricFamily, MetricSample, exposition, sum_families
from ..telemetry.instruments import PREFIX, instrument_of
from ..telemetry.metrics import Metrics
from ..telemetry.process import process_families
from ..workers.reports import Report, Reports
from ..workers.supervisor import Supervisor
from .board import BY, CALLS, NOT_KILLED, CallsInFlight, no_call
from .calls import CallState
from .errors import ERRORS
from .overview import Overview, WorkerState, build_overview
from .process import CONNECTIONS, ProcessConsole, no_connection, read_machine
from .rows import (
    Connections,
    EndedCall,
    KeptError,
    KeptMessages,
    Machine,
    MessageRow,
    MethodRow,
    MethodSeconds,
    ServedRow,
    Tick,
)
from .views import method_rows, parse_filter, sum_methods

T = TypeVar("T")

SOONEST: Final = 0.01
"""Seconds until a worker is asked again for the answer to a call from the page; each time twice as many."""
LATEST: Final = 0.5
"""Seconds between two such questions at most."""
_DIGITS: Final = 20
"""Characters of the number of a process, and of a call or connection in it."""

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

    async def machine(self) -> list[Machine]:
        """The processes, that of the console first."""

    async def tick(self, after: Mapping[int, int]) -> dict[int, Tick]:
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

    async def machine(self) -> list[Machine]:
        """This process."""
        return [read_machine()]

    async def tick(self, after: Mapping[int, int]) -> dict[int, Tick]:
        """What has happened here; the number of this process is 0."""
        return {0: self._process.tick(after.get(0))}


class WorkersConsole:
    """All workers of a supervisor. The id of a call is that of its process and its own: "4711:7"."""

    def __init__(self, supervisor: Supervisor, sums: Sums) -> None:
        self._supervisor = supervisor
        self._sums = sums

    async def look(self, where: bool = False) -> Overview:
        """What goes on in all of them; what ended with a worker stays counted."""
        found, (families, reports) = await asyncio.gather(self._ask("calls", [where], CallsInFlight), self._sums.read())
        return build_overview(_merge(found), families, [_worker_state(one, one.pid in found) for one in reports.living])

    async def kill(self, id: str, by: str = BY) -> None:
        """End a call of the worker that holds it."""
        await self._order("kill", id, by, no_call(id))

    async def timeline(self, filter: str, limit: int, before: float | None) -> list[EndedCall]:
        """What has ended in all of them and fits, the newest first."""
        parse_filter(filter)  # its error is ours
        found = await self._ask("timeline", [filter, limit, before], list[EndedCall])
        rows = [_row_of(pid, one) for pid, those in found.items() for one in those]
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
        rows = [replace(one, id=_id_of(pid, one.id)) for pid, those in found.items() for one in those]
        return sorted(rows, key=lambda one: -one.time)[:ERRORS]

    async def connections(self) -> Connections:
        """What is open in all of them."""
        found = await self._ask("connections", [], Connections)
        rows = [replace(one, id=_id_of(pid, one.id)) for pid, those in found.items() for one in those.connections]
        more = sum(those.more for those in found.values()) + max(0, len(rows) - CONNECTIONS)
        return Connections(connections=rows[:CONNECTIONS], more=more)

    async def end(self, id: str, by: str) -> None:
        """Begin to end a connection of the worker that has it."""
        await self._order("end", id, by, no_connection(id))

    async def catalog(self) -> list[Any]:
        """What they offer: all the same, so it is that of the first that answers."""
        found = await self._ask("catalog", [], list[Raw])
        return next(iter(found.values()), [])

    async def services(self) -> list[ServedRow]:
        """What they serve: all the same, as the catalog."""
        found = await self._ask("services", [], list[ServedRow])
        return next(iter(found.values()), [])

    async def call(self, at: str, message: bytes, caller: Caller, by: str) -> bytes | None:
        """Make a call in a worker that is free to take it. It is asked for the answer again and again, since a worker
        answers its supervisor at once; when the caller is gone, the call is dropped."""
        identity = None if caller.identity is None else replace(caller.identity, credential=None)
        params = [at, message.decode(errors="replace"), caller.remote, identity, by]
        free = await self._ask("services", [], list[ServedRow])
        if not free:
            raise RpcError.of(NOT_KILLED, "no worker answers now; try it again")
        pid = next(iter(free))
        ticket = await self._ask_one(pid, "begin_call", params, int)
        pause = SOONEST
        try:
            while not (state := await self._ask_one(pid, "call_state", [ticket], CallState)).done:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LATEST)
            return None if state.answer is UNSET else bytes(state.answer)
        finally:
            await asyncio.shield(self._ask("end_call", [ticket], bool, pid))

    async def machine(self) -> list[Machine]:
        """The supervisor, and its workers."""
        found = await self._ask("machine", [], Machine)
        return [read_machine(), *found.values()]

    async def tick(self, after: Mapping[int, int]) -> dict[int, Tick]:
        """What has happened in each of them."""
        found = await self._ask("tick", [{f"{pid}": seq for pid, seq in after.items()}], Tick)
        return {
            pid: replace(
                tick,
                calls=[replace(one, id=f"{pid}:{one.id}", worker=pid) for one in tick.calls],
                rows=[_row_of(pid, one) for one in tick.rows],
            )
            for pid, tick in found.items()
        }

    async def _ask(self, method: str, params: list[Any], kind: type[T], pid: int | None = None) -> dict[int, T]:
        """Return what the workers answer, without those that do not, by process id."""
        answers = await self._supervisor.query(_request(method, params), pid)
        found = {pid: _answer(text).result for pid, text in answers.items()}
        return {pid: msgspec.json.decode(one, type=kind) for pid, one in found.items() if one is not UNSET}

    async def _ask_one(self, pid: int, method: str, params: list[Any], kind: type[T]) -> T:
        """Return what a worker answers. Raises its error, or one for a worker that does not answer."""
        answers = await self._supervisor.query(_request(method, params), pid)
        if pid not in answers:
            raise RpcError.of(NOT_KILLED, f"worker {pid} does not answer")
        answer = _answer(answers[pid])
        if isinstance(answer.error, ErrorObject):
            raise RpcError.of(answer.error.code, answer.error.message)
        return msgspec.json.decode(answer.result or b"null", type=kind)

    async def _order(self, method: str, id: str, by: str, none: RpcError) -> None:
        """Have the worker whose id it is do something. Raises its error, or `none` where there is no such worker."""
        pid, colon, own = id.partition(":")
        if not colon or not (pid.isascii() and pid.isdigit()) or len(pid) > _DIGITS:
            raise none
        own = own[:_DIGITS]
        answers = await self._supervisor.query(_request(method, [own, by]), int(pid))
        if not answers:
            raise none
        if isinstance(error := _answer(answers[int(pid)]).error, ErrorObject):
            raise RpcError.of(error.code, error.message.replace(f" {own} ", f" {id} "))


class _Answer(Struct):
    """What a worker answers."""

    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


_answer = msgspec.json.Decoder(_Answer).decode


def _request(method: str, params: list[Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, "id": 1})


def _id_of(pid: int, id: str) -> str:
    return f"{pid}:{id}" if id else ""


def _row_of(pid: int, row: EndedCall) -> EndedCall:
    return replace(row, id=_id_of(pid, row.id), parent=_id_of(pid, row.parent))


def _merge(found: Mapping[int, CallsInFlight]) -> CallsInFlight:
    """The calls of all workers, oldest first, as many as of one process."""
    calls = [replace(one, id=f"{pid}:{one.id}", worker=pid) for pid, held in found.items() for one in held.calls]
    calls.sort(key=lambda one: -one.age)
    more = sum(held.more for held in found.values()) + max(0, len(calls) - CALLS)
    return CallsInFlight(calls[:CALLS], more)


def _worker_state(one: Report, answers: bool) -> WorkerState:
    families: Iterable[MetricFamily] = snapshot(one.text) if one.text else ()
    totals = {family.name.removeprefix(PREFIX): sum(s.total for s in family.samples) for family in families}
    names = ("channels", "sessions", "calls_in_flight", "calls_waiting", "calls_total")
    return WorkerState(
        one.number, one.pid, round(one.age, 1), one.state, answers, *(totals.get(name, 0.0) for name in names)
    )
