"""The calls in flight of this process: lists them, says where they are, and ends one. It never has their params,
results and ids. The recorder adds and removes them.

Who has ended which call is written to the log "dragoman.audit".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from time import perf_counter
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from ..jsonrpc.errors import Refusal, RpcError
from ..net.urls import printable
from ..observer import Observation
from .positions import Whereabouts, locate

audit: logging.Logger = logging.getLogger("dragoman.audit")

CALLS: Final = 1_000
"""Calls in flight that are listed, so that a flood does not fill the memory twice; more are counted."""
LONGEST: Final = 100
"""Characters of a name that a caller has chosen; the rest is cut off."""
LISTED: Final = frozenset({"request", "notification", "detached"})
"""The kinds of observations that are calls in flight."""
BY: Final = "the admin socket"
"""Who ends a call, unless another is named."""
NOT_KILLED: Final = -32001
KILLED: Final = Refusal("cancelled", "Cancelled by the operator of the server")


class CallInFlight(Struct, frozen=True):
    """A call in flight. `id`: what `kill` takes, with several processes "KEY:NUMBER"; `age`: seconds since it came in;
    `name`: the tool or prompt of MCP; `known`: whether a guard knows its caller; `killable`: whether `kill` can end it
    now."""

    id: str
    age: float
    service: str
    method: str
    name: str
    kind: str
    wire: str
    known: bool
    state: Literal["running", "waiting"]
    killable: bool
    target: str = ""
    """The entry that its params name, once that is known."""
    principal: str = ""
    """The subject of its caller's identity; "" without one."""
    remote: str = ""
    session: str = ""
    about: str = ""
    wait: float = 0.0
    """Seconds that it waited for its start, or has waited so far."""
    left: float | None = None
    """Seconds until its deadline; None: it has none now."""
    worker: str = ""
    """The key of the process that runs it; "": there is only one."""
    where: Whereabouts | None = None
    """Where it is, if that was asked for."""


class CallsInFlight(Struct, frozen=True):
    """The calls in flight, oldest first; `more`: how many are not listed."""

    calls: list[CallInFlight]
    more: int


class _Named(Struct):
    name: str = ""


_named = msgspec.json.Decoder(_Named).decode


class Board:
    """The calls in flight."""

    def __init__(self) -> None:
        self.listed: dict[int, Observation] = {}
        """The calls that are listed, by number."""
        self.more: int = 0
        """How many are not listed."""

    def __len__(self) -> int:
        """Return the number of calls in flight, those that are not listed too."""
        return len(self.listed) + self.more

    def calls(self, where: bool = False, most: int = CALLS) -> CallsInFlight:
        """The calls in flight, the oldest `most` of them. `where`: say of each where it is, which takes some
        microseconds for each of its frames."""
        now = perf_counter()
        calls = [_call_in_flight(seen, now, where=where) for seen in islice(self.listed.values(), most)]
        return CallsInFlight(calls, len(self) - len(calls))

    def kill(self, id: str, by: str = BY) -> None:
        """End a call: its caller gets the error at once. `by`: who does it, for the log. RpcError if there is none, or
        it has not begun."""
        seen = self.listed.get(int(id)) if id.isascii() and id.isdigit() and len(id) < LONGEST else None
        if seen is None:
            raise no_call(id)
        if seen.stop is None:
            raise RpcError.of(NOT_KILLED, f"call {id} still waits for its turn; it can be killed once it runs")
        words = {"id": id, "service": seen.service, "method": seen.method[:LONGEST], "target": seen.target[:LONGEST]}
        log_act("stopped", by, words | {"remote": seen.caller.remote})
        seen.stop(KILLED)


def log_act(act: str, by: str, about: Mapping[str, str]) -> None:
    """Write to the log "dragoman.audit" what an operator has done, in one line. `by`: who."""
    words = "".join(f" {name}={printable(value)}" for name, value in about.items() if value)
    audit.info("%s%s by=%s", act, words, printable(by))


def no_call(id: str) -> RpcError:
    """The error of `kill` for a call that is not in flight."""
    return RpcError.of(NOT_KILLED, f"no call {id[:LONGEST]} is in flight; `look` lists them")


def _call_in_flight(seen: Observation, now: float, *, where: bool) -> CallInFlight:
    identity, work = seen.caller.identity, seen.work
    return CallInFlight(
        f"{seen.number}",
        round(now - seen.began, 3),
        seen.service,
        seen.method[:LONGEST],
        _name(seen),
        seen.kind,
        seen.caller.scheme,
        identity is not None,
        "waiting" if seen.started is None else "running",
        seen.stop is not None,
        seen.target[:LONGEST],
        "" if identity is None else identity.subject[:LONGEST],
        seen.caller.remote[:LONGEST],
        seen.session,
        seen.about[:LONGEST],
        round((now if seen.started is None else seen.started) - seen.began, 6),
        None if work is None or (left := work.left()) is None else round(left, 3),
        "",
        locate(work) if where and work is not None else None,
    )


def _name(seen: Observation) -> str:
    """The tool or prompt that an MCP call names."""
    if seen.method not in ("tools/call", "prompts/get") or not isinstance(seen.params, Raw):
        return ""
    try:
        return _named(seen.params).name[:LONGEST]
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ""
