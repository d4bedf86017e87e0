"""An observer that counts: calls, errors, durations, what is in flight, what is refused.

Rules:

- The values of labels are bounded, because anybody can call any name: a method has its own label once a handler of that
  name has run, and `METHODS` of a service have one; others are "unknown". The same with `CODES` of errors, "other".
- What was removed has its label no more: its series are added to those of "unknown", or of the method alone. Where no
  label is left, the same is done with what was not called for `SILENT` seconds.
- Calls of MCP's tools and prompts have the label `tool` or `prompt` too, with the name of one that is registered; on
  the way out, of one that has answered with a result. Each counts as one of `METHODS`; others have the method alone.
- Counting takes no lock: an observer is called on one loop. It is called for a script's `Service.answer` in the thread
  that calls it; use one `Metrics` for each loop or thread. `snapshot` and `durations` may be called from any thread.
- What can be read is not counted: sessions, streams, brokers and the bus return their numbers when they are read
  (`read_measures`), and cost a call nothing.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from time import perf_counter
from time import time as now
from typing import Final

import msgspec
from msgspec import Struct, field

from ..jsonrpc.errors import LocalError
from ..observer import Direction, Observation, Outcome, Rejection
from .figures import Labels, MetricFamily, MetricSample, exposition, sum_families
from .instruments import PREFIX, instrument_of
from .process import process_families

METHODS: Final = 500
"""Methods of a service with a label of their own, each of some 25 lines; more are counted as "unknown"."""
CODES: Final = 100
"""Codes of errors with a label of their own; more are counted as "other"."""
SILENT: Final = 3600.0
"""Seconds without a call after which a method or a tool gives its label to another one, where there is none left."""
LONGEST: Final = 200
"""Characters of the name of a tool that a client's own program has chosen."""
FAILURES: Final = 20
"""Pairs of outcome and code of one method whose durations are kept apart; more are counted as "other"."""
BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of durations in seconds: from 10 microseconds, since a call in place takes a few, to a minute."""
SHORTEST: Final = BOUNDS[0]
UNKNOWN: Final = "unknown"
TARGETS: Final = {"tools/call": "tool", "prompts/get": "prompt"}
"""The methods of MCP whose calls are distinguished by what they name, and the label for that."""
OTHER: Final = "other"
_WAYS: Final = {"in": "", "out": "outbound_"}

log: logging.Logger = logging.getLogger("dragoman.telemetry")

Read = Callable[[], Mapping[str, float]]


class Durations(Struct, frozen=True):
    """How long the calls of one method took that ended in one way. `protocol`, `direction`, `outcome` as of an
    `Observation`; `code`: the error's, "" without one; `buckets`: how many fell into each bucket of `BOUNDS`,
    not cumulative, the last beyond all bounds; `seconds`: their sum."""

    direction: Direction
    protocol: str
    service: str
    method: str
    outcome: str
    code: str
    seconds: float
    buckets: tuple[int, ...]
    target: str = ""
    """The tool or prompt of MCP."""


class _Tally(Struct, eq=False):
    """How often calls ended in one way, and how long they took."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0
    least: float = inf
    most: float = 0.0

    def add(self, other: _Tally) -> None:
        """Add the counts of another tally."""
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class _Method(Struct, eq=False):
    """The tallies of one method. `failed`: of calls that were answered with an error, by outcome and code."""

    over: dict[Outcome | None, _Tally] = {}
    failed: dict[tuple[Outcome | None, str], _Tally] = {}

    def add(self, other: _Method) -> None:
        """Add the counts of another method."""
        for outcome, tally in other.over.items():
            self.over.setdefault(outcome, _Tally()).add(tally)
        for (outcome, code), tally in other.failed.items():
            key = (outcome, code)
            if key not in self.failed and len(self.failed) >= FAILURES:
                key = (outcome, OTHER)
            self.failed.setdefault(key, _Tally()).add(tally)

    def tallies(self) -> list[tuple[str, str, _Tally]]:
        """Return all tallies, with their outcome and code."""
        plain = [(f"{outcome}", "", one) for outcome, one in list(self.over.items())]
        return plain + [(f"{outcome}", code, one) for (outcome, code), one in list(self.failed.items())]


