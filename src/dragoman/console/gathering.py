"""Gathers what goes on in a server, and its metrics, from where they are: this process, or the workers of a
supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..jsonrpc.errors import RpcError
from ..jsonrpc.messages import ErrorObject
from ..telemetry.figures import MetricFamily, MetricSample, exposition, sum_families
from ..telemetry.instruments import PREFIX, instrument_of
from ..telemetry.metrics import Metrics
from ..telemetry.process import process_families
from ..workers.reports import Report, Reports
from ..workers.supervisor import Supervisor
from .board import CALLS, Board, CallsInFlight, no_call
from .overview import Overview, WorkerState, build_overview

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


class Source(Protocol):
    """What the admin socket shows: this process, or all workers."""

    async def look(self) -> Overview:
        """What goes on."""

    async def kill(self, id: str) -> None:
        """End a call. RpcError if there is none, or it has not begun."""


class OwnSource:
    """This process."""

    def __init__(self, board: Board, metrics: Metrics) -> None:
        self._board = board
        self._metrics = metrics

    async def look(self) -> Overview:
        """What goes on here."""
        return build_overview(self._board.calls(), self._metrics.snapshot())

    async def kill(self, id: str) -> None:
        """End a call of this process."""
        self._board.kill(id)


class WorkersSource:
    """All workers of a supervisor. The id of a call is that of its process and its own: "4711:7"."""

    def __init__(self, supervisor: Supervisor, sums: Sums) -> None:
        self._supervisor = supervisor
        self._sums = sums

    async def look(self) -> Overview:
        """What goes on in all of them; what ended with a worker stays counted."""
        answers, (families, reports) = await asyncio.gather(self._supervisor.query(_LIST), self._sums.read())
        listed = {pid: _calls(answer).result for pid, answer in answers.items()}
        found = {pid: calls for pid, calls in listed.items() if isinstance(calls, CallsInFlight)}
        return build_overview(_merge(found), families, [_worker_state(one, one.pid in found) for one in reports.living])

    async def kill(self, id: str) -> None:
        """End a call of the worker that holds it."""
        pid, colon, number = id.partition(":")
        if not colon or not pid.isascii() or not pid.isdigit():
            raise no_call(id)
        request = msgspec.json.encode({"jsonrpc": "2.0", "method": "kill", "params": [number[:20]], "id": 1})
        answers = await self._supervisor.query(request, int(pid))
        if not answers:
            raise no_call(id)
        if isinstance(error := _calls(answers[int(pid)]).error, ErrorObject):
            raise RpcError.of(error.code, error.message.replace(f"call {number} ", f"call {id} "))


class _Answer(Struct):
    """What a worker answers to `calls` and to `kill`."""

    result: CallsInFlight | None = None
    error: ErrorObject | UnsetType = UNSET


_LIST: Final = b'{"jsonrpc":"2.0","method":"calls","id":1}'
_calls = msgspec.json.Decoder(_Answer).decode


def _merge(found: Mapping[int, CallsInFlight]) -> CallsInFlight:
    """The calls of all workers, oldest first, as many as of one process."""
    calls = [msgspec.structs.replace(one, id=f"{pid}:{one.id}") for pid, held in found.items() for one in held.calls]
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
