"""Why a session refuses a message."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from ...jsonrpc.call_limit import busy
from ...jsonrpc.errors import INVALID_REQUEST, InternalError, Refusal, RpcError
from ..protocol.dialect import MCP

TURNED_AWAY: Final = frozenset({"busy", "draining", "rate_limited", "too_large", "forbidden"})
"""The kinds of refusals that each wire sends in its own form, if no part of the answer was sent yet."""


class SessionRefusal(Struct, frozen=True):
    """Why a session refuses a message; each wire has its own form for it."""

    why: Literal["no session", "no stream", "ended", "full", "too large", "away", "no batches"]
    error: RpcError


def _invalid(why: Any, text: str) -> SessionRefusal:
    return SessionRefusal(why, RpcError.of(INVALID_REQUEST, text))


NO_SESSION: Final = _invalid("no session", "There is no such session: `initialize` begins a new one")
NO_STREAM: Final = _invalid("no stream", "Last-Event-ID names no stream of this session that could be resumed")
ENDED: Final = SessionRefusal("ended", InternalError("The session ended before the call was done"))
NO_BATCHES: Final = _invalid("no batches", "Invalid Request: this revision has no batches, send one message at a time")
AWAY: Final = SessionRefusal(
    "away", InternalError("Busy: what the replicas of this server share is away", {"retry_after": 1})
)


def too_much(refusal: Refusal) -> SessionRefusal:
    """Return the refusal of a client whose description is too long, or whose share of the budget is used up."""
    return SessionRefusal("too large" if refusal.kind == "too_large" else "full", MCP.error(refusal))


def too_many_sessions(sessions: int) -> SessionRefusal:
    """Return the refusal of a session beyond the limit."""
    return SessionRefusal("full", MCP.error(busy("sessions", sessions)))
