"""Spans and metrics for a collector, by OpenTelemetry's protocol OTLP over HTTP: what `dragoman serve --otlp URL` and
`--traces URL` set up.

OpenTelemetry's other settings are in its own variables, which its SDK reads: OTEL_TRACES_SAMPLER,
OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS, OTEL_METRIC_EXPORT_INTERVAL and others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from ..jsonrpc.errors import LocalError, needs

try:
    from opentelemetry import metrics as api
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics._internal import _ProxyMeterProvider  # it has no public name, as ProxyTracerProvider has
    from opentelemetry.sdk.environment_variables import OTEL_METRIC_EXPORT_INTERVAL
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.util.types import AttributeValue

    from .histograms import HistogramExporter
    from .meters import Meters
    from .traces import Traces
except ImportError:
    raise needs("A collector (--otlp, --traces)", "OpenTelemetry with its exporter", "otel") from None

from .metrics import Metrics

_INSTANCE: Final = "service.instance.id"


def resource_of(name: str, version: str, *, alone: bool) -> Resource:
    """Return what spans and metrics of this process are of. What the environment says of it goes first.

    `alone`: False in one of several workers, which have the same environment: each has an id of its own all the same,
    since a collector takes the numbers of one id as those of one process.
    """
    about: dict[str, AttributeValue] = {"service.name": name, _INSTANCE: str(uuid4()), "process.pid": os.getpid()}
    if version:
        about["service.version"] = version
    named = OTELResourceDetector().detect().attributes
    return Resource.create(about | {key: value for key, value in named.items() if alone or key != _INSTANCE})


def traces_for(url: str, resource: Resource) -> tuple[Traces, Callable[[], None]]:
    """Return the observer that makes spans for the collector at `url`, and the function that sends the remaining ones,
    which may block. Spans of the program's own libraries go there too, unless it has chosen a provider itself."""
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    return Traces(provider), provider.shutdown


def export_metrics(url: str, resource: Resource, metrics: Metrics) -> Callable[[], None]:
    """Send the metrics to the collector at `url`, every minute or as OTEL_METRIC_EXPORT_INTERVAL says. Returns the
    function that sends the last ones, which may block. Metrics of the program's own libraries go
    there too, unless it has chosen a provider itself. Raises LocalError for an interval that is none."""
    exporter = HistogramExporter(OTLPMetricExporter(endpoint=url), metrics)
    try:
        reader = PeriodicExportingMetricReader(exporter)
    except ValueError:
        interval = os.environ.get(OTEL_METRIC_EXPORT_INTERVAL)
        raise LocalError(f"{OTEL_METRIC_EXPORT_INTERVAL} is {interval!r}, and must be above 0 milliseconds") from None
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    Meters(metrics, provider)
    if isinstance(api.get_meter_provider(), _ProxyMeterProvider):
        api.set_meter_provider(provider)
    return provider.shutdown
