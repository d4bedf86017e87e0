"""Observers for those who run a service: an access log, metrics, traces.

from dragoman.telemetry import AccessLog
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .access_log import AccessLog
    from .histograms import HistogramExporter
    from .meters import Meters
    from .metrics import Metrics
    from .page import MetricsPage
    from .traced_bus import TracedBus
    from .traces import Traces
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "access_log": "AccessLog",
            "histograms": "HistogramExporter",
            "meters": "Meters",
            "metrics": "Metrics",
            "page": "MetricsPage",
            "traced_bus": "TracedBus",
            "traces": "Traces",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["AccessLog", "HistogramExporter", "Meters", "Metrics", "MetricsPage", "TracedBus", "Traces"]
