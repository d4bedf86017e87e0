"""Metrics for OpenTelemetry: observable instruments that read our counters.

Nothing is recorded on the way of a call. OpenTelemetry has no observable histogram, so histograms are exported as they
are, by `HistogramExporter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..jsonrpc.errors import LocalError, needs
from ..jsonrpc.options import check, instance
from .conventions import metric_attributes, metric_name
from .figures import MetricSample
from .instruments import INSTRUMENTS, PREFIX
from .metrics import Metrics

try:
    from opentelemetry import metrics as api
    from opentelemetry.metrics import CallbackOptions, Observation
except ImportError:
    raise needs("Meters", "opentelemetry-api", "otel") from None

METRICS: Final = instance(Metrics, "a Metrics")


class Meters:
    """Gives counters and gauges to OpenTelemetry: `Meters(metrics, provider)`. The metrics are an observer of `serve`,
    `connect` and `Client`.

    `provider`: an OpenTelemetry `MeterProvider`; None: the global one. For histograms its reader has a
    `HistogramExporter`. LocalError where either is something else.
    """

    def __init__(self, metrics: Metrics, provider: api.MeterProvider | None = None) -> None:
        check("Meters", {"metrics": METRICS}, {"metrics": metrics})
        source = api.get_meter_provider() if provider is None else provider
        if not callable(getattr(source, "get_meter", None)):
            raise LocalError(f"Meters: provider is {provider!r}, and must be a MeterProvider of OpenTelemetry")
        self._metrics = metrics
        self._found: dict[str, list[MetricSample]] = {}
        meter: api.Meter = source.get_meter("dragoman")
        self._instruments: list[Any] = []
        for name, one in INSTRUMENTS.items():
            if one.kind == "histogram":
                continue
            make = meter.create_observable_counter
            if one.kind == "gauge":  # they can be added up
                make = meter.create_observable_up_down_counter  # type: ignore[assignment]
            dotted, unit = metric_name(name)
            read = self._reading(f"{PREFIX}{name}", first=not self._instruments)
            self._instruments.append(make(dotted, [read], unit, one.help))

    def __repr__(self) -> str:
        return f"<Meters of {self._metrics!r}>"

    def _reading(self, name: str, *, first: bool) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return the function that an instrument calls at each collection. They are called in their order, so the first
        one reads the metrics for all."""

        def read(options: CallbackOptions) -> Iterable[Observation]:
            if first:
                self._found = {family.name: family.samples for family in self._metrics.snapshot()}
            return [Observation(one.total, metric_attributes(one.labels)) for one in self._found.get(name, ())]

        return read
