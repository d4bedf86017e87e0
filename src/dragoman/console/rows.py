"""What the console keeps of a call that has ended, of an error, and of a method's seconds, and what it says of a
process: values for JSON."""

from __future__ import annotations

from typing import Final

from msgspec import Raw, Struct

from ..events.board import EventCounts, EventSubscription, KeptSubscriptions
from ..observer import Connection, Direction, Kind
from ..tasks.record import Status
from ..telemetry.figures import MetricFamily
from .board import CallInFlight

TOOL_ERROR: Final = "tool_error"
"""The outcome of a result of MCP that says `isError`."""
FAILED: Final = frozenset({"error", "refused", "timed_out", "lost", "failed", "dropped", TOOL_ERROR})
"""Outcomes that count as errors. A call that its caller withdrew is none."""


class EndedCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call, question or stream that has ended."""

    seq: int
    """Its number among those that have ended in its process; it grows."""
    id: str
    """The id that it had among the calls in flight; with several processes "KEY:NUMBER"."""
    parent: str = ""
    """The id of the call that it goes on with, or whose handler sent it; "" without one."""
    time: float
    """When it began, in Unix seconds."""
    ended: float
    """When it ended."""
    ms: float
    """How long it took, in milliseconds."""
    wait: float | None = None
    """Milliseconds that it waited for its start; None: it never started."""
    service: str
    method: str
    target: str = ""
    kind: Kind
    direction: Direction = "in"
    wire: str = ""
    remote: str = ""
    session: str = ""
    principal: str = ""
    outcome: str
    """An outcome of an `Observation`, or "tool_error": a result of MCP that says `isError`."""
    code: int | None = None
    text: str = ""
    """The text of its error, or why it was refused or lost; secrets are masked."""
    about: str = ""
    received: int = 0
    """Bytes of its message."""
    sent: int = 0
    """Bytes of its answer."""


class MessageRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message as it passed, or an answer that did not come."""

    seq: int
    """Its number among those that have passed in its process; it grows."""
    time: float
    """When it passed, in Unix seconds."""
    direction: Direction
    """Which way it went; the answer to what came "in" goes "out"."""
    service: str = ""
    wire: str = ""
    remote: str = ""
    channel: int = 0
    """The number of its channel, or of its exchange, in its process."""
    session: str = ""
    principal: str = ""
    method: str = ""
    """The method that was called, also of its answer; of a batch "batch(subtract, sum)"."""
    target: str = ""
    """The tool, prompt or resource of MCP that was found for it; of an answer, and of a notification."""
    id: str = ""
    """The id as JSON text, also of its answer; cut after `recorder.NAME` characters."""
    outcome: str = ""
    """Of an answer, and of what owes none: an outcome of an `Observation`, or "tool_error"; "" of what waits for its
    answer."""
    code: int | None = None
    ms: float | None = None
    """Of an answer: how long the call took, in milliseconds."""
    size: int = 0
    """Its bytes; 0 of an answer that did not come."""
    text: str = ""
    """What of it may be shown (`tracing.masking`); of an answer that did not come, why."""


class KeptMessages(Struct, frozen=True, kw_only=True):
    """Messages that fit, the newest first. `kept`: how many are kept; `count`: how many have passed in all."""

    messages: list[MessageRow]
    kept: int
    count: int


class TaskRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task: a call that goes on beyond its request."""

    id: str
    """Its name in the console, which is not its id; with several processes "KEY:NAME"."""
    task: str
    """The beginning of its id, by which logs name it."""
    service: str
    method: str
    target: str = ""
    """The tool that it calls."""
    principal: str = ""
    """The subject of its caller's identity; "" without one, and of a task that has ended."""
    status: Status
    tool_error: bool = False
    """Whether it is completed with a result of MCP that says `isError`."""
    message: str = ""
    """What is said about its state; secrets are masked."""
    created: float
    updated: float
    """When its status, message or progress changed last; both in Unix seconds by the clock of its store."""
    until: float | None = None
    """When it may be deleted; None: never."""
    progress: float | None = None
    total: float | None = None
    questions_open: int = 0
    """Questions that wait for an answer."""
    runs: int = 1
    """How often its function was begun."""
    runner: str = ""
    """The name of the runner that has it; "": none, it waits for one or has ended."""
    here: bool = False
    """Whether that is the runner of the process that lists it."""
    worker: str = ""
    """The key of the process that runs it, if that answers; "": there is only one."""
    cancelling: bool = False
    """Whether its cancellation was requested."""


class TaskRows(Struct, frozen=True, kw_only=True):
    """Tasks, the newest first. `before`: from where older ones follow, perhaps; None: there are none; `away`: the names
    of services whose tasks cannot be read now."""

    tasks: list[TaskRow]
    before: float | None = None
    away: list[str] = []


