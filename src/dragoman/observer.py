"""The contract of observers: what became of every message, both ways, for logs, metrics, traces.

Rules:

- An observer is called while the call itself waits for it, so it must be quick. For a script's `Service.answer` it is
  called in the thread of that.
- One that raises is logged once and is still called; no call fails by it.
- What is turned away before there is a message for a service is a `Rejection`, reported once. An observer that was
  given to `serve` or `http_app` receives all of them; one of `observe()` those of its service alone.
- Every `Observation` has one beginning (`came_in` or `outbound`), at most one `started` and exactly one `ended`, which
  comes before the answer is sent, or before its caller gets it.
- Without observers nothing of this runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from itertools import count
from time import perf_counter
from time import time as now
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from .channel import Caller
from .doors import public_dir
from .jsonrpc.errors import Refusal
from .jsonrpc.options import Rule, many

if TYPE_CHECKING:
    from asyncio import Task

    _Task = Task[Any]
else:
    _Task = Any  # start-up: `Any` is enough where annotations are resolved at run time

__all__ = [
    "Additions",
    "Connection",
    "Direction",
    "HasBoards",
    "HasConnections",
    "Kind",
    "Measured",
    "Observable",
    "Observation",
    "Observer",
    "Outcome",
    "ReadsMeasures",
    "Rejection",
    "RejectionKind",
    "SeesRemovals",
    "WorkInFlight",
]
__dir__: Callable[[], list[str]] = public_dir(__name__)

Direction: TypeAlias = Literal["in", "out"]
Kind: TypeAlias = Literal["request", "notification", "batch", "response", "malformed", "detached", "stream"]
Outcome: TypeAlias = Literal[
    "result", "error", "refused", "notified", "cancelled", "timed_out", "lost", "failed", "ignored", "dropped"
]

RejectionKind: TypeAlias = Literal[
    "too_large", "timed_out", "busy", "denied", "not_found", "unsupported", "malformed", "failed"
]


class Observation(Struct, eq=False, kw_only=True):
    """One message on its way, and what became of it. An observer may keep it, also as a key of a dict, and must not
    change it."""

    direction: Direction
    """"in": the far end sent it; "out": this end did."""
    kind: Kind
    """A "request" or "notification"; a "batch", which is reported besides its elements, before the first and after the
    last of them; on the way in only a "response" that no call waits for, and what is not a message ("malformed"). Two
    kinds are no messages: the work of a call that goes on beyond its request ("detached"), and a long-lived stream that
    the far end has opened, on which messages are sent to it ("stream")."""
    service: str
    """The name of the service that it is for; on the way out that of the service at this end."""
    protocol: str
    """What both ends add to JSON-RPC 2.0, the name of a `Dialect`: "plain", "lsp", "mcp"."""
    caller: Caller
    """The far end: `caller.scheme` is the wire, `caller.headers` those of HTTP or of a broker's delivery."""
    channel: int
    """The number of its channel, or of its exchange, in this process."""
    number: int = field(default_factory=count(1).__next__)
    """Its number in this process: no other observation has it."""
    method: str = ""
    """Its method; empty for a batch, a response, and what is not a message."""
    target: str = ""
    """Of what came in: the registered name of the entry that its params name (in MCP a tool, a prompt, a resource),
    once that is found; empty where the method has no entries, and where none was found."""
    id: Any = UNSET
    """The request's id: int, str, or Raw for others; UNSET where there is none."""
    params: Any = UNSET
    """Of what came in: the params as JSON text (Raw); UNSET where there are none."""
    message: bytes = b""
    """The whole text; empty for an element of a batch that came in, for what a wire dropped, and, on the way out,
    until it has started."""
    batch: Observation | None = None
    """The batch that it is an element of; None: it is in none."""
    parent: Observation | None = None
    """The request whose work goes on ("detached"), or the call whose handler sent this message; None: there is none."""
    session: str = ""
    """The name of the MCP session over HTTP that it belongs to, the same in every process; not its id, which is a
    secret. "" without one."""
    about: str = ""
    """What a long-lived one is for, in a few words that the far end may have chosen: the id of its task ("detached"),
    what it carries ("stream"), the members of the filter of `subscriptions/listen`. "" for others."""
    methods: Sequence[str] = ()
    """Of a batch: the methods of its calls and notifications, in their order; on the way out, once it has started."""
    calls: int = 0
    """Of a batch: how many of its elements are calls that want an answer."""
    elements: list[Observation] = []
    """Of a batch: its elements that have begun."""
    time: float = field(default_factory=now)
    """When it began, in Unix seconds."""
    began: float = field(default_factory=perf_counter)
    """When it came in, or its caller made the call, in seconds of `time.perf_counter`."""
    started: float | None = None
    """When its work began, or it was sent; None: it never was."""
    ended: float | None = None
    """When it ended; None while it goes on."""
    outcome: Outcome | None = None
    """None while it goes on. "result" and "error": it was answered so (a batch: "result"); "refused": this end did not
    begin it (busy, draining, too large, no message); "notified": no answer is owed; "cancelled": its caller withdrew
    it; "timed_out": its time was up; "lost": the far end or the channel went away; "failed": its answer made no sense,
    or it could not be sent; "ignored": a response that no call waits for; "dropped": a notification that was not begun,
    or not sent."""
    code: int | None = None
    """The code of the error that answered it; None: no error did."""
    reason: str = ""
    """Why it was refused, lost, dropped, or failed: words for a log, not for the far end."""
    error: BaseException | None = None
    """What its handler raised; on the way out, what its caller gets raised."""
    answer: bytes | None = None
    """The text of its answer; None: there is none. On the way out, for an element of a batch: the answer to the whole
    batch."""
    trace_id: int = 0
    """The trace that it belongs to, as W3C's `traceparent` numbers it; `Traces` sets it. 0: none is known."""
    stop: Callable[[Refusal], None] | None = None
    """Of what came in and runs as a task or in a thread: ends it with this refusal, on the loop that serves it. None:
    it has not begun, or is over."""
    work: WorkInFlight | None = None
    """Of the same: what is left of its time, and what runs it. None: it has not begun, or is over."""

    @property
    def wait(self) -> float | None:
        """Seconds until it was started: in queues on the way in, for a channel on the way out. None: it never was."""
        return None if self.started is None else self.started - self.began

    @property
    def seconds(self) -> float | None:
        """Seconds from `began` until it ended; None while it goes on."""
        return None if self.ended is None else self.ended - self.began

    def meta(self) -> Mapping[str, Any]:
        """Return `_meta` of the params of what came in (`traceparent`, `progressToken`); empty where there is none."""
        if not isinstance(self.params, Raw):
            return {}
        try:
            found = _members(self.params).meta
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return {}
        return {} if isinstance(found, UnsetType) else found


