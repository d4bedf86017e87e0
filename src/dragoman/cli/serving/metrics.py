"""`dragoman serve --metrics`: serves the metrics of this process, or of all its workers, at an address of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from ...channel import Options
from ...schemes import listen
from ...telemetry.figures import MetricFamily, MetricSample, exposition, sum_families
from ...telemetry.instruments import PREFIX, instrument_of
from ...telemetry.metrics import Metrics
from ...telemetry.page import PATH, MetricsPage
from ...telemetry.process import process_families
from ...workers.reports import Reports
from ...workers.supervisor import Supervisor
from ..arguments import address_of
from ..ends import Usage
from ..lines import tell

snapshot: Callable[[bytes], list[MetricFamily]] = msgspec.json.Decoder(list[MetricFamily]).decode
"""What a worker's report says."""


def metrics_url(text: str) -> str:
    """The URL of an address as `--metrics` takes it: `:9090` is loopback, another host is written out. Raises Usage."""
    found = address_of(text)
    if found is None or found[1] > 65535:
        raise Usage(f"--metrics {text}: write :9090 for loopback, or HOST:PORT, as in 0.0.0.0:9090")
    return f"http://{found[0]}:{found[1]}"


@asynccontextmanager
async def page(
    url: str, text: Callable[[], bytes] | Callable[[], Awaitable[bytes]], *, quiet: bool
) -> AsyncIterator[None]:
    """Serve the metrics at `url` while the block runs. `quiet`: do not say where. Raises LocalError if that is not
    possible."""
    served = MetricsPage(text)
    listener = await listen(url, {"": served}, Options())
    try:
        if not quiet:
            tell(f"metrics at {listener.url}{PATH}", "info")
        yield
    finally:
        await listener.close()
        await served.drain(1)
        await listener.closed()


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
