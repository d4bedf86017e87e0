"""Spans: one trace from a client through every wire that carries headers, and what strangers cannot put into it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from opentelemetry import baggage, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from dragoman import LocalError, RpcError, Service, connect, serve
from dragoman.channel import Caller
from dragoman.mcp import Client, Server, ToolError
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.net.scheme import SCHEMES
from dragoman.observer import Observation
from dragoman.telemetry import Traces
from dragoman.telemetry.conventions import beginning
from tests.engines.brokers import Engine, name

from .otlp import receiver

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = PARENT[:-1] + "0"
WIRES = ["http://127.0.0.1:0", "memory+broker:traced"]


class Spans:
    """A provider whose spans are kept."""

    def __init__(self, **more: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **more)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.traces = Traces(self.provider)

    def done(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str, kind: SpanKind = SpanKind.SERVER) -> ReadableSpan:
        (found,) = [span for span in self.done() if span.name == name and span.kind == kind]
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def api(inner: Any = None) -> Service:
    made = Service("calculator")

    @made.method
    async def subtract(minuend: int, subtrahend: int) -> int:
        if inner is not None:
            return int(await inner.call("subtract", [minuend, subtrahend]))
        return minuend - subtrahend

    @made.method
    async def seen() -> list[str]:
        context = trace.get_current_span().get_span_context()
        return [f"{context.trace_id:032x}", *map(str, baggage.get_all())]

    @made.method
    async def fail() -> None:
        raise ValueError("a secret")

    return made


@pytest.mark.parametrize("url", WIRES)
async def test_one_trace_through_a_worker_to_a_nested_call(url: str, spans: Spans) -> None:
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[spans.traces]) as behind,
        connect(behind.urls[0], observers=[spans.traces]) as inner,
        serve(api(inner), urls=url, observers=[spans.traces]) as serving,
        connect(serving.urls[0], observers=[spans.traces]) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
    assert_chain(spans.done())


def assert_chain(found: list[ReadableSpan]) -> None:
    """Client, server, client, server: one trace, each the parent of the next."""
    assert [span.name for span in found] == ["subtract"] * 4
    assert len({ids(span)[0] for span in found}) == 1
    by_parent = {parent_of(span): span for span in found}
    chain = [by_parent[None]]
    while (below := by_parent.get(ids(chain[-1])[1])) is not None:
        chain.append(below)
    kinds = [SpanKind.CLIENT, SpanKind.SERVER, SpanKind.CLIENT, SpanKind.SERVER]
    assert [span.kind for span in chain] == kinds
    assert all(span.attributes is not None and span.attributes["rpc.system.name"] == "jsonrpc" for span in chain)


@pytest.mark.xdist_group("rabbitmq")
async def test_one_trace_over_rabbitmq(rabbitmq: Engine, spans: Spans) -> None:
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[spans.traces]) as behind,
        connect(behind.urls[0], observers=[spans.traces]) as inner,
        serve(api(inner), urls=f"{rabbitmq.url}/{name()}", observers=[spans.traces]) as serving,
        connect(serving.urls[0], observers=[spans.traces]) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
    assert_chain(spans.done())
    assert {(span.attributes or {}).get("messaging.system") for span in spans.done()} == {"rabbitmq", None}


@pytest.mark.parametrize("revision", [R2025_11, R2026_07])
async def test_mcp_carries_the_parent_in_meta(revision: Revision, spans: Spans) -> None:
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        if city == "nowhere":
            raise ValueError("a secret")
        return f"{trace.get_current_span().get_span_context().span_id:x}"

    async with (
        serve(server, urls="http://127.0.0.1:0/mcp", observers=[spans.traces]) as serving,
        Client(serving.urls[0], revision=revision.date, observers=[spans.traces]) as client,
    ):
        told = await client.call_tool("forecast", {"city": "Beijing"}, result=str)
        with pytest.raises(ToolError):
            await client.call_tool("forecast", {"city": "nowhere"}, result=str)
    inside, wrong = [
        span for span in spans.done() if span.kind == SpanKind.SERVER and span.name == "tools/call forecast"
    ]
    assert (wrong.attributes or {})["error.type"] == "tool_error"
    assert wrong.status.status_code == StatusCode.ERROR
    assert "error.type" not in (inside.attributes or {})
    outside = next(span for span in spans.done() if span.kind == SpanKind.CLIENT and span.name == "tools/call forecast")
    assert (outside.attributes or {})["gen_ai.tool.name"] == "forecast"
    assert told == f"{ids(inside)[1]:x}"
    assert parent_of(inside) == ids(outside)[1]
    assert inside.attributes is not None
    assert inside.attributes["mcp.method.name"] == "tools/call"
    assert inside.attributes["mcp.protocol.version"] == revision.date
    assert inside.attributes["gen_ai.tool.name"] == "forecast"
    assert inside.attributes["gen_ai.operation.name"] == "execute_tool"
    assert "Beijing" not in str(dict(inside.attributes))


async def test_a_parent_in_headers_and_nothing_else_of_a_stranger(spans: Spans) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "user=root"}
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[spans.traces]) as serving,
        connect(serving.urls[0], headers=headers) as peer,
    ):
        assert await peer.call("seen") == ["4bf92f3577b34da6a3ce929d0e0e4736"]
    span = spans.one("seen")
    assert span.parent is not None
    assert (span.parent.span_id, span.parent.trace_state.to_header()) == (0x00F067AA0BA902B7, "vendor=1")


async def test_a_parent_that_is_not_sampled_is_followed(spans: Spans) -> None:
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[spans.traces]) as behind,
        connect(behind.urls[0], observers=[spans.traces]) as inner,
        serve(api(inner), urls="http://127.0.0.1:0", observers=[spans.traces]) as serving,
        connect(serving.urls[0], headers={"traceparent": UNSAMPLED}) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
        assert await peer.call("seen") == ["4bf92f3577b34da6a3ce929d0e0e4736"]
    assert spans.done() == []


@pytest.mark.parametrize("text", ["nonsense", "ff" + PARENT[2:], PARENT + "-more", "00-" + "0" * 32 + PARENT[35:]])
async def test_nonsense_is_no_parent(text: str, spans: Spans) -> None:
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[spans.traces]) as serving,
        connect(serving.urls[0], headers={"traceparent": text}) as peer,
    ):
        await peer.call("seen")
    assert spans.one("seen").parent is None


async def test_errors_are_marked_and_tell_no_secret(spans: Spans) -> None:
    async with (
        serve(api(), urls="tcp://127.0.0.1:0", observers=[spans.traces]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        for method, params in (("fail", []), ("subtract", ["x", 1]), ("no such thing", []), ("nor this", [])):
            with pytest.raises(RpcError):
                await peer.call(method, params)
    found = {span.name: span for span in spans.done()}
    assert set(found) == {"fail", "subtract", "_OTHER"}
    assert len(spans.done()) == 4
    for method, code in (("fail", "-32603"), ("subtract", "-32602"), ("_OTHER", "-32601")):
        attributes = found[method].attributes
        assert attributes is not None
        assert (attributes["error.type"], attributes["rpc.response.status_code"]) == (code, code)
        assert found[method].status.status_code == StatusCode.ERROR
        assert not found[method].events
        assert "secret" not in found[method].to_json()


async def test_an_ambient_span_is_the_parent_or_is_linked(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("host")
    request = b'{"jsonrpc":"2.0","method":"seen","id":1}'
    service = api()
    service.observe(spans.traces)
    with tracer.start_as_current_span("around") as around:
        await service.answer_async(request)
    assert parent_of(spans.one("seen")) == around.get_span_context().span_id


async def test_what_is_current_is_linked_where_a_parent_is_named(spans: Spans) -> None:
    """A web framework around it has a span of its own; MCP's `_meta` comes before the header fields."""
    traces, tracer = spans.traces, spans.provider.get_tracer("host")
    other = PARENT.replace("4bf9", "4bfa").replace("00f0", "00f1")
    params = Raw(msgspec.json.encode({"_meta": {"traceparent": PARENT}}))
    seen = Observation(
        direction="in",
        kind="request",
        service="weather",
        protocol="mcp",
        caller=Caller(scheme="http", headers={"traceparent": other}),
        channel=1,
        method="tools/list",
        params=params,
    )
    with tracer.start_as_current_span("around") as around:
        traces.came_in(seen)
        traces.ended(seen)
    span = spans.one("tools/list")
    assert parent_of(span) == 0x00F067AA0BA902B7
    assert [link.context.span_id for link in span.links] == [0x00F167AA0BA902B7, around.get_span_context().span_id]


