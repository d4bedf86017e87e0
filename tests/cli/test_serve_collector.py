"""`dragoman serve --traces` and `--otlp`: spans and metrics at a collector, the trace in the log, and what is wrong
with a URL."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from dragoman import connect
from dragoman.cli.exit_status import Usage
from dragoman.cli.serving.exporting import LAST, Collector, collector_of
from dragoman.telemetry.metrics import BOUNDS
from tests.telemetry.otlp import receiver, receivers

from .conftest import PATIENCE, SERVICE, Command

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.mark.parametrize("options", [(), ("--workers", "1")])
async def test_spans_go_to_the_collector_and_lines_have_their_trace(command: Command, options: tuple[str, ...]) -> None:
    (command.folder / "calculator.py").write_text(
        SERVICE + "\n\n@api.method\ndef warn() -> None:\n    import logging\n    logging.warning('hm')\n"
    )
    with receiver(ExportTraceServiceRequest, "/v1/traces") as (url, got):
        log = ("--log-level", "info", "--log-format", "json", "--traces", url.removesuffix("/v1/traces"))
        process, (where,) = command.serve("http://127.0.0.1:0", options=(*log, *options))
        async with connect(where, headers=HEADERS) as peer:
            await peer.call("warn")
        process.terminate()
        assert process.wait(30) == 0
    assert process.stderr is not None
    lines = [json.loads(line) for line in process.stderr]
    assert [line["trace"] for line in lines if line["message"] in ("hm", "call")] == [TRACE, TRACE]
    (span,) = [one for each in got for r in each.resource_spans for s in r.scope_spans for one in s.spans]
    assert (span.name, span.trace_id.hex()) == ("warn", TRACE)
    about = {one.key: one.value.string_value for one in got[0].resource_spans[0].resource.attributes}
    assert (about["service.name"], about["service.version"]) == ("calculator", "1.0.0")


BOTH: dict[str, type[Any]] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def _values(attributes: Any) -> dict[str, str | int]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class Sent:
    """What one process has sent, as its last values say."""

    def __init__(self, requests: Sequence[ExportMetricsServiceRequest]) -> None:
        self.metrics: dict[str, Any] = {}
        for request in requests:
            (resource,) = request.resource_metrics
            self.resource = _values(resource.resource.attributes)
            self.metrics |= {one.name: one for scope in resource.scope_metrics for one in scope.metrics}

    def calls(self, method: str, outcome: str) -> int:
        """The counter of calls."""
        counter = self.metrics.get("dragoman.calls")  # an export before the first call has other metrics
        points: Any = () if counter is None else counter.sum.data_points
        wanted = {"rpc.method": method, "dragoman.outcome": outcome}
        return sum(one.as_int for one in points if wanted.items() <= _values(one.attributes).items())


def _instances(requests: Sequence[ExportMetricsServiceRequest]) -> list[Sent]:
    """What was sent, by the process that sent it."""
    found: dict[str | int, list[ExportMetricsServiceRequest]] = {}
    for one in requests:
        found.setdefault(Sent([one]).resource["service.instance.id"], []).append(one)
    return [Sent(those) for those in found.values()]


async def test_traces_and_metrics_go_to_the_collector(command: Command) -> None:
    with receivers(BOTH) as (url, got):
        process, (where,) = command.serve("tcp://127.0.0.1:0", options=("--otlp", f"{url}/"))
        async with connect(where) as peer:
            for _ in range(3):
                assert await peer.call("subtract", [42, 23]) == 19
            with pytest.raises(Exception, match="Too short"):
                await peer.call("fail", ["declared"])
        process.terminate()
        assert process.wait(30) == 0
    assert process.stderr is not None
    assert "opentelemetry" not in process.stderr.read()
    spans = [one for each in got["/v1/traces"] for r in each.resource_spans for s in r.scope_spans for one in s.spans]
    assert sorted(one.name for one in spans) == ["fail", "subtract", "subtract", "subtract"]
    (sent,) = _instances(got["/v1/metrics"])
    assert _values(got["/v1/traces"][0].resource_spans[0].resource.attributes) == sent.resource
    about = [sent.resource[one] for one in ("service.name", "service.version", "process.pid")]
    assert about == ["calculator", "1.0.0", process.pid]
    assert (sent.calls("subtract", "result"), sent.calls("fail", "error")) == (3, 1)
    calls = sent.metrics["dragoman.calls"].sum
    assert calls.is_monotonic
    assert calls.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert not sent.metrics["dragoman.calls_in_flight"].sum.is_monotonic
    durations = {
        (_values(one.attributes)["rpc.method"], one.count): one
        for one in sent.metrics["rpc.server.call.duration"].histogram.data_points
    }
    assert set(durations) == {("subtract", 3), ("fail", 1)}
    point = durations["subtract", 3]
    assert (tuple(point.explicit_bounds), sum(point.bucket_counts)) == (BOUNDS, 3)


async def test_metrics_go_there_while_it_serves(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    arrived = threading.Event()
    with receivers(BOTH, arrived.set) as (url, got):
        process, (where,) = command.serve("tcp://127.0.0.1:0", options=("--otlp", url))
        async with connect(where) as peer:
            await peer.call("subtract", [42, 23])
            while Sent(got["/v1/metrics"]).calls("subtract", "result") < 1:
                assert await asyncio.to_thread(arrived.wait, PATIENCE)
                arrived.clear()
        assert process.poll() is None
        process.terminate()
        assert process.wait(30) == 0


async def test_each_worker_sends_as_itself(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same environment, and numbers of one id would be taken as those of one process."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine,deployment.environment=test")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    calls = 20
    with receivers(BOTH) as (url, got):
        process, (where,) = command.serve("tcp://127.0.0.1:0", options=("--otlp", url, "--workers", "2"))
        assert process.stderr is not None
        ready = 0
        while ready < 2:
            ready += "is ready" in process.stderr.readline()
        for _ in range(calls):
            async with connect(where) as peer:
                assert await peer.call("subtract", [42, 23]) == 19
        process.terminate()
        assert process.wait(30) == 0
    sent = _instances(got["/v1/metrics"])
    assert len(sent) == 2
    assert len({one.resource["process.pid"] for one in sent} - {process.pid}) == 2
    assert sum(one.calls("subtract", "result") for one in sent) == calls
    assert {one.resource["service.name"] for one in sent} == {"shop"}
    assert {one.resource["deployment.environment"] for one in sent} == {"test"}
    spans = [one for each in got["/v1/traces"] for r in each.resource_spans for s in r.scope_spans for one in s.spans]
    assert len(spans) == calls


async def test_one_process_is_who_the_environment_says(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=mine")
    with receivers(BOTH) as (url, got):
        process, _ = command.serve("tcp://127.0.0.1:0", options=("--otlp", url))
        process.terminate()
        assert process.wait(30) == 0
    assert Sent(got["/v1/metrics"]).resource["service.instance.id"] == "mine"


async def test_a_collector_that_is_away_costs_no_call(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    process, (where,) = command.serve("tcp://127.0.0.1:0", options=("--otlp", "http://127.0.0.1:1"))
    assert process.stderr is not None
    async with connect(where) as peer:
        for of in ("metric_exporter", "trace_exporter"):
            assert await peer.call("subtract", [42, 23]) == 19
            while of not in (line := await asyncio.to_thread(process.stderr.readline)):
                assert line
        assert await peer.call("subtract", [42, 23]) == 19
    process.kill()


async def test_a_collector_that_is_silent_does_not_hold_up_the_end(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process, (where,) = command.serve("tcp://127.0.0.1:0", options=("--otlp", url))
        async with connect(where) as peer:
            assert await peer.call("subtract", [42, 23]) == 19
        process.terminate()
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
    assert process.stderr is not None
    assert f"the collector did not take what was left within {LAST:g} s" in process.stderr.read()


@pytest.mark.parametrize("option", ["--traces", "--otlp"])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:4318", "{option} 127.0.0.1:4318"),
        ("tcp://127.0.0.1:4318", "write http://HOST:PORT or https://"),
        ("http://127.0.0.1:many", "{option} http://127.0.0.1:many"),
    ],
)
def test_a_url_that_is_none(command: Command, option: str, url: str, said: str) -> None:
    for words in ([], ["--check"]):
        done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", option, url, *words)
        assert (done.status, said.format(option=option) in done.err) == (2, True), done.err


def test_one_of_both_options(command: Command) -> None:
    both = ("--traces", "http://127.0.0.1:4318", "--otlp", "http://127.0.0.1:4318")
    for words in ([], ["--workers", "2"], ["--check"]):
        done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", *both, *words)
        assert (done.status, "--otlp sends traces, too: leave --traces out" in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318"),
        ("https://collector.example/otlp", "https://collector.example/otlp"),
    ],
)
def test_paths_are_added_to_the_url(url: str, base: str) -> None:
    assert collector_of(None, url) == Collector(f"{base}/v1/traces", f"{base}/v1/metrics")


@pytest.mark.parametrize("rest", ["/v1/traces", "/v1/metrics", "/?a=b"])
def test_a_url_to_which_no_path_can_be_added(rest: str) -> None:
    with pytest.raises(Usage, match="below this URL"):
        collector_of(None, f"http://127.0.0.1:4318{rest}")


@pytest.mark.parametrize("interval", ["0", "-1"])
def test_an_interval_that_is_none(command: Command, interval: str) -> None:
    env = {"OTEL_METRIC_EXPORT_INTERVAL": interval}
    done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", "--otlp", "http://127.0.0.1:1", env=env)
    assert done.status == 2
    assert done.err == f"dragoman: OTEL_METRIC_EXPORT_INTERVAL is '{interval}', and must be above 0 milliseconds\n"


@pytest.mark.parametrize("option", ["--traces", "--otlp"])
def test_without_the_extra(command: Command, option: str) -> None:
    (command.folder / "opentelemetry").mkdir()
    (command.folder / "opentelemetry" / "__init__.py").write_text("raise ImportError('none')")
    env = {"PYTHONPATH": str(command.folder)}
    done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", option, "http://127.0.0.1:1", env=env)
    assert done.status == 2
    assert done.err.startswith(
        'dragoman: A collector (--otlp, --traces) needs OpenTelemetry with its exporter: pip install "dragoman[otel]"'
    )
