"""Every metric that there is: its kind, its labels, and what it says. Names are written with "dragoman_" before them.

Counters end in "_total", names with a unit in "_seconds" or "_bytes". Every gauge is one whose sum over several
processes makes sense, since a supervisor adds up its workers': "connected" counts processes.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "dragoman_"
_CALL: Final = ("service", "method", "outcome")
_TARGET: Final = ("tool", "prompt")
_BROKER: Final = ("service", "wire")


class Instrument(Struct, frozen=True):
    """One metric."""

    kind: Kind
    labels: tuple[str, ...]
    help: str
    of_mcp: tuple[str, ...] = ()
    """Labels of which some samples of MCP have one."""


def _counter(labels: tuple[str, ...], help: str, of_mcp: tuple[str, ...] = ()) -> Instrument:
    return Instrument("counter", labels, help, of_mcp)


def _durations(help: str) -> Instrument:
    return Instrument("histogram", ("service", "method"), help, _TARGET)


def _gauge(labels: tuple[str, ...], help: str) -> Instrument:
    return Instrument("gauge", labels, help)


INSTRUMENTS: Final[dict[str, Instrument]] = {
    # counted as calls end
    "calls_total": _counter(_CALL, "Calls that are over, by their outcome.", _TARGET),
    "errors_total": _counter(("service", "code"), "Calls that were answered with an error, by its code."),
    "call_duration_seconds": _durations("From the call to its answer."),
    "queue_wait_seconds": Instrument("histogram", ("service",), "From the call to its start."),
    "calls_in_flight": _gauge(("service",), "Calls that are not over."),
    "notifications_total": _counter(("service", "outcome"), "Notifications, by their outcome."),
    "batches_total": _counter(("service",), "Batches; their elements are counted as calls, too."),
    "malformed_total": _counter(("service",), "What was not a message."),
    "received_bytes_total": _counter(("service",), "Bytes of messages that came in."),
    "sent_bytes_total": _counter(("service",), "Bytes of their answers."),
    "rejections_total": _counter(("kind", "wire"), "What was turned away before there was a message for a service."),
    "outbound_calls_total": _counter(_CALL, "Calls that this end made and that are over, by their outcome.", _TARGET),
    "outbound_errors_total": _counter(("service", "code"), "Of these, those that were answered with an error."),
    "outbound_call_duration_seconds": _durations("From the call to its answer."),
    "outbound_queue_wait_seconds": Instrument("histogram", ("service",), "From the call until it was sent."),
    "outbound_calls_in_flight": _gauge(("service",), "Calls that wait for their answer."),
    "outbound_notifications_total": _counter(("service", "outcome"), "Notifications that this end sent."),
    "outbound_batches_total": _counter(("service",), "Batches that this end sent."),
    # read when they are collected: what is served
    "channels": _gauge(("service",), "Channels that are open, without sessions."),
    "calls_waiting": _gauge(("service",), "Calls in queues: for a slot of their channel or method, or for a thread."),
    "sessions": _gauge(("service",), "Sessions of MCP that this process holds; replicas hold copies."),
    "streams": _gauge(("service",), "Streams of sessions that have a reader here."),
    "stream_lag": _gauge(("service",), "Messages of streams that are not sent to their reader yet."),
    "kept_bytes": _gauge(
        ("service",), "Bytes kept for callers: streams to return to, and what sessions know of theirs."
    ),
    "unsent_bytes": _gauge(("service",), "Bytes that callers have not read, beyond what the system holds."),
    "kept_dropped_total": _counter(("service",), "Streams and unused sessions that were dropped to make room."),
    "kept_refused_total": _counter(("service",), "Sessions that were refused because their caller has its share."),
    "slow_readers_closed_total": _counter(("service",), "Connections that were closed to make room."),
    "subscribers": _gauge(("service",), "Subscriptions of MCP, and sessions that are told of changes."),
    "subscriber_lag": _gauge(("service",), "Changes that subscribers have not been told yet."),
    "subscriber_waits_total": _counter(("service",), "Changes that had to wait for a slow subscriber."),
    "subscriber_drops_total": _counter(("service",), "Changes that a session was not told, since it took nothing."),
    # of a broker's listener
    "deliveries_total": _counter(_BROKER, "A broker's deliveries."),
    "redeliveries_total": _counter(_BROKER, "Of these, those that were delivered or sent before."),
    "deliveries_answered_total": _counter(_BROKER, "Deliveries whose answer the broker has confirmed."),
    "deliveries_unanswered_total": _counter(_BROKER, "Deliveries to which no answer was owed, or none any more."),
    "deliveries_requeued_total": _counter(_BROKER, "Deliveries that went back to other workers."),
    "deliveries_rejected_total": _counter(_BROKER, "Deliveries that were set aside (dead-lettered)."),
    "deliveries_refused_total": _counter(_BROKER, "Deliveries that were turned away before they were read."),
    "deliveries_unsettled": _gauge(_BROKER, "Deliveries that are not settled."),
    "deliveries_waiting": _gauge(_BROKER, "Of these, those for which there is no slot."),
    "broker_connected": _gauge(_BROKER, "Listeners that are connected to their broker."),
    "broker_outages_total": _counter(_BROKER, "How often a listener lost its broker."),
    # of the bus
    "bus_connected": _gauge(("bus",), "Processes that are connected to the bus."),
    "bus_published_total": _counter(("bus",), "Messages that were published on the bus."),
    "bus_received_total": _counter(("bus",), "Messages of the bus, once for each subscriber here."),
    "bus_dropped_total": _counter(("bus",), "Messages that a process read too slowly to get."),
    "bus_outages_total": _counter(("bus",), "How often the bus was lost."),
    "bus_unverified_total": _counter(("bus",), "Records of the bus whose seal did not verify, which were passed over."),
    # of each process
    "build_info": _gauge(("version", "python"), "Processes, by the version of dragoman and of Python."),
    # of the supervisor
    "workers": _gauge((), "Workers that serve."),
    "worker_starts_total": _counter((), "Workers that were started."),
    "worker_failures_total": _counter((), "Workers that ended by themselves, or could not be started."),
}


def instrument_of(name: str) -> Instrument:
    """Return the instrument of that name, without "dragoman_"; for measures of a program's own, one made of the
    name."""
    found = INSTRUMENTS.get(name)
    return found or Instrument("counter" if name.endswith("_total") else "gauge", (), f"{name}.")