class _Side(Struct, eq=False):
    """The counters of one service, in one direction."""

    protocol: str
    methods: dict[str | tuple[str, str], _Method] = {}
    """By name; tools and prompts by method and name."""
    unknown: _Method = field(default_factory=_Method)
    codes: dict[str, int] = {}
    waited: _Tally = field(default_factory=_Tally)
    """Of all methods, from the call to its start."""
    notifications: dict[Outcome | None, int] = {}
    in_flight: int = 0
    batches: int = 0
    malformed: int = 0
    received: int = 0
    sent: int = 0
    gone: dict[str | tuple[str, str], float] = {}
    """What was removed, the latest last, and when: a call of it may end later."""
    freed: float = -SILENT
    """When labels that are not used any more were last freed."""
    counts: dict[str | tuple[str, str], int] = {}
    """How many calls each label had then."""

    def remove(self, key: str | tuple[str, str], when: float) -> None:
        """Note that a method was removed, and count its calls without its label."""
        self.gone.pop(key, None)
        self.gone[key] = when
        if len(self.gone) > METHODS:
            del self.gone[next(iter(self.gone))]
        self.fold(key)

    def fold(self, key: str | tuple[str, str]) -> None:
        """Count a removed method's calls without its label."""
        found = self.methods.pop(key, None)
        if found is not None:
            rest = self.unknown if isinstance(key, str) else self.methods.setdefault(key[0], _Method())
            rest.add(found)

    def may_add(self, key: str | tuple[str, str], seen: Observation) -> bool:
        """Return whether a new method or target may have a label of its own."""
        if (removed := self.gone.get(key)) is not None:
            if seen.began <= removed:
                return False
            del self.gone[key]  # it is registered again
        now = seen.ended or seen.began
        if len(self.methods) >= METHODS and now - self.freed >= SILENT:
            counts = {
                key: sum(sum(one.buckets) for *_, one in method.tallies()) for key, method in self.methods.items()
            }
            for one, count in counts.items():
                if self.counts.get(one) == count and one not in TARGETS:
                    self.fold(one)
            self.freed, self.counts = now, counts
        return len(self.methods) < METHODS

    def of(self, seen: Observation) -> _Method:
        """Return the method for a call that is not in `methods` yet."""
        named = seen.protocol == "mcp" and seen.method in TARGETS
        if named and (target := _target(seen)):
            key = seen.method, target
            found = self.methods.get(key)
            if found is None and (seen.target or seen.outcome == "result") and self.may_add(key, seen):
                found = self.methods[key] = _Method()
            if found is not None:
                return found
        found = self.methods.get(seen.method)
        if found is None:
            if not named and (seen.started is None or not self.may_add(seen.method, seen)):
                return self.unknown
            found = self.methods[seen.method] = _Method()
        return found

    def failure(self, method: _Method, outcome: Outcome | None, code: int) -> _Tally:
        """Count a code; return the tally for it."""
        name = f"{code}"
        if name not in self.codes and len(self.codes) >= CODES:
            name = OTHER
        self.codes[name] = self.codes.get(name, 0) + 1
        found = method.failed.get((outcome, name))
        if found is None:
            if len(method.failed) >= FAILURES:
                name = OTHER
            found = method.failed.setdefault((outcome, name), _Tally())
        return found

    def each(self) -> list[tuple[str, str, _Method]]:
        """Return all methods, with their names and those of tools and prompts."""
        found = [(*key, one) if isinstance(key, tuple) else (key, "", one) for key, one in list(self.methods.items())]
        return [*found, (UNKNOWN, "", self.unknown)]


class _Named(Struct):
    name: str = ""


class _Sent(Struct):
    params: _Named = field(default_factory=_Named)


_sent = msgspec.json.Decoder(_Sent).decode


def _target(seen: Observation) -> str:
    """Return the tool or prompt; on the way out it is in the message alone."""
    if seen.direction == "in":
        return seen.target
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        return _sent(seen.message).params.name[:LONGEST] if seen.message else ""
    return ""


