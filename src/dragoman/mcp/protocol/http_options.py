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
    """Sessions (`Mcp-Session-Id`) at once, in each process. Beyond that, each new one ends another one, if possible one
    whose client sent nothing after `initialize`: that of a caller with more than a tenth of them, else of the address
    without an identity that has most, else of the identity that has most; of these the one that was silent longest.
    Callers without an identity are refused if all sessions belong to identities with less. Behind a broker, the
    mailboxes that have a session, where all callers without an identity count as one."""
    session_idle: float = 1800.0
    """Seconds after which a session ends that has no request, running call or open stream."""
    log_messages: int = 256
    """Messages that one stream keeps for a client that resumes it, or has not connected yet."""
    log_bytes: int = 1024 * 1024
    """Bytes of these messages; the newest is kept whatever its size."""
    resume: float = 300.0
    """Seconds for which a stream that broke or ended can be resumed."""
    streams: int = 64
    """Resumable streams per session; beyond that, the oldest are dropped."""
    retry: int = 1000
    """Milliseconds after which a client should resume a stream that the server closed."""
    keep_alive: float = 15.0
    """Seconds between comments on a quiet stream, which keep proxies from closing it."""
    json: bool = True
    """Whether a call in a session is answered in JSON if it sends nothing before its answer; False: always by a
    stream."""
    sse_2024: bool = False
    """Whether to serve HTTP+SSE of the oldest revision too, at `/sse` and `/messages` beside the endpoint."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(HttpOptions)
