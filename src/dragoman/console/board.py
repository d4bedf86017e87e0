"""The calls in flight of this process: an observer that lists them, and ends one. It never has their params,
results and ids.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from ..jsonrpc.errors import Refusal, RpcError
from ..observer import Observation, Rejection
from ..rpc.service import Service

CALLS: Final = 1_000
"""Calls in flight that are listed, so that a flood does not fill the memory twice; more are counted."""
LONGEST: Final = 100
"""Characters of a name that a caller has chosen; the rest is cut off."""
LISTED: Final = frozenset({"request", "notification", "detached"})
"""The kinds of observations that are calls in flight."""
NOT_KILLED: Final = -32001
KILLED: Final = Refusal("cancelled", "Cancelled by the operator of the server")


class CallInFlight(Struct, frozen=True):
    """A call in flight. `id`: what `kill` takes, with workers "PID:NUMBER"; `age`: seconds since it came in; `name`:
    the tool or prompt of MCP; `known`: whether a guard knows its caller; `killable`: whether `kill` can end it now."""

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


class CallsInFlight(Struct, frozen=True):
    """The calls in flight, oldest first; `more`: how many are not listed."""

    calls: list[CallInFlight]
    more: int


class _Named(Struct):
    name: str = ""


_named = msgspec.json.Decoder(_Named).decode


class Board:
    """An observer that knows the calls in flight."""

    def __init__(self) -> None:
        self._calls: dict[Observation, int] = {}
        self._last = 0
        self._more = 0

    def came_in(self, seen: Observation) -> None:
        """List it, or count it."""
        if seen.kind not in LISTED:
            return
        if len(self._calls) >= CALLS:
            self._more += 1
            return
        self._last += 1
        self._calls[seen] = self._last

    def outbound(self, seen: Observation) -> None:
        """Nothing: only what others ask of this process is listed."""

    def started(self, seen: Observation) -> None:
        """Nothing: the observation knows it."""

    def ended(self, seen: Observation) -> None:
        """It is over."""
        counted = seen.direction == "in" and seen.kind in LISTED
        if counted and self._calls.pop(seen, None) is None:
            self._more -= 1

    def rejected(self, seen: Rejection) -> None:
        """Nothing: it was not a call."""

    def calls(self) -> CallsInFlight:
        """The calls in flight."""
        now = monotonic()
        return CallsInFlight([_call_in_flight(number, seen, now) for seen, number in self._calls.items()], self._more)

    def kill(self, id: str) -> None:
        """End a call: its caller gets the error at once. RpcError if there is none, or it has not begun."""
        seen = next((one for one, known in self._calls.items() if f"{known}" == id), None)
        if seen is None:
            raise no_call(id)
        if seen.stop is None:
            raise RpcError.of(NOT_KILLED, f"call {id} still waits for its turn; it can be killed once it runs")
        seen.stop(KILLED)


def no_call(id: str) -> RpcError:
    """The error of `kill` for a call that is not in flight."""
    return RpcError.of(NOT_KILLED, f"no call {id[:LONGEST]} is in flight; `look` lists them")


def worker_service(board: Board) -> Service:
    """What a worker answers its supervisor: `calls` and `kill`."""
    service = Service("admin")
    service.method(inline=True, name="calls")(board.calls)
    service.method(inline=True, name="kill")(board.kill)
    return service


def _call_in_flight(number: int, seen: Observation, now: float) -> CallInFlight:
    return CallInFlight(
        f"{number}",
        round(now - seen.began, 3),
        seen.service,
        seen.method[:LONGEST],
        _name(seen),
        seen.kind,
        seen.caller.scheme,
        seen.caller.identity is not None,
        "waiting" if seen.started is None else "running",
        seen.stop is not None,
    )


def _name(seen: Observation) -> str:
    """The tool or prompt that an MCP call names."""
    if seen.method not in ("tools/call", "prompts/get") or not isinstance(seen.params, Raw):
        return ""
    try:
        return _named(seen.params).name[:LONGEST]
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ""
