"""An observer that writes an access log: one line for each call that came in, and one for what was refused.

Rules:

- Never payloads, header fields, tokens or claims: method, outcome, milliseconds, caller, sizes. Of an MCP call the name
  of its tool or prompt is written too, and of a session its name, which is not its id. The work of a call that goes on
  beyond its request has a line of its own, and so has a long-lived stream.
- Refusals, which an enemy can cause at will, are sampled: above `REFUSALS` lines a second they are counted, and a line
  gives their number before the next one of a later second.
- A call that belongs to a trace has its id: that of `Traces`, else the one that its sender names.
- A line is handed to `write`, which must not block: by default a bounded queue that a thread writes to stderr.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import time as now
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..channel import Caller
from ..jsonrpc.options import CALLABLE, NONE, check, one_of, whole
from ..observer import Observation, Rejection
from .line_queue import LineQueue, to_stderr
from .log_line import LogFormat, log_line
from .trace_context import in_headers, in_meta

REFUSALS: Final = 20
"""Lines a second about what was refused: enough to see who it is, and too few to fill a disk."""
SHOWN: Final = 200
"""Characters of a name or a reason that are written; they may be as long as their sender likes."""
_NAMED: Final = frozenset({"tools/call", "prompts/get"})
_OPTIONS: Final = {"write": CALLABLE | NONE, "format": one_of("text", "json"), "refusals": whole(0)}


class AccessLog:
    """Writes the access log; give it to `serve(observers=[...])`.

    `write`: takes a line with its line end, and must not block; None: a queue of its own for stderr, which `flush`
    waits for. `format`: "text" or "json". `refusals`: lines a second about what is refused. Raises LocalError for
    invalid options.
    """

    def __init__(
        self,
        write: Callable[[str], object] | None = None,
        *,
        format: LogFormat = "text",
        refusals: int = REFUSALS,
    ) -> None:
        check("AccessLog", _OPTIONS, locals())
        self._queue = LineQueue(to_stderr) if write is None else None
        self._write: Callable[[str], object] = self._queue.put if self._queue is not None else write or to_stderr
        self._format: LogFormat = format
        self._allowed = refusals
        self._second = 0
        self._written = 0
        self._crowded = 0  # the second in which refusals were left out
        self._left_out = 0

    def __repr__(self) -> str:
        return f"AccessLog(format={self._format!r})"

    def came_in(self, seen: Observation) -> None:
        """Do nothing: a call is written when it is over."""

    def outbound(self, seen: Observation) -> None:
        """Do nothing: a call of our own is not access."""

    def started(self, seen: Observation) -> None:
        """Do nothing."""

    def ended(self, seen: Observation) -> None:
        """Write a line for a call or a notification that came in, and for what was not a message."""
        if seen.direction != "in" or seen.kind == "batch" or seen.kind == "response":
            return
        refused = seen.outcome == "refused" or seen.outcome == "dropped"
        when = now()
        if refused and not self._may_write(when):
            return
        self._line(when, "refused" if refused else "call", _of_call(seen))

    def rejected(self, seen: Rejection) -> None:
        """Write a line for what a wire has turned away."""
        when = now()
        if self._may_write(when):
            members: dict[str, Any] = {"outcome": "rejected", "kind": seen.kind}
            if seen.status is not None:
                members["status"] = seen.status
            members |= {"reason": seen.reason, "in": seen.size, "place": seen.place}
            self._line(when, "refused", members | _of_caller(seen.caller))

    def flush(self) -> None:
        """Write the number of refusals that were left out, and wait a moment for a queue of its own."""
        self._write_left_out(now())
        if self._queue is not None:
            self._queue.flush()

    def _may_write(self, when: float) -> bool:
        """Return whether one more line about a refusal may be written in this second."""
        second = int(when)
        if second != self._second:
            self._second, self._written = second, 0
        self._written += 1
        if self._written > self._allowed:
            self._left_out += 1
            self._crowded = second
        return self._written <= self._allowed

    def _line(self, when: float, message: str, members: dict[str, Any]) -> None:
        if self._left_out and int(when) != self._crowded:
            self._write_left_out(when)
        shown = {name: _cut(value) for name, value in members.items()}
        self._write(log_line(self._format, when, "info", "access", message, shown))

    def _write_left_out(self, when: float) -> None:
        if self._left_out:
            line = log_line(self._format, when, "info", "access", "refusals left out", {"count": self._left_out})
            self._left_out = 0
            self._write(line)


def _cut(value: object) -> object:
    return f"{value[:SHOWN]}..." if isinstance(value, str) and len(value) > SHOWN else value


class _Params(Struct):
    name: str = ""


_params = msgspec.json.Decoder(_Params).decode


def _of_call(seen: Observation) -> dict[str, Any]:
    members: dict[str, Any] = {"method": seen.method} if seen.method else {}
    if not seen.method or seen.kind == "detached":
        members["kind"] = seen.kind
    if seen.about:
        members["about"] = seen.about
    params = seen.params if isinstance(seen.params, Raw) else None
    if params is not None and seen.protocol == "mcp" and seen.method in _NAMED:
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            members["name"] = _params(params).name
    members["outcome"] = seen.outcome
    if seen.code is not None:
        members["code"] = seen.code
    if seen.reason:
        members["reason"] = seen.reason
    members["ms"] = round((seen.seconds or 0.0) * 1000, 3)
    members["in"] = len(seen.message) or (0 if params is None else len(memoryview(params)))
    members["out"] = 0 if seen.answer is None else len(seen.answer)
    members["service"] = seen.service
    if seen.session:
        members["session"] = seen.session
    members |= _of_caller(seen.caller)
    if trace_id := seen.trace_id or _named_trace(seen):
        members["trace"] = f"{trace_id:032x}"
    return members


def _named_trace(seen: Observation) -> int:
    """Return the trace that the sender names, for a process that makes no spans; 0 without one."""
    named = (in_meta(seen) if seen.protocol == "mcp" else None) or in_headers(seen.caller.headers)
    return 0 if named is None else named.trace_id


def _of_caller(caller: Caller) -> dict[str, Any]:
    members: dict[str, Any] = {"wire": caller.scheme, "caller": caller.remote}
    if caller.identity is not None and caller.identity.subject:
        members["subject"] = caller.identity.subject
    return members
