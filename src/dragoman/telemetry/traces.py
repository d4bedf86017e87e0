"""An observer that makes OpenTelemetry spans: of calls and notifications, on the way in and on the way out.

Rules:

- The work of a call that goes on beyond its request has a span of kind internal, whose parent is that of the request.
- The parent of what came in is what its sender names: `params._meta` in MCP, else header fields of HTTP or of a
  broker's delivery. A span that is current already is linked; where no parent is named it is the parent.
- A parent that is not sampled is followed: there is no span of ours, and calls of the handler pass the parent on.
- The handler runs with its span as the current one, and without the sender's baggage.
- What goes out carries `traceparent`, and `tracestate` where there is one: in `_meta` in MCP, else in header fields.
"""

from __future__ import annotations

from contextvars import Context as Variables
from contextvars import copy_context
from typing import Final

from ..jsonrpc.errors import LocalError, needs
from ..observer import Additions, Observation, Rejection
from .conventions import FAILED, beginning, ending, name_of
from .trace_context import SAMPLED, Parent, in_headers, in_meta, write_traceparent

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
    from opentelemetry.trace.span import TraceState
except ImportError:
    raise needs("Traces", "opentelemetry-api", "otel") from None

_ERROR: Final = Status(StatusCode.ERROR)
_FLAGS: Final = (TraceFlags(0), TraceFlags(SAMPLED))
_SPANNED: Final = frozenset({"request", "notification"})


class Traces:
    """Makes spans; give it to `serve`, `connect` and `Client` (`observers=[Traces()]`).

    `provider`: an OpenTelemetry `TracerProvider`; None: the global one. Without an SDK nothing is recorded, and parents
    are passed on.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        source = trace.get_tracer_provider() if provider is None else provider
        if not callable(getattr(source, "get_tracer", None)):
            raise LocalError(f"Traces: provider is {provider!r}, and must be a TracerProvider of OpenTelemetry")
        self._tracer: trace.Tracer = source.get_tracer("dragoman")
        self._spans: dict[Observation, Span] = {}

    def __repr__(self) -> str:
        return f"<Traces of {type(self._tracer).__name__}>"

    # -- the observer

    def came_in(self, seen: Observation) -> Variables | None:
        """Begin a span of kind server; the handler runs within it."""
        if seen.kind == "detached":
            return self._detached(seen)
        if seen.kind not in _SPANNED:
            return None
        named = in_meta(seen) if seen.protocol == "mcp" else None
        carrier = in_headers(seen.caller.headers)
        if named is None:
            named, carrier = carrier, None
        if named is not None and not named.flags & SAMPLED:
            seen.trace_id = named.trace_id
            return within(NonRecordingSpan(span_context(named)))
        ambient = trace.get_current_span().get_span_context()
        links = [Link(span_context(carrier))] if carrier is not None and carrier != named else []
        if named is not None:
            start = trace.set_span_in_context(NonRecordingSpan(span_context(named)), contexts.Context())
            links += [Link(ambient)] if ambient.is_valid and ambient.span_id != named.span_id else []
        else:
            start = trace.set_span_in_context(NonRecordingSpan(ambient), contexts.Context())
        span = self._tracer.start_span(name_of(seen), start, SpanKind.SERVER, beginning(seen), links)
        seen.trace_id = span.get_span_context().trace_id
        if span.is_recording():
            self._spans[seen] = span
        return within(span)

    def _detached(self, seen: Observation) -> Variables | None:
        """Begin the span of a call that goes on, within that of its request, in whose context this runs."""
        if seen.parent is not None:
            seen.trace_id = seen.parent.trace_id
        current = trace.get_current_span().get_span_context()
        if current.is_valid and not current.trace_flags & SAMPLED:
            return None
        span = self._tracer.start_span(name_of(seen), None, SpanKind.INTERNAL, beginning(seen))
        seen.trace_id = span.get_span_context().trace_id
        if span.is_recording():
            self._spans[seen] = span
        return within(span)

    def outbound(self, seen: Observation) -> Additions | None:
        """Begin a span of kind client, within the current one; its context goes with the message."""
        if seen.kind not in _SPANNED:
            return None
        current = trace.get_current_span().get_span_context()
        if current.is_valid and not current.trace_flags & SAMPLED:
            return _carried(seen, current)
        span = self._tracer.start_span(name_of(seen), None, SpanKind.CLIENT, beginning(seen))
        if span.is_recording():
            self._spans[seen] = span
        made = span.get_span_context()
        return _carried(seen, made) if made.is_valid else None

    def started(self, seen: Observation) -> None:
        """Do nothing: how long it waited is an attribute at the end."""

    def ended(self, seen: Observation) -> None:
        """End the span of a call or a notification."""
        span = self._spans.pop(seen, None)
        if span is None:
            return
        name, attributes = ending(seen)
        span.update_name(name)
        span.set_attributes(attributes)
        if seen.outcome in FAILED or "error.type" in attributes:
            span.set_status(_ERROR)
        span.end()

    def rejected(self, seen: Rejection) -> None:
        """Do nothing: it is not a call."""


def within(span: Span) -> Variables:
    """Return a context in which a handler runs: with this span as the current one, and without baggage."""
    made = copy_context()
    made.run(contexts.attach, trace.set_span_in_context(span, contexts.Context()))
    return made


def span_context(named: Parent) -> SpanContext:
    """Return a parent in OpenTelemetry's form."""
    state = TraceState.from_header([named.state]) if named.state else None
    return SpanContext(named.trace_id, named.span_id, True, _FLAGS[named.flags & SAMPLED], state)


def _carried(seen: Observation, context: SpanContext) -> Additions:
    """Return the context that goes with a message."""
    fields = {"traceparent": write_traceparent(context.trace_id, context.span_id, context.trace_flags)}
    if context.trace_state:
        fields["tracestate"] = context.trace_state.to_header()
    return Additions(meta=fields) if seen.protocol == "mcp" else Additions(headers=fields)
