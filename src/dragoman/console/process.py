"""What the console knows of one process, and does in it, on the loop that serves. But for tasks and subscriptions,
which may be kept elsewhere, all of it is synchronous.

`worker_service` answers a supervisor that asks for it over a control pipe, and the consoles of others that share a bus.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from time import monotonic, time
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Raw
from msgspec.structs import asdict, replace

from ..channel import Caller, Identity, Servable
from ..events.board import SubscriptionState
from ..jsonrpc.errors import RpcError
from ..jsonrpc.limits import SERVER
from ..net.urls import mask_url
from ..observer import Connection, HasConnections, Measured
from ..rpc.loop_watch import loop_lag
from ..rpc.service import Service
from ..tasks.record import Status
from ..telemetry.metrics import Metrics
from ..telemetry.process import process_families
from ..web import kind_of
from .board import LONGEST, NOT_KILLED, log_act
from .calls import SCHEME, OperatorCalls
from .errors import ERRORS
from .messages import Messages
from .recorder import Recorder
from .rows import (
    Connections,
    EndedCall,
    KeptError,
    KeptMessages,
    LimitRow,
    Machine,
    MeasuredRow,
    MethodSeconds,
    ProcessReport,
    ServedRow,
    Tick,
)
from .subscriptions import OperatedSubscriptions
from .tasks import OperatedTasks
from .views import encode, pick_calls, pick_messages

ROWS: Final = 1_000
"""Rows of the timeline in one answer at most."""
CONNECTIONS: Final = 1_000
"""Connections that are listed; more are counted."""
TICK_ROWS: Final = 200
"""Rows of one tick; of more only the number is sent."""
TICK_CALLS: Final = 20
"""Calls in flight of one tick."""
SIZE: Final = 1024 * 1024
"""Bytes of the catalog of one served object; a larger one is left out, since it passes the control pipe of a worker."""


@runtime_checkable
class Describes(Protocol):
    """What can say what it offers: a served object."""

    def describe(self) -> Mapping[str, Any]:
        """Return its methods, or tools, prompts and resources, as values for JSON."""


Sources: TypeAlias = Callable[[], Iterable[tuple[object, Mapping[str, str]]]]
"""Returns what may have numbers for metrics, each with its labels."""


class ProcessConsole:
    """One process. `served`: what is served in it now, by path; `sources`: what may have numbers; `messages`: those
    that have passed, if they are kept."""

    def __init__(
        self,
        recorder: Recorder,
        served: Callable[[], Mapping[str, object]],
        sources: Sources = lambda: (),
        messages: Messages | None = None,
    ) -> None:
        self.recorder: Recorder = recorder
        self._messages = messages
        self.calls: OperatorCalls = OperatorCalls(served)
        """The calls that are made from the page."""
        self.tasks: OperatedTasks = OperatedTasks(served, arguments=messages is not None)
        """The tasks of what is served: their arguments are shown where messages are."""
        self.subscriptions: OperatedSubscriptions = OperatedSubscriptions(served, arguments=messages is not None)
        """The subscriptions to events of what is served."""
        self._served = served
        self._sources = sources
        self._began = monotonic()

    def timeline(self, filter: str = "", limit: int = 200, before: float | None = None) -> list[EndedCall]:
        """Return the rows that fit, the newest first. `before`: only those that ended before this time. Raises
        LocalError for what is no filter."""
        return pick_calls(self.recorder.timeline.newest(), filter, min(limit, ROWS), before)

    def messages(self, filter: str = "", limit: int = 200, before: float | None = None) -> KeptMessages | None:
        """Return the messages that fit, the newest first; None where none are kept. `before` and the error as for
        `timeline`."""
        kept = self._messages
        if kept is None:
            return None
        rows = pick_messages(kept.newest(), filter, min(limit, ROWS), before)
        return KeptMessages(messages=rows, kept=len(kept), count=kept.count)

    def methods(self, now: int, seconds: int, step: int) -> list[MethodSeconds]:
        """Return the series of the methods that had calls in the last seconds."""
        return list(self.recorder.series.read(now, seconds, step))

    def errors(self, limit: int = ERRORS) -> list[KeptError]:
        """Return the last errors, the newest first."""
        return list(islice(self.recorder.errors.newest(), max(0, min(limit, ERRORS))))

    def connections(self) -> Connections:
        """Return the connections of all that is served here."""
        found = [one for served in self._each() for one in served.connections()]
        return Connections(connections=found[:CONNECTIONS], more=max(0, len(found) - CONNECTIONS))

    def end(self, id: str, by: str) -> None:
        """Begin to end a connection. `by`: who does it, for the log. RpcError if there is none, or it cannot be ended
        by itself."""
        for served in self._each():
            known = next((one for one in served.connections() if one.id == id), None)
            if known is not None and served.end_connection(id):
                log_act("ended", by, _about(known))
                return
        raise no_connection(id)

    def _each(self) -> Iterable[HasConnections]:
        return (one for one in self._once() if isinstance(one, HasConnections))

    def _once(self) -> Iterable[object]:
        """Return each object once: one may be served at several paths."""
        return {id(one): one for one in self._served().values()}.values()

    def services(self) -> list[ServedRow]:
        """Return what is served, at each of its paths."""
        return [
            ServedRow(path=path or "/", name=one.name, kind=kind_of(one))
            for path, one in self._served().items()
            if isinstance(one, Servable)
        ]

    def catalog(self) -> list[Any]:
        """Return what each served object offers, as values for JSON."""
        return [Raw(_described(one)) for one in self._once() if isinstance(one, Describes)]

    def tick(self, after: int | None) -> Tick:
        """Return what has happened since the tick that said so; None: from now on."""
        recorder = self.recorder
        timeline = recorder.timeline
        begin = timeline.count if after is None else min(after, timeline.count)
        shown = max(begin, timeline.first, timeline.count - TICK_ROWS)
        return Tick(
            seq=timeline.count,
            in_flight=len(recorder.board),
            errors=recorder.errors.count,
            ended=timeline.count,
            calls=recorder.board.calls(most=TICK_CALLS).calls,
            rows=list(timeline.since(shown)),
            missed=shown - begin,
        )

    def report(self, metrics: Metrics) -> ProcessReport:
        """Return the metrics of this process, for the consoles of others."""
        age = round(monotonic() - self._began, 1)
        return ProcessReport(pid=os.getpid(), age=age, families=metrics.snapshot())

    def machine(self) -> Machine:
        """Return what is known of this process, of the limits of what it serves, and of what counts in it."""
        measures = [
            MeasuredRow(
                labels=dict(labels),
                url=mask_url(getattr(source, "url", "")),
                values={name: float(value) for name, value in source.measures().items()},
            )
            for source, labels in self._sources()
            if isinstance(source, Measured)
        ]
        return replace(read_machine(), limits=self._limits(), measures=measures)

    def _limits(self) -> list[LimitRow]:
        """Return the limits of each served object, or once those of all."""
        found = {one.name: one.limits for one in self._once() if isinstance(one, Servable)}
        if len(set(found.values())) == 1:
            found = {"": next(iter(found.values()))}
        default = asdict(SERVER)
        return [
            LimitRow(service=service, name=name, value=value, given=value != default[name])
            for service, limits in found.items()
            for name, value in asdict(limits).items()
        ]


def read_machine() -> Machine:
    """Return what is known of this process; on a running loop."""
    process = {
        one.name.removeprefix("process_"): one.samples[0].total
        for one in process_families()
        if one.name.startswith("process_")
    }
    loop = asyncio.get_running_loop()
    return Machine(
        host=socket.gethostname(),
        pid=os.getpid(),
        uptime=round(max(0.0, time() - process["start_time_seconds"]), 1),
        version=sys.modules["dragoman"].__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        loop=f"{type(loop).__module__}.{type(loop).__qualname__}",
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        lag=round(loop_lag(loop) or 0.0, 6),
        process=process,
    )


def no_connection(id: str) -> RpcError:
    """The error of `end` for a connection that is not open."""
    return RpcError.of(NOT_KILLED, f"no connection {id[:LONGEST]} is open that can be ended by itself")


def worker_service(console: ProcessConsole, metrics: Metrics, key: str) -> Service:
    """Return what a process answers a supervisor, and the consoles of others. `key`: how these name it."""
    service = Service("admin")
    board, operator = console.recorder.board, console.calls

    @service.method(inline=True)
    def calls(where: bool = False) -> Raw:
        return Raw(encode(board.calls(where)))

    service.method(inline=True, name="kill")(board.kill)

    @service.method(inline=True)
    def timeline(filter: str, limit: int, before: float | None) -> Raw:
        return Raw(encode(console.timeline(filter, limit, before)))

    @service.method(inline=True)
    def messages(filter: str, limit: int, before: float | None) -> Raw:
        found = console.messages(filter, limit, before)
        return Raw(encode([] if found is None else [found]))

    @service.method(inline=True)
    def methods(now: int, seconds: int, step: int) -> Raw:
        return Raw(encode(console.methods(now, seconds, step)))

    @service.method(inline=True)
    def errors() -> Raw:
        return Raw(encode(console.errors()))

    @service.method(inline=True)
    def connections() -> Raw:
        return Raw(encode(console.connections()))

    @service.method(inline=True)
    def services() -> Raw:
        return Raw(encode(console.services()))

    @service.method(inline=True)
    def catalog() -> Raw:
        return Raw(encode(console.catalog()))

    @service.method(inline=True)
    def begin_call(at: str, message: str, remote: str, who: dict[str, Any] | None, by: str) -> int:
        identity = None if who is None else msgspec.convert(who, Identity)
        return operator.begin(at, message.encode(), Caller(scheme=SCHEME, remote=remote, identity=identity), by)

    @service.method(inline=True)
    def call_state(ticket: int) -> Raw:
        return Raw(encode(operator.state(ticket)))

    service.method(inline=True, name="end_call")(operator.end)

    @service.method(inline=True)
    def tick(after: dict[str, int]) -> Raw:
        return Raw(encode(console.tick(after.get(key))))

    @service.method(inline=True)
    def report() -> Raw:
        return Raw(encode(console.report(metrics)))

    @service.method(inline=True)
    def machine() -> Raw:
        return Raw(encode(console.machine()))

    service.method(inline=True, name="end")(console.end)
    _add_tasks(service, console.tasks)
    _add_subscriptions(service, console.subscriptions)
    return service


def _add_tasks(service: Service, operated: OperatedTasks) -> None:
    """Answer for the tasks of this process."""

    @service.method
    async def tasks(status: Status | None, before: float | None, limit: int) -> Raw:
        found = await operated.list_recent(status, before, limit)
        return Raw(encode([] if found is None else [found]))

    @service.method
    async def task(id: str) -> Raw:
        found = await operated.find(id)
        return Raw(encode([] if found is None else [found]))

    service.method(name="cancel_task")(operated.cancel)

    @service.method
    async def answer_task(id: str, by: str, answers: dict[str, Any]) -> None:
        await operated.answer(id, answers, by)


def _add_subscriptions(service: Service, operated: OperatedSubscriptions) -> None:
    """Answer for the subscriptions to events of this process."""

    @service.method
    async def subscriptions(state: SubscriptionState | None, words: str, after: str, limit: int) -> Raw:
        found = await operated.list_subscriptions(state, words, after, limit)
        return Raw(encode([] if found is None else [found]))

    service.method(name="end_subscription")(operated.end)
    service.method(name="retry_subscription")(operated.retry)


def _described(one: Describes) -> bytes:
    text = encode(one.describe())
    return text if len(text) <= SIZE else encode({"name": getattr(one, "name", ""), "too_large": len(text)})


def _about(one: Connection) -> dict[str, str]:
    named = msgspec.structs.asdict(one)
    return {name: named[name] for name in ("id", "kind", "service", "wire", "remote", "session", "principal")}