class Metrics:
    """Counts what it observes; `text()` is Prometheus' text format, `snapshot()` the same as values.

    `serve(observers=[metrics])` also has it read the numbers of what is served, of brokers and of the bus.
    `dragoman.telemetry.MetricsPage` serves it, `dragoman.telemetry.Meters` gives it to OpenTelemetry.
    """

    def __init__(self) -> None:
        self.since: float = now()
        """When it began to count, in Unix seconds."""
        self._sides: dict[tuple[Direction, str], _Side] = {}
        self._rejections: dict[tuple[str, str], int] = {}
        self._sources: dict[object, tuple[Read, Labels]] = {}
        self._ended: list[MetricFamily] = []
        """The counters of sources that are not read any more."""
        self._removals: deque[tuple[str, str | tuple[str, str], float]] = deque()
        """What was removed in any thread, with its service and the time, and is folded in that of the calls."""

    def __repr__(self) -> str:
        return f"<Metrics since {self.since:.0f}>"

    # -- the observer

    def came_in(self, seen: Observation) -> None:
        """Count one more in flight."""
        if seen.kind == "request":
            self._side(seen).in_flight += 1

    def outbound(self, seen: Observation) -> None:
        """Count one more in flight on the way out."""
        if seen.kind == "request":
            self._side(seen).in_flight += 1

    def started(self, seen: Observation) -> None:
        """Do nothing: the wait is known at the end."""

    def ended(self, seen: Observation) -> None:
        """Count a call that has ended."""
        if self._removals:
            self._fold()
        try:
            side = self._sides[seen.direction, seen.service]
        except KeyError:
            side = self._side(seen)
        if seen.kind != "request":
            self._other(side, seen)
            return
        side.in_flight -= 1
        key = (seen.method, seen.target) if seen.target else seen.method
        method = None if key in TARGETS else side.methods.get(key)
        if method is None:
            method = side.of(seen)
        began, started, over, outcome = seen.began, seen.started, seen.ended, seen.outcome
        if seen.code is not None:
            tally = side.failure(method, outcome, seen.code)
        else:
            try:
                tally = method.over[outcome]
            except KeyError:
                tally = method.over[outcome] = _Tally()
        seconds = (over or began) - began
        tally.seconds += seconds
        tally.buckets[bisect_left(BOUNDS, seconds)] += 1
        if seconds > tally.most:
            tally.most = seconds
        if seconds < tally.least:
            tally.least = seconds
        if started is not None:
            wait = started - began
            waited = side.waited
            waited.seconds += wait
            waited.buckets[bisect_left(BOUNDS, wait) if wait > SHORTEST else 0] += 1
            if wait > waited.most:
                waited.most = wait
        side.received += len(seen.message)
        if seen.batch is None:
            side.sent += len(seen.answer or b"")

    def _side(self, seen: Observation) -> _Side:
        key = seen.direction, seen.service
        side = self._sides.get(key)
        if side is None:
            side = self._sides[key] = _Side(seen.protocol)
        return side

    def removed(self, service: str, method: str, target: str = "") -> None:
        """Free the label of what a service removed, once the next call has ended or a page is made. From any thread."""
        self._removals.append((service, (method, target) if target else method, perf_counter()))

    def _fold(self) -> None:
        with suppress(IndexError):
            while True:
                service, key, when = self._removals.popleft()
                side = self._sides.get(("in", service))
                if side is not None:
                    side.remove(key, when)

    def rejected(self, seen: Rejection) -> None:
        """Count a refusal by its kind and wire."""
        key = seen.kind, seen.caller.scheme
        self._rejections[key] = self._rejections.get(key, 0) + 1

    def _other(self, side: _Side, seen: Observation) -> None:
        if seen.kind == "detached":  # its answer is nothing that was sent
            return
        side.received += len(seen.message)
        side.sent += len(seen.answer or b"")
        outcome = seen.outcome
        if seen.kind == "notification":
            side.notifications[outcome] = side.notifications.get(outcome, 0) + 1
        elif seen.kind == "batch":
            side.batches += 1
        elif seen.kind == "malformed":
            side.malformed += 1

    # -- what it found

    def read_measures(self, measures: Read, **labels: str) -> Callable[[], None]:
        """Read numbers when the metrics are read: `measures()` returns names, such as "sessions", and numbers; a name
        that ends in "_total" is a counter. Numbers of one name with the same labels are added up. Returns the function
        that ends it, after which counters stay as they are. LocalError if `measures` is not a function."""
        if not callable(measures):
            raise LocalError(
                f"Metrics.read_measures: measures is {measures!r}, and must be a function that gives numbers by name"
            )
        key = object()
        self._sources[key] = measures, tuple(labels.items())

        def over() -> None:
            source = self._sources.pop(key, None)
            if source is not None:
                self._ended = sum_families([self._ended, _read(*source)], gauges=False)

        return over

    def snapshot(self) -> list[MetricFamily]:
        """Return all families as they are now."""
        self._fold()
        rejected: dict[Labels, float] = {
            (("kind", kind), ("wire", wire)): count for (kind, wire), count in list(self._rejections.items())
        }
        read = [_read(*source) for source in list(self._sources.values())]
        return [
            *_families(self._of("in"), "in"),
            *_families(self._of("out"), "out"),
            _family("rejections_total", rejected),
            *sum_families([self._ended, *read]),
        ]

    def durations(self) -> list[Durations]:
        """Return how long calls took, by method, outcome and code: finer than the families of `snapshot`."""
        self._fold()
        return [
            Durations(way, side.protocol, service, name, outcome, code, tally.seconds, tuple(tally.buckets), target)
            for (way, service), side in list(self._sides.items())
            for name, target, method in side.each()
            for outcome, code, tally in method.tallies()
        ]

    def text(self) -> bytes:
        """Return Prometheus' text format, version 0.0.4; with the numbers of the process (`process_...`)."""
        return exposition([*self.snapshot(), *process_families()])

    def _of(self, direction: Direction) -> dict[str, _Side]:
        return {service: side for (way, service), side in list(self._sides.items()) if way == direction}


