# [meters]
import asyncio

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from calculator import api
from dragoman import connect, serve
from dragoman.telemetry import HistogramExporter, Meters, Metrics

metrics = Metrics()
exporter = ConsoleMetricExporter()  # or OTLPMetricExporter(endpoint="http://127.0.0.1:4318/v1/metrics")
reader = PeriodicExportingMetricReader(HistogramExporter(exporter, metrics), export_interval_millis=10_000)
provider = MeterProvider([reader])
Meters(metrics, provider)  # Meters(metrics) takes the global provider


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:0", observers=[metrics]) as serving:
        async with connect(serving.urls[0]) as peer:
            await peer.call("subtract", [42, 23])
        provider.force_flush()


# [/meters]
asyncio.run(main())
