"""What `--admin` shows beside the calls in flight: methods, services and gauges, read from the metrics; and where it
comes from, this process or the workers of a supervisor.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...jsonrpc.errors import RpcError
from ...jsonrpc.messages import ErrorObject
from ...telemetry.figures import MetricFamily, MetricSample, quantile
from ...telemetry.instruments import PREFIX
from ...telemetry.metrics import BOUNDS, Metrics
from ...workers.reports import Report
from ...workers.supervisor import Supervisor
from .board import CALLS, Board, CallInFlight, CallsInFlight, no_call
from .metrics import Sums, snapshot


class Summary(Struct, frozen=True):
    """The calls of a method that have ended. `name`: the tool or prompt of MCP; `p50`, `p95`, `p99`: seconds that so
    many percent did not exceed, read off the histogram, and never beyond the shortest and the longest of them."""

    service: str
    method: str
    name: str
    count: int
    errors: int
    p50: float
    p95: float
    p99: float


class Served(Struct, frozen=True):
    """One service or MCP server. `channels`, `sessions`, `streams`, `subscribers`: how many are open; `in_flight`: its
    calls; `waiting`: those of them in a queue; `wait_p95`: seconds that 95 percent of all calls did not wait longer for
    their start."""

    service: str
    channels: float
    sessions: float
    streams: float
    subscribers: float
    in_flight: float
    waiting: float
    wait_p95: float


class WorkerState(Struct, frozen=True):
    """A worker process. `age`: seconds since it listens; `answers`: False of one whose loop is blocked, of which the
    last numbers are shown; `ended`: its calls that have ended."""

    number: int
    pid: int
    age: float
    state: str
    answers: bool
    channels: float
    sessions: float
    in_flight: float
    waiting: float
    ended: float


class Overview(Struct, frozen=True):
    """What goes on at one moment. `more`: calls in flight that are not listed; `figures`: sums of all gauges by name;
    `workers`: empty where one process serves by itself."""

    calls: list[CallInFlight]
    more: int
    methods: list[Summary]
    services: list[Served]
    workers: list[WorkerState]
    figures: dict[str, float]


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


def build_overview(
    calls: CallsInFlight, families: Sequence[MetricFamily], workers: list[WorkerState] | None = None
) -> Overview:
    """The overview, from the calls in flight and the metrics."""
    by_name = {one.name.removeprefix(PREFIX): one.samples for one in families}
    gauges = {one.name: sum(sample.total for sample in one.samples) for one in families if one.kind == "gauge"}
    return Overview(
        calls.calls, calls.more, _summarize_methods(by_name), _summarize_services(by_name), workers or [], gauges
    )


_Samples = Mapping[str, Sequence[MetricSample]]


def _summarize_methods(by_name: _Samples) -> list[Summary]:
    """All methods that have run, the most called first."""
    errors: dict[tuple[str, str, str], float] = defaultdict(float)
    for sample in by_name.get("calls_total", ()):
        labels = dict(sample.labels)
        errors[_key(labels)] += sample.total if labels["outcome"] != "result" else 0
    found = []
    for sample in by_name.get("call_duration_seconds", ()):
        key = _key(dict(sample.labels))
        times = (quantile(BOUNDS, sample, share) for share in (0.5, 0.95, 0.99))
        found.append(Summary(*key, sum(sample.buckets), int(errors[key]), *times))
    return sorted(found, key=lambda one: (-one.count, one.service, one.method, one.name))


def _key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels["service"], labels["method"], labels.get("tool", "") or labels.get("prompt", "")


_GAUGES: Final = ("channels", "sessions", "streams", "subscribers", "calls_in_flight", "calls_waiting")


def _summarize_services(by_name: _Samples) -> list[Served]:
    """All services that have been called or hold something."""
    rows: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(_GAUGES, 0.0))
    for name in _GAUGES:
        for sample in by_name.get(name, ()):
            rows[dict(sample.labels).get("service", "")][name] += sample.total
    waits = {dict(one.labels)["service"]: one for one in by_name.get("queue_wait_seconds", ()) if any(one.buckets)}
    return [
        Served(
            service,
            row["channels"],
            row["sessions"],
            row["streams"],
            row["subscribers"],
            row["calls_in_flight"],
            row["calls_waiting"],
            quantile(BOUNDS, waits[service], 0.95) if service in waits else 0.0,
        )
        for service, row in sorted(rows.items())
    ]


def _worker_state(one: Report, answers: bool) -> WorkerState:
    families: Iterable[MetricFamily] = snapshot(one.text) if one.text else ()
    totals = {family.name.removeprefix(PREFIX): sum(s.total for s in family.samples) for family in families}
    names = ("channels", "sessions", "calls_in_flight", "calls_waiting", "calls_total")
    return WorkerState(
        one.number, one.pid, round(one.age, 1), one.state, answers, *(totals.get(name, 0.0) for name in names)
    )
