"""Metrics by OpenTelemetry, as a receiver of OTLP over HTTP decodes them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality as Sent
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

from dragoman import LocalError, RpcError, Service, connect, serve
from dragoman.mcp import Client, Server
from dragoman.telemetry import HistogramExporter, Meters, Metrics
from dragoman.telemetry.conventions import metric_name
from dragoman.telemetry.instruments import INSTRUMENTS
from dragoman.telemetry.metrics import BOUNDS
from tests.engines.brokers import name

from .otlp import receiver

DELTA = {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}
NOTHING: Any = "http://127.0.0.1:4318"
Attributes = frozenset[tuple[str, str]]


class Received:
    """One batch: its metrics by name."""

    def __init__(self, request: ExportMetricsServiceRequest) -> None:
        (resource,) = request.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "dragoman"
        self.resource = {one.key: one.value.string_value for one in resource.resource.attributes}
        self.metrics = {one.name: one for one in scope.metrics}
        assert len(self.metrics) == len(scope.metrics)

    def points(self, name: str) -> dict[Attributes, Any]:
        """The points of one metric by their attributes."""
        metric = self.metrics[name]
        data = getattr(metric, metric.WhichOneof("data"))
        found = {
            frozenset((one.key, one.value.string_value) for one in point.attributes): point
            for point in data.data_points
        }
        assert len(found) == len(data.data_points)
        return found

    def value(self, name: str, **attributes: str) -> float:
        """The number of one point. `_` in attributes is a dot, `__` is `_`."""
        key = frozenset(
            (one.replace("__", "-").replace("_", ".").replace("-", "_"), v) for one, v in attributes.items()
        )
        point = self.points(name)[key]
        return float(point.as_double if point.HasField("as_double") else point.as_int)


class Exporting:
    """Metrics that go to a receiver when `flush` is called."""

    def __init__(self, url: str, got: list[ExportMetricsServiceRequest], temporality: Any = None) -> None:
        self.metrics = Metrics()
        self._got = got
        exporter = HistogramExporter(OTLPMetricExporter(endpoint=url, preferred_temporality=temporality), self.metrics)
        self.provider = MeterProvider(
            [PeriodicExportingMetricReader(exporter, 3_600_000)],
            Resource({"service.name": "shop"}),
            shutdown_on_exit=False,
        )
        self.meters = Meters(self.metrics, self.provider)

    async def flush(self) -> Received:
        """What is exported now."""
        before = len(self._got)
        assert await asyncio.to_thread(self.provider.force_flush)
        (request,) = self._got[before:]
        return Received(request)


@asynccontextmanager
async def exporting(temporality: Any = None) -> AsyncIterator[Exporting]:
    with receiver(ExportMetricsServiceRequest, "/v1/metrics") as (url, got):
        made = Exporting(url, got, temporality)
        try:
            yield made
        finally:
            await asyncio.to_thread(made.provider.shutdown)


def api() -> Service:
    made = Service("calculator")

    @made.method
    async def add(a: int, b: int) -> int:
        return a + b

    @made.method(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    return made


async def fail(peer: Any, method: str, *params: Any) -> None:
    with pytest.raises(RpcError):
        await peer.call(method, list(params))


async def test_a_receiver_gets_counters_gauges_and_histograms() -> None:
    async with exporting() as it:
        url = f"memory+broker:{name()}"
        async with (
            serve(api(), urls=["tcp://127.0.0.1:0", url], observers=[it.metrics]) as serving,
            connect(serving.urls[0]) as peer,
            connect(url) as other,
        ):
            assert await peer.call("add", [1, 2]) == 3
            assert await other.call("add", [1, 2]) == 3
            await fail(peer, "add", "x", 1)
            await fail(peer, "nothing")
            await fail(peer, "slow")
            found = await it.flush()
    assert found.resource["service.name"] == "shop"
    of = {"dragoman_service": "calculator"}
    assert found.value("dragoman.calls", **of, rpc_method="add", dragoman_outcome="result") == 2
    assert found.value("dragoman.errors", **of, rpc_response_status__code="-32602") == 1
    assert found.value("dragoman.channels", **of) == 1
    assert found.value("dragoman.deliveries", **of, dragoman_wire="memory+broker") == 1
    assert found.value("dragoman.broker_connected", **of, dragoman_wire="memory+broker") == 1
    assert found.metrics["dragoman.calls"].sum.is_monotonic
    assert not found.metrics["dragoman.channels"].sum.is_monotonic
    assert found.metrics["dragoman.received"].unit == "By"
    calls = {
        tuple(dict(key).get(one, "") for one in ("rpc.method", "error.type", "rpc.response.status_code")): point
        for key, point in found.points("rpc.server.call.duration").items()
    }
    assert {key: point.count for key, point in calls.items()} == {
        ("add", "", ""): 2,
        ("add", "-32602", "-32602"): 1,
        ("_OTHER", "-32601", "-32601"): 1,
        ("slow", "-32002", "-32002"): 1,
    }
    assert {dict(key)["rpc.system.name"] for key in found.points("rpc.server.call.duration")} == {"jsonrpc"}
    point = calls["add", "", ""]
    assert tuple(point.explicit_bounds) == BOUNDS
    assert (len(point.bucket_counts), sum(point.bucket_counts)) == (len(BOUNDS) + 1, 2)
    assert 0 < point.sum < 60
    assert not point.HasField("min")
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    assert found.metrics["rpc.server.call.duration"].unit == "s"
    (waits,) = found.points("dragoman.queue_wait").values()
    assert waits.count == 4  # of the fifth there was no method


async def test_mcp_has_the_names_of_mcp() -> None:
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return f"sunny in {city}"

    async with (
        exporting() as it,
        serve(server, urls="http://127.0.0.1:0/mcp", observers=[it.metrics]) as serving,
        Client(serving.urls[0], observers=[it.metrics]) as client,
    ):
        await client.call_tool("forecast", {"city": "Beijing"})
        found = await it.flush()
    for metric in ("mcp.server.operation.duration", "mcp.client.operation.duration"):
        methods = {dict(key)["mcp.method.name"]: point.count for key, point in found.points(metric).items()}
        assert methods["tools/call"] == 1
        (tool,) = (dict(key) for key in found.points(metric) if dict(key)["mcp.method.name"] == "tools/call")
        assert (tool["gen_ai.tool.name"], tool["gen_ai.operation.name"]) == ("forecast", "execute_tool")
    assert not any(one.startswith("rpc.") for one in found.metrics)


async def test_a_receiver_that_wants_differences_gets_them() -> None:
    async with (
        exporting(DELTA) as it,
        serve(api(), urls="tcp://127.0.0.1:0", observers=[it.metrics]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        counts, times = [], []
        for calls in (2, 3, 0):
            for _ in range(calls):
                await peer.call("add", [1, 2])
            found = await it.flush()
            (point,) = found.points("rpc.server.call.duration").values()
            counts.append((point.count, sum(point.bucket_counts), point.sum > 0))
            times.append((point.start_time_unix_nano, point.time_unix_nano))
            histogram = found.metrics["rpc.server.call.duration"].histogram
            assert histogram.aggregation_temporality == Sent.AGGREGATION_TEMPORALITY_DELTA
    assert counts == [(2, 2, True), (3, 3, True), (0, 0, False)]
    assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]


async def test_it_is_read_from_another_thread_while_calls_come() -> None:
    async with (
        exporting() as it,
        serve(api(), urls="tcp://127.0.0.1:0", observers=[it.metrics]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        over = asyncio.Event()

        async def come_and_go() -> None:
            while not over.is_set():
                async with connect(serving.urls[0]) as one:
                    await one.call("add", [1, 2])

        callers = [asyncio.create_task(come_and_go()) for _ in range(3)]
        for _ in range(20):
            found = await it.flush()
        over.set()
        await asyncio.gather(*callers)
        await peer.call("add", [1, 2])
        assert found.value("dragoman.channels", dragoman_service="calculator") >= 1


def test_any_reader_gets_counters_and_gauges() -> None:
    metrics, reader = Metrics(), InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    Meters(metrics, provider)
    metrics.read_measures(lambda: {"workers": 3})
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.data.data_points[0].value) == ("dragoman.workers", 3)  # type: ignore[union-attr]
    provider.shutdown()


def test_names_are_of_one_kind_each() -> None:
    names = [metric_name(one) for one in INSTRUMENTS]
    assert len({name for name, _ in names}) == len(names)
    assert metric_name("outbound_call_duration_seconds") == ("dragoman.outbound.call_duration", "s")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Meters(NOTHING), "metrics"),
        (lambda: Meters(Metrics(), NOTHING), "MeterProvider"),
        (lambda: HistogramExporter(NOTHING, Metrics()), "MetricExporter"),
    ],
    ids=["metrics", "provider", "exporter"],
)
def test_what_does_not_fit_is_said(make: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        make()


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("Meters", "opentelemetry", "opentelemetry-api"),
        ("HistogramExporter", "opentelemetry.sdk", "opentelemetry-sdk"),
    ],
)
def test_without_the_extra_it_is_named(name: str, module: str, package: str) -> None:
    script = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from dragoman.telemetry import AccessLog, Metrics\n"
        f"try:\n    from dragoman.telemetry import {name}\n"
        "except Exception as fault:\n    print(type(fault).__name__, fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f'LocalError {name} needs {package}: pip install "dragoman[otel]"')
