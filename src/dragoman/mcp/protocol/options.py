"""What a `Server` may be told about its HTTP side. Pure."""

from __future__ import annotations

from msgspec import Struct

from ...jsonrpc.options import check_struct, rules_of


class HttpOptions(Struct, frozen=True, kw_only=True):
    """Every number of Streamable HTTP, its default and the reason for it. Times in seconds, sizes in bytes."""

    sessions: int = 10_000
    """Sessions (`Mcp-Session-Id`) at once, on all replicas together. Above it the ones that were only begun give way, then
    new ones are refused. Behind a broker, mailboxes that have one: above it the one that was silent longest is forgotten."""
    session_idle: float = 1800.0
    """A session without a request, a running call or an open stream ends after this time."""
    log_messages: int = 256
    """Messages that one stream keeps for a client that comes back to it, or is not there yet."""
    log_bytes: int = 1024 * 1024
    """Bytes of these messages; the newest is kept whatever its size."""
    resume: float = 300.0
    """How long a stream that broke, or is over, can be taken up again."""
    streams: int = 64
    """Such streams per session; beyond, the oldest go."""
    retry: int = 1000
    """Milliseconds after which a client should come back to a stream that was closed on it."""
    keep_alive: float = 15.0
    """A quiet stream carries a comment this often, lest somebody in between cut it off."""
    json: bool = True
    """Calls in a session are answered in JSON when they send nothing ahead of the answer; else always by a stream."""
    sse_2024: bool = False
    """HTTP+SSE of the oldest revision, at `/sse` and `/messages` beside the endpoint."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(HttpOptions)
