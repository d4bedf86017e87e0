"""`dragoman serve --traces`: spans at a collector, the trace in the log, and what is wrong with a URL."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from dragoman import connect
from tests.telemetry.otlp import receiver

from .conftest import SERVICE, Command

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


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:4318", "--traces 127.0.0.1:4318"),
        ("tcp://127.0.0.1:4318", "write http://HOST:PORT or https://"),
        ("http://127.0.0.1:many", "--traces http://127.0.0.1:many"),
    ],
)
def test_a_url_that_is_none(command: Command, url: str, said: str) -> None:
    for words in ([], ["--check"]):
        done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", "--traces", url, *words)
        assert (done.status, said in done.err) == (2, True), done.err


def test_without_the_extra(command: Command) -> None:
    (command.folder / "opentelemetry").mkdir()
    (command.folder / "opentelemetry" / "__init__.py").write_text("raise ImportError('none')")
    env = {"PYTHONPATH": str(command.folder)}
    done = command.run("serve", "calculator:api", "tcp://127.0.0.1:0", "--traces", "http://127.0.0.1:1", env=env)
    assert done.status == 2
    assert done.err.startswith("dragoman: --traces needs OpenTelemetry with its exporter: pip install 'dragoman[otel]'")
