"""A bus whose messages and whose store are spans, within the trace of the call that uses them.

Rules:

- Only within a span that is recorded: what a replica does for itself, such as reporting that it lives, is not a trace.
- Keys and values of the store are never attributes, because a key may be that of a session.
- A message that is published within a span carries its context, before the message itself
  (`bus.contract.with_trace_context`). Where its subscriber has a `TracedBus` too, what that does is a span of kind
  consumer below it; any other gets the message alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from ..bus.contract import Bus, Store, Subscription, published_in, with_trace_context
from ..jsonrpc.errors import LocalError, needs
from ..observer import Measured
from .conventions import processing, publishing, storing
from .trace_context import SAMPLED, in_text, write_traceparent

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, Status, StatusCode

    from .traces import span_context, within
except ImportError:
    raise needs("TracedBus", "opentelemetry-api", "otel") from None

T = TypeVar("T")

_ERROR: Final = Status(StatusCode.ERROR)


class TracedBus:
    """A `Bus` that makes spans: `serve(server, bus=TracedBus(await open_bus("redis://...")), ...)`. Its `close` closes
    that bus too.

    `provider`: an OpenTelemetry `TracerProvider`; None: the global one. LocalError where either is something else.
    """

    def __init__(self, bus: Bus, provider: trace.TracerProvider | None = None) -> None:
        if not isinstance(bus, Bus):
            raise LocalError(f"TracedBus: bus is {bus!r}, and must be a Bus: await open_bus(url)")
        source = trace.get_tracer_provider() if provider is None else provider
        if not callable(getattr(source, "get_tracer", None)):
            raise LocalError(f"TracedBus: provider is {provider!r}, and must be a TracerProvider of OpenTelemetry")
        self._bus = bus
        self._tracer: trace.Tracer = source.get_tracer("dragoman")
        self.url: str = bus.url
        """The URL of the bus, without credentials."""
        self.store: Store | None = None if bus.store is None else _TracedStore(bus.store, bus.url, self.span)
        """The store of the bus, traced; None if it has none."""

    @property
    def alive(self) -> bool:
        """Whether the engine is connected."""
        return self._bus.alive

    @property
    def on_state(self) -> Callable[[bool], object] | None:
        """Called with False when the engine is lost, and with True when it is back."""
        return self._bus.on_state

    @on_state.setter
    def on_state(self, on_state: Callable[[bool], object] | None) -> None:
        self._bus.on_state = on_state

    async def publish(self, topic: str, message: bytes) -> None:
        """Publish, in a span of kind producer. Raises BusLost."""
        with self.span(SpanKind.PRODUCER, publishing(self.url, topic)) as span:
            await self._bus.publish(
                topic, message if span is None else with_trace_context(message, _context_text(span))
            )

    async def subscribe(self, topic: str, take: Callable[[bytes], object]) -> Subscription:
        """Subscribe; `take` runs in a span if its message names one. Raises BusLost."""
        return await self._bus.subscribe(topic, partial(self._take, topic, take))

    def _take(self, topic: str, take: Callable[[bytes], object], message: bytes) -> None:
        """Call a subscriber, within a span of kind consumer where the message names its publisher's."""
        named = in_text(published_in.get())
        if named is None or not named.flags & SAMPLED:
            take(message)
            return
        name, attributes = processing(self.url, topic)
        parent = trace.set_span_in_context(NonRecordingSpan(span_context(named)), contexts.Context())
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes)
        with _end_with_block(span):
            within(span).run(take, message)

    async def close(self) -> None:
        """Close the bus."""
        await self._bus.close()

    def measures(self) -> Mapping[str, float]:
        """Return the measures of the bus, if it has some."""
        return self._bus.measures() if isinstance(self._bus, Measured) else {}

    @contextmanager
    def span(self, kind: SpanKind, named: tuple[str, dict[str, Any]]) -> Iterator[Span | None]:
        """Return a span of that name and those attributes, if the current one is recorded; else None."""
        if not trace.get_current_span().is_recording():
            yield None
            return
        name, attributes = named
        span = self._tracer.start_span(name, kind=kind, attributes=attributes)
        with _end_with_block(span):
            yield span


@contextmanager
def _end_with_block(span: Span) -> Iterator[None]:
    """End the span with the block, and record what that raised."""
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(_ERROR)
        raise
    finally:
        span.end()


def _context_text(span: Span) -> str:
    """Return the context of a span, as `in_text` reads it."""
    made = span.get_span_context()
    text = write_traceparent(made.trace_id, made.span_id, made.trace_flags)
    state = made.trace_state.to_header() if made.trace_state else ""
    return f"{text} {state}" if state.isascii() and state.isprintable() and state else text


class _TracedStore:
    """The store of such a bus."""

    def __init__(self, store: Store, url: str, span: Callable[..., AbstractContextManager[Any]]) -> None:
        self._store = store
        self._url = url
        self._span = span

    async def _do(self, operation: str, work: Awaitable[T]) -> T:
        with self._span(SpanKind.CLIENT, storing(self._url, operation)):
            return await work

    async def get(self, key: str) -> bytes | None:
        return await self._do("get", self._store.get(key))

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._do("put", self._store.put(key, value, ttl=ttl))

    async def put_new(self, key: str, value: bytes, *, ttl: float | None = None) -> bool:
        return await self._do("put_new", self._store.put_new(key, value, ttl=ttl))

    async def delete(self, key: str) -> bool:
        return await self._do("delete", self._store.delete(key))

    async def touch(self, key: str, ttl: float) -> bool:
        return await self._do("touch", self._store.touch(key, ttl))

    async def append(
        self,
        log: str,
        message: bytes,
        *,
        ttl: float,
        messages: int = 1_000,
        size: int = 1_048_576,
        number: int | None = None,
    ) -> int:
        work = self._store.append(log, message, ttl=ttl, messages=messages, size=size, number=number)
        return await self._do("append", work)

    async def read(self, log: str, after: int = 0) -> list[tuple[int, bytes]]:
        return await self._do("read", self._store.read(log, after))
