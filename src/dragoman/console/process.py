"""What the console knows of one process, and does in it: all of it is synchronous, on the loop that serves.

`worker_service` answers a supervisor that asks for it over a control pipe.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from msgspec import Raw

from ..jsonrpc.errors import RpcError
from ..observer import Connection, HasConnections
from ..rpc.service import Service
from ..telemetry.process import process_families
from .board import LONGEST, NOT_KILLED, Board, log_act
from .errors import ERRORS
from .recorder import Recorder
from .rows import Connections, EndedCall, KeptError, Machine, MethodSeconds, Tick
from .views import encode, parse_filter

ROWS: Final = 1_000
"""Rows of the timeline in one answer at most."""
CONNECTIONS: Final = 1_000
"""Connections that are listed; more are counted."""
TICK_ROWS: Final = 200
"""Rows of one tick; of more only the number is told."""
TICK_CALLS: Final = 20
"""Calls in flight of one tick."""
SIZE: Final = 1024 * 1024
"""Bytes of the catalog of one served object; a larger one is left out, since it passes the control pipe of a worker."""


@runtime_checkable
class Describes(Protocol):
    """What can say what it offers: a served object."""

    def describe(self) -> Mapping[str, Any]:
        """Return its methods, or tools, prompts and resources, as values for JSON."""


class ProcessConsole:
    """One process. `served`: what is served in it now."""

    def __init__(self, recorder: Recorder, served: Callable[[], Iterable[object]]) -> None:
        self.recorder: Recorder = recorder
        self._served = served

    def timeline(self, filter: str = "", limit: int = 200, before: float | None = None) -> list[EndedCall]:
        """Return the rows that fit, the newest first. `before`: only those that ended before this time. Raises
        LocalError for what is no filter."""
        fits = parse_filter(filter)
        rows = self.recorder.timeline.newest()
        found = (one for one in rows if (before is None or one.ended < before) and fits(one))
        return list(islice(found, max(0, min(limit, ROWS))))

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
        return (one for one in _once(self._served()) if isinstance(one, HasConnections))

    def catalog(self) -> list[Any]:
        """Return what each served object offers, as values for JSON."""
        return [Raw(_described(one)) for one in _once(self._served()) if isinstance(one, Describes)]

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


def read_machine() -> Machine:
    """Return what is known of this process; on a running loop."""
    process = {
        one.name.removeprefix("process_"): one.samples[0].total
        for one in process_families()
        if one.name.startswith("process_")
    }
    loop = asyncio.get_running_loop()
    return Machine(
        pid=os.getpid(),
        version=sys.modules["dragoman"].__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        loop=f"{type(loop).__module__}.{type(loop).__qualname__}",
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        process=process,
    )


def no_connection(id: str) -> RpcError:
    """The error of `end` for a connection that is not open."""
    return RpcError.of(NOT_KILLED, f"no connection {id[:LONGEST]} is open that can be ended by itself")


def worker_service(board: Board, console: ProcessConsole | None = None) -> Service:
    """What a worker answers its supervisor: `calls` and `kill`, and for a console what it shows."""
    service = Service("admin")

    @service.method(inline=True)
    def calls(where: bool = False) -> Raw:
        return Raw(encode(board.calls(where)))

    service.method(inline=True, name="kill")(board.kill)
    if console is None:
        return service

    @service.method(inline=True)
    def timeline(filter: str, limit: int, before: float | None) -> Raw:
        return Raw(encode(console.timeline(filter, limit, before)))

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
    def catalog() -> Raw:
        return Raw(encode(console.catalog()))

    @service.method(inline=True)
    def tick(after: dict[str, int]) -> Raw:
        return Raw(encode(console.tick(after.get(f"{os.getpid()}"))))

    service.method(inline=True, name="end")(console.end)
    service.method(inline=True, name="machine")(read_machine)
    return service


def _once(served: Iterable[object]) -> Iterable[object]:
    """Return each object once: one may be served at several paths."""
    return {id(one): one for one in served}.values()


def _described(one: Describes) -> bytes:
    text = encode(one.describe())
    return text if len(text) <= SIZE else encode({"name": getattr(one, "name", ""), "too_large": len(text)})


def _about(one: Connection) -> dict[str, str]:
    named = msgspec.structs.asdict(one)
    return {name: named[name] for name in ("id", "kind", "service", "wire", "remote", "session", "principal")}
