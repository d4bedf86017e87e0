"""Spans for a collector, by OpenTelemetry's protocol OTLP over HTTP: what `dragoman serve --traces URL` sets up.

OpenTelemetry's other settings are in its own variables, which its SDK reads: OTEL_TRACES_SAMPLER,
OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS and others.
"""

from __future__ import annotations

from collections.abc import Callable

from ..jsonrpc.errors import needs

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from .traces import Traces
except ImportError:
    raise needs("--traces", "OpenTelemetry with its exporter", "otel") from None


def traces_for(url: str, name: str, version: str) -> tuple[Traces, Callable[[], None]]:
    """Return the observer that makes spans for the collector at `url`, and the function that sends the remaining ones,
    which may block. Spans of the program's own libraries go there too, unless it has chosen a provider itself."""
    about = {"service.name": name, **({"service.version": version} if version else {})}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    return Traces(provider), provider.shutdown