def test_every_wire_has_its_transport_or_its_broker() -> None:
    for scheme in SCHEMES:
        seen = Observation(
            direction="in", kind="request", service="s", protocol="plain", caller=Caller(scheme=scheme), channel=1
        )
        found = beginning(seen).keys() & {"network.transport", "messaging.system"}
        assert len(found) == (not scheme.startswith("memory")), scheme


async def test_without_sampling_nothing_is_kept() -> None:
    off = Spans(sampler=ALWAYS_OFF)
    async with (
        serve(api(), urls="http://127.0.0.1:0", observers=[off.traces]) as serving,
        connect(serving.urls[0], observers=[off.traces]) as peer,
    ):
        assert await peer.call("subtract", [42, 23]) == 19
    assert off.done() == []
    assert off.traces._spans == {}
    off.provider.shutdown()


def test_what_is_no_provider_is_said() -> None:
    with pytest.raises(LocalError, match="TracerProvider"):
        Traces("jaeger")  # type: ignore[arg-type]


# -- by OTLP over HTTP


async def test_a_receiver_of_otlp_gets_the_trace() -> None:
    with receiver(ExportTraceServiceRequest, "/v1/traces") as (url, got):
        provider = TracerProvider(resource=Resource({"service.name": "calculator"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=url)))
        traces = Traces(provider)
        async with (
            serve(api(), urls="memory+broker:otlp", observers=[traces]) as serving,
            connect(serving.urls[0], observers=[traces]) as peer,
        ):
            assert await peer.call("subtract", [42, 23]) == 19
        await asyncio.to_thread(provider.shutdown)
    found = [
        span for one in got for resource in one.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]
    assert {span.name for span in found} == {"subtract"}
    server, client = sorted(found, key=lambda span: span.kind)
    assert server.trace_id == client.trace_id
    assert server.parent_span_id == client.span_id