class _Members(Struct):
    meta: dict[str, Any] | UnsetType = field(default=UNSET, name="_meta")


_members = msgspec.json.Decoder(_Members).decode


class WorkInFlight(Protocol):
    """The work of a call, while it runs; read on the loop that serves it."""

    def left(self) -> float | None:
        """Return the seconds until its deadline; None: it has none, or waits for an answer of its caller."""

    @property
    def task(self) -> _Task | None:
        """The task that runs it; None in its first step."""

    @property
    def thread_id(self) -> int:
        """The thread that runs its function, as `threading.get_ident` numbers it; 0: none does now."""


class Additions(Struct, frozen=True, kw_only=True):
    """The members and headers that an observer adds to a message that goes out."""

    meta: Mapping[str, Any] = {}
    """Members of `params._meta`; added if the protocol has that member (MCP) and the params are an object."""
    headers: Mapping[str, str] = {}
    """Header fields of the message that carries a call, where its wire has some (HTTP, brokers). A name that the call
    has already stays as it is."""


class Rejection(Struct, frozen=True, kw_only=True):
    """Something was turned away before there was a message for a service: by HTTP, a guard, a limit of the wire."""

    kind: RejectionKind
    """"too_large"; "timed_out": it came too slowly; "busy": there is no room, or the server is draining; "denied": by a
    guard, or by the rules for hosts and origins; "not_found": no such path or session; "unsupported": a method, media
    type or version that is not spoken there; "malformed"; "failed": our own code raised."""
    reason: str
    """In words, for a log; it may quote the caller."""
    place: str
    """Where: the listener's URL; over HTTP the path, empty if it was not read."""
    caller: Caller
    """The far end, without an identity; over HTTP without header fields."""
    size: int = 0
    """Its bytes, or those that it announced; 0 if that is not known."""
    status: int | None = None
    """The HTTP status that answered it; None on other wires."""


