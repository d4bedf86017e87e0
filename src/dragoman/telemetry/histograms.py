"""Histograms for OpenTelemetry: the buckets that we have counted, added to what a reader exports.

OpenTelemetry's own histograms would have to be called for each call, which costs several times as much as all that we
count; they have no observable form. So the buckets go as they are, with the bounds of `Metrics`, into the exporter's
next batch.
The names of calls' durations are those of the conventions (`conventions.DURATIONS`), whose suggested bounds begin at 5
or 10 milliseconds and would be blind here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any, Final, TypeAlias, cast

from ..jsonrpc.errors import LocalError, needs
from ..jsonrpc.options import check
from .conventions import DURATIONS, duration_attributes, metric_attributes, metric_name
from .instruments import INSTRUMENTS, PREFIX, instrument_of
from .metrics import BOUNDS, Metrics

try:
    from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricExporter,
        MetricExportResult,
        MetricsData,
        ScopeMetrics,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    from .meters import METRICS
except ImportError:
    raise needs("HistogramExporter", "opentelemetry-sdk", "otel") from None

_CALLS: Final = "From the call to its answer."
_NANO: Final = 1_000_000_000

Counted: TypeAlias = tuple[float, tuple[int, ...]]
"""The sum of a histogram, and how many fell into each bucket."""
Key: TypeAlias = tuple[str, str, frozenset[tuple[str, str]]]
"""The name of a histogram, its description, and attributes."""


class HistogramExporter(MetricExporter):
    """An exporter that adds the histograms of these metrics to what it passes on to another:
    `PeriodicExportingMetricReader(HistogramExporter(OTLPMetricExporter(), metrics))`. It is called when there is
    something to export, so `Meters` belongs to the same provider. LocalError where either is something else.
    """

    def __init__(self, exporter: MetricExporter, metrics: Metrics) -> None:
        check("HistogramExporter", {"metrics": METRICS}, {"metrics": metrics})
        if not isinstance(exporter, MetricExporter):
            raise LocalError(f"HistogramExporter: exporter is {exporter!r}, and must be a MetricExporter")
        temporality = exporter._preferred_temporality
        super().__init__(temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._metrics = metrics
        self._wanted = (temporality or {}).get(HistogramInstrument, AggregationTemporality.CUMULATIVE)
        self._sent: Mapping[Key, Counted] = {}
        self._since = int(metrics.since * _NANO)

    def __repr__(self) -> str:
        return f"<HistogramExporter of {self._exporter!r}>"

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export a batch with our histograms in it."""
        resources = list(metrics_data.resource_metrics)
        if resources:
            resources[0] = replace(resources[0], scope_metrics=self._with_ours(resources[0].scope_metrics))
            metrics_data = replace(metrics_data, resource_metrics=resources)
        return self._exporter.export(metrics_data, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """As the other exporter, which is called."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """As the other exporter, which is called."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    def _with_ours(self, scopes: Sequence[ScopeMetrics]) -> list[ScopeMetrics]:
        """Return the scopes, with our histograms added to ours."""
        made = self._make_histograms(time_ns())
        ours = next((one for one in scopes if one.scope.name == "dragoman"), None)
        if ours is None:
            return [*scopes, ScopeMetrics(InstrumentationScope("dragoman"), made, "")]
        return [replace(one, metrics=[*one.metrics, *made]) if one is ours else one for one in scopes]

    def _make_histograms(self, now: int) -> list[Metric]:
        """Return the histograms as they are. `now`: Unix time in nanoseconds."""
        counted, delta = _counted(self._metrics), self._wanted is AggregationTemporality.DELTA
        points: dict[tuple[str, str], list[HistogramDataPoint]] = {}
        for (name, words, attributes), (seconds, buckets) in counted.items():
            if delta:
                before, fell = self._sent.get((name, words, attributes), (0.0, (0,) * len(buckets)))
                seconds -= before
                buckets = tuple(a - b for a, b in zip(buckets, fell, strict=True))
            point = HistogramDataPoint(
                attributes=dict(attributes),
                start_time_unix_nano=self._since,
                time_unix_nano=now,
                count=sum(buckets),
                sum=seconds,
                bucket_counts=buckets,
                explicit_bounds=BOUNDS,
                min=cast(float, None),  # neither is known: the fields are left out
                max=cast(float, None),
            )
            points.setdefault((name, words), []).append(point)
        if delta:
            self._sent, self._since = counted, now
        return [Metric(name, words, "s", Histogram(found, self._wanted)) for (name, words), found in points.items()]


def _counted(metrics: Metrics) -> dict[Key, Counted]:
    """Return every histogram: of calls by the conventions' names, others by ours."""
    found: dict[Key, Counted] = {}
    for call in metrics.durations():
        name = DURATIONS[call.protocol == "mcp", call.direction]
        found[name, _CALLS, frozenset(duration_attributes(call).items())] = call.seconds, call.buckets
    for family in metrics.snapshot():
        short = family.name.removeprefix(PREFIX)
        if family.kind == "histogram" and "call_duration" not in short and short in INSTRUMENTS:
            name, _ = metric_name(short)
            for one in family.samples:
                key = name, instrument_of(short).help, frozenset(metric_attributes(one.labels).items())
                found[key] = one.total, one.buckets
    return found