class SubscriptionRows(Struct, frozen=True, kw_only=True):
    """Subscriptions to events, in the order of their types. `after`: the place behind which the next page begins, None:
    there is none; `away`: servers whose subscriptions cannot be read now; `kept`: by store."""

    subscriptions: list[EventSubscription]
    after: str | None = None
    away: list[str] = []
    kept: dict[str, KeptSubscriptions] = {}
    counts: EventCounts = EventCounts()


class TaskDetail(TaskRow, frozen=True, kw_only=True, omit_defaults=True):
    """All that is shown of a task. Texts are masked and cut."""

    questions: dict[str, Raw] = {}
    """The questions that can be answered here, by their keys, as the service asks them."""
    arguments: str = ""
    """The params of its request, where they are shown, and until it has ended."""
    result: str = ""
    error: str = ""


class KeptError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error: of a call, or of what was turned away before it was a message."""

    time: float
    """When it ended, in Unix seconds."""
    id: str = ""
    service: str = ""
    method: str = ""
    target: str = ""
    wire: str = ""
    remote: str = ""
    outcome: str
    code: int | None = None
    text: str = ""


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Errors of one code and text among those that are kept. `methods`: the names of up to ten of their methods."""

    outcome: str
    code: int | None
    text: str
    count: int
    first: float
    last: float
    methods: list[str]


class MethodSeconds(Struct, frozen=True, kw_only=True):
    """What a method did in the last seconds, in one process. `counts`, `errors` and `bytes`: one number for each step
    of some seconds, the oldest first; `buckets`: how many calls took how long, by `series.BOUNDS`."""

    service: str
    method: str
    target: str
    counts: list[int]
    errors: list[int]
    bytes: list[int]
    buckets: list[int]


class MethodRow(Struct, frozen=True, kw_only=True):
    """What a method did in the last seconds. `p50`, `p95`, `p99`: milliseconds that so many percent did not exceed;
    `counts`, `errors`: by steps of seconds, the oldest first."""

    service: str
    method: str
    target: str
    count: int
    failed: int
    bytes: int
    p50: float
    p95: float
    p99: float
    counts: list[int]
    errors: list[int]


class LimitRow(Struct, frozen=True, kw_only=True):
    """A limit in force. `value`: None: there is none; `given`: whether it differs from the default."""

    service: str
    """The name of what is served under it; "" where all that is served here has the same."""
    name: str
    value: float | None
    given: bool


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """What something counts: a served object, a listener, a broker's listener, the bus. `labels`: as in the metrics;
    `url`: without secrets, "" of what has none; `values`: its numbers by the names of metrics."""

    labels: dict[str, str]
    url: str
    values: dict[str, float]


class Machine(Struct, frozen=True, kw_only=True):
    """A process. `key`: the beginning of its ids, "" where they have none; `uptime`: seconds since it was started;
    `tasks`, `threads`: how many it has; `lag`: seconds that its loop took for the last thing that the watch of loops
    asked of it; `process`: what the system knows of it, under the names of the metrics without
    "process_"."""

    key: str = ""
    host: str
    pid: int
    uptime: float
    version: str
    python: str
    platform: str
    loop: str
    tasks: int
    threads: int
    lag: float = 0.0
    process: dict[str, float]
    limits: list[LimitRow] = []
    measures: list[MeasuredRow] = []


class Machines(Struct, frozen=True, kw_only=True):
    """The processes. `missing`: the keys of those that are known and did not answer in time."""

    processes: list[Machine]
    missing: list[str]


class ProcessReport(Struct, frozen=True, kw_only=True):
    """What a process reports to the consoles of others. `age`: seconds since it serves; `families`: its metrics."""

    pid: int
    age: float
    families: list[MetricFamily]


class Tick(Struct, frozen=True, kw_only=True):
    """What has happened in one process since the tick before."""

    seq: int
    """What the next tick begins with."""
    in_flight: int
    errors: int
    """How many there were in all."""
    ended: int
    """How many calls have ended in all."""
    calls: list[CallInFlight]
    """The oldest ones in flight."""
    rows: list[EndedCall]
    """What has ended, the oldest first."""
    missed: int
    """How many more have ended than there are rows."""


class Ended(Struct, frozen=True, kw_only=True):
    """What became of a request to stop a call or to end a connection. `error`: why it was not; "" if it was."""

    id: str
    error: str = ""


class Connections(Struct, frozen=True, kw_only=True):
    """The connections. `more`: how many are not listed."""

    connections: list[Connection]
    more: int


class ServedRow(Struct, frozen=True, kw_only=True):
    """What is served at a path. `kind`: what it speaks that a page can, "mcp" or "jsonrpc", or "" for neither."""

    path: str
    name: str
    kind: str
