"""What goes on in a server at one moment, as values: calls in flight, methods, services, workers and gauges; methods,
services and gauges are read from the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from ..telemetry.figures import MetricFamily, MetricSample, quantile
from ..telemetry.instruments import PREFIX
from ..telemetry.metrics import BOUNDS
from .board import CallInFlight, CallsInFlight


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
    """A worker process, or a replica. `number`: of a worker, 0 of others; `age`: seconds since it listens; `answers`:
    False of a worker whose loop is blocked, of which the last numbers are shown, and of a replica that is missing;
    `ended`: its calls that have ended."""

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
    key: str = ""
    """The beginning of its ids."""


class Overview(Struct, frozen=True):
    """What goes on at one moment. `more`: calls in flight that are not listed; `figures`: sums of all gauges by name;
    `workers`: and replicas; empty where one process serves by itself."""

    calls: list[CallInFlight]
    more: int
    methods: list[Summary]
    services: list[Served]
    workers: list[WorkerState]
    figures: dict[str, float]


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
