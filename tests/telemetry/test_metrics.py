"""Metrics: what is counted, under which labels, and that Prometheus' own programs read the text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import CallTimeout, Context, LocalError, RpcError, Service, connect, serve
from dragoman.channel import Caller
from dragoman.jsonrpc.limits import Limits
from dragoman.mcp import Client, Server
from dragoman.observer import Observation, Rejection
from dragoman.telemetry import Metrics, MetricsPage
from dragoman.telemetry.figures import MetricFamily, MetricSample, exposition, sum_families
from dragoman.telemetry.metrics import CODES, METHODS, SILENT

from .prometheus import parsed, promtool, value


def api(held: asyncio.Event | None = None) -> Service:
    made = Service("calculator")

    @made.method(inline=True)
    def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    @made.method
    async def fail() -> None:
        raise RpcError("no", code=7)

    @made.method(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    @made.method
    async def back(context: Context) -> int:
        return int(await context.call("subtract", [3, 1], result=int))

    @made.method
    async def hold() -> None:
        assert held is not None
        held.set()
        await asyncio.Event().wait()

    return made


async def failing(peer: Any, method: str, *params: Any) -> None:
    with pytest.raises((RpcError, CallTimeout)):
        await peer.call(method, list(params))


async def test_calls_are_counted_by_method_and_outcome() -> None:
    metrics, outside = Metrics(), Metrics()
    async with (
        serve(api(), urls="tcp://127.0.0.1:0", observers=[metrics]) as serving,
        connect(serving.urls[0], service=api(), observers=[outside]) as peer,
    ):
        for _ in range(3):
            assert await peer.call("subtract", [42, 23]) == 19
        assert await peer.call("back") == 2
        for method in ("fail", "fail", "slow", "nothing", "nothing at all"):
            await failing(peer, method)
        await failing(peer, "subtract", "x", 1)
        await peer.notify("subtract", [1, 1])
        async with peer.batch() as batch:
            batch.call("subtract", [1, 1])
        found = parsed(metrics.text())
        calls = {
            tuple(dict(labels)[name] for name in ("method", "outcome")): count
            for (name, labels), count in found.items()
            if name == "dragoman_calls_total"
        }
        assert calls == {
            ("subtract", "result"): 4,
            ("subtract", "error"): 1,
            ("back", "result"): 1,
            ("fail", "error"): 2,
            ("slow", "timed_out"): 1,
            ("unknown", "error"): 2,
        }
        by_code = {
            dict(labels)["code"]: count for (name, labels), count in found.items() if name == "dragoman_errors_total"
        }
        assert by_code == {"7": 2, "-32601": 2, "-32602": 1, "-32002": 1}
        assert value(found, "dragoman_batches_total", service="calculator") == 1
        assert value(found, "dragoman_notifications_total", service="calculator", outcome="notified") == 1
        assert (
            value(found, "dragoman_outbound_calls_total", service="calculator", method="subtract", outcome="result")
            == 1
        )
        assert value(found, "dragoman_call_duration_seconds_count", service="calculator", method="subtract") == 5
        assert value(found, "dragoman_calls_in_flight", service="calculator") == 0
        other = parsed(outside.text())
    assert value(other, "dragoman_outbound_calls_total", service="calculator", method="subtract", outcome="result") == 4
    assert value(other, "dragoman_calls_total", service="calculator", method="subtract", outcome="result") == 1


async def test_what_is_in_flight_and_what_is_open() -> None:
    metrics = Metrics()
    held = asyncio.Event()
    async with (
        serve(api(held), urls="tcp://127.0.0.1:0", observers=[metrics]) as serving,
        connect(serving.urls[0]) as peer,
    ):
        call = asyncio.create_task(peer.call("hold"))
        await held.wait()
        found = parsed(metrics.text())
        assert value(found, "dragoman_calls_in_flight", service="calculator") == 1
        assert value(found, "dragoman_channels", service="calculator") == 1
        call.cancel()
        await peer.call("subtract", [1, 1])
        assert value(parsed(metrics.text()), "dragoman_calls_in_flight", service="calculator") == 0


def observation(method: str, *, known: bool = True, code: int | None = None, **more: Any) -> Observation:
    seen = Observation(
        direction="in", kind="request", service="s", protocol="plain", caller=Caller(**more), channel=1, method=method
    )
    seen.started = seen.began if known else None
    seen.ended = seen.began + 0.00002
    seen.outcome, seen.code = "error" if code else "result", code
    return seen


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_tools_and_prompts_are_told_apart(revision: str) -> None:
    """By what is registered alone: anybody can call any name."""
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return f"sunny in {city}"

    @server.tool
    def now() -> str:
        raise ValueError("no clock")

    @server.prompt
    def letter(city: str) -> str:
        return f"Dear {city}"

    @server.resource("text://{name}")
    def text(name: str) -> str:
        return name

    metrics, outside = Metrics(), Metrics()
    async with (
        serve(server, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving,
        Client(serving.urls[0], revision=revision, observers=[outside]) as client,
    ):
        for _ in range(2):
            await client.call_tool("forecast", {"city": "Beijing"})
        await client.call_tool("now", {})
        await client.get_prompt("letter", {"city": "Beijing"})
        await client.read_resource("text://a")
        for number in range(3):
            with pytest.raises(RpcError):
                await client.call_tool(f"nothing{number}", {})
            with pytest.raises(RpcError):
                await client.get_prompt(f"nothing{number}", {})
    expected = {
        ("tools/call", "forecast", ""): 2.0,
        ("tools/call", "now", ""): 1.0,
        ("tools/call", "", ""): 3.0,
        ("prompts/get", "", "letter"): 1.0,
        ("prompts/get", "", ""): 3.0,
        ("resources/read", "", ""): 1.0,
    }
    for found, way in ((metrics, ""), (outside, "outbound_")):
        counts: dict[tuple[str, str, str], float] = {}
        for (name, labels), count in parsed(found.text()).items():
            if name == f"dragoman_{way}call_duration_seconds_count":
                given = dict(labels)
                key = given["method"], given.get("tool", ""), given.get("prompt", "")
                counts[key] = counts.get(key, 0) + count
        assert {key: count for key, count in counts.items() if key[0] in {one[0] for one in expected}} == expected


def test_tools_are_bounded_with_the_methods() -> None:
    metrics = Metrics()
    for number in range(METHODS + 50):
        seen = observation("tools/call")
        seen.protocol, seen.target = "mcp", f"tool{number}"
        metrics.ended(seen)
    counts = {
        dict(labels).get("tool", ""): count
        for (name, labels), count in parsed(metrics.text()).items()
        if name == "dragoman_calls_total"
    }
    assert len(counts) == METHODS + 1
    assert counts[""] == 50


def tools_of(metrics: Metrics) -> dict[str, float]:
    """How many calls of each tool were counted; "" for those without a label."""
    counts: dict[str, float] = {}
    for (name, labels), count in parsed(metrics.text()).items():
        given = dict(labels)
        if name == "dragoman_calls_total" and given["method"] == "tools/call":
            counts[given.get("tool", "")] = counts.get(given.get("tool", ""), 0) + count
    return counts


async def test_what_was_removed_gives_its_label_to_others() -> None:
    app = Server("s")
    holding, held = asyncio.Event(), asyncio.Event()

    @app.tool
    async def hold() -> str:
        holding.set()
        await held.wait()
        return "held"

    metrics = Metrics()
    async with (
        serve(app, urls="http://127.0.0.1:0/mcp", observers=[metrics]) as serving,
        Client(serving.urls[0], cache=False) as client,
    ):
        for number in range(METHODS + 20):
            app.add_tool(lambda: "done", name=f"tool{number}", description="One of many")
            await client.call_tool(f"tool{number}", {})
            app.remove_tool(f"tool{number}")
        app.add_tool(lambda: "1", name="two", description="One", version="1.0")
        app.add_tool(lambda: "2", name="two", description="Two", version="2.0")
        await client.call_tool("two", {})
        app.remove_tool("two", version="2.0")
        last = asyncio.create_task(client.call_tool("hold", {}))
        await holding.wait()
        app.remove_tool("hold")
        held.set()
        await last
        assert tools_of(metrics) == {"": METHODS + 21, "two": 1}
        app.add_tool(hold)
        await client.call_tool("hold", {})
        assert tools_of(metrics) == {"": METHODS + 21, "two": 1, "hold": 1}


async def test_a_removed_method_gives_its_label_to_others() -> None:
    """Also where it is served under other limits than its own, and where it was included."""
    service, inner = Service("s"), Service("inner")
    service.include(inner)
    metrics = Metrics()
    async with (
        serve(service, urls="tcp://127.0.0.1:0", observers=[metrics], limits=Limits(depth=9)) as serving,
        connect(serving.urls[0]) as peer,
    ):
        for number in range(METHODS + 20):
            one = (service, inner)[number % 2]
            one.method(f"method{number}", inline=True)(lambda: 1)
            await peer.call(f"method{number}")
            one.remove(f"method{number}")
        service.method("late", inline=True)(lambda: 1)
        await peer.call("late")
    found = parsed(metrics.text())
    counts = {
        dict(labels)["method"]: count for (name, labels), count in found.items() if name == "dragoman_calls_total"
    }
    assert counts == {"unknown": METHODS + 20, "late": 1}


def test_what_is_silent_gives_its_label_to_others() -> None:
    """On the way out it is not told what is there no more."""
    metrics = Metrics()
    for number in range(METHODS):
        metrics.ended(observation(f"method{number}"))

    def later(method: str, seconds: float) -> None:
        seen = observation(method)
        seen.began += seconds
        seen.ended = seen.began
        metrics.ended(seen)

    later("late", 1)  # looks
    later("method7", SILENT)
    later("late", SILENT + 2)
    found = parsed(metrics.text())
    counts = {
        dict(labels)["method"]: count for (name, labels), count in found.items() if name == "dragoman_calls_total"
    }
    assert counts == {"method7": 2, "late": 1, "unknown": METHODS}


def test_labels_are_bounded() -> None:
    """An enemy calls names and causes codes without end."""
    metrics = Metrics()
    for number in range(METHODS + 50):
        metrics.ended(observation(f"there{number}"))
        metrics.ended(observation(f"nothing{number}", known=False, code=number))
    found = parsed(metrics.text())
    methods = {dict(labels)["method"] for name, labels in found if name == "dragoman_calls_total"}
    codes = {dict(labels)["code"] for name, labels in found if name == "dragoman_errors_total"}
    assert len(methods) == METHODS + 1
    assert not any(name.startswith("nothing") for name in methods)
    assert len(codes) == CODES + 1
    assert "other" in codes


def test_buckets_are_fine_enough_for_microseconds() -> None:
    metrics = Metrics()
    metrics.ended(observation("m"))
    found = parsed(metrics.text())
    bucket = "dragoman_call_duration_seconds_bucket"
    assert value(found, bucket, service="s", method="m", le="1e-05") == 0
    assert value(found, bucket, service="s", method="m", le="2.5e-05") == 1
    assert value(found, bucket, service="s", method="m", le="+Inf") == 1


def test_rejections() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.rejected(Rejection(kind="denied", reason="no", place="/", caller=Caller(scheme="http")))
    found = parsed(metrics.text())
    assert value(found, "dragoman_rejections_total", kind="denied", wire="http") == 3


async def test_promtool_reads_it() -> None:
    metrics = Metrics()
    async with serve(api(), urls="memory:prom", observers=[metrics]), connect("memory:prom") as peer:
        await peer.call("subtract", [1, 1])
        await failing(peer, 'a "name"\\\nwith everything')
    metrics.read_measures(lambda: {"channels": 1}, service="calculator")
    promtool("check", "metrics", given=metrics.text())


texts = st.text(max_size=8)
samples = st.builds(
    MetricSample,
    st.tuples(st.tuples(st.just("a"), texts), st.tuples(st.just("b"), texts)),
    st.floats(0, 1e12),
)


@given(st.lists(samples, max_size=4, unique_by=lambda one: one.labels), texts)
def test_any_label_is_read_as_it_was(given: list[MetricSample], help: str) -> None:
    text = exposition([MetricFamily("dragoman_x", "gauge", help, given)])
    if not any("\r" in one for sample in given for _, one in sample.labels) and "\r" not in help:
        found = parsed(text)
        assert found == {("dragoman_x", frozenset(one.labels)): one.total for one in given}


def histogram(*buckets: int) -> MetricSample:
    return MetricSample((("m", "x"),), float(sum(buckets)), buckets)


def test_several_processes_are_added_up() -> None:
    one = [
        MetricFamily("c", "counter", "c", [MetricSample((), 1), MetricSample((("m", "x"),), 5)]),
        MetricFamily("g", "gauge", "g", [MetricSample((), 2)]),
        MetricFamily("h", "histogram", "h", [histogram(1, 0, 2)], (0.1, 1.0)),
    ]
    other = [
        MetricFamily("h", "histogram", "h", [histogram(0, 3, 1)], (0.1, 1.0)),
        MetricFamily("c", "counter", "c", [MetricSample((), 10)]),
        MetricFamily("g", "gauge", "g", [MetricSample((), 3)]),
    ]
    total = {family.name: family for family in sum_families([one, other])}
    assert total["c"].samples == [MetricSample((), 11), MetricSample((("m", "x"),), 5)]
    assert total["g"].samples == [MetricSample((), 5)]
    assert total["h"].samples == [histogram(1, 3, 3)]
    assert {family.name for family in sum_families([one, other], gauges=False)} == {"c", "h"}


async def ask(url: str, raw: str) -> bytes:
    host, _, port = url.split("/")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /metrics", 200),
        ("HEAD /metrics", 200),
        ("POST /metrics", 405),
        ("GET /", 404),
        ("GET /live", 200),
    ],
)
async def test_its_page(line: str, status: int) -> None:
    metrics = Metrics()
    metrics.ended(observation("m"))
    async with serve(MetricsPage(metrics.text), urls="http://127.0.0.1:0") as serving:
        answer = await ask(serving.urls[0], f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    if line == "GET /metrics":
        assert b"text/plain; version=0.0.4; charset=utf-8" in head
        assert value(parsed(body), "dragoman_calls_total", service="s", method="m", outcome="result") == 1


async def test_a_page_that_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> bytes:
        raise OSError("away")

    async with serve(MetricsPage(broken), urls="http://127.0.0.1:0") as serving:
        answer = await ask(serving.urls[0], "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"away" not in answer


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(LocalError, match="a function that gives numbers"):
        Metrics().read_measures({"channels": 1}, service="s")  # type: ignore[arg-type]