class Observer(Protocol):
    """Receives what becomes of every message. All of it is synchronous; see the module's rules."""

    def came_in(self, seen: Observation) -> Context | None:
        """Called when something came in. May return a `contextvars.Context` (`copy_context()`, with variables set in
        it), in which the handler then runs; each of several observers is called within that of the one before."""

    def outbound(self, seen: Observation) -> Additions | None:
        """Called when something is about to go out, before its text is made. May return what to add to it."""

    def started(self, seen: Observation) -> None:
        """Called before its handler runs; on the way out, when its text is made and before it is sent."""

    def ended(self, seen: Observation) -> None:
        """Called when it is over; `seen.outcome` says how it ended."""

    def rejected(self, seen: Rejection) -> None:
        """Called when a wire has turned something away before a service saw it."""


@runtime_checkable
class Observable(Protocol):
    """What can be served or called, and has observers: a `Service`, an MCP `Server`."""

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Report all that comes in and goes out to an observer from now on, and return the function that ends that."""


@runtime_checkable
class Measured(Protocol):
    """What has numbers for metrics: a served object, a listener, a bus."""

    def measures(self) -> Mapping[str, float]:
        """Return numbers by name, as they are now. A name that ends in "_total" is a counter, which never falls; any
        other is a gauge, whose sum over several processes makes sense."""


class Connection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A connection, or what is open on one."""

    id: str
    """What `end_connection` takes."""
    kind: Literal["channel", "session", "subscription", "stream"]
    """A "session" is MCP's, over HTTP or brokers; a "subscription" a call of `subscriptions/listen`; a "stream" one of
    a session that has a reader in this process."""
    service: str
    """The name of what serves it."""
    wire: str = ""
    """The scheme of the wire."""
    remote: str = ""
    """The far end's address."""
    principal: str = ""
    """The subject of its identity; "" without one."""
    session: str = ""
    """The name of the MCP session, as in `Observation.session`."""
    about: str = ""
    """The revision of a session; the members of the filter of a subscription."""
    client: str = ""
    """The name and version that a client of MCP gave to itself."""
    age: float | None = None
    """Seconds since it was opened."""
    in_flight: int = 0
    """Its calls that are in flight."""
    lag: int = 0
    """Messages that wait for its reader."""
    drops: int = 0
    """Messages that were dropped because it reads too slowly."""


@runtime_checkable
class HasConnections(Protocol):
    """What knows its connections: a served object."""

    def connections(self) -> list[Connection]:
        """Return the channels, sessions (each once), subscriptions and streams that are open in this process."""

    def end_connection(self, id: str) -> bool:
        """Begin to end one of them: its calls are dropped. False if there is none with this id, or it cannot be ended
        by itself."""


@runtime_checkable
class HasBoards(Protocol):
    """What has objects for its operator: a served object."""

    def boards(self) -> Sequence[object]:
        """Return them as they are on the running event loop, those of what it includes too. The console shows those
        that it knows."""


@runtime_checkable
class ReadsMeasures(Protocol):
    """An observer that also reads such numbers: `telemetry.Metrics`. `serve` and `http_app` give it those of what is
    served, of brokers' listeners and of the bus."""

    def read_measures(self, measures: Callable[[], Mapping[str, float]], **labels: str) -> Callable[[], None]:
        """Read these numbers, under these labels, from now on, and return the function that ends that."""


@runtime_checkable
class SeesRemovals(Protocol):
    """An observer that also receives removals: `telemetry.Metrics`, which keeps labels for what is registered."""

    def removed(self, service: str, method: str, target: str = "") -> None:
        """Called, from any thread, when a method of a service was removed, or with a `target` the last version of an
        entry that the method finds by its params (a tool, a prompt, a resource)."""


def read_measures(
    observers: Sequence[Observer], sources: Iterable[tuple[object, Mapping[str, str]]]
) -> Callable[[], None]:
    """Let the observers that read numbers read those of all sources that have some, under their labels, and return the
    function that ends that."""
    readers = [one for one in observers if isinstance(one, ReadsMeasures)]
    stops = [
        reader.read_measures(source.measures, **labels)
        for source, labels in (sources if readers else ())
        if isinstance(source, Measured)
        for reader in readers
    ]

    def stop() -> None:
        while stops:
            stops.pop()()

    return stop


_POINTS: Final = ("came_in", "outbound", "started", "ended", "rejected")
OBSERVER: Final = Rule(lambda value: all(callable(getattr(value, name, None)) for name in _POINTS), "an Observer")
OBSERVERS: Final = many(OBSERVER)
"""The rule of an option `observers`."""