def _family(name: str, values: Mapping[Labels, float]) -> MetricFamily:
    one = instrument_of(name)
    return MetricFamily(
        f"{PREFIX}{name}", one.kind, one.help, [MetricSample(labels, value) for labels, value in values.items()]
    )


def _histogram(name: str, samples: list[MetricSample]) -> MetricFamily:
    return MetricFamily(f"{PREFIX}{name}", "histogram", instrument_of(name).help, samples, BOUNDS)


def _read(measures: Read, labels: Labels) -> list[MetricFamily]:
    """Return the families of one source; of one that raises, none, so that the others are seen."""
    try:
        try:
            found = measures()
        except RuntimeError:  # it changed while another thread than its own was reading it
            found = measures()
    except Exception:
        log.exception("the measures of %s could not be read", " ".join(value for _, value in labels) or measures)
        return []
    return [_family(name, {labels: float(value)}) for name, value in found.items()]


def _families(sides: Mapping[str, _Side], direction: Direction) -> list[MetricFamily]:
    """Return the families of one direction; those of the other have other names, so that no sum mixes them."""
    way = _WAYS[direction]
    calls: dict[Labels, float] = {}
    codes: dict[Labels, float] = {}
    notes: dict[Labels, float] = {}
    durations: list[MetricSample] = []
    for service, side in sides.items():
        by_service = ("service", service)
        for name, target, method in side.each():
            labels: Labels = (by_service, ("method", name), *(((TARGETS[name], target),) if target else ()))
            tallies = method.tallies()
            for outcome, _, tally in tallies:
                key = (*labels, ("outcome", outcome))
                calls[key] = calls.get(key, 0) + sum(tally.buckets)
            if tallies:
                seconds = sum(tally.seconds for *_, tally in tallies)
                buckets = tuple(map(sum, zip(*(tally.buckets for *_, tally in tallies), strict=True)))
                least, most = min(tally.least for *_, tally in tallies), max(tally.most for *_, tally in tallies)
                durations.append(MetricSample(labels, seconds, buckets, least, most))
        codes |= {(by_service, ("code", code)): count for code, count in list(side.codes.items())}
        notes |= {(by_service, ("outcome", f"{one}")): count for one, count in list(side.notifications.items())}

    def each(name: str, pick: Callable[[_Side], float]) -> MetricFamily:
        return _family(name, {(("service", service),): pick(side) for service, side in sides.items()})

    waits = [
        MetricSample((("service", name),), side.waited.seconds, tuple(side.waited.buckets), 0, side.waited.most)
        for name, side in sides.items()
    ]
    both = [
        _family(f"{way}calls_total", calls),
        _family(f"{way}errors_total", codes),
        _family(f"{way}notifications_total", notes),
        each(f"{way}batches_total", lambda side: side.batches),
        _histogram(f"{way}call_duration_seconds", durations),
        _histogram(f"{way}queue_wait_seconds", waits),
        each(f"{way}calls_in_flight", lambda side: side.in_flight),
    ]
    if direction == "out":
        return both
    return [
        *both,
        each("malformed_total", lambda side: side.malformed),
        each("received_bytes_total", lambda side: side.received),
        each("sent_bytes_total", lambda side: side.sent),
    ]
