"""Spans of the bus and its store, within the trace of the call that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from dragoman import LocalError, Service, connect, serve
from dragoman.bus import BusLost
from dragoman.bus.contract import Bus, Store, with_trace_context
from dragoman.bus.memory import MemoryBus
from dragoman.observer import Measured
from dragoman.telemetry import TracedBus
from tests.engines.brokers import name

from .test_traces import Spans, ids, parent_of

SECRET = "session/abc"


@pytest.fixture
def spans() -> Any:
    made = Spans()
    yield made
    made.provider.shutdown()


@pytest.fixture
async def inner() -> AsyncIterator[MemoryBus]:
    made = MemoryBus(name())
    yield made
    await made.close()


Use = Callable[[Any], Awaitable[Any]]
OPERATIONS: list[tuple[str, Use, Any]] = [
    ("get", lambda store: store.get(SECRET), None),
    ("put", lambda store: store.put(SECRET, b"v", ttl=5), None),
    ("put_new", lambda store: store.put_new(SECRET, b"v", ttl=5), True),
    ("touch", lambda store: store.touch(SECRET, 5), False),
    ("append", lambda store: store.append(SECRET, b"m", ttl=5), 1),
    ("read", lambda store: store.read(SECRET), []),
    ("delete", lambda store: store.delete(SECRET), False),
]


async def within(spans: Spans, bus: TracedBus, work: Use) -> tuple[Any, ReadableSpan, list[ReadableSpan]]:
    """What `work` gives in a handler, the span of the call, and those of the bus."""
    api, given = Service("calculator"), []

    @api.method
    async def use() -> None:
        given.append(await work(bus))

    async with (
        serve(api, urls=f"memory:{name()}", observers=[spans.traces], bus=bus) as serving,
        connect(serving.urls[0]) as peer,
    ):
        await peer.call("use")
    call = spans.one("use")
    return given[0], call, [span for span in spans.done() if span is not call]


async def gathered(got: list[bytes], count: int) -> None:
    """Let the loop turn until so many messages are there."""
    async with asyncio.timeout(20):
        while len(got) < count:  # noqa: ASYNC110  (a subscriber is not a coroutine)
            await asyncio.sleep(0)


@pytest.mark.parametrize(("operation", "work", "expected"), OPERATIONS, ids=[row[0] for row in OPERATIONS])
async def test_an_operation_of_the_store_is_below_the_call(
    operation: str, work: Use, expected: Any, spans: Spans, inner: MemoryBus
) -> None:
    given, call, (span,) = await within(spans, TracedBus(inner, spans.provider), lambda bus: work(bus.store))
    assert given == expected
    assert (span.name, span.kind, parent_of(span)) == (operation, SpanKind.CLIENT, ids(call)[1])
    assert dict(span.attributes or {}) == {"db.system.name": "memory", "db.operation.name": operation}
    assert SECRET not in span.to_json()


async def test_a_message_is_below_the_call(spans: Spans, inner: MemoryBus) -> None:
    got: list[bytes] = []
    bus = TracedBus(inner, spans.provider)
    await bus.subscribe("topic", got.append)
    _, call, (span, _) = await within(spans, bus, lambda bus: bus.publish("topic", b"m"))
    assert got == [b"m"]
    assert (span.name, span.kind, parent_of(span)) == ("publish", SpanKind.PRODUCER, ids(call)[1])
    attributes = span.attributes or {}
    assert (attributes["messaging.system"], attributes["messaging.destination.name"]) == ("memory", "topic")


async def test_what_a_subscriber_does_is_below_the_message(spans: Spans, inner: MemoryBus) -> None:
    """On the bus of another process, too: the message carries the context; who does not ask for it gets it alone."""
    tracer = spans.provider.get_tracer("test")
    plain: list[bytes] = []
    got: list[bytes] = []

    def take(message: bytes) -> None:
        got.append(message)
        with tracer.start_as_current_span("work"):
            if message == b"fail":
                raise ValueError

    other = MemoryBus(inner.url.partition(":")[2])
    await other.subscribe("topic", plain.append)
    await TracedBus(other, spans.provider).subscribe("topic", take)

    async def publish(bus: TracedBus) -> None:
        for message in (b"", b"m\n\x00traceparent=", b"fail"):
            await bus.publish("topic", message)

    _, call, found = await within(spans, TracedBus(inner, spans.provider), publish)
    await inner.publish("topic", b"outside")
    await gathered(got, 4)
    assert plain == got == [b"", b"m\n\x00traceparent=", b"fail", b"outside"]
    assert {ids(span)[0] for span in found} == {ids(call)[0]}
    sent = [span for span in found if span.name == "publish"]
    taken = [span for span in found if span.name == "process"]
    work = [span for span in found if span.name == "work"]
    assert [parent_of(span) for span in sent] == [ids(call)[1]] * 3
    assert [parent_of(span) for span in taken] == [ids(span)[1] for span in sent]
    assert [parent_of(span) for span in work] == [ids(span)[1] for span in taken]
    assert {span.kind for span in taken} == {SpanKind.CONSUMER}
    assert [(span.attributes or {}).get("error.type") for span in taken] == [None, None, "ValueError"]
    assert (taken[0].attributes or {})["messaging.operation.type"] == "process"
    await other.close()


async def test_a_context_that_is_none_begins_no_span(spans: Spans, inner: MemoryBus) -> None:
    got: list[bytes] = []
    bus = TracedBus(inner, spans.provider)
    await bus.subscribe("topic", got.append)
    unsampled = f"00-{1:032x}-{1:016x}-00"
    for context in ("", "nonsense", unsampled):
        await inner.publish("topic", with_trace_context(b"m", context))
    await gathered(got, 3)
    assert got == [b"m"] * 3
    assert spans.done() == []


async def test_a_bus_that_is_lost_is_an_error_of_the_span(spans: Spans, inner: MemoryBus) -> None:
    async def publish(bus: TracedBus) -> None:
        inner.disconnect()
        with pytest.raises(BusLost):
            await bus.publish("topic", b"m")

    _, _, (span,) = await within(spans, TracedBus(inner, spans.provider), publish)
    assert (span.attributes or {})["error.type"] == "BusLost"
    assert span.status.status_code == StatusCode.ERROR
    assert not span.events


async def test_outside_of_a_call_there_are_none(spans: Spans, inner: MemoryBus) -> None:
    bus = TracedBus(inner, spans.provider)
    await bus.publish("topic", b"m")
    assert bus.store is not None
    assert await bus.store.put_new("key", b"v")
    assert await bus.store.get("key") == b"v"
    assert spans.done() == []


async def test_it_is_the_bus_in_everything_else(spans: Spans, inner: MemoryBus) -> None:
    told: list[bool] = []
    bus = TracedBus(inner, spans.provider)
    assert isinstance(bus, Bus)
    assert isinstance(bus.store, Store)
    assert isinstance(bus, Measured)
    bus.on_state = told.append
    assert bus.on_state == inner.on_state == told.append
    inner.disconnect()
    assert (bus.alive, told, bus.url) == (False, [False], inner.url)
    assert bus.measures() == inner.measures()
    await bus.close()


async def test_what_does_not_fit_is_said(inner: MemoryBus) -> None:
    nothing: Any = "redis://127.0.0.1"
    with pytest.raises(LocalError, match="open_bus"):
        TracedBus(nothing)
    with pytest.raises(LocalError, match="TracerProvider"):
        TracedBus(inner, nothing)
