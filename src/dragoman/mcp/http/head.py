"""The headers of a request, read once per distinct head. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

from msgspec import Struct

from ...transports.http.messages import Head
from ...transports.http.policy import is_json
from ..protocol.headers import VERSION
from ..protocol.revisions import REVISIONS, Revision

_JSON_RANGES = ("application/json", "application/*", "*/*")
_SSE_RANGES = ("text/event-stream", "text/*", "*/*")


class RequestHead(Struct):
    """What one head of a request says to MCP."""

    headers: Mapping[str, str]
    """All headers, names in lower case."""
    version: str | None
    """`MCP-Protocol-Version`."""
    revision: Revision | None
    """The revision of that version; None without one, and for an unknown one."""
    modern: bool
    """Whether it is a stateless revision."""
    unspoken: str | None
    """The version, if no session of this server can have it; else None."""
    session: str | None
    """`Mcp-Session-Id`."""
    event: str | None
    """`Last-Event-ID`."""
    body: bool
    """Whether the body is JSON."""
    json: bool
    """Whether the caller accepts JSON."""
    sse: bool
    """Whether the caller accepts a stream."""

    @property
    def null(self) -> bool:
        """Whether the head names a revision in which every error has an id."""
        return self.revision is not None and self.revision.null_error_id


def read_head(head: Head, headers: Mapping[str, str], spoken: Container[str]) -> RequestHead:
    """Return what this head says, from its cache if it was read before. `spoken`: the stateful revisions that the
    server offers."""
    if head.memo is not None:
        known: RequestHead = head.memo
        return known
    kind = head.headers.get(b"content-type")
    json, sse = accepted(headers.get("accept"))
    version = headers.get(VERSION)
    revision = REVISIONS.get(version) if version is not None else None
    found = RequestHead(
        headers,
        version,
        revision,
        revision is not None and not revision.stateful,
        None if version in spoken else version,
        headers.get("mcp-session-id"),
        headers.get("last-event-id") or None,
        kind is not None and is_json(kind),
        json,
        sse,
    )
    head.memo = found
    return found


def accepted(accept: str | None) -> tuple[bool, bool]:
    """Return whether a caller accepts JSON, and a stream of events. Without `Accept` anything is accepted (RFC 9110,
    12.5.1)."""
    if accept is None:
        return True, True
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = (one.strip() for one in part.split(";"))
        weights[kind] = _weight(parameters)
    return _accepts(weights, _JSON_RANGES), _accepts(weights, _SSE_RANGES)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _accepts(weights: Mapping[str, float], ranges: tuple[str, ...]) -> bool:
    """Return whether a media type is accepted. `ranges`: those that match it, the most specific first, which
    decides."""
    named = next((weights[one] for one in ranges if one in weights), 0.0)
    return named > 0
