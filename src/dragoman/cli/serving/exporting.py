"""`dragoman serve --otlp URL` and `--traces URL`: what goes on is sent to a collector, by OpenTelemetry's protocol OTLP
over HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from ...jsonrpc.errors import LocalError
from ...net.urls import Url, parse, printable
from ..exit_status import Usage
from ..lines import tell
from ..target import Target

if TYPE_CHECKING:
    from ...telemetry import Metrics, Traces

TRACES: Final = "/v1/traces"
"""Where a collector takes spans, by OTLP's specification."""
METRICS: Final = "/v1/metrics"
"""Where it takes metrics."""
LAST: Final = 2.0
"""Seconds that there are at the end for what is left, so that a collector that is away does not hold up the process:
less than a supervisor lets a worker have after its drain (`workers.worker.GRACE`)."""


class Collector(NamedTuple):
    """The URLs of a collector. `metrics`: None where it gets spans alone."""

    traces: str
    metrics: str | None = None


def collector_of(traces: str | None, otlp: str | None) -> Collector | None:
    """Return the collector that `--traces` or `--otlp` names; None without either. Raises Usage."""
    if traces is not None and otlp is not None:
        raise Usage("--otlp sends traces, too: leave --traces out")
    if otlp is not None:
        return _base(otlp)
    return None if traces is None else Collector(_traces_url(traces))


def _base(text: str) -> Collector:
    """Return the collector at a URL to which OTLP's paths are added."""
    url = _parse("--otlp", text)
    if url.query or url.path.endswith((TRACES, METRICS)):
        raise Usage(f"--otlp {printable(text)}: leave out {TRACES} and the like; each kind has its path below this URL")
    return Collector(text.rstrip("/") + TRACES, text.rstrip("/") + METRICS)


def _traces_url(text: str) -> str:
    """Return the URL of a collector, with the usual path where it has none."""
    return text.rstrip("/") + TRACES if _parse("--traces", text).path in ("", "/") else text


def _parse(option: str, text: str) -> Url:
    try:
        url = parse(text)
    except LocalError as fault:
        raise Usage(f"{option} {text}: {fault}") from None
    if url.plain != "http":
        raise Usage(f"{option} {text}: write http://HOST:PORT or https://..., where a collector takes OTLP over HTTP")
    return url


@asynccontextmanager
async def exporting(
    collector: Collector | None, served: Target, metrics: Metrics | None, *, alone: bool
) -> AsyncIterator[Traces | None]:
    """Send spans, and metrics where the collector gets them, while the block runs, after which what is left is sent
    (`LAST`).

    Returns the observer that makes the spans; None without a collector. `alone`: False in one of several workers.
    Raises LocalError, which names the extra, where OpenTelemetry lacks.
    """
    if collector is None:
        yield None
        return
    from ...telemetry.collector import export_metrics, resource_of, traces_for  # noqa: PLC0415  (an optional extra)

    resource = resource_of(served.name, getattr(served, "version", ""), alone=alone)
    traces, end = traces_for(collector.traces, resource)
    ends = [end]
    if collector.metrics is not None and metrics is not None:
        ends.append(export_metrics(collector.metrics, resource, metrics))
    try:
        yield traces
    finally:
        await asyncio.to_thread(_finish, ends)


def _finish(ends: Sequence[Callable[[], object]]) -> None:
    """Send what is left, for `LAST` seconds at most; threads that are not done by then end with the process."""
    threads = [threading.Thread(target=end, daemon=True) for end in ends]
    for one in threads:
        one.start()
    until = time.monotonic() + LAST
    for one in threads:
        one.join(max(0.0, until - time.monotonic()))
    if any(one.is_alive() for one in threads):
        tell(f"the collector did not take what was left within {LAST:g} s", "warning")
