"""Options of a `Server`, those for HTTP among them. Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ...jsonrpc.options import check_struct, rules_of

ArgumentErrors: TypeAlias = Literal["result", "revision"]
"""How wrong arguments of a tool are reported: in a result that the model reads, or as the revision has it, which up to
2025-06-18 is a JSON-RPC error."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """The limits of Streamable HTTP, with their defaults and reasons. Times in seconds, sizes in bytes."""

    sessions: int = 10_000
    """Sessions (`Mcp-Session-Id`) at once, in each process. Above it another one ends for each new one, first
    such whose client sent nothing after `initialize`: of a caller with more than a tenth, then of the address without
    an identity that has most, then of the identity that has most; the one that was silent longest. Callers without an
    identity are refused where all belong to identities with less. Behind a broker, the mailboxes that have one, where
    all callers without an identity count as one."""
    session_idle: float = 1800.0
    """A session without a request, a running call or an open stream ends after this time."""
    log_messages: int = 256
    """Messages that one stream keeps for a client that resumes it, or has not connected yet."""
    log_bytes: int = 1024 * 1024
    """Bytes of these messages; the newest is kept in any size."""
    resume: float = 300.0
    """How long a stream that broke or ended can be resumed."""
    streams: int = 64
    """Resumable streams per session; beyond, the oldest are dropped."""
    retry: int = 1000
    """Milliseconds after which a client should resume a stream that the server closed."""
    keep_alive: float = 15.0
    """Interval of comments on a quiet stream, so that a proxy does not close it."""
    json: bool = True
    """Calls in a session are answered in JSON when they send nothing ahead of the answer; False: always by a stream."""
    sse_2024: bool = False
    """HTTP+SSE of the oldest revision, at `/sse` and `/messages` beside the endpoint."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(HttpOptions)