WORKER = """
import asyncio, sys
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from dragoman import Service, connect, serve
from dragoman.telemetry import Traces

url, behind, receiver = sys.argv[1:]
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=receiver)))
traces, api = Traces(provider), Service("worker")

async def main():
    async with connect(behind, observers=[traces]) as inner:
        @api.method
        async def subtract(minuend: int, subtrahend: int) -> int:
            return await inner.call("subtract", [minuend, subtrahend], result=int)

        async with serve(api, urls=url, observers=[traces]):
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.xdist_group("rabbitmq")
async def test_a_receiver_gets_one_trace_through_a_worker_process_behind_rabbitmq(rabbitmq: Engine) -> None:
    """A client, a worker of another process behind RabbitMQ, and the service that the worker calls."""
    with receiver(ExportTraceServiceRequest, "/v1/traces") as (to, got):
        provider = TracerProvider(resource=Resource({"service.name": "calculator"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=to)))
        traces, url = Traces(provider), f"{rabbitmq.url}/{name()}"
        async with serve(api(), urls="http://127.0.0.1:0", observers=[traces]) as behind:
            words = [sys.executable, "-c", WORKER, url, behind.urls[0], to]
            pipe = asyncio.subprocess.PIPE
            worker = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            assert worker.stdout is not None
            try:
                assert (await worker.stdout.readline()).rstrip() == b"ready"
                async with connect(url, observers=[traces]) as peer:
                    assert await peer.call("subtract", [42, 23]) == 19
            finally:
                await worker.communicate(b"")
        await asyncio.to_thread(provider.shutdown)
    spans = [span for one in got for where in one.resource_spans for scope in where.scope_spans for span in scope.spans]
    assert len({span.trace_id for span in spans}) == 1
    below = {span.parent_span_id: span for span in spans}
    chain = [below[b""]]
    while (span := below.get(chain[-1].span_id)) is not None:
        chain.append(span)
    kinds = [Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER] * 2
    assert [span.kind for span in chain] == kinds
    assert len(spans) == len(chain)
    given = [{one.key: one.value.string_value for one in span.attributes} for span in chain]
    assert [one.get("messaging.system") for one in given] == ["rabbitmq", "rabbitmq", None, None]
    assert given[1]["dragoman.service"] == "worker"


def test_without_the_extra_it_is_named() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from dragoman.telemetry import AccessLog, Metrics\n"
        "try:\n    from dragoman.telemetry import Traces\n"
        "except Exception as fault:\n    print(type(fault).__name__, fault)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith('LocalError Traces needs opentelemetry-api: pip install "dragoman[otel]"')
