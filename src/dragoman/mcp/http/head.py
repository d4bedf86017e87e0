"""What the headers of a request say, read once per distinct head. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ...transports.http.messages import Head
from ...transports.http.policy import is_json
from ..protocol.headers import VERSION
from ..protocol.revisions import REVISIONS, Revision

_JSON_RANGES = ("application/json", "application/*", "*/*")
_SSE_RANGES = ("text/event-stream", "text/*", "*/*")


class RequestHead(Struct):
    """What one head says."""

    headers: Mapping[str, str]
    """All of it, names in lower case."""
    version: str | None
    """`MCP-Protocol-Version`."""
    revision: Revision | None
    """The revision of that name; None for none, and for one that does not exist."""
    modern: bool
    """It is one without sessions."""
    session: str | None
    """`Mcp-Session-Id`."""
    event: str | None
    """`Last-Event-ID`."""
    body: bool
    """The body is JSON."""
    json: bool
    """The caller takes JSON."""
    sse: bool
    """The caller takes a stream."""

    @property
    def null(self) -> bool:
        """Whether the head names a revision that knew no error without an id."""
        return self.revision is not None and self.revision.null_error_id


def facts(head: Head, headers: Mapping[str, str]) -> RequestHead:
    """What this head says; kept with it."""
    kind = head.headers.get(b"content-type")
    json, sse = accepted(headers.get("accept"))
    version = headers.get(VERSION)
    revision = REVISIONS.get(version) if version is not None else None
    found = RequestHead(
        headers,
        version,
        revision,
        revision is not None and not revision.stateful,
        headers.get("mcp-session-id"),
        headers.get("last-event-id") or None,
        kind is not None and is_json(kind),
        json,
        sse,
    )
    head.memo = found
    return found


def accepted(accept: str | None) -> tuple[bool, bool]:
    """Whether a caller takes JSON, and a stream of events. No `Accept` takes anything (RFC 9110, 12.5.1)."""
    if accept is None:
        return True, True
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        kind, *parameters = (one.strip() for one in part.split(";"))
        weights[kind] = _weight(parameters)
    return _taken(weights, _JSON_RANGES), _taken(weights, _SSE_RANGES)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _taken(weights: Mapping[str, float], ranges: tuple[str, ...]) -> bool:
    """The most specific range that is named decides."""
    named = next((weights[one] for one in ranges if one in weights), 0.0)
    return named > 0
